//! The process is killed before every single step of making, recording, rolling back, forking and removing; after
//! the next start the tree is old or new, never between, and the agent's work is in the tree or in a snapshot.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::Code;
use bastle_workspace::discard::Discard;
use bastle_workspace::durable::{Durable, Observer, Step};
use bastle_workspace::meta::{Reason, Which, WorkMode};
use bastle_workspace::place::Place;
use bastle_workspace::retention::{Prune, recover};
use bastle_workspace::rollback::Quiet;
use bastle_workspace::trash;
use bastle_workspace::unsaved::digest;
use bastle_workspace::workspace::{CreateRequest, GitMade, Workspace};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use support::{Ground, create, hides_env, look, modes, run_id, tag, tag_bytes, write};

const ENV: &str = "BASTLE_TEST_KILL_AT";
type Tree = BTreeMap<Vec<u8>, (char, u32, Vec<u8>)>;

/// Ends its own process, as `kill -9` does, before the step of that number.
struct Killer(AtomicI64);

impl Observer for Killer {
    fn before(&self, _: Step<'_>) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 0 {
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// The part that dies: does nothing unless it was started by `killed_at`.
#[test]
fn the_process_that_is_killed() {
    let Ok(order) = std::env::var(ENV) else { return };
    let mut words = order.splitn(3, ' ');
    let (what, step, root) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    let root = Path::new(root);
    let killer = Durable::observed(Arc::new(Killer(AtomicI64::new(step.parse().unwrap()))));
    let place = Place::observed(root.join("state"), killer);
    let space = || Workspace::open(&place, &run_id("one")).unwrap();
    match what {
        "create" => drop(create(&place, &root.join("source"), "one").unwrap()),
        "snapshot" => drop(space().snapshot(None, Reason::Turn).unwrap()),
        "rollback" => drop(space().rollback(&Which::Number(0), Quiet::Unknown).unwrap()),
        "create-overlay" => drop(overlay(&place, &root.join("source"))),
        "fork" => drop(space().fork(&Which::Number(0), run_id("two")).unwrap()),
        "remove" => {
            let id = fs::read_to_string(root.join("discard")).unwrap();
            drop(space().remove(Some(&Discard::try_from(id).unwrap())).unwrap());
        }
        "trash" => {
            let id = fs::read_to_string(root.join("discard")).unwrap();
            drop(
                space()
                    .move_to_trash(Some(&Discard::try_from(id).unwrap()))
                    .unwrap(),
            );
        }
        "restore" => drop(trash::restore(&place, &run_id("one"), |_| Ok(())).unwrap()),
        "empty" => {
            let emptied = trash::empty(&place, Duration::ZERO, Prune::Remove).unwrap();
            assert_eq!(emptied.runs, [run_id("one")]);
        }
        other => panic!("{other}"),
    }
}

/// `false` when the operation finished before its step came.
fn killed_at(ground: &Ground, what: &str, step: usize) -> bool {
    let order = format!("{what} {step} {}", ground.root.path().display());
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_process_that_is_killed",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ENV, order)
        .output()
        .unwrap()
        .status;
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "{what} at {step}: {status}");
    killed
}

/// Every step, each on fresh ground; `check` sees the ground after the next start.
fn every_step(what: &str, prepare: impl Fn(&Ground), check: impl Fn(&Ground, usize)) {
    every_step_of(what, 5, prepare, check);
}

/// The same for what has few steps.
fn every_step_of(what: &str, least: usize, prepare: impl Fn(&Ground), check: impl Fn(&Ground, usize)) {
    let mut step = 0;
    loop {
        let ground = Ground::new();
        prepare(&ground);
        let killed = killed_at(&ground, what, step);
        recover(&ground.place).unwrap();
        check(&ground, step);
        if !killed {
            break;
        }
        step += 1;
        assert!(step < 500, "{what} never finishes");
    }
    assert!(
        step >= least,
        "{what} shows only {step} steps: the test sees nothing"
    );
}

fn clean(ground: &Ground) -> Tree {
    let mut tree = look(&ground.source());
    tree.remove(&b".env"[..]);
    tree
}

fn with_work(ground: &Ground) -> Workspace {
    let space = ground.create("one");
    work(&space);
    space
}

fn work(space: &Workspace) {
    write(&space.tree(), "README", b"work\n");
    write(&space.tree(), "new/file", b"work too\n");
    fs::remove_dir_all(space.tree().join("src/deep")).unwrap();
    fs::remove_dir(space.tree().join("empty")).unwrap();
    write(&space.tree(), "empty", b"now a file\n");
    // Nothing but an attribute changes here.
    tag(&space.tree().join("run.sh"), "user.work", b"too");
}

fn worked(ground: &Ground) -> Tree {
    let mut tree = clean(ground);
    for gone in ["src/deep", "src/deep/er", "src/deep/er/lib.rs", "empty"] {
        tree.remove(gone.as_bytes());
    }
    tree.insert(b"README".to_vec(), ('f', 0, b"work\n".to_vec()));
    tree.insert(b"new".to_vec(), ('d', 0, Vec::new()));
    tree.insert(b"new/file".to_vec(), ('f', 0, b"work too\n".to_vec()));
    tree.insert(b"empty".to_vec(), ('f', 0, b"now a file\n".to_vec()));
    let probe = ground.root.path().join("probe");
    fs::write(&probe, b"").unwrap();
    if tag(&probe, "user.work", b"too") {
        let bytes = [&b"#!/bin/sh\n"[..], &tag_bytes(b"user.work", b"too")].concat();
        tree.insert(b"run.sh".to_vec(), ('f', 0o100, bytes));
    }
    tree
}

/// Nothing of an unfinished operation is left lying about.
fn no_litter(ground: &Ground) {
    let state = ground.root.path().join("state");
    for entry in fs::read_dir(state.join("work")).unwrap() {
        let entry = entry.unwrap();
        assert!(
            !entry.file_name().as_encoded_bytes().starts_with(b"."),
            "{entry:?}"
        );
        assert_eq!(fs::read_dir(entry.path().join("tmp")).unwrap().count(), 0);
        assert!(!entry.path().join("rollback.json").exists());
    }
}

#[test]
fn a_killed_copy_is_whole_or_absent_and_can_be_made_again() {
    every_step(
        "create",
        |_| {},
        |ground, step| {
            no_litter(ground);
            let space = match Workspace::open(&ground.place, &run_id("one")) {
                Ok(space) => space,
                Err(fault) => {
                    assert_eq!(fault.code, Code::WorkspaceMissing);
                    assert!(!ground.place.run(&run_id("one")).exists(), "step {step}");
                    ground.create("one")
                }
            };
            assert_eq!(look(&space.tree()), clean(ground), "step {step}");
            assert_eq!(space.current().unwrap().1.id(), space.base().unwrap().id());
        },
    );
}

#[test]
fn a_killed_snapshot_leaves_the_tree_and_only_snapshots_that_can_be_restored() {
    every_step(
        "snapshot",
        |ground| drop(with_work(ground)),
        |ground, step| {
            let space = Workspace::open(&ground.place, &run_id("one")).unwrap();
            assert_eq!(look(&space.tree()), worked(ground), "step {step}");
            no_litter(ground);
            space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
            assert_eq!(look(&space.tree()), clean(ground), "step {step}");
            let back = space.snapshots().unwrap().into_iter().filter(|snapshot| {
                space
                    .rollback(&Which::Number(snapshot.number), Quiet::Unknown)
                    .unwrap();
                look(&space.tree()) == worked(ground)
            });
            assert_eq!(back.count(), 1, "step {step}");
        },
    );
}

#[test]
fn a_killed_rollback_is_the_old_tree_or_the_new_one_and_the_work_comes_back() {
    every_step(
        "rollback",
        |ground| drop(with_work(ground)),
        |ground, step| {
            let space = Workspace::open(&ground.place, &run_id("one")).unwrap();
            no_litter(ground);
            let tree = look(&space.tree());
            if tree == worked(ground) {
                return;
            }
            assert_eq!(tree, clean(ground), "step {step}: neither old nor new");
            let found = space.snapshots().unwrap().into_iter().any(|snapshot| {
                space
                    .rollback(&Which::Number(snapshot.number), Quiet::Unknown)
                    .unwrap();
                look(&space.tree()) == worked(ground)
            });
            assert!(found, "step {step}: the work is in no snapshot");
        },
    );
}

#[test]
fn a_killed_fork_is_whole_or_absent_and_the_first_run_is_untouched() {
    every_step(
        "fork",
        |ground| drop(with_work(ground)),
        |ground, step| {
            let space = Workspace::open(&ground.place, &run_id("one")).unwrap();
            assert_eq!(look(&space.tree()), worked(ground), "step {step}");
            no_litter(ground);
            match Workspace::open(&ground.place, &run_id("two")) {
                Ok(fork) => assert_eq!(look(&fork.tree()), clean(ground), "step {step}"),
                Err(_) => assert!(!ground.place.run(&run_id("two")).exists(), "step {step}"),
            }
        },
    );
}

#[test]
fn a_killed_removal_is_done_whole_or_not_at_all() {
    every_step(
        "remove",
        |ground| {
            let space = with_work(ground);
            let id = space.current().unwrap().0.snapshot.manifest;
            fs::write(ground.root.path().join("discard"), id.to_string()).unwrap();
        },
        |ground, step| {
            no_litter(ground);
            match Workspace::open(&ground.place, &run_id("one")) {
                Ok(space) => {
                    assert_eq!(look(&space.tree()), worked(ground), "step {step}");
                    space.rollback(&Which::Last, Quiet::Unknown).unwrap();
                }
                Err(_) => assert!(!ground.place.run(&run_id("one")).exists(), "step {step}"),
            }
        },
    );
}

/// Work, and a snapshot of other work that is nowhere else.
fn with_all_work(ground: &Ground) -> Workspace {
    let space = with_work(ground);
    write(&space.tree(), "kept", b"kept by a person\n");
    space.snapshot(None, Reason::Asked).unwrap();
    fs::remove_file(space.tree().join("kept")).unwrap();
    let lost = digest(&space.unsaved().unwrap()).to_string();
    fs::write(ground.root.path().join("discard"), lost).unwrap();
    space
}

fn is_whole(ground: &Ground, space: &Workspace, step: usize) {
    assert_eq!(look(&space.tree()), worked(ground), "step {step}");
    let kept = space.snapshots().unwrap();
    let kept = kept.iter().find(|one| one.reason == Reason::Asked).unwrap();
    space
        .rollback(&Which::Number(kept.number), Quiet::Unknown)
        .unwrap();
    assert_eq!(
        fs::read(space.tree().join("kept")).unwrap(),
        b"kept by a person\n"
    );
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(look(&space.tree()), clean(ground), "step {step}");
}

/// Puts a copy into the trash whose contents another removal would take from the store if nothing kept them.
fn trashed(ground: &Ground) {
    let space = with_all_work(ground);
    let word = fs::read_to_string(ground.root.path().join("discard")).unwrap();
    space
        .move_to_trash(Some(&Discard::try_from(word).unwrap()))
        .unwrap();
    ground.create("two").remove(None).unwrap();
}

#[test]
fn a_removal_to_the_trash_that_is_killed_leaves_the_copy_whole_in_one_of_both_places() {
    every_step_of(
        "trash",
        3,
        |ground| drop(with_all_work(ground)),
        |ground, step| {
            no_litter(ground);
            let there = Workspace::open(&ground.place, &run_id("one"));
            let space = there.or_else(|_| trash::restore(&ground.place, &run_id("one"), |_| Ok(())));
            is_whole(ground, &space.unwrap(), step);
        },
    );
}

#[test]
fn a_killed_restore_leaves_the_copy_whole_in_one_of_both_places() {
    every_step_of("restore", 3, trashed, |ground, step| {
        no_litter(ground);
        let there = Workspace::open(&ground.place, &run_id("one"));
        let space = there.or_else(|_| trash::restore(&ground.place, &run_id("one"), |_| Ok(())));
        is_whole(ground, &space.unwrap(), step);
    });
}

#[test]
fn emptying_the_trash_that_is_killed_leaves_each_copy_whole_or_gone_and_the_others_untouched() {
    every_step_of(
        "empty",
        5,
        |ground| {
            trashed(ground);
            drop(ground.create("two"));
        },
        |ground, step| {
            no_litter(ground);
            let two = Workspace::open(&ground.place, &run_id("two")).unwrap();
            assert_eq!(look(&two.tree()), clean(ground), "step {step}");
            match trash::restore(&ground.place, &run_id("one"), |_| Ok(())) {
                Ok(space) => is_whole(ground, &space, step),
                Err(fault) => {
                    assert_eq!(fault.code, Code::WorkspaceMissing, "step {step}");
                    let left: Vec<_> = fs::read_dir(ground.place.trash()).unwrap().collect();
                    assert!(left.is_empty(), "step {step}: {left:?}");
                }
            }
            let emptied = trash::empty(&ground.place, Duration::ZERO, Prune::Remove).unwrap();
            assert!(emptied.runs.is_empty() && emptied.kept.is_empty());
        },
    );
}

/// An overlay of the plain project: every step is a process of its own, and git would add a hundred.
fn overlay(place: &Place, source: &Path) -> Workspace {
    let request = CreateRequest {
        run: run_id("one"),
        source,
        hidden: &hides_env,
        git: &mut |_| Ok(GitMade::default()),
        progress: &mut |_| {},
    };
    Workspace::create_as(place, WorkMode::Overlay, request).unwrap()
}

#[test]
fn a_killed_overlay_is_whole_or_absent_and_can_be_made_again() {
    every_step(
        "create-overlay",
        |_| {},
        |ground, step| {
            no_litter(ground);
            let space = match Workspace::open(&ground.place, &run_id("one")) {
                Ok(space) => space,
                Err(fault) => {
                    assert_eq!(fault.code, Code::WorkspaceMissing);
                    assert!(!ground.place.run(&run_id("one")).exists(), "step {step}");
                    overlay(&ground.place, &ground.source())
                }
            };
            assert_eq!(modes::seen(ground, &space), clean(ground), "step {step}");
        },
    );
}

#[test]
fn a_killed_rollback_of_an_overlay_is_the_old_view_or_the_new_one_and_the_work_comes_back() {
    let work = "set -e; echo work > README; rm -r src/deep; mkdir src/deep; echo x > src/deep/x; rmdir empty; echo f > empty";
    every_step(
        "rollback",
        |ground| modes::inside(ground, &overlay(&ground.place, &ground.source()), work),
        |ground, step| {
            let space = Workspace::open(&ground.place, &run_id("one")).unwrap();
            no_litter(ground);
            let view = modes::seen(ground, &space);
            assert_eq!(modes::recorded(&space), view, "step {step}");
            let worked = |view: &Tree| {
                view[&b"README"[..]].2 == b"work\n"
                    && view.contains_key(&b"src/deep/x"[..])
                    && !view.contains_key(&b"src/deep/er"[..])
            };
            if worked(&view) {
                return;
            }
            assert_eq!(view, clean(ground), "step {step}: neither old nor new");
            let found = space.snapshots().unwrap().into_iter().any(|snapshot| {
                space
                    .rollback(&Which::Number(snapshot.number), Quiet::Unknown)
                    .unwrap();
                worked(&modes::seen(ground, &space))
            });
            assert!(found, "step {step}: the work is in no snapshot");
        },
    );
}
