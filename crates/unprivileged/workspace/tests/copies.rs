//! What a copy holds, what it leaves out, and that the source stays as it is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::Code;
use bastle_workspace::finding::{About, leads_out};
use bastle_workspace::meta::State;
use bastle_workspace::path::TreePath;
use bastle_workspace::workspace::Workspace;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::{Ground, create, look, run_id, write};

fn about(space: &Workspace, path: &str) -> Vec<About> {
    let meta = space.meta().unwrap();
    let named = |f: &&bastle_workspace::finding::Finding| f.path.as_bytes() == path.as_bytes();
    meta.findings
        .iter()
        .filter(named)
        .map(|f| f.about.clone())
        .collect()
}

#[test]
fn a_copy_has_everything_but_hidden_names_and_the_source_is_untouched() {
    let ground = Ground::new();
    let before = look(&ground.source());
    let space = ground.create("one");
    let mut expected = before.clone();
    expected.remove(&b".env"[..]);
    assert_eq!(look(&space.tree()), expected);
    assert_eq!(look(&ground.source()), before);
    assert_eq!(about(&space, ".env"), [About::Hidden]);
    assert_eq!(space.meta().unwrap().state, State::Ready);
    let times = |root: &std::path::Path| fs::metadata(root.join("README")).unwrap().mtime_nsec();
    assert_eq!(times(&ground.source()), times(&space.tree()));
}

#[test]
fn the_repository_of_the_source_is_never_copied_as_files() {
    let ground = Ground::new();
    write(
        &ground.source(),
        ".git/config",
        b"[core]\nfsmonitor=touch /tmp/x\n",
    );
    write(&ground.source(), "vendor/.git/config", b"nested\n");
    let space = ground.create("one");
    assert!(!space.tree().join(".git").exists());
    assert!(space.tree().join("vendor/.git/config").exists());
}

#[test]
fn sockets_and_fifos_are_left_out_and_told_and_nothing_waits_for_them() {
    let ground = Ground::new();
    let fifo = ground.source().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ground.source().join("sock")).unwrap();
    let space = ground.create("one");
    for name in ["pipe", "sock"] {
        assert!(fs::symlink_metadata(space.tree().join(name)).is_err());
        assert_eq!(about(&space, name), [About::Special]);
    }
}

#[test]
fn a_link_out_of_the_tree_is_kept_as_a_link_never_followed_and_told() {
    let ground = Ground::new();
    let secret = ground.root.path().join("secret");
    fs::write(&secret, b"outside").unwrap();
    std::os::unix::fs::symlink(&secret, ground.source().join("absolute")).unwrap();
    std::os::unix::fs::symlink("../secret", ground.source().join("climbing")).unwrap();
    std::os::unix::fs::symlink(ground.root.path(), ground.source().join("dirlink")).unwrap();
    let space = ground.create("one");
    for name in ["absolute", "climbing", "dirlink"] {
        assert!(
            fs::symlink_metadata(space.tree().join(name))
                .unwrap()
                .is_symlink()
        );
        assert_eq!(about(&space, name), [About::LinkOutside]);
    }
    assert!(
        look(&space.tree())
            .values()
            .all(|(_, _, bytes)| bytes != b"outside")
    );
    assert!(about(&space, "link").is_empty());
}

#[test]
fn links_are_judged_by_their_text() {
    let path = |text: &str| TreePath::new(text).unwrap();
    for (at, target, out) in [
        ("a", "b", false),
        ("a", "..", true),
        ("d/a", "..", false),
        ("d/a", "../..", true),
        ("d/a", "../x/../..", true),
        ("a", "/etc", true),
        ("a", "././/b/..", false),
        ("a", "b/../../c", true),
    ] {
        assert_eq!(leads_out(&path(at), target.as_bytes()), out, "{at} -> {target}");
    }
}

#[test]
fn a_hard_link_to_a_file_outside_is_broken_by_the_copy() {
    let ground = Ground::new();
    let outside = ground.root.path().join("outside");
    fs::write(&outside, b"shared").unwrap();
    fs::hard_link(&outside, ground.source().join("inside")).unwrap();
    let space = ground.create("one");
    fs::write(space.tree().join("inside"), b"agent").unwrap();
    assert_eq!(fs::read(&outside).unwrap(), b"shared");
    assert_eq!(about(&space, "inside"), [About::HardLink]);
}

#[test]
fn no_file_of_the_copy_shares_an_inode_with_the_source_or_the_store() {
    let ground = Ground::new();
    let space = ground.create("one");
    fs::write(space.tree().join("README"), b"changed").unwrap();
    space.current().unwrap();
    for (name, (kind, _, _)) in look(&space.tree()) {
        if kind == 'f' {
            let meta = fs::metadata(space.tree().join(OsStr::from_bytes(&name))).unwrap();
            assert_eq!(meta.nlink(), 1, "{name:?}");
        }
    }
}

