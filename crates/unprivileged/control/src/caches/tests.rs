//! What a run leaves above a cache, good and bad, and what of it later runs see.
use super::place::Place;
use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

struct Lab {
    state: tempfile::TempDir,
    project: tempfile::TempDir,
    cache: &'static Cache,
}

fn run_id(name: &str) -> RunId {
    RunId::try_from(name.to_owned()).unwrap()
}

impl Lab {
    fn new(cache: &str) -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
            project: tempfile::tempdir().unwrap(),
            cache: find(cache).unwrap(),
        }
    }

    fn place(&self) -> Place {
        Place::new(self.state.path(), self.cache)
    }

    /// A run that does `act` in its layer and ends.
    fn run(&self, name: &str, act: impl Fn(&Path)) -> PathBuf {
        let (place, run) = (self.place(), run_id(name));
        let (layer, _) = place.lend(&run, self.project.path(), Way::Copy).unwrap();
        act(&place.tree(&run));
        layer.reduce(&place, &run).unwrap();
        place.tree(&run)
    }

    fn merge(&self, name: &str, wish: MergeWish) -> BTreeMap<String, Fate> {
        let told = merge(self.state.path(), &run_id(name), wish).unwrap();
        let names = told.into_iter().flat_map(|told| told.names);
        names.map(|one| (one.path.to_string(), one.fate)).collect()
    }

    /// What a fresh run finds.
    fn seen(&self, name: &str, path: &str) -> Option<String> {
        let (place, run) = (self.place(), run_id(name));
        let (layer, _) = place.lend(&run, self.project.path(), Way::Copy).unwrap();
        let found = fs::read_to_string(place.tree(&run).join(path)).ok();
        layer.discard().unwrap();
        found
    }
}

fn write(tree: &Path, path: &str, text: &str) {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const CRATE: &str = ".cargo/registry/cache/r/good-1.0.0.crate";

#[test]
fn what_a_run_writes_is_seen_by_no_other_before_it_is_merged() {
    let lab = Lab::new("cargo");
    lab.run("one", |tree| write(tree, CRATE, "bytes"));
    assert_eq!(lab.seen("two", CRATE), None);
    assert_eq!(lab.merge("one", MergeWish::Everything)[CRATE], Fate::New);
    assert_eq!(lab.seen("three", CRATE).as_deref(), Some("bytes"));
}

#[test]
fn a_name_that_is_there_is_never_replaced_nor_removed() {
    let lab = Lab::new("cargo");
    lab.run("one", |tree| write(tree, CRATE, "honest"));
    lab.merge("one", MergeWish::Everything);
    lab.run("two", |tree| {
        write(tree, CRATE, "poison");
        write(tree, ".cargo/registry/cache/r/other-1.0.0.crate", "x");
    });
    let fates = lab.merge("two", MergeWish::Everything);
    assert_eq!(fates.len(), 1, "{fates:?}");
    assert_eq!(lab.seen("three", CRATE).as_deref(), Some("honest"));
    // A layer that was not reduced, because bastle was killed, comes to the same.
    let (layer, _) = lab
        .place()
        .lend(&run_id("killed"), lab.project.path(), Way::Copy)
        .unwrap();
    write(&lab.place().tree(&run_id("killed")), CRATE, "poison");
    drop(layer);
    assert_eq!(lab.merge("killed", MergeWish::Everything)[CRATE], Fate::Exists);
    assert_eq!(lab.seen("four", CRATE).as_deref(), Some("honest"));
}

#[test]
fn links_devices_modes_and_credentials_are_refused_and_nothing_outside_is_read() {
    let lab = Lab::new("cargo");
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "id_rsa", "PRIVATE");
    let below = ".cargo/registry/cache/r";
    lab.run("one", |tree| {
        write(tree, CRATE, "bytes");
        let at = |name: &str| tree.join(below).join(name);
        std::os::unix::fs::symlink(outside.path().join("id_rsa"), at("link.crate")).unwrap();
        std::os::unix::fs::symlink(outside.path(), at("dir")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo.crate"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        write(tree, &format!("{below}/suid.crate"), "x");
        fs::set_permissions(at("suid.crate"), fs::Permissions::from_mode(0o4755)).unwrap();
        write(tree, &format!("{below}/Credentials.toml"), "token");
        write(tree, ".cargo/registry/index/.npmrc", "token");
        write(tree, ".cargo/registry/src/good-1.0.0/build.rs", "poison");
        write(tree, ".cargo/config.toml", "poison");
    });
    let fates = lab.merge("one", MergeWish::Everything);
    let expected = [
        (CRATE, Fate::New),
        (".cargo/registry/cache/r/link.crate", Fate::Symlink),
        (".cargo/registry/cache/r/dir", Fate::Symlink),
        (".cargo/registry/cache/r/fifo.crate", Fate::Special),
        (".cargo/registry/cache/r/suid.crate", Fate::Mode),
        (".cargo/registry/cache/r/Credentials.toml", Fate::Secret),
        (".cargo/registry/index/.npmrc", Fate::Secret),
        (".cargo/registry/src/good-1.0.0/build.rs", Fate::NotShared),
        (".cargo/config.toml", Fate::NotShared),
    ];
    assert_eq!(
        fates,
        expected
            .map(|(path, fate)| (path.to_owned(), fate))
            .into_iter()
            .collect()
    );
    let current = fs::canonicalize(lab.place().current()).unwrap();
    assert_eq!(fs::read_to_string(current.join(CRATE)).unwrap(), "bytes");
    assert_eq!(fs::read_dir(current.join(below)).unwrap().count(), 1);
}

#[test]
fn a_crate_that_is_not_the_one_of_the_lock_file_is_refused() {
    let lab = Lab::new("cargo");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"bytes");
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let lock = format!("[[package]]\nname = \"good\"\nversion = \"1.0.0\"\nchecksum = \"{hex}\"\n");
    write(lab.project.path(), "Cargo.lock", &lock);
    let other = ".cargo/registry/cache/r/other-2.0.0.crate";
    lab.run("bad", |tree| {
        // Too late: what was stated before the run counts.
        write(lab.project.path(), "Cargo.lock", "");
        write(tree, CRATE, "poison");
    });
    write(lab.project.path(), "Cargo.lock", &lock);
    assert_eq!(lab.merge("bad", MergeWish::Everything)[CRATE], Fate::Mismatch);
    assert_eq!(lab.seen("after-bad", CRATE), None);
    lab.run("good", |tree| {
        write(tree, CRATE, "bytes");
        write(tree, other, "x");
    });
    assert_eq!(lab.merge("good", MergeWish::Nothing)[CRATE], Fate::Checked);
    assert_eq!(lab.seen("after-nothing", CRATE), None);
    let fates = lab.merge("good", MergeWish::Checked);
    assert_eq!((fates[CRATE], fates[other]), (Fate::Checked, Fate::Unchecked));
    assert_eq!(lab.seen("after-checked", CRATE).as_deref(), Some("bytes"));
    assert_eq!(lab.seen("after-checked-2", other), None);
    // What was only unchecked is still there to be merged.
    assert_eq!(lab.merge("good", MergeWish::Everything)[other], Fate::New);
}

