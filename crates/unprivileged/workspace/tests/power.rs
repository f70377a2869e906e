//! The power goes before every single step: of the state, only what was synced is there. A model of the disk keeps
//! file bytes as of their last sync and names as of the last sync of their directory, and drops everything else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_workspace::discard::Discard;
use bastle_workspace::durable::{Durable, Observer, Step};
use bastle_workspace::meta::{Reason, Which, WorkMode};
use bastle_workspace::place::Place;
use bastle_workspace::retention::{Prune, prune, recover};
use bastle_workspace::rollback::Quiet;
use bastle_workspace::trash;
use bastle_workspace::unsaved::digest;
use bastle_workspace::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Ground, look, run_id, write};

/// A file by the order of its making; its bytes as far as they are on disk.
type Inode = usize;

#[derive(Default)]
struct Disk {
    bytes: BTreeMap<Inode, Vec<u8>>,
    /// What programs see.
    names: BTreeMap<PathBuf, Inode>,
    /// What is on disk.
    kept: BTreeMap<PathBuf, Inode>,
    /// Names that were touched: all others are as they were from the start.
    touched: BTreeSet<PathBuf>,
    log: Vec<String>,
    cuts: usize,
    /// Directories whose names are not on disk yet.
    fresh: BTreeSet<PathBuf>,
    /// A directory that has a new name which is not on disk yet.
    moved: Option<(PathBuf, PathBuf)>,
}

struct PowerCut {
    disk: Mutex<Disk>,
    state: PathBuf,
    tree: PathBuf,
    cuts: PathBuf,
}

impl Disk {
    fn apply(&mut self, step: Step<'_>) {
        match step {
            Step::Write(path) => {
                let inode = self.log.len();
                self.bytes.insert(inode, Vec::new());
                self.names.insert(path.to_path_buf(), inode);
                self.touched.insert(path.to_path_buf());
            }
            Step::Sync(path) => {
                let inode = self.names[path];
                self.bytes.insert(inode, fs::read(path).unwrap());
            }
            Step::Rename(from, to) => match self.names.remove(from) {
                Some(inode) => {
                    self.names.insert(to.to_path_buf(), inode);
                    self.touched.insert(to.to_path_buf());
                }
                None => {
                    assert!(from.is_dir(), "only files of ours and directories are renamed");
                    self.moved = Some((from.to_path_buf(), to.to_path_buf()));
                }
            },
            Step::SyncDir(dir) => {
                if self
                    .moved
                    .as_ref()
                    .is_some_and(|(_, to)| to.parent() == Some(dir))
                {
                    self.moved = None;
                }
                self.fresh.retain(|path| path.parent() != Some(dir));
                let here = |path: &&PathBuf| path.parent() == Some(dir);
                for path in self.touched.iter().filter(here) {
                    match self.names.get(path) {
                        Some(inode) => self.kept.insert(path.clone(), *inode),
                        None => self.kept.remove(path),
                    };
                }
            }
            Step::Remove(path) => {
                self.names.remove(path);
                self.touched.insert(path.to_path_buf());
            }
            Step::MakeDir(path) => drop(self.fresh.insert(path.to_path_buf())),
            Step::Tree(_) => {}
        }
    }
}

impl PowerCut {
    /// The state as it would be found: everything untouched as it is, everything touched as it is on disk. The
    /// tree is taken as it is: what it must be is the business of the state.
    fn cut(&self, disk: &Disk) {
        let to = self.cuts.join(disk.cuts.to_string());
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&self.state)
            .arg(&to)
            .status()
            .unwrap();
        assert!(copied.success());
        let in_cut = |path: &Path| to.join(path.strip_prefix(&self.state).unwrap());
        if let Some((old, new)) = &disk.moved {
            fs::rename(in_cut(new), in_cut(old)).unwrap();
        }
        for path in &disk.touched {
            if path.starts_with(&self.tree) || !path.starts_with(&self.state) {
                continue;
            }
            let there = in_cut(path);
            if !there.parent().unwrap().is_dir() {
                continue;
            }
            match disk.kept.get(path) {
                Some(inode) => fs::write(there, &disk.bytes[inode]).unwrap(),
                None => match fs::remove_file(there) {
                    Ok(()) => {}
                    // A directory on its way out may be there in any part.
                    Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {}
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
                },
            }
        }
        for path in &disk.fresh {
            match fs::remove_dir_all(in_cut(path)) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
            }
        }
        // Caches are written without waiting: the worst they can be is empty.
        for cache in ["tree.seen", "source.seen"] {
            let run = to.join("work/one");
            if run.is_dir() {
                fs::write(run.join(cache), b"").unwrap();
            }
        }
    }
}

impl Observer for PowerCut {
    fn before(&self, step: Step<'_>) {
        let mut disk = self.disk.lock().unwrap();
        self.cut(&disk);
        disk.cuts += 1;
        disk.log.push(format!("{step:?}"));
        disk.apply(step);
    }
}

