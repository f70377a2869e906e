//! One suite over all ways of making the agent's tree: whatever the way, the same files are there, the same work is
//! found, and the same states come back. An overlay is mounted as the sandbox mounts it, in a user namespace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot prepare must fail it"
)]

mod support;

use bastle_contract::{Code, Fault};
use bastle_workspace::audit_delta::{Scope, delta};
use bastle_workspace::finding::About;
use bastle_workspace::meta::{Reason, State, Which, WorkMode};
use bastle_workspace::path::TreePath;
use bastle_workspace::retention::recover;
use bastle_workspace::rollback::Quiet;
use bastle_workspace::workspace::Workspace;
use std::fs;
use support::modes::{MODES, WORK, expected, git, ground, inside, recorded, seen};
use support::{Ground, look, run_id, write};

fn make(ground: &Ground, mode: WorkMode, run: &str) -> Result<Workspace, Fault> {
    support::modes::make(&ground.place, &ground.source(), mode, run)
}

#[test]
fn every_mode_begins_with_the_source_less_what_is_hidden() {
    let ground = ground();
    for mode in MODES {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        assert_eq!(space.mode(), mode);
        assert_eq!(seen(&ground, &space), expected(&ground), "{mode:?}");
        assert_eq!(recorded(&space), expected(&ground), "{mode:?}");
    }
}

#[test]
fn every_mode_finds_the_same_work_and_leaves_the_source_alone() {
    let ground = ground();
    let before = look(&ground.source());
    let mut found = Vec::new();
    for mode in MODES {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        inside(&ground, &space, WORK);
        let view = seen(&ground, &space);
        assert_ne!(view, expected(&ground), "{mode:?}: the script did nothing");
        assert_eq!(recorded(&space), view, "{mode:?}");
        let (taken, now) = space.current().unwrap();
        assert!(taken.findings.is_empty(), "{mode:?}: {:?}", taken.findings);
        found.push(delta(&space.base().unwrap(), &now, Scope::Work));
    }
    assert_eq!(found[0], found[1], "an overlay shows other work than a copy");
    assert_eq!(found[0], found[2], "a work tree shows other work than a copy");
    assert_eq!(look(&ground.source()), before);
}

#[test]
fn every_mode_goes_back_to_the_base_and_forward_to_the_work() {
    let ground = ground();
    for mode in MODES {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        inside(&ground, &space, WORK);
        let worked = seen(&ground, &space);
        let work = space.snapshot(None, Reason::Turn).unwrap().snapshot.number;
        for _ in 0..2 {
            space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
            assert_eq!(seen(&ground, &space), expected(&ground), "{mode:?}: back");
            assert_eq!(recorded(&space), expected(&ground), "{mode:?}: back, as recorded");
            space.rollback(&Which::Number(work), Quiet::Unknown).unwrap();
            assert_eq!(seen(&ground, &space), worked, "{mode:?}: forward");
            assert_eq!(recorded(&space), worked, "{mode:?}: forward, as recorded");
        }
        let aside = fs::read_dir(space.path("kept")).unwrap().count();
        assert_eq!(aside, 0, "{mode:?}: recorded things were moved aside");
    }
}

#[test]
fn a_file_comes_back_with_its_time_whether_it_was_copied_or_seen_through() {
    let ground = ground();
    let plain = fs::File::open(ground.source().join("plain")).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    plain.set_modified(then).unwrap();
    for mode in [WorkMode::Copy, WorkMode::Overlay] {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        inside(&ground, &space, "echo more >> plain; echo other >> README");
        space.snapshot(None, Reason::Turn).unwrap();
        inside(
            &ground,
            &space,
            "test $(stat -c %Y plain) != 1000000000; echo > a-b/c",
        );
        for _ in 0..2 {
            space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
            inside(&ground, &space, "test $(stat -c %Y plain) = 1000000000");
            space.rollback(&Which::Number(1), Quiet::Unknown).unwrap();
        }
    }
}

#[test]
fn a_hidden_name_that_the_agent_made_and_a_rollback_removed_does_not_uncover_the_hosts() {
    let ground = ground();
    for mode in MODES {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        inside(
            &ground,
            &space,
            "echo mine > .env; mkdir -p sub/.env.local; echo x > sub/.env.local/x",
        );
        assert_eq!(seen(&ground, &space)[&b".env"[..]].2, b"mine\n", "{mode:?}");
        space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
        inside(&ground, &space, "test ! -e .env && test ! -e sub/.env.local");
        assert_eq!(seen(&ground, &space), expected(&ground), "{mode:?}");
    }
}