#[test]
fn content_that_its_own_name_does_not_spell_is_refused() {
    let lab = Lab::new("npm");
    let spelled = |bytes: &[u8]| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            ".npm/_cacache/content-v2/sha512/{}/{}/{}",
            &hex[..2],
            &hex[2..4],
            &hex[4..]
        )
    };
    let (good, bad) = (spelled(b"good"), spelled(b"bad"));
    lab.run("one", |tree| {
        write(tree, &good, "good");
        write(tree, &bad, "poison");
    });
    let fates = lab.merge("one", MergeWish::Everything);
    assert_eq!((fates[&good], fates[&bad]), (Fate::Checked, Fate::Mismatch));
    assert_eq!(lab.seen("two", &bad), None);
    assert_eq!(lab.seen("three", &good).as_deref(), Some("good"));
}

#[test]
fn a_merge_that_was_killed_leaves_the_old_generation_and_the_next_clears_up() {
    let lab = Lab::new("cargo");
    lab.run("one", |tree| write(tree, CRATE, "bytes"));
    lab.merge("one", MergeWish::Everything);
    // As if it had died before the last step.
    write(
        lab.place().root(),
        "g2/.cargo/registry/cache/r/half-1.0.0.crate",
        "ha",
    );
    std::os::unix::fs::symlink("g2", lab.place().root().join("current.new")).unwrap();
    let half = ".cargo/registry/cache/r/half-1.0.0.crate";
    assert_eq!(lab.seen("two", half), None);
    lab.run("three", |tree| {
        write(tree, ".cargo/registry/cache/r/more-1.0.0.crate", "m")
    });
    lab.merge("three", MergeWish::Everything);
    assert_eq!(lab.seen("four", half), None);
    assert_eq!(lab.seen("five", CRATE).as_deref(), Some("bytes"));
    let generations = fs::read_dir(lab.place().root())
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('g')
        })
        .count();
    assert_eq!(generations, 1);
}

