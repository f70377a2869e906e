//! Removing a copy: every place where work exists only once is known and named, exactly that is thrown away which a person
//! named, and what was removed comes back whole until the trash is emptied.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::{Code, Fault};
use bastle_workspace::discard::Discard;
use bastle_workspace::meta::{Reason, SnapshotName, State, Which};
use bastle_workspace::retention::{Prune, prune};
use bastle_workspace::rollback::Quiet;
use bastle_workspace::trash::{self, trashed};
use bastle_workspace::unsaved::{Unsaved, digest};
use bastle_workspace::workspace::Workspace;
use std::fs;
use std::time::Duration;
use support::{Ground, look, run_id, write};

fn name(text: &str) -> SnapshotName {
    SnapshotName::try_from(text.to_owned()).unwrap()
}

fn refusal(space: &Workspace) -> Fault {
    let fault = space.clone().move_to_trash(None).unwrap_err();
    assert_eq!(fault.code, Code::WorkspaceUnexported, "{fault}");
    assert_eq!(space.clone().remove(None).unwrap_err(), fault);
    fault
}

fn word(space: &Workspace) -> Discard {
    let lost = digest(&space.unsaved().unwrap()).to_string();
    Discard::try_from(lost[..8].to_owned()).unwrap()
}

/// The word that the refusal prints for pasting.
fn printed(fault: &Fault) -> Discard {
    let command = fault
        .help
        .iter()
        .find_map(|help| help.split_once("--discard "))
        .unwrap();
    Discard::try_from(command.1.to_owned()).unwrap()
}

fn numbers(space: &Workspace) -> Vec<u32> {
    let number = |one: &Unsaved| match one {
        Unsaved::Snapshot { number, .. } => Some(*number),
        _ => None,
    };
    space.unsaved().unwrap().iter().filter_map(number).collect()
}

#[test]
fn a_snapshot_that_alone_holds_work_is_named_and_not_removed() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"precious\n");
    write(&space.tree(), "new", b"precious, too\n");
    space.snapshot(Some(name("precious")), Reason::Asked).unwrap();
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    let fault = refusal(&space);
    assert!(
        fault
            .what
            .contains("snapshot 1 (precious) has 2 changed paths (README, new)"),
        "{fault}"
    );
    assert!(
        fault
            .help
            .iter()
            .any(|help| help == "bastle export one@1 one-1.tar"),
        "{fault}"
    );
    // Saved, it may go; the tree's own mark is another matter.
    let snapshot = space.find(&Which::Number(1)).unwrap();
    space.mark_exported(snapshot.manifest).unwrap();
    assert_eq!(space.unsaved().unwrap(), []);
    space.remove(None).unwrap();
}

#[test]
fn what_a_rollback_took_away_counts_whatever_the_snapshot_was_first_taken_for() {
    for reason in [Reason::Look, Reason::Turn, Reason::BeforeRollback] {
        let ground = Ground::new();
        let space = ground.create("one");
        write(&space.tree(), "README", b"work\n");
        if reason != Reason::BeforeRollback {
            space.snapshot(None, reason).unwrap();
        }
        space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
        assert_eq!(numbers(&space), [1], "{reason:?}");
        refusal(&space);
        // Two words for the same state are one place.
        space.rollback(&Which::Number(1), Quiet::Unknown).unwrap();
        let lost = space.unsaved().unwrap();
        assert!(matches!(lost.as_slice(), [Unsaved::Tree { .. }]), "{lost:?}");
    }
}

#[test]
fn a_state_that_the_agent_went_on_from_is_no_loss_unless_somebody_asked_to_keep_it() {
    let ground = Ground::new();
    let space = ground.create("one");
    let steps = [
        (Reason::Turn, None),
        (Reason::Look, None),
        (Reason::Asked, None),
        (Reason::Turn, Some("named")),
    ];
    for (at, (reason, named)) in steps.into_iter().enumerate() {
        write(&space.tree(), "README", format!("step {at}\n").as_bytes());
        space.snapshot(named.map(name), reason).unwrap();
    }
    write(&space.tree(), "README", b"the end\n");
    let (taken, _) = space.current().unwrap();
    space.mark_applied(taken.snapshot.manifest).unwrap();
    assert_eq!(numbers(&space), [3, 4]);
    // What the project got of them, and what equals the base, is not listed again.
    space
        .mark_exported(space.find(&Which::Number(3)).unwrap().manifest)
        .unwrap();
    assert_eq!(numbers(&space), [4]);
}

