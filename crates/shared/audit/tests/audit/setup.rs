//! Files and modes: who may read and write what.
use crate::common::*;
use bastle_audit::{AuditError, AuditWriter};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn logs_and_the_key_are_readable_by_their_owner_only() {
    let state = state();
    let base = state.path().join("fresh/state");
    sealed(&base, &run("a"), 1);
    assert_eq!(mode(base.join("audit")), 0o700);
    assert_eq!(mode(base.join("audit/a")), 0o700);
    assert_eq!(mode(base.join("audit/key.ed25519")), 0o600);
    assert_eq!(mode(base.join("audit/key.pub")), 0o644);
    assert_eq!(mode(index_path(&base)), 0o600);
    assert_eq!(mode(log_path(&base, &run("a"))), 0o600);
    let left: Vec<_> = fs::read_dir(base.join("audit"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 4, "no temporary file stays: {left:?}");
}

#[test]
fn the_key_is_made_once_and_stays() {
    let state = state();
    let first = sealed(state.path(), &run("a"), 1).key;
    let key = fs::read(state.path().join("audit/key.ed25519")).unwrap();
    assert_eq!(sealed(state.path(), &run("b"), 1).key, first);
    assert_eq!(fs::read(state.path().join("audit/key.ed25519")).unwrap(), key);
}

#[test]
fn many_first_runs_at_once_agree_on_one_key() {
    let state = state();
    let path = state.path();
    let keys: Vec<_> = std::thread::scope(|scope| {
        let spawn = |n| scope.spawn(move || sealed(path, &run(&format!("r{n}")), 1).key);
        let threads: Vec<_> = (0..6).map(spawn).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn a_directory_or_key_that_others_may_reach_is_refused() {
    let state = state();
    sealed(state.path(), &run("a"), 1);
    let key = state.path().join("audit/key.ed25519");
    let untrusted = || {
        matches!(
            AuditWriter::create(state.path(), &run("b")),
            Err(AuditError::Untrusted { .. })
        )
    };
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    assert!(untrusted());
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(state.path().join("audit"), Permissions::from_mode(0o777)).unwrap();
    assert!(untrusted());
    fs::set_permissions(state.path().join("audit"), Permissions::from_mode(0o700)).unwrap();
    fs::write(state.path().join("audit/key.pub"), "0".repeat(64)).unwrap();
    assert!(untrusted());
    fs::write(&key, "short").unwrap();
    assert!(untrusted());
    assert!(!state.path().join("audit/b").exists(), "nothing was begun");
}

#[test]
fn symbolic_links_and_fifos_in_the_place_of_files_are_refused() {
    let state = state();
    let elsewhere = state.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    sealed(state.path(), &run("a"), 1);
    let audit = state.path().join("audit");
    symlink(&elsewhere, audit.join("b")).unwrap();
    assert!(matches!(
        AuditWriter::create(state.path(), &run("b")),
        Err(AuditError::Exists { .. })
    ));
    assert!(bastle_audit::verify(state.path(), &run("b")).is_err());
    let log = log_path(state.path(), &run("a"));
    let kept = audit.join("a/kept");
    fs::rename(&log, &kept).unwrap();
    symlink(&kept, &log).unwrap();
    assert!(bastle_audit::verify(state.path(), &run("a")).is_err());
    fs::remove_file(&log).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &log,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert!(matches!(
        bastle_audit::verify(state.path(), &run("a")),
        Err(AuditError::Untrusted { .. })
    ));
    fs::rename(&audit, state.path().join("moved")).unwrap();
    symlink(state.path().join("moved"), &audit).unwrap();
    assert!(AuditWriter::create(state.path(), &run("c")).is_err());
}

#[test]
fn denial_ids_are_short_and_never_shared_within_a_run() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    let ids: Vec<_> = (0..500)
        .map(|n| writer.append(&denied(&n.to_string())).unwrap().uid)
        .collect();
    assert!(ids.iter().all(|id| id.len() == 6 && id.starts_with("d_")));
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn an_event_that_no_reader_would_take_is_refused_and_the_log_stays_good() {
    let state = state();
    let mut writer = AuditWriter::create(state.path(), &run("a")).unwrap();
    let note = |text| bastle_audit::AuditEvent::Note {
        topic: "t".into(),
        text,
    };
    let huge = note("\u{1}".repeat(200_000));
    assert!(matches!(writer.append(&huge), Err(AuditError::TooLarge { .. })));
    let mut deep = every_event().remove(0);
    if let bastle_audit::AuditEvent::RunPlanned { effective, .. } = &mut deep {
        *effective = (0..120).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
    }
    assert!(matches!(writer.append(&deep), Err(AuditError::TooDeep)));
    writer.append(&note("fine".into())).unwrap();
    writer.seal().unwrap();
    assert!(is_sealed(state.path(), &run("a")));
}
