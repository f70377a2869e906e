//! An apply that fails on the way and is cut off while it cleans up: recovery must not take what is already removed for
//! work that is still to be done.
use super::tests::{World, some_base, some_changes, tree, world};
use super::*;
use crate::durable::{Durable, Observer, Step};
use crate::gate::Approvals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A path in the middle of all that change.
const EDITED: &str = "private";

/// Writes a file of the host at a change of the tree, and ends the work at a later step.
struct FailThenCrash {
    file: PathBuf,
    fail: usize,
    crash: usize,
    changes: AtomicUsize,
    since: AtomicUsize,
}

impl Observer for FailThenCrash {
    fn before(&self, step: Step<'_>) {
        if self.changes.load(Ordering::SeqCst) > self.fail
            && self.since.fetch_add(1, Ordering::SeqCst) == self.crash
        {
            std::panic::resume_unwind(Box::new("crash"));
        }
        if matches!(step, Step::Tree(_)) && self.changes.fetch_add(1, Ordering::SeqCst) == self.fail {
            std::fs::write(&self.file, b"edited meanwhile\n").unwrap();
        }
    }
}

type Listed = Vec<(PathBuf, u32, Vec<u8>)>;

fn without_edited(root: &Path) -> Listed {
    let mut all = tree(root);
    all.retain(|(path, ..)| path != Path::new(EDITED));
    all
}

fn cut_off(world: &World, fail: usize, crash: usize) -> bool {
    let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
    let durable = Durable::observed(Arc::new(FailThenCrash {
        file: world.host().join(EDITED),
        fail,
        crash,
        changes: AtomicUsize::new(0),
        since: AtomicUsize::new(0),
    }));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.with(&durable, |target| drop(apply(target, &plan, &world.blobs)));
    }))
    .is_err()
}

#[test]
fn an_apply_that_failed_and_was_cut_off_while_it_cleaned_up_is_recovered_as_what_it_is() {
    let mut undone = 0;
    for fail in [11, 13] {
        for crash in 0..400 {
            let world = world(some_base, some_changes);
            let (old, new) = (without_edited(&world.host()), without_edited(&world.agent()));
            if !cut_off(&world, fail, crash) {
                break;
            }
            let what = format!("edited at change {fail}, cut off {crash} steps later");
            let recovered = world
                .with(&Durable::default(), recover)
                .unwrap_or_else(|fault| panic!("{what}: {fault}"));
            let now = without_edited(&world.host());
            assert!(now == old || now == new, "{what}: neither old nor new");
            for one in recovered {
                match one {
                    Recovered::Finished(_) => assert_eq!(now, new, "{what}: said to be finished"),
                    Recovered::Undone { .. } => {
                        undone += 1;
                        assert_eq!(now, old, "{what}: said to be undone");
                    }
                    Recovered::SetAside { .. } => panic!("{what}: set aside"),
                }
            }
        }
    }
    assert!(undone > 20, "{undone}");
}