fn cut_every_step(act: impl Fn(&Workspace), check: impl Fn(&Workspace, &Ground, &str)) {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    write(&space.tree(), "new/file", b"work too\n");
    fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
    cut_all(
        &ground,
        |place| act(&Workspace::open(place, &run_id("one")).unwrap()),
        |place, at| check(&Workspace::open(place, &run_id("one")).unwrap(), &ground, at),
    );
}

/// The same for what makes or removes whole copies.
fn cut_all(ground: &Ground, act: impl Fn(&Place), check: impl Fn(&Place, &str)) {
    cut_all_of(ground, 8, act, check);
}

/// The same for what has few steps.
fn cut_all_of(ground: &Ground, least: usize, act: impl Fn(&Place), check: impl Fn(&Place, &str)) {
    let tree = ground.place.run(&run_id("one")).join("tree");
    let cuts = ground.root.path().join("cuts");
    fs::create_dir(&cuts).unwrap();
    let observer = Arc::new(PowerCut {
        disk: Mutex::default(),
        state: ground.root.path().join("state"),
        tree,
        cuts: cuts.clone(),
    });
    fs::create_dir_all(ground.root.path().join("state")).unwrap();
    let place = ground.observed(Durable::observed(observer.clone()));
    act(&place);
    let disk = observer.disk.lock().unwrap();
    observer.cut(&disk);
    assert!(disk.cuts > least, "the observer saw too little: {:?}", disk.log);
    for cut in 0..=disk.cuts {
        let place = Place::new(cuts.join(cut.to_string()));
        let next = disk.log.get(cut).map_or("the end", String::as_str);
        let done = recover(&place).unwrap();
        let failed = done
            .iter()
            .any(|d| matches!(d, bastle_workspace::retention::Recovered::Failed(..)));
        assert!(!failed, "before {next}: {done:?}");
        check(&place, &format!("{cut}: before {next}"));
    }
}

fn clean(ground: &Ground) -> std::collections::BTreeMap<Vec<u8>, (char, u32, Vec<u8>)> {
    let mut clean = look(&ground.source());
    clean.remove(&b".env"[..]);
    clean
}

#[test]
fn a_copy_cut_by_the_power_is_whole_or_absent() {
    let ground = Ground::new();
    cut_all(
        &ground,
        |place| drop(support::create(place, &ground.source(), "one").unwrap()),
        |place, at| {
            let space = match Workspace::open(place, &run_id("one")) {
                Ok(space) => space,
                Err(_) => {
                    assert!(
                        !place.run(&run_id("one")).exists(),
                        "{at}: neither whole nor absent"
                    );
                    support::create(place, &ground.source(), "one").unwrap()
                }
            };
            assert_eq!(look(&space.tree()), clean(&ground), "{at}");
            assert_eq!(
                space.current().unwrap().1.id(),
                space.base().unwrap().id(),
                "{at}"
            );
        },
    );
}

#[test]
fn a_layer_cut_by_the_power_is_whole_or_absent() {
    let ground = Ground::new();
    let make = |place: &Place| support::modes::make(place, &ground.source(), WorkMode::Overlay, "one");
    cut_all(
        &ground,
        |place| drop(make(place).unwrap()),
        |place, at| {
            let space = match Workspace::open(place, &run_id("one")) {
                Ok(space) => space,
                Err(_) => {
                    let left = place.run(&run_id("one")).exists();
                    assert!(!left, "{at}: neither whole nor absent");
                    make(place).unwrap()
                }
            };
            for part in ["layer/upper", "layer/work", "tmp", "snapshots", "kept"] {
                assert!(space.path(part).is_dir(), "{at}: no {part}");
            }
            assert_eq!(
                space.current().unwrap().1.id(),
                space.base().unwrap().id(),
                "{at}"
            );
        },
    );
}

#[test]
fn a_fork_cut_by_the_power_is_whole_or_absent_and_the_first_run_is_untouched() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
    cut_all(
        &ground,
        |place| {
            let space = Workspace::open(place, &run_id("one")).unwrap();
            space.fork(&Which::Number(0), run_id("two")).map(drop).unwrap();
        },
        |place, at| {
            let first = Workspace::open(place, &run_id("one")).unwrap();
            assert!(has_work(&first.tree()), "{at}");
            match Workspace::open(place, &run_id("two")) {
                Ok(fork) => assert_eq!(look(&fork.tree()), clean(&ground), "{at}"),
                Err(_) => assert!(!place.run(&run_id("two")).exists(), "{at}"),
            }
        },
    );
}

#[test]
fn a_removal_cut_by_the_power_is_done_whole_or_not_at_all() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
    let id = space.current().unwrap().0.snapshot.manifest;
    let digest = Discard::try_from(id.to_string()).unwrap();
    cut_all(
        &ground,
        |place| {
            let space = Workspace::open(place, &run_id("one")).unwrap();
            drop(space.remove(Some(&digest)).unwrap());
        },
        |place, at| match Workspace::open(place, &run_id("one")) {
            Ok(space) => {
                assert!(has_work(&space.tree()), "{at}");
                space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
            }
            Err(_) => assert!(!place.run(&run_id("one")).exists(), "{at}"),
        },
    );
}

