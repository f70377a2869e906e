//! After a power cut only what was synced is there: apply and undo leave the tree old or new.
use super::tests::{World, some_base, some_changes, tree, world};
use super::*;
use crate::durable::{Durable, Observer, Step};
use crate::gate::Approvals;
use crate::rooted::Root;
use crate::testing::write;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ends the work before the n-th step, and knows which bytes of the journals were on disk by then.
struct PowerOff {
    at: usize,
    seen: AtomicUsize,
    disk: std::sync::Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// The directory whose names the last step made durable.
    last: Option<PathBuf>,
    kept: std::collections::BTreeMap<PathBuf, Vec<u8>>,
    /// Staging areas, from the moment when their objects were synced.
    areas: BTreeSet<PathBuf>,
    host: PathBuf,
    /// Directories of the host whose names are on disk as they are.
    synced: BTreeSet<PathBuf>,
}

impl Written {
    /// The last step is over.
    fn catch_up(&mut self) {
        let Some(dir) = self.last.take() else { return };
        if dir.starts_with(&self.host) {
            self.synced.insert(dir);
            return;
        }
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                self.kept.insert(path, bytes);
            }
        }
    }
}

impl Observer for PowerOff {
    fn before(&self, step: Step<'_>) {
        let mut disk = self.disk.lock().unwrap();
        disk.catch_up();
        match step {
            Step::SyncDir(dir) => disk.last = Some(dir.to_path_buf()),
            Step::Tree(path) => {
                let changed = disk.host.join(path);
                disk.synced.remove(changed.parent().unwrap());
            }
            // Counted from the step after it: at this one the sync has not come back.
            Step::Sync(area) if area.is_dir() && self.seen.load(Ordering::SeqCst) != self.at => {
                disk.areas.insert(area.to_path_buf());
            }
            _ => {}
        }
        if self.seen.fetch_add(1, Ordering::SeqCst) == self.at {
            drop(disk);
            std::panic::resume_unwind(Box::new("power"));
        }
    }
}

fn empty_all(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            meta if meta.is_dir() => empty_all(&path),
            meta if meta.is_file() => std::fs::write(&path, b"").unwrap(),
            _ => {}
        }
    }
}

/// Exchanges of names whose directories were not synced are on disk or not, each by itself, whatever the journal says:
/// takes some back.
fn forget_some_names(world: &World, disk: &Written, at: usize, verb: Verb) {
    let journals = super::journal::Journals::new(&world.stage.path().join("applied"));
    let root = Root::open(&world.host()).unwrap();
    // The journal of the verb that was cut off, where it had one.
    let number = if verb == Verb::Undo { 2 } else { 1 };
    let Some((journal, _)) = journals.read(number).unwrap() else {
        return;
    };
    for (index, swap) in journal.swaps.iter().enumerate() {
        let path = world.host().join(swap.path().as_path());
        let lost = blake3::hash(format!("{at} {index}").as_bytes()).as_bytes()[0].is_multiple_of(2);
        if disk.synced.contains(path.parent().unwrap()) || !lost {
            continue;
        }
        let slots = journals.folder(number).join("slots");
        let area = Root::open(&slots).unwrap_or_else(|error| {
            panic!("step {at}, {verb:?}: the slots went before the names were on disk: {error}")
        });
        let (root, area) = (&root, &area);
        super::settle::Exchange { root, area, swap }.back().unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Apply,
    Undo,
}

/// Makes the journals what was on disk when the power went.
fn forget(journals: &Path, disk: &Written, verb: Verb) {
    let mut open = vec![journals.to_path_buf()];
    while let Some(dir) = open.pop() {
        let Ok(listing) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in listing {
            let path = entry.unwrap().path();
            if path.ends_with("slots") {
                // Objects whose bytes were not on disk are there and empty; second names of old ones are not there.
                match disk.areas.contains(&path) {
                    true => {}
                    false if verb == Verb::Undo => std::fs::remove_dir_all(&path).unwrap(),
                    false => empty_all(&path),
                }
                continue;
            }
            match disk.kept.get(&path) {
                _ if path.is_dir() => open.push(path),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
        }
    }
}

/// Beside the usual types: empty directories, and files in a submodule and in a repository of their own.
fn base(root: &Path) {
    some_base(root);
    for repository in ["nested/.git/HEAD", "part/.git"] {
        write(root, repository, b"ref: refs/heads/main\n");
    }
    for file in ["nested/kept.txt", "nested/gone.txt", "part/kept.txt", "to-empty"] {
        write(root, file, b"old\n");
    }
    for empty in ["empty", "empty-gone", "to-file"] {
        std::fs::create_dir(root.join(empty)).unwrap();
    }
}

fn changes(root: &Path) {
    some_changes(root);
    for file in [
        "nested/kept.txt",
        "nested/new.txt",
        "part/kept.txt",
        "part/new/deep.txt",
    ] {
        write(root, file, b"new\n");
    }
    for file in ["nested/gone.txt", "to-empty"] {
        std::fs::remove_file(root.join(file)).unwrap();
    }
    for empty in ["empty-gone", "to-file"] {
        std::fs::remove_dir(root.join(empty)).unwrap();
    }
    for empty in ["to-empty", "empty-new"] {
        std::fs::create_dir(root.join(empty)).unwrap();
    }
    write(root, "to-file", b"a file\n");
}

#[test]
fn after_a_power_cut_at_any_step_of_apply_or_undo_the_tree_is_old_or_new() {
    let mut outcomes = [0, 0];
    for verb in [Verb::Apply, Verb::Undo] {
        for at in 0..2_000 {
            let world = world(base, changes);
            let (old, new) = (tree(&world.host()), tree(&world.agent()));
            let host = world.host();
            let mut before = Written {
                host: host.clone(),
                ..Written::default()
            };
            if verb == Verb::Undo {
                let all = Arc::new(PowerOff {
                    at: usize::MAX,
                    seen: AtomicUsize::new(0),
                    disk: std::sync::Mutex::new(Written {
                        host,
                        ..Written::default()
                    }),
                });
                let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
                let durable = Durable::observed(all.clone());
                world
                    .with(&durable, |target| apply(target, &plan, &world.blobs))
                    .unwrap();
                // Whatever was applied before has long been on disk.
                let mut disk = all.disk.lock().unwrap();
                disk.catch_up();
                before.kept = std::mem::take(&mut disk.kept);
                before.areas = std::mem::take(&mut disk.areas);
            }
            let power = Arc::new(PowerOff {
                at,
                seen: AtomicUsize::new(0),
                disk: std::sync::Mutex::new(before),
            });
            let durable = Durable::observed(power.clone());
            let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
            let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                world.with(&durable, |target| match verb {
                    Verb::Undo => undo(target),
                    Verb::Apply => apply(target, &plan, &world.blobs),
                })
            }));
            if let Ok(done) = &cut {
                assert!(done.is_ok(), "{done:?}");
                power.disk.lock().unwrap().catch_up();
            }
            let journals = world.with(&Durable::default(), |target| target.journals.to_path_buf());
            let disk = power.disk.lock().unwrap();
            forget(&journals, &disk, verb);
            forget_some_names(&world, &disk, at, verb);
            world.with(&Durable::default(), recover).unwrap();
            let now = tree(&world.host());
            assert!(now == old || now == new, "step {at}, {verb:?}");
            outcomes[usize::from(now == new)] += 1;
            if cut.is_ok() {
                assert_eq!(now, if verb == Verb::Undo { old } else { new });
                break;
            }
        }
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 20, "{outcomes:?}");
}