#[test]
fn a_living_runs_layer_is_neither_merged_nor_removed() {
    let lab = Lab::new("cargo");
    let (layer, _) = lab
        .place()
        .lend(&run_id("live"), lab.project.path(), Way::Copy)
        .unwrap();
    write(&lab.place().tree(&run_id("live")), CRATE, "bytes");
    let refused = merge(lab.state.path(), &run_id("live"), MergeWish::Everything).unwrap_err();
    assert_eq!(refused.code, Code::CacheUnusable);
    assert!(remove(lab.state.path(), "cargo", None).is_err());
    assert!(list(lab.state.path()).unwrap()[0].candidates[0].live);
    drop(layer);
    assert_eq!(lab.merge("live", MergeWish::Everything)[CRATE], Fate::New);
    assert_eq!(remove(lab.state.path(), "cargo", None).unwrap().len(), 1);
    assert!(list(lab.state.path()).unwrap().is_empty());
}

#[test]
fn a_layer_copies_nothing_keeps_its_generation_and_leaves_what_a_copy_would_have_left() {
    let lab = Lab::new("cargo");
    lab.run("one", |tree| write(tree, CRATE, "honest"));
    lab.merge("one", MergeWish::Everything);
    let (place, run) = (lab.place(), run_id("two"));
    let (layer, files) = place.lend(&run, lab.project.path(), Way::Layers).unwrap();
    assert_eq!(files, 1);
    let generation = layer.generation().unwrap().to_path_buf();
    assert_eq!(fs::read_to_string(generation.join(CRATE)).unwrap(), "honest");
    assert!(!place.tree(&run).join(CRATE).exists(), "nothing is copied");
    // What the kernel would leave in the layer: a replaced file and a new one, in a directory that was locked.
    let index = lab
        .cache
        .places
        .iter()
        .position(|place| place.contains(".cargo/registry"));
    let upper = place.over(&run, index.unwrap()).join("upper");
    write(&upper, "cache/r/good-1.0.0.crate", "poison");
    write(&upper, "cache/r/new-1.0.0.crate", "new");
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o000)).unwrap();
    // Somebody merges meanwhile: the generation below stays for as long as the run is above it.
    lab.run("three", |tree| {
        write(tree, ".cargo/registry/cache/r/other-1.0.0.crate", "other")
    });
    lab.merge("three", MergeWish::Everything);
    assert!(generation.join(CRATE).exists());
    assert_eq!(layer.reduce(&place, &run).unwrap(), 1, "only the new one is left");
    drop(layer);
    assert_eq!(
        lab.merge("two", MergeWish::Everything),
        BTreeMap::from([(".cargo/registry/cache/r/new-1.0.0.crate".to_owned(), Fate::New)])
    );
    assert_eq!(lab.seen("four", CRATE).as_deref(), Some("honest"));
    assert!(!generation.exists(), "nobody is above it any more");
}

#[test]
fn the_layer_of_a_killed_run_is_merged_as_that_of_one_that_ended() {
    let lab = Lab::new("cargo");
    lab.run("one", |tree| write(tree, CRATE, "honest"));
    lab.merge("one", MergeWish::Everything);
    let (place, run) = (lab.place(), run_id("two"));
    let (layer, _) = place.lend(&run, lab.project.path(), Way::Layers).unwrap();
    let index = lab
        .cache
        .places
        .iter()
        .position(|place| place.contains(".cargo/registry"));
    write(
        &place.over(&run, index.unwrap()).join("upper"),
        "cache/r/new-1.0.0.crate",
        "new",
    );
    assert!(
        merge(lab.state.path(), &run, MergeWish::Everything).is_err(),
        "it lives"
    );
    drop(layer);
    let told = lab.merge("two", MergeWish::Everything);
    assert_eq!(told[".cargo/registry/cache/r/new-1.0.0.crate"], Fate::New);
}

