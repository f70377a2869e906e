//! Many producers, one thread that makes records durable.
use crate::common::*;
use bastle_audit::{AuditError, AuditWriter, Committer, Unsealed, Verdict, show};
use std::fs;

#[test]
fn records_of_many_producers_are_all_there_in_one_chain() {
    let state = state();
    let handle = Committer::spawn(AuditWriter::create(state.path(), &run("a")).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for producer in 0..6 {
            let handle = handle.clone();
            scope.spawn(move || {
                for number in 0..100 {
                    handle.append(&denied(&format!("/{producer}/{number}"))).unwrap();
                    if number % 25 == 0 {
                        handle.commit().unwrap();
                    }
                }
            });
        }
    });
    let seal = handle.seal().unwrap();
    assert!(is_sealed(state.path(), &run("a")));
    let messages: Vec<_> = show(state.path(), &run("a"))
        .unwrap()
        .map(|r| r.unwrap().message().to_owned())
        .collect();
    assert_eq!(u64::try_from(messages.len()).unwrap(), seal.records);
    for producer in 0..6 {
        let own: Vec<_> = messages
            .iter()
            .filter(|m| m.contains(&format!("openat /{producer}/")))
            .collect();
        let expected: Vec<_> = (0..100)
            .map(|n| format!("denied openat /{producer}/{n}"))
            .collect();
        assert_eq!(
            own,
            expected.iter().collect::<Vec<_>>(),
            "each producer's order is kept"
        );
    }
}

#[test]
fn what_was_committed_is_on_disk_when_commit_returns() {
    let state = tempfile::tempdir().unwrap();
    let handle = Committer::spawn(AuditWriter::create(state.path(), &run("a")).unwrap()).unwrap();
    let path = log_path(state.path(), &run("a"));
    for number in 0..20 {
        let id = handle.append_durable(&denied(&format!("/{number}"))).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains(&id.uid));
    }
}

#[test]
fn dropping_every_handle_writes_everything_and_leaves_the_log_unsealed() {
    let state = state();
    let handle = Committer::spawn(AuditWriter::create(state.path(), &run("a")).unwrap()).unwrap();
    for number in 0..10 {
        handle.append(&denied(&format!("/{number}"))).unwrap();
    }
    drop(handle);
    let verdict = report(state.path(), &run("a")).verdict;
    assert_eq!(
        verdict,
        Verdict::Unsealed {
            last: 12,
            cause: Unsealed::NoSeal
        }
    );
}

#[test]
fn a_sealed_log_takes_nothing_from_any_handle() {
    let state = state();
    let handle = Committer::spawn(AuditWriter::create(state.path(), &run("a")).unwrap()).unwrap();
    let other = handle.clone();
    handle.seal().unwrap();
    assert!(matches!(other.append(&denied("/x")), Err(AuditError::Closed)));
    assert!(matches!(other.commit(), Err(AuditError::Closed)));
    assert!(matches!(other.seal(), Err(AuditError::Closed)));
    assert!(is_sealed(state.path(), &run("a")));
}