#[test]
fn every_place_is_named_and_the_word_is_of_all_of_them() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"first\n");
    space.snapshot(None, Reason::Asked).unwrap();
    write(&space.tree(), "README", b"second\n");
    let only_tree = space.current().unwrap().0.snapshot.manifest.to_string();
    let first = refusal(&space);
    assert!(
        first.what.contains("the tree has 1 changed path (README)"),
        "{first}"
    );
    assert!(first.what.contains("snapshot 1 has 1 changed path"), "{first}");
    // The digest of the tree alone does not stand for the snapshot.
    let tree = Discard::try_from(only_tree[..16].to_owned()).unwrap();
    assert!(space.clone().remove(Some(&tree)).is_err());
    let before = printed(&first);
    write(&space.tree(), "run.sh", b"third\n");
    assert!(
        space.clone().remove(Some(&before)).is_err(),
        "work came after the word was told"
    );
    for bad in ["", "1234567", "g2345678", "ABCDEF12", &"0".repeat(65)] {
        let fault = Discard::try_from(bad.to_owned()).unwrap_err();
        assert_eq!(fault.code, Code::UsageArgument, "{bad}");
    }
    let word = printed(&refusal(&space));
    space.move_to_trash(Some(&word)).unwrap();
    assert!(!ground.place.run(&run_id("one")).exists());
}

#[test]
fn a_stash_is_work_also_where_the_tree_was_applied_and_a_rollback_hides_it() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), ".git/HEAD", b"ref: refs/heads/agent\n");
    let (a, b, none) = ("a".repeat(40), "b".repeat(40), "0".repeat(40));
    write(&space.tree(), ".git/refs/stash", format!("{b}\n").as_bytes());
    let log = format!("{none} {a} x <x> 1 +0000\tWIP on main: one\n{a} {b} x <x> 2 +0000\tOn main: two\n");
    write(&space.tree(), ".git/logs/refs/stash", log.as_bytes());
    let (taken, _) = space.current().unwrap();
    space.mark_applied(taken.snapshot.manifest).unwrap();
    let fault = refusal(&space);
    assert!(
        fault
            .what
            .contains("the git stash has 2 entries (WIP on main: one, On main: two)"),
        "{fault}"
    );
    let first = word(&space);
    // One entry more is another loss.
    let more = format!("{log}{b} {} x <x> 3 +0000\tOn main: three\n", "c".repeat(40));
    write(&space.tree(), ".git/logs/refs/stash", more.as_bytes());
    assert!(space.clone().remove(Some(&first)).is_err());
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    let fault = refusal(&space);
    assert!(
        fault.what.contains("the git stash in snapshot 2 has 3 entries"),
        "{fault}"
    );
    space.clone().move_to_trash(Some(&printed(&fault))).unwrap();
}

#[test]
fn removed_copies_come_back_whole_newest_first_and_only_to_a_free_name() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    space.snapshot(Some(name("kept")), Reason::Asked).unwrap();
    write(&space.tree(), "README", b"later\n");
    let expected = look(&space.tree());
    let word = word(&space);
    let paths = space.clone().move_to_trash(Some(&word)).unwrap();
    assert!(paths.contains(&space.tree().join("README")));
    assert!(Workspace::open(&ground.place, &run_id("one")).is_err());

    // Other removals on the same source leave what the trash needs.
    ground.create("two").remove(None).unwrap();
    let again = ground.create("one");
    let fault = trash::restore(&ground.place, &run_id("one"), |_| Ok(()))
        .err()
        .unwrap();
    assert_eq!(fault.code, Code::WorkspaceBusy, "{fault}");
    again.remove(None).unwrap();
    let listed = trashed(&ground.place).unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].size() > 0);
    assert_eq!(
        listed[0].source(&ground.place).unwrap().as_path(),
        ground.source().canonicalize().unwrap()
    );
    // Somebody who refuses changes nothing.
    let no = |_: &trash::Trashed| Err(Fault::new(Code::WorkspaceBusy, "no", ""));
    assert!(trash::restore(&ground.place, &run_id("one"), no).is_err());
    let space = trash::restore(&ground.place, &run_id("one"), |_| Ok(())).unwrap();
    assert_eq!(look(&space.tree()), expected);
    space
        .rollback(&Which::Name(name("kept")), Quiet::Unknown)
        .unwrap();
    assert_eq!(fs::read(space.tree().join("README")).unwrap(), b"work\n");
    assert!(trashed(&ground.place).unwrap().is_empty());
    let gone = trash::restore(&ground.place, &run_id("one"), |_| Ok(()))
        .err()
        .unwrap();
    assert_eq!(gone.code, Code::WorkspaceMissing);
}

