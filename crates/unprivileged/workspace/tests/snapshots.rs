//! Snapshots, rollback, fork, removal: nothing of the agent's work is lost, and nothing else comes in its place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::Code;
use bastle_workspace::audit_delta::{ChangeKind, Scope};
use bastle_workspace::blobs::{Blobs, read_blob};
use bastle_workspace::discard::Discard;
use bastle_workspace::finding::About;
use bastle_workspace::manifest::{Content, Kind};
use bastle_workspace::meta::{Reason, SnapshotName, State, Which};
use bastle_workspace::retention::{Prune, prune};
use bastle_workspace::rollback::Quiet;
use bastle_workspace::unsaved;
use bastle_workspace::workspace::Workspace;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use support::{Ground, look, run_id, write};

fn name(text: &str) -> SnapshotName {
    SnapshotName::try_from(text.to_owned()).unwrap()
}

fn spoil(space: &Workspace) {
    let tree = space.tree();
    write(&tree, "src/main.rs", b"changed\n");
    fs::remove_dir_all(tree.join("src/deep")).unwrap();
    fs::remove_file(tree.join("README")).unwrap();
    write(&tree, "README/now/a/directory", b"x");
    fs::remove_dir(tree.join("empty")).unwrap();
    write(&tree, "empty", b"now a file");
    fs::remove_file(tree.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    write(&tree, "new/file", b"new\n");
}

#[test]
fn rollback_gives_back_every_kind_of_change_and_the_spoilt_tree_is_a_snapshot() {
    let ground = Ground::new();
    let space = ground.create("one");
    let clean = look(&space.tree());
    spoil(&space);
    let spoilt = look(&space.tree());
    let done = space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(look(&space.tree()), clean);
    assert_eq!(done.before.reason, Reason::BeforeRollback);
    space
        .rollback(&Which::Number(done.before.number), Quiet::Unknown)
        .unwrap();
    assert_eq!(look(&space.tree()), spoilt);
}

#[test]
fn a_rollback_and_a_fork_bring_the_times_back_with_the_contents() {
    let ground = Ground::new();
    let space = ground.create("one");
    let long_ago = std::time::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    let file = |space: &Workspace| space.tree().join("src/main.rs");
    let time = |space: &Workspace| fs::metadata(file(space)).unwrap().modified().unwrap();
    let base = time(&space);
    write(&space.tree(), "src/main.rs", b"old work\n");
    let opened = fs::File::options().write(true).open(file(&space)).unwrap();
    opened.set_modified(long_ago).unwrap();
    let one = space.snapshot(None, Reason::Asked).unwrap().snapshot.number;
    write(&space.tree(), "src/main.rs", b"new work\n");
    space.rollback(&Which::Number(one), Quiet::Unknown).unwrap();
    assert_eq!(time(&space), long_ago);
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(time(&space), base, "the base has the project's own times");
    let fork = space.fork(&Which::Number(one), run_id("two")).unwrap();
    assert_eq!(time(&fork), long_ago);
    fork.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(time(&fork), base, "a fork knows the times of its base");
}

#[test]
fn snapshots_that_nobody_asked_for_do_not_pile_up_and_named_ones_stay() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "n", b"named");
    let kept = space.snapshot(Some(name("mine")), Reason::Turn).unwrap();
    for n in 0..105 {
        write(&space.tree(), "n", format!("{n}").as_bytes());
        space.snapshot(None, Reason::Turn).unwrap();
    }
    let all = space.snapshots().unwrap();
    assert_eq!(all.len(), 102, "the base, the named one and the newest");
    assert!(all.contains(&kept.snapshot));
    assert_eq!(all.last().unwrap().number, 106);
    assert!(space.rollback(&Which::Number(106), Quiet::Unknown).is_ok());
}

#[test]
fn a_snapshot_of_an_unchanged_tree_is_the_one_before_and_a_named_one_shares_its_manifest() {
    let ground = Ground::new();
    let space = ground.create("one");
    let first = space.snapshot(None, Reason::Turn).unwrap().snapshot;
    assert_eq!(first.number, 0);
    let named = space
        .snapshot(Some(name("before-lunch")), Reason::Asked)
        .unwrap()
        .snapshot;
    assert_eq!((named.number, named.manifest), (1, first.manifest));
    write(&space.tree(), "README", b"lunch\n");
    let third = space.snapshot(None, Reason::Turn).unwrap().snapshot;
    assert_eq!(third.number, 2);
    assert_eq!(space.find(&Which::Name(name("before-lunch"))).unwrap().number, 1);
    assert_eq!(
        space.find(&Which::Number(9)).unwrap_err().code,
        Code::WorkspaceMissing
    );
}