#[test]
fn nothing_of_git_is_shared_by_name_by_shape_or_in_two_steps() {
    let lab = Lab::new("go");
    let root = lab
        .cache
        .merge
        .iter()
        .find(|shared| shared.check == bastle_policy::caches::Check::None);
    let below = root.expect("a part that nothing checks").below.clone();
    let bad = [
        "m/.git/config",
        "m/.git/hooks/post-checkout",
        "m/.GIT/config",
        "m/.gitconfig",
        "m/.gitmodules",
        "bare/HEAD",
        "bare/config",
        "bare/hooks/post-checkout",
        "bare/objects/x",
        "included/config",
    ];
    lab.run("evil", |tree| {
        for path in bad {
            write(
                tree,
                &format!("{below}/{path}"),
                "[core]\n\tfsmonitor = touch /tmp/x\n",
            );
        }
        fs::create_dir_all(tree.join(&below).join("bare/refs")).unwrap();
        write(tree, &format!("{below}/plain/hooks/main.go"), "package hooks\n");
        write(tree, &format!("{below}/plain/config"), "port = 1\n");
    });
    let told = lab.merge("evil", MergeWish::Everything);
    for path in bad {
        assert_eq!(told[&format!("{below}/{path}")], Fate::Git, "{path}");
        assert_eq!(lab.seen("after", &format!("{below}/{path}")), None, "{path}");
    }
    for own in ["plain/hooks/main.go", "plain/config"] {
        assert_eq!(told[&format!("{below}/{own}")], Fate::New, "control: {own}");
    }
    // One half first, which is no repository; then the other.
    lab.run("half", |tree| {
        write(tree, &format!("{below}/two/HEAD"), "ref: refs/heads/x\n")
    });
    assert_eq!(
        lab.merge("half", MergeWish::Everything)[&format!("{below}/two/HEAD")],
        Fate::New
    );
    lab.run("other", |tree| {
        write(tree, &format!("{below}/two/objects/pack"), "x");
        write(tree, &format!("{below}/two/config"), "x");
    });
    let told = lab.merge("other", MergeWish::Everything);
    for name in ["objects/pack", "config"] {
        assert_eq!(told[&format!("{below}/two/{name}")], Fate::Git, "{name}");
    }
}

#[test]
fn each_limit_of_a_merge_refuses_by_name_and_leaves_the_cache_as_it_was() {
    let lab = Lab::new("cargo");
    let name = |text: &str| format!(".cargo/registry/cache/r/{text}-1.0.0.crate");
    lab.run("first", |tree| write(tree, &name("a"), "honest"));
    lab.merge("first", MergeWish::Everything);
    lab.run("second", |tree| {
        write(tree, &name("b"), "12345");
        write(tree, &name("c"), "123456");
    });
    let place = lab.place();
    // Every generation, and the one that is shared.
    let shared = || {
        let listed = fs::read_dir(place.root())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut kept: Vec<_> = listed
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.as_encoded_bytes()[0] == b'g')
            })
            .flat_map(|generation| fs::read_dir(generation.join(".cargo/registry/cache/r")).unwrap())
            .map(|entry| {
                (
                    entry.as_ref().unwrap().path(),
                    fs::read(entry.unwrap().path()).unwrap(),
                )
            })
            .collect();
        kept.sort();
        (kept, fs::read_link(place.current()).unwrap())
    };
    let before = shared();
    assert_eq!(before.0.len(), 1, "{before:?}");
    let run = run_id("second");
    let merge = |limits| merge::merge_one(&place, &run, MergeWish::Everything, limits);
    let all = Limits::default();
    // Four directories and two files; then eleven bytes.
    let refused = [
        (Limits { names: 5, ..all }, "more than 5 names"),
        (Limits { bytes: 10, ..all }, "more than 10 bytes together"),
    ];
    for (limits, told) in refused {
        let fault = merge(limits).unwrap_err();
        assert!(
            fault.why.contains(told) && fault.why.contains(&name("c")),
            "{}",
            fault.why
        );
        assert_eq!(shared(), before, "{told}");
        assert!(
            place.tree(&run).join(name("b")).exists(),
            "the layer is there to be left out or kept"
        );
    }
    // A file beyond its own limit is left out by name, and the others are merged.
    let told = merge(Limits {
        file: 5,
        bytes: 5,
        names: 6,
    })
    .unwrap();
    let fates: Vec<_> = told
        .names
        .iter()
        .map(|one| (one.path.to_string(), one.fate))
        .collect();
    assert_eq!(fates, [(name("b"), Fate::New), (name("c"), Fate::Unreadable)]);
    assert_eq!(lab.seen("third", &name("b")).as_deref(), Some("12345"));
    assert_eq!(lab.seen("third", &name("c")), None);
    assert_eq!(
        lab.seen("third", &name("a")).as_deref(),
        Some("honest"),
        "what was shared stays"
    );
}

#[test]
fn holes_stay_holes_in_a_shared_cache() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let lab = Lab::new("go");
    let root = lab
        .cache
        .merge
        .iter()
        .find(|shared| shared.check == bastle_policy::caches::Check::None);
    let below = root.expect("a part that nothing checks").below.clone();
    let sparse = |tree: &Path, name: &str, size: u64| {
        let path = tree.join(&below).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"end", size / 2).unwrap();
    };
    lab.run("holes", |tree| sparse(tree, "a/big", 256 << 20));
    let told = lab.merge("holes", MergeWish::Everything);
    assert_eq!(told[&format!("{below}/a/big")], Fate::New);
    let shared = lab.place().current().join(&below).join("a/big");
    let meta = fs::metadata(shared).unwrap();
    assert_eq!(meta.len(), 256 << 20);
    assert!(meta.blocks() * 512 < 4 << 20, "{} blocks", meta.blocks());
}