#[test]
fn setuid_bits_holes_odd_names_and_attributes_are_handled() {
    let ground = Ground::new();
    let source = ground.source();
    write(&source, "suid", b"x");
    fs::set_permissions(source.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    let odd = OsStr::from_bytes(b"odd\xff\n\x1b[2J");
    fs::write(source.join(odd), b"odd").unwrap();
    let attribute = rustix::fs::setxattr(
        source.join("README"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    );
    let space = ground.create("one");
    let mode = fs::metadata(space.tree().join("suid")).unwrap().mode();
    assert_eq!(mode & 0o7000, 0);
    assert_ne!(mode & 0o100, 0);
    let copy = fs::metadata(space.tree().join("sparse")).unwrap();
    assert_eq!(copy.len(), 64 << 20);
    assert!(copy.blocks() * 512 < 1 << 20, "the hole was filled");
    assert_eq!(fs::read(space.tree().join(odd)).unwrap(), b"odd");
    if attribute.is_ok() {
        let mut value = [0_u8; 16];
        let length = rustix::fs::getxattr(space.tree().join("README"), "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

#[test]
fn a_second_copy_of_the_same_run_and_a_source_that_is_no_directory_are_refused() {
    let ground = Ground::new();
    ground.create("one");
    let again = create(&ground.place, &ground.source(), "one").err().unwrap();
    assert_eq!(again.code, Code::WorkspaceBusy);
    let file = create(&ground.place, &ground.source().join("README"), "two")
        .err()
        .unwrap();
    assert_eq!(file.code, Code::WorkspaceInvalid);
    let nothing = create(&ground.place, &ground.source().join("none"), "two")
        .err()
        .unwrap();
    assert_eq!(nothing.code, Code::WorkspaceInvalid);
    assert!(Workspace::open(&ground.place, &run_id("two")).is_err());
}

#[test]
fn a_failing_repository_hook_leaves_no_copy_behind() {
    let ground = Ground::new();
    let request = bastle_workspace::workspace::CreateRequest {
        run: run_id("one"),
        source: &ground.source(),
        hidden: &support::hides_env,
        git: &mut |_| Err(bastle_contract::Fault::new(Code::WorkspaceInvalid, "no", "")),
        progress: &mut |_| {},
    };
    assert!(Workspace::create(&ground.place, request).is_err());
    assert!(!ground.place.run(&run_id("one")).exists());
}

#[test]
fn a_directory_with_thousands_of_files_is_copied_whole_by_all_workers() {
    let ground = Ground::new();
    for i in 0..3000 {
        write(&ground.source(), &format!("many/{i}"), format!("{i}").as_bytes());
    }
    let space = ground.create("one");
    let mut expected = look(&ground.source());
    expected.remove(&b".env"[..]);
    assert_eq!(look(&space.tree()), expected);
}

#[test]
fn an_unreadable_file_of_the_user_is_told_and_its_mode_is_never_touched() {
    let ground = Ground::new();
    write(&ground.source(), "locked/file", b"x");
    fs::set_permissions(ground.source().join("README"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::set_permissions(ground.source().join("locked"), fs::Permissions::from_mode(0o0)).unwrap();
    let space = ground.create("one");
    let mode = |name: &str| fs::metadata(ground.source().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("README"), mode("locked")), (0, 0));
    if !rustix::process::geteuid().is_root() {
        assert_eq!(about(&space, "README"), [About::Unreadable]);
        assert_eq!(about(&space, "locked"), [About::Unreadable]);
    }
    fs::set_permissions(ground.source().join("locked"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_repository_hook_is_told_what_the_copy_lacks_and_its_scratch_is_emptied() {
    let ground = Ground::new();
    let mut absent = Vec::new();
    let request = bastle_workspace::workspace::CreateRequest {
        run: run_id("one"),
        source: &ground.source(),
        hidden: &support::hides_env,
        git: &mut |fresh| {
            absent = fresh.absent.to_vec();
            write(fresh.scratch, "left/over", b"x");
            write(fresh.tree, ".git/HEAD", b"ref: refs/heads/agent/x\n");
            Ok(bastle_workspace::workspace::GitMade::default())
        },
        progress: &mut |_| {},
    };
    let space = Workspace::create(&ground.place, request).unwrap();
    assert_eq!(absent, [TreePath::new(".env").unwrap()]);
    assert_eq!(fs::read_dir(space.path("tmp")).unwrap().count(), 0);
    // The copy's repository is part of the base: rolling back restores it.
    fs::remove_file(space.tree().join(".git/HEAD")).unwrap();
    let base = bastle_workspace::meta::Which::Number(0);
    space
        .rollback(&base, bastle_workspace::rollback::Quiet::Unknown)
        .unwrap();
    assert!(space.tree().join(".git/HEAD").exists());
}