#[test]
fn every_mode_has_a_repository_of_its_own_and_shows_nothing_of_the_hosts() {
    let ground = ground();
    let before = look(&ground.source());
    for mode in MODES {
        let space = make(&ground, mode, &format!("{mode:?}").to_lowercase()).unwrap();
        inside(
            &ground,
            &space,
            "set -e; test ! -e .git/hooks/post-checkout; ! grep -r password .git
             test -z \"$(git status --porcelain)\"; git log -1 --format=%s | grep -q first
             echo more >> README; git commit -qam more; test \"$(git rev-list --count HEAD)\" = 2",
        );
    }
    assert_eq!(look(&ground.source()), before);
}

#[test]
fn a_fork_of_any_mode_has_what_the_agent_saw() {
    let ground = ground();
    for mode in MODES {
        let name = format!("{mode:?}").to_lowercase();
        let space = make(&ground, mode, &name).unwrap();
        inside(&ground, &space, WORK);
        space.current().unwrap();
        let fork = space.fork(&Which::Last, run_id(&format!("{name}-fork"))).unwrap();
        assert_eq!(seen(&ground, &fork), seen(&ground, &space), "{mode:?}");
        assert_eq!(fork.base().unwrap(), space.base().unwrap(), "{mode:?}");
    }
}

#[test]
fn no_mode_is_removed_with_work_in_it_and_nothing_is_left_of_one_without() {
    let ground = ground();
    for mode in MODES {
        let name = format!("{mode:?}").to_lowercase();
        let space = make(&ground, mode, &name).unwrap();
        inside(&ground, &space, "echo work > work");
        let refused = space.clone().remove(None).unwrap_err();
        assert_eq!(refused.code, Code::WorkspaceUnexported, "{mode:?}");
        space.rollback(&Which::Number(0), Quiet::Unknown).unwrap();
        // Now the snapshot that the rollback took is the only place of the work.
        let refused = space.clone().remove(None).unwrap_err();
        assert_eq!(refused.code, Code::WorkspaceUnexported, "{mode:?}");
        let taken = space.find(&Which::Number(1)).unwrap();
        space.mark_exported(taken.manifest).unwrap();
        space.remove(None).unwrap();
        assert!(!ground.place.run(&run_id(&name)).exists(), "{mode:?}");
    }
    assert!(recover(&ground.place).unwrap().is_empty());
}

#[test]
fn an_edit_of_the_host_below_an_overlay_is_told_and_never_taken_for_the_agents_work() {
    let ground = ground();
    let space = make(&ground, WorkMode::Overlay, "one").unwrap();
    inside(&ground, &space, "echo work > work; rm plain");
    write(&ground.source(), "README", b"edited on the host\n");
    fs::remove_file(ground.source().join("sub/kept")).unwrap();
    write(
        &ground.source(),
        "plain",
        b"edited below what the agent removed\n",
    );
    let (taken, now) = space.current().unwrap();
    let told: Vec<String> = taken
        .findings
        .iter()
        .filter(|finding| finding.about == About::SourceChanged)
        .map(|finding| finding.path.to_string())
        .collect();
    assert_eq!(told, ["README", "sub/kept"]);
    let changed: Vec<String> = delta(&space.base().unwrap(), &now, Scope::Work)
        .iter()
        .map(|change| change.path.to_string())
        .collect();
    assert_eq!(changed, ["plain", "work"]);
}

#[test]
fn the_same_bytes_written_again_on_the_host_are_no_edit_even_without_the_record_of_looks() {
    let ground = ground();
    let space = make(&ground, WorkMode::Overlay, "one").unwrap();
    write(&ground.source(), "README", b"read me\n");
    fs::remove_file(space.path("source.seen")).unwrap();
    assert!(space.current().unwrap().0.findings.is_empty());
}

#[test]
fn an_overlay_that_is_mounted_is_not_rolled_back_not_even_paused() {
    let ground = ground();
    let space = make(&ground, WorkMode::Overlay, "one").unwrap();
    space.set_state(State::Running).unwrap();
    let refused = space.rollback(&Which::Number(0), Quiet::Paused).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceBusy);
    space.set_state(State::Finished).unwrap();
    space.rollback(&Which::Number(0), Quiet::Paused).unwrap();
}

