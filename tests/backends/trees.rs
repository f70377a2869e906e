//! Snapshots, going back, and work that no destruction loses.
use crate::subject::{building, command, sh};
use crate::support::{Limit, eventually};
use bastle_contract::{Code, Digest};
use bastle_control::review::library::meta::{SnapshotName, Which};

#[test]
fn a_tree_goes_back_to_a_snapshot_only_when_nothing_lives_and_one_without_a_tree_says_so() {
    for subject in building() {
        let sandbox = subject.lives();
        let name = || SnapshotName::try_from("works".to_owned()).unwrap();
        if subject.mode.is_none() {
            let refused = sandbox.snapshot(Some(name())).expect_err("has no tree");
            assert_eq!(refused.code, Code::BackendUnsupported);
            let refused = sandbox.restore(&Which::Number(0)).expect_err("has no tree");
            assert_eq!(refused.code, Code::BackendUnsupported);
            assert_eq!(
                std::fs::read_to_string(subject.project().join("a.txt")).unwrap(),
                "as it was\n"
            );
            continue;
        }
        sh(sandbox.as_ref(), "echo one > a.txt; echo new > b.txt");
        let taken = sandbox.snapshot(Some(name())).expect("has a tree");
        assert_eq!(taken.snapshot.name, Some(name()));
        sh(sandbox.as_ref(), "echo two > a.txt; rm b.txt");
        let busy = sandbox.restore(&Which::Name(name())).expect_err("it lives");
        assert_eq!(busy.code, Code::WorkspaceBusy);
        // The run ends with the agent, and this command with the run: how it ended is not the matter.
        drop(sandbox.exec(&command(&["sh", "-c", "kill -9 $(pgrep -o sleep)"])));
        assert!(eventually(Limit::HANG, || !sandbox.is_alive().unwrap()));
        let missing = sandbox.restore(&Which::Number(99)).expect_err("nobody took it");
        assert_eq!(missing.code, Code::WorkspaceMissing);
        let back = sandbox.restore(&Which::Name(name())).expect("is there");
        assert_eq!(back.to.number, taken.snapshot.number, "{}", subject.shown());
        assert!(
            back.changes
                .iter()
                .any(|change| change.path.to_string() == "a.txt")
        );
        // Forward again: what it was before is a snapshot.
        let forward = sandbox
            .restore(&Which::Number(back.before.number))
            .expect("is kept");
        assert_eq!(forward.changes.len(), back.changes.len(), "{}", subject.shown());
        assert_eq!(
            std::fs::read_to_string(subject.project().join("a.txt")).unwrap(),
            "as it was\n"
        );
    }
}

#[test]
fn no_destruction_loses_work_that_was_not_named() {
    for subject in building().into_iter().filter(|subject| subject.mode.is_some()) {
        let sandbox = subject.lives();
        sh(sandbox.as_ref(), "echo work > work.txt");
        let all = subject.backend.destroy_all().expect("can be told");
        let refused = all[0].outcome.as_ref().expect_err("holds work");
        assert!(!sandbox.is_alive().unwrap(), "it is ended all the same");
        let wrong = Digest::try_from("0".repeat(64)).unwrap();
        assert!(
            sandbox.destroy(Some(&wrong)).is_err(),
            "another digest names other work"
        );
        let told = format!("{refused:?}");
        let digest = told
            .split(|c: char| !c.is_ascii_hexdigit())
            .find(|word| word.len() == 64)
            .unwrap_or_else(|| panic!("the refusal names the digest: {told}"));
        let digest = Digest::try_from(digest.to_owned()).unwrap();
        sandbox.destroy(Some(&digest)).expect("was named");
        assert!(subject.backend.get(sandbox.id()).is_err(), "{}", subject.shown());
    }
}