#[test]
fn a_change_that_keeps_size_and_modification_time_is_still_seen() {
    let ground = Ground::new();
    let space = ground.create("one");
    let path = space.tree().join("README");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"READ", 0).unwrap();
    file.set_modified(time).unwrap();
    let (_, now) = space.current().unwrap();
    assert_ne!(now.id(), space.base().unwrap().id());
}

#[test]
fn a_write_through_a_mapping_that_shows_no_new_time_is_found_once_the_agent_has_ended() {
    let ground = Ground::new();
    let space = ground.create("one");
    space.set_state(State::Running).unwrap();
    write(&space.tree(), "data", b"first");
    let path = space.tree().join("data");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    space.snapshot(None, Reason::Turn).unwrap();
    space.snapshot(None, Reason::Turn).unwrap();
    // What a dirty mapping does: other bytes under the very same size, times and inode. Only the memory of having
    // looked while the agent was alive can make the next look read again, so the record of the look is used twice.
    let seen = fs::read(space.path("tree.seen")).unwrap();
    fs::write(&path, b"other").unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(before)
        .unwrap();
    fs::write(space.path("tree.seen"), seen).unwrap();
    space.set_state(State::Finished).unwrap();
    let (_, now) = space.current().unwrap();
    let path = bastle_workspace::path::TreePath::new("data").unwrap();
    assert!(matches!(now.get(&path), Some(Kind::File { digest, .. }) if *digest == Content::of(b"other")));
}

#[test]
fn the_delta_names_created_changed_and_deleted_with_both_digests() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"after\n");
    write(&space.tree(), "added", b"added\n");
    fs::remove_file(space.tree().join("run.sh")).unwrap();
    space.snapshot(None, Reason::Turn).unwrap();
    let delta = space.delta(&Which::Number(0), &Which::Last, Scope::Work).unwrap();
    let told: Vec<_> = delta.iter().map(|c| (c.path.to_string(), c.sort())).collect();
    let expected = [
        ("README", ChangeKind::Changed),
        ("added", ChangeKind::Created),
        ("run.sh", ChangeKind::Deleted),
    ];
    assert_eq!(told, expected.map(|(p, k)| (p.to_owned(), k)));
    let digest = |kind: &Option<Kind>| match kind {
        Some(Kind::File { digest, .. }) => Some(*digest),
        _ => None,
    };
    assert_eq!(digest(&delta[0].before), Some(Content::of(b"read me\n")));
    assert_eq!(digest(&delta[0].after), Some(Content::of(b"after\n")));
}

#[test]
fn contents_come_by_digest_and_never_from_what_stands_in_the_tree_now() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"shown to the reviewer\n");
    space.current().unwrap();
    write(&space.tree(), "README", b"swapped afterwards\n");
    let shown = Content::of(b"shown to the reviewer\n");
    assert_eq!(
        read_blob(&space, &shown, 1000).unwrap().unwrap(),
        b"shown to the reviewer\n"
    );
    // The base content is lent by the source as long as it is there, and kept once it was asked for.
    let base = Content::of(b"read me\n");
    assert_eq!(read_blob(&space, &base, 1000).unwrap().unwrap(), b"read me\n");
    write(&ground.source(), "README", b"edited\n");
    assert_eq!(read_blob(&space, &base, 1000).unwrap().unwrap(), b"read me\n");
    assert!(space.open(&Content::of(b"never seen")).is_err());
}

#[test]
fn an_edit_of_the_source_never_enters_a_rollback_and_is_told() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"agent\n");
    // As long as the first content, so that only its digest tells it apart.
    write(&ground.source(), "README", b"person.\n");
    let taken = space.snapshot(None, Reason::Turn).unwrap();
    assert!(taken.findings.iter().any(|f| f.about == About::BeforeLost));
    let refused = space.rollback(&Which::Number(0), Quiet::Unknown).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceDamaged);
    assert_eq!(fs::read(space.tree().join("README")).unwrap(), b"agent\n");
}

#[test]
fn a_source_edited_alone_is_still_rolled_back_from_the_copy_or_the_store() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"agent\n");
    space.snapshot(None, Reason::Turn).unwrap();
    write(&ground.source(), "README", b"person\n");
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(fs::read(space.tree().join("README")).unwrap(), b"read me\n");
}

#[test]
fn rollback_is_refused_while_the_agent_is_alive_and_not_paused() {
    let ground = Ground::new();
    let space = ground.create("one");
    space.set_state(State::Running).unwrap();
    spoil(&space);
    let spoilt = look(&space.tree());
    let refused = space.rollback(&Which::Number(0), Quiet::Unknown).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceBusy);
    assert_eq!(look(&space.tree()), spoilt);
    space.rollback(&Which::Number(0), Quiet::Paused).unwrap();
    assert_ne!(look(&space.tree()), spoilt);
}