#[test]
fn sockets_and_pipes_of_the_host_are_not_seen_through_an_overlay() {
    let ground = ground();
    let _socket = std::os::unix::net::UnixListener::bind(ground.source().join("sub/socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        ground.source().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let space = make(&ground, WorkMode::Overlay, "one").unwrap();
    inside(
        &ground,
        &space,
        "test ! -e sub/socket && test ! -e pipe && test -e sub/kept",
    );
}

#[test]
fn the_agent_cannot_take_a_mark_away_and_see_what_it_covers() {
    let ground = ground();
    let space = make(&ground, WorkMode::Overlay, "one").unwrap();
    let script = r#"
        rm -rf .env sub/.env.local; test ! -e .env || exit 1
        mv sub sub2 2>/dev/null; cp -a sub2 sub3; test ! -e sub2/.env.local && test ! -e sub3/.env.local || exit 2
        mkdir -p sub; test ! -e sub/.env.local || exit 3
        mknod dev c 0 0 2>/dev/null && exit 4
        grep -rs SECRET . && exit 5
        grep -rs TOKEN . && exit 6
        python3 -c '
import os
for name in ("user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy"):
    for value in (b"n", b"/lib"):
        for path in (".git", "src"):
            try:
                os.setxattr(path, name, value)
                os.removexattr(path, name)
            except OSError:
                pass'
        test ! -e .git/hooks/post-checkout"#;
    inside(&ground, &space, script);
}

#[test]
fn a_work_tree_has_what_is_committed_and_says_so() {
    let ground = ground();
    write(&ground.source(), "README", b"not committed\n");
    write(&ground.source(), "untracked", b"not tracked\n");
    write(&ground.source(), "staged", b"only staged\n");
    git(&ground.source(), &["add", "staged"]);
    let space = make(&ground, WorkMode::Worktree, "one").unwrap();
    let view = seen(&ground, &space);
    assert_eq!(view[&b"README"[..]].2, b"read me\n");
    assert!(!view.contains_key(&b"untracked"[..]) && !view.contains_key(&b"staged"[..]));
    let meta = space.meta().unwrap();
    let said = |finding: &bastle_workspace::finding::Finding| matches!(&finding.about, About::Note(text) if text.contains("only committed files"));
    assert!(meta.findings.iter().any(said));
    inside(&ground, &space, "test -z \"$(git status --porcelain)\"");
}

#[test]
fn a_work_tree_without_a_repository_or_a_commit_is_refused_and_nothing_is_left() {
    let bare = Ground::new();
    let unborn = Ground::new();
    git(&unborn.source(), &["init", "-q"]);
    for ground in [bare, unborn] {
        let refused = make(&ground, WorkMode::Worktree, "one").map(drop).unwrap_err();
        assert_eq!(refused.code, Code::WorkspaceGit);
        assert!(!ground.place.run(&run_id("one")).exists());
    }
}

#[test]
fn no_filter_of_the_project_runs_while_a_work_tree_is_checked_out() {
    let ground = ground();
    let proof = ground.root.path().join("proof");
    write(&ground.source(), ".gitattributes", b"* filter=evil\n");
    git(&ground.source(), &["add", "-A"]);
    git(&ground.source(), &["commit", "-q", "-m", "attributes"]);
    let smudge = format!("touch {}; cat", proof.display());
    git(&ground.source(), &["config", "filter.evil.smudge", &smudge]);
    git(&ground.source(), &["config", "core.fsmonitor", &smudge]);
    make(&ground, WorkMode::Worktree, "one").unwrap();
    assert!(!proof.exists());
    // The same configuration does run when git is asked in the project itself.
    fs::remove_file(ground.source().join("plain")).unwrap();
    git(&ground.source(), &["checkout", "plain"]);
    assert!(proof.exists());
}

#[test]
fn files_of_another_group_are_refused_below_an_overlay_because_they_could_not_be_changed() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let ground = ground();
    let path = TreePath::new("plain").unwrap();
    std::os::unix::fs::chown(ground.source().join(path.as_path()), None, Some(7)).unwrap();
    let refused = make(&ground, WorkMode::Overlay, "one").map(drop).unwrap_err();
    assert_eq!(refused.code, Code::WorkspaceOverlay);
    assert!(!ground.place.run(&run_id("one")).exists());
    make(&ground, WorkMode::Copy, "two").unwrap();
}