#[test]
fn a_copy_on_its_way_to_the_trash_or_back_is_whole_in_one_of_both_places_after_a_power_cut() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
    let lost = digest(&space.unsaved().unwrap()).to_string();
    let word = Discard::try_from(lost[..8].to_owned()).unwrap();
    let whole = |place: &Place, at: &str| {
        let there = Workspace::open(place, &run_id("one"));
        let space = there.or_else(|_| trash::restore(place, &run_id("one"), |_| Ok(())));
        let space = space.unwrap_or_else(|fault| panic!("{at}: {fault}"));
        assert!(has_work(&space.tree()), "{at}");
        space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    };
    cut_all_of(
        &ground,
        2,
        |place| {
            let space = Workspace::open(place, &run_id("one")).unwrap();
            drop(space.move_to_trash(Some(&word)).unwrap());
        },
        whole,
    );
    fs::remove_dir_all(ground.root.path().join("cuts")).unwrap();
    cut_all_of(
        &ground,
        2,
        |place| drop(trash::restore(place, &run_id("one"), |_| Ok(())).unwrap()),
        whole,
    );
}

fn restorable(space: &Workspace) {
    for snapshot in space.snapshots().unwrap() {
        space
            .rollback(&Which::Number(snapshot.number), Quiet::Unknown)
            .unwrap();
    }
}

fn has_work(tree: &Path) -> bool {
    fs::read(tree.join("README")).unwrap() == b"work\n" && !tree.join("src/deep").exists()
}

#[test]
fn a_snapshot_that_is_listed_after_a_power_cut_can_be_restored() {
    cut_every_step(
        |space| drop(space.snapshot(None, Reason::Turn).unwrap()),
        |space, _, at| {
            assert!(has_work(&space.tree()), "{at}");
            restorable(space);
        },
    );
}

#[test]
fn an_acknowledged_snapshot_survives_a_power_cut() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    let cuts = ground.root.path().join("cuts");
    fs::create_dir(&cuts).unwrap();
    let observer = Arc::new(PowerCut {
        disk: Mutex::default(),
        state: ground.root.path().join("state"),
        tree: space.tree(),
        cuts: cuts.clone(),
    });
    let place = ground.observed(Durable::observed(observer.clone()));
    let taken = Workspace::open(&place, &run_id("one"))
        .unwrap()
        .snapshot(None, Reason::Turn)
        .unwrap();
    let disk = observer.disk.lock().unwrap();
    observer.cut(&disk);
    let after = Place::new(cuts.join(disk.cuts.to_string()));
    let space = Workspace::open(&after, &run_id("one")).unwrap();
    assert_eq!(space.find(&Which::Last).unwrap(), taken.snapshot);
    restorable(&space);
}

#[test]
fn a_rollback_cut_by_the_power_is_old_or_new_and_the_work_is_kept() {
    cut_every_step(
        |space| drop(space.rollback(&Which::Number(0), Quiet::Unknown).unwrap()),
        |space, ground, at| {
            let mut clean = look(&ground.source());
            clean.remove(&b".env"[..]);
            let tree = look(&space.tree());
            if has_work(&space.tree()) && space.tree().join("new/file").exists() {
                return;
            }
            assert_eq!(tree, clean, "{at}: neither old nor new");
            let all = space.snapshots().unwrap();
            let kept = all.iter().any(|snapshot| {
                space
                    .rollback(&Which::Number(snapshot.number), Quiet::Unknown)
                    .unwrap();
                has_work(&space.tree())
            });
            assert!(kept, "{at}: the work is in no snapshot");
        },
    );
}

#[test]
fn pruning_cut_by_the_power_leaves_each_copy_whole_or_gone_and_work_untouched() {
    for what in [Prune::Remove, Prune::AtOnce] {
        let ground = Ground::new();
        let space = ground.create("one");
        write(&space.tree(), "README", b"work\n");
        fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
        ground.create("two");
        let least = if what == Prune::AtOnce { 3 } else { 2 };
        cut_all_of(
            &ground,
            least,
            |place| {
                let pruned = prune(place, Duration::ZERO, what).unwrap();
                assert_eq!(pruned.runs, [run_id("two")]);
            },
            |place, at| {
                let one = Workspace::open(place, &run_id("one")).unwrap();
                assert!(has_work(&one.tree()), "{at}");
                let there = Workspace::open(place, &run_id("two"));
                let two = match what {
                    Prune::AtOnce => there.ok(),
                    Prune::Remove | Prune::DryRun => Some(
                        there
                            .or_else(|_| trash::restore(place, &run_id("two"), |_| Ok(())))
                            .unwrap(),
                    ),
                };
                match two {
                    Some(two) => assert_eq!(look(&two.tree()), clean(&ground), "{at}"),
                    None => assert!(!place.run(&run_id("two")).exists(), "{at}"),
                }
            },
        );
    }
}