#[test]
fn locked_directories_and_files_of_the_agent_hide_nothing_from_a_snapshot() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "locked/in/file", b"work\n");
    for (path, mode) in [("locked/in/file", 0), ("locked/in", 0), ("locked", 0o300)] {
        fs::set_permissions(space.tree().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (taken, now) = space.current().unwrap();
    assert_eq!(taken.findings, []);
    assert!(
        now.entries()
            .iter()
            .any(|e| e.path.as_bytes() == b"locked/in/file")
    );
    fs::set_permissions(space.tree().join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert!(!space.tree().join("locked").exists());
}

#[test]
fn what_cannot_be_recorded_is_moved_aside_by_a_rollback_and_not_removed() {
    let ground = Ground::new();
    let space = ground.create("one");
    let huge = fs::File::create(space.tree().join("huge")).unwrap();
    huge.set_len(bastle_workspace::store::MAX_FILE + 1).unwrap();
    let (taken, _) = space.current().unwrap();
    assert!(taken.findings.iter().any(|f| f.about == About::TooLarge));
    let done = space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert!(!space.tree().join("huge").exists());
    let kept = space.path("kept").join(done.before.number.to_string());
    assert_eq!(fs::read_dir(kept).unwrap().count(), 1);
}

#[test]
fn a_fork_starts_from_the_snapshot_and_shares_nothing_writable() {
    let ground = Ground::new();
    let space = ground.create("one");
    spoil(&space);
    space.snapshot(Some(name("fork-here")), Reason::Asked).unwrap();
    let expected = look(&space.tree());
    write(&space.tree(), "README/later", b"later\n");
    let fork = space
        .fork(&Which::Name(name("fork-here")), run_id("two"))
        .unwrap();
    assert_eq!(look(&fork.tree()), expected);
    assert_eq!(fork.base().unwrap().id(), space.base().unwrap().id());
    write(&fork.tree(), "src/main.rs", b"fork\n");
    assert_eq!(fs::read(space.tree().join("src/main.rs")).unwrap(), b"changed\n");
    fork.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    let mut clean = look(&ground.source());
    clean.remove(&b".env"[..]);
    assert_eq!(look(&fork.tree()), clean);
}

#[test]
fn removal_is_refused_while_work_is_nowhere_else_and_needs_the_very_digest() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    let refused = space.clone().remove(None).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceUnexported);
    let wrong = Discard::try_from("0".repeat(64)).unwrap();
    assert_eq!(
        space.clone().remove(Some(&wrong)).unwrap_err().code,
        Code::WorkspaceUnexported
    );
    let (taken, _) = space.current().unwrap();
    let right = Discard::try_from(taken.snapshot.manifest.to_string()).unwrap();
    // Work that came after the digest was told is not covered by it.
    write(&space.tree(), "README", b"more work\n");
    assert_eq!(
        space.clone().remove(Some(&right)).unwrap_err().code,
        Code::WorkspaceUnexported
    );
    write(&space.tree(), "README", b"work\n");
    let paths = space.clone().remove(Some(&right)).unwrap();
    assert!(paths.contains(&space.tree().join("README")));
    assert!(!ground.place.run(&run_id("one")).exists());
}

#[test]
fn an_unchanged_or_applied_copy_is_removed_and_a_running_one_is_not() {
    let ground = Ground::new();
    let unchanged = ground.create("one");
    unchanged.set_state(State::Running).unwrap();
    assert_eq!(
        unchanged.clone().remove(None).unwrap_err().code,
        Code::WorkspaceBusy
    );
    unchanged.set_state(State::Finished).unwrap();
    unchanged.remove(None).unwrap();
    let applied = ground.create("two");
    write(&applied.tree(), "README", b"work\n");
    let (taken, _) = applied.current().unwrap();
    applied.mark_applied(taken.snapshot.manifest).unwrap();
    applied.remove(None).unwrap();
    assert!(ground.place.runs().unwrap().is_empty());
}

#[test]
fn removing_one_run_leaves_the_contents_that_another_needs() {
    let ground = Ground::new();
    let (one, two) = (ground.create("one"), ground.create("two"));
    write(&two.tree(), "README", b"older work\n");
    two.current().unwrap();
    for space in [&one, &two] {
        write(&space.tree(), "README", b"same work\n");
        space.current().unwrap();
    }
    write(&one.tree(), "only", b"only in one\n");
    let (taken, _) = one.current().unwrap();
    one.mark_applied(taken.snapshot.manifest).unwrap();
    one.remove(None).unwrap();
    assert_eq!(
        read_blob(&two, &Content::of(b"same work\n"), 100)
            .unwrap()
            .unwrap(),
        b"same work\n"
    );
    assert!(two.open(&Content::of(b"older work\n")).is_ok());
    assert!(two.open(&Content::of(b"only in one\n")).is_err());
    two.rollback(&Which::Last, Quiet::Unknown).unwrap();
}

