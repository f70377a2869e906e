//! What happens when the disk says no.
use crate::chain::{Position, Scribe, Thread};
use crate::dir::Dir;
use crate::key::Key;
use crate::medium::{LogMedium, Medium, Sink};
use crate::{AuditError, AuditEvent, AuditWriter, Committer};
use bastle_contract::{Code, RunId};
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Fails once, then works again, as a disk after a failed write-back does.
struct FailsOnce {
    at: Failing,
    done: Arc<Mutex<Vec<&'static str>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    Write,
    Sync,
    Never,
}

impl FailsOnce {
    fn fail(&mut self, now: Failing) -> io::Result<()> {
        if self.at == now {
            self.at = Failing::Never;
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }
}

impl Medium for FailsOnce {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        self.fail(Failing::Write)?;
        self.done.lock().unwrap().push("write");
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fail(Failing::Sync)?;
        self.done.lock().unwrap().push("sync");
        Ok(())
    }
}

fn writer_on(state: &tempfile::TempDir, medium: impl Medium + 'static) -> AuditWriter {
    let dir = Dir::create(state.path()).unwrap();
    let key = Key::load_or_create(&dir).unwrap();
    let run = RunId::try_from("a".to_owned()).unwrap();
    let thread = Thread {
        trace: "0".repeat(32),
        policy: None,
    };
    let scribe = Scribe::new(run, key, thread, Position::start());
    let sink = Sink::new(Box::new(medium), PathBuf::from("/log"));
    AuditWriter {
        scribe,
        sink,
        dir,
        unanchored: None,
        warning: None,
    }
}

fn failing(at: Failing) -> (FailsOnce, Arc<Mutex<Vec<&'static str>>>) {
    let done = Arc::new(Mutex::new(Vec::new()));
    (
        FailsOnce {
            at,
            done: Arc::clone(&done),
        },
        done,
    )
}

#[test]
fn a_failed_sync_is_final_even_if_the_next_would_succeed() {
    for at in [Failing::Write, Failing::Sync] {
        let state = tempfile::tempdir().unwrap();
        let (medium, done) = failing(at);
        let mut writer = writer_on(&state, medium);
        assert!(matches!(
            writer.append_durable(&AuditEvent::Paused),
            Err(AuditError::Io { .. })
        ));
        let before = done.lock().unwrap().clone();
        assert!(matches!(
            writer.append(&AuditEvent::Paused),
            Err(AuditError::Poisoned { .. })
        ));
        assert!(matches!(writer.flush(), Err(AuditError::Poisoned { .. })));
        assert!(matches!(writer.sync(), Err(AuditError::Poisoned { .. })));
        assert!(matches!(writer.seal(), Err(AuditError::Poisoned { .. })));
        assert_eq!(
            *done.lock().unwrap(),
            before,
            "nothing touches the file after the failure"
        );
    }
}

#[test]
fn a_failed_sync_reaches_every_producer_of_a_group_commit() {
    let state = tempfile::tempdir().unwrap();
    let (medium, _) = failing(Failing::Sync);
    let handle = Committer::spawn(writer_on(&state, medium)).unwrap();
    let other = handle.clone();
    handle.append(&AuditEvent::Paused).unwrap();
    let cause = match handle.commit() {
        Err(AuditError::Poisoned { cause }) => cause,
        other => panic!("{other:?}"),
    };
    assert!(cause.starts_with("sync /log: "), "{cause}");
    assert!(matches!(
        other.append(&AuditEvent::Paused),
        Err(AuditError::Poisoned { .. })
    ));
    assert!(matches!(other.commit(), Err(AuditError::Poisoned { .. })));
    assert!(matches!(other.seal(), Err(AuditError::Poisoned { .. })));
}

#[test]
fn a_full_disk_is_named_and_stops_the_log() {
    let state = tempfile::tempdir().unwrap();
    let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
    let mut writer = writer_on(&state, LogMedium::new(full, Vec::new()));
    let error = writer.append_durable(&AuditEvent::Paused).unwrap_err();
    assert!(matches!(error, AuditError::Full { .. }), "{error:?}");
    let fault = error.fault();
    assert_eq!(
        (fault.code, fault.what.as_str()),
        (Code::AuditWrite, "no space left to write /log")
    );
    assert!(matches!(writer.sync(), Err(AuditError::Poisoned { .. })));
}

#[test]
fn appending_buffers_until_much_has_gathered_and_sync_writes_first() {
    let state = tempfile::tempdir().unwrap();
    let (medium, done) = failing(Failing::Never);
    let mut writer = writer_on(&state, medium);
    for _ in 0..10 {
        writer.append(&AuditEvent::Paused).unwrap();
    }
    assert!(done.lock().unwrap().is_empty());
    writer.sync().unwrap();
    assert_eq!(*done.lock().unwrap(), ["write", "sync"]);
    for _ in 0..100 {
        writer.append(&AuditEvent::Paused).unwrap();
    }
    assert_eq!(*done.lock().unwrap(), ["write", "sync", "write"]);
}