#[test]
fn the_trash_is_emptied_by_age_and_then_frees_what_only_it_needed() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"only here\n");
    space.current().unwrap();
    let word = word(&space);
    space.move_to_trash(Some(&word)).unwrap();
    let week = Duration::from_secs(7 * 86_400);
    assert!(
        trash::empty(&ground.place, week, Prune::Remove)
            .unwrap()
            .runs
            .is_empty()
    );
    let shown = trash::empty(&ground.place, Duration::ZERO, Prune::DryRun).unwrap();
    assert_eq!(shown.runs, [run_id("one")]);
    assert_eq!(trashed(&ground.place).unwrap().len(), 1);
    let objects = || {
        let all = look(&ground.root.path().join("state/store"));
        all.values()
            .filter(|(_, _, bytes)| bytes == b"only here\n")
            .count()
    };
    assert_eq!(objects(), 1);
    // One that was removed eight days ago.
    let entry = trashed(&ground.place).unwrap().remove(0);
    let old = entry.removed - i64::try_from(week.as_nanos()).unwrap() / 7 * 8;
    fs::rename(&entry.path, ground.place.trash().join(format!("{old}-one"))).unwrap();
    let emptied = trash::empty(&ground.place, week, Prune::Remove).unwrap();
    assert_eq!(emptied.runs, [run_id("one")]);
    assert_eq!(objects(), 0);
    assert!(trashed(&ground.place).unwrap().is_empty());
}

#[test]
fn prune_moves_to_the_trash_or_removes_at_once_and_takes_no_work_either_way() {
    let ground = Ground::new();
    for (what, left) in [(Prune::Remove, 1), (Prune::AtOnce, 0)] {
        let (clean, held) = (ground.create("clean"), ground.create("held"));
        write(&held.tree(), "README", b"asked for\n");
        held.snapshot(None, Reason::Asked).unwrap();
        held.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
        let pruned = prune(&ground.place, Duration::ZERO, what).unwrap();
        assert_eq!(pruned.runs, [run_id("clean")]);
        assert_eq!(pruned.kept.len(), 1, "{:?}", pruned.kept);
        assert!(!clean.tree().exists() && held.tree().exists());
        assert_eq!(trashed(&ground.place).unwrap().len(), left);
        trash::empty(&ground.place, Duration::ZERO, Prune::Remove).unwrap();
        let word = word(&held);
        held.remove(Some(&word)).unwrap();
    }
}

#[test]
fn a_fork_keeps_all_its_states_when_the_run_that_it_came_from_leaves_the_trash() {
    let ground = Ground::new();
    let parent = ground.create("one");
    parent.settle().unwrap();
    let large = vec![b'x'; 3 << 20];
    write(&parent.tree(), "large", &large);
    parent.snapshot(Some(name("here")), Reason::Asked).unwrap();
    let fork = parent.fork(&Which::Name(name("here")), run_id("two")).unwrap();
    let expected = look(&fork.tree());
    let word = word(&parent);
    parent.move_to_trash(Some(&word)).unwrap();
    trash::empty(&ground.place, Duration::ZERO, Prune::Remove).unwrap();
    // Neither the parent nor the source has the contents any more.
    write(&ground.source(), "README", b"edited by a person\n");
    fork.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(fs::read(fork.tree().join("README")).unwrap(), b"read me\n");
    fork.rollback(&Which::Number(1), Quiet::Unknown).unwrap();
    assert_eq!(look(&fork.tree()), expected);
}

#[test]
fn a_copy_is_judged_without_writing_anything_of_its_tree() {
    let ground = Ground::new();
    let space = ground.create("one");
    space.set_state(State::Finished).unwrap();
    write(&space.tree(), "README", b"work\n");
    write(&space.tree(), "large", &vec![b'y'; 2 << 20]);
    let before = look(&ground.root.path().join("state"));
    let fault = refusal(&space);
    assert_eq!(look(&ground.root.path().join("state")), before);
    // The word is the one that a snapshot of the same tree would have.
    let id = space.current().unwrap().0.snapshot.manifest.to_string();
    assert!(fault.why.contains(&id), "{fault}");
}

#[test]
fn a_record_of_an_older_build_is_read_and_a_replaced_project_is_noticed() {
    let ground = Ground::new();
    let space = ground.create("one");
    space.check_project().unwrap();
    fs::rename(ground.source(), ground.root.path().join("moved")).unwrap();
    fs::create_dir_all(ground.source()).unwrap();
    // A directory that is no repository now, and was none, says nothing of itself.
    space.check_project().unwrap();
    fs::create_dir_all(ground.source().join(".git/objects")).unwrap();
    fs::create_dir_all(ground.source().join(".git/refs")).unwrap();
    write(&ground.source(), ".git/HEAD", b"ref: refs/heads/main\n");
    write(&ground.source(), ".git/config", b"[core]\n\tbare = false\n");
    let fault = space.check_project().unwrap_err();
    assert_eq!(fault.code, Code::WorkspaceApply, "{fault}");
    assert!(
        fault
            .help
            .iter()
            .any(|help| help.starts_with("bastle apply one --patch"))
    );

    let path = space.path("meta.json");
    let mut meta: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(meta.as_object_mut().unwrap().remove("identity").is_some());
    fs::write(&path, meta.to_string()).unwrap();
    space.check_project().unwrap();
}