#[test]
fn prune_shows_every_path_keeps_unexported_work_and_removes_only_when_told() {
    let ground = Ground::new();
    let (clean, dirty) = (ground.create("clean"), ground.create("dirty"));
    write(&dirty.tree(), "README", b"work\n");
    let shown = prune(&ground.place, Duration::ZERO, Prune::DryRun).unwrap();
    assert_eq!(shown.runs, [run_id("clean")]);
    assert!(shown.paths.contains(&clean.tree().join("src/main.rs")));
    assert_eq!(shown.kept.len(), 1);
    assert!(clean.tree().exists());
    assert!(
        prune(&ground.place, Duration::from_secs(3600), Prune::Remove)
            .unwrap()
            .runs
            .is_empty()
    );
    assert!(clean.tree().exists());
    prune(&ground.place, Duration::ZERO, Prune::Remove).unwrap();
    assert!(!clean.tree().exists());
    assert!(dirty.tree().exists());
}

#[test]
fn a_damaged_manifest_or_content_is_an_error_and_never_a_tree() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), "README", b"work\n");
    let (taken, _) = space.current().unwrap();
    write(&space.tree(), "README", b"later\n");
    let objects = fs::read_dir(ground.root.path().join("state/store")).unwrap();
    let store = objects.map(|e| e.unwrap().path()).find(|p| p.is_dir()).unwrap();
    let digest = Content::of(b"work\n").to_string();
    let object = store.join("objects").join(&digest[..1]).join(&digest[1..]);
    fs::write(&object, b"evil\n").unwrap();
    let which = Which::Number(taken.snapshot.number);
    assert_eq!(
        space.rollback(&which, Quiet::Unknown).unwrap_err().code,
        Code::WorkspaceDamaged
    );
    assert_eq!(fs::read(space.tree().join("README")).unwrap(), b"later\n");
    let manifest = store.join("manifests").join(taken.snapshot.manifest.to_string());
    fs::write(&manifest, b"bastle manifest 1\n").unwrap();
    assert_eq!(
        space.manifest(&taken.snapshot).unwrap_err().code,
        Code::WorkspaceDamaged
    );
}

#[test]
fn settling_keeps_the_base_against_any_later_edit_of_source_and_copy() {
    let ground = Ground::new();
    let space = ground.create("one");
    assert_eq!(space.settle().unwrap(), []);
    write(&space.tree(), "README", b"agent\n");
    write(&ground.source(), "README", b"person\n");
    let taken = space.snapshot(None, Reason::Turn).unwrap();
    assert_eq!(taken.findings, []);
    space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert_eq!(fs::read(space.tree().join("README")).unwrap(), b"read me\n");
}

#[test]
fn a_tree_nested_beyond_every_limit_is_told_moved_aside_and_removed_without_failing() {
    let ground = Ground::new();
    let space = ground.create("one");
    let mut dir = rustix::fs::open(
        space.tree(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&dir, "deeper", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        dir = rustix::fs::openat(&dir, "deeper", flags, rustix::fs::Mode::empty()).unwrap();
    }
    let (taken, _) = space.current().unwrap();
    assert!(taken.findings.iter().any(|f| f.about == About::TooDeep));
    assert_eq!(
        space.clone().remove(None).unwrap_err().code,
        Code::WorkspaceUnexported
    );
    let done = space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
    assert!(!space.tree().join("deeper").exists());
    assert_eq!(
        fs::read_dir(space.path("kept").join(done.before.number.to_string()))
            .unwrap()
            .count(),
        1
    );
    // What only the snapshot before the rollback, and the directory beside it, still hold is work, too.
    assert_eq!(
        space.clone().remove(None).unwrap_err().code,
        Code::WorkspaceUnexported
    );
    let lost = unsaved::digest(&space.unsaved().unwrap()).to_string();
    space.remove(Some(&Discard::try_from(lost).unwrap())).unwrap();
    let left: Vec<_> = fs::read_dir(ground.place.work()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_index_that_git_rewrote_is_no_work_but_a_moved_branch_is() {
    let ground = Ground::new();
    let space = ground.create("one");
    write(&space.tree(), ".git/index", b"rewritten by a mere status");
    write(&space.tree(), ".git/logs/HEAD", b"log");
    space.check_removable(None).unwrap();
    write(&space.tree(), ".git/refs/heads/agent", b"0123");
    assert_eq!(
        space.check_removable(None).unwrap_err().code,
        Code::WorkspaceUnexported
    );
    let (taken, _) = space.current().unwrap();
    space.mark_applied(taken.snapshot.manifest).unwrap();
    write(&space.tree(), ".git/index", b"rewritten again");
    space.check_removable(None).unwrap();
    write(&space.tree(), "README", b"work after the apply");
    assert_eq!(
        space.check_removable(None).unwrap_err().code,
        Code::WorkspaceUnexported
    );
}
