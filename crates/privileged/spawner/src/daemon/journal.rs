//! The daemon's own audit log: who asked, and what became of it. No record, no effect.
//!
//! A flood of refusals must not become a flood of records: of one caller's refusals of one kind one a second is kept,
//! with the number of those that were left out.
use bastle_audit::{AuditError, AuditEvent, AuditWriter};
use bastle_contract::{Code, Fault, RunId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two records of the same refusal.
const BETWEEN: Duration = Duration::from_secs(1);
/// Refusals that are remembered; of more each is recorded.
const MOST_REMEMBERED: usize = 4096;

/// The log.
pub(super) struct Journal {
    writer: AuditWriter,
    /// Records that are not on disk yet.
    pending: bool,
    /// After a failed sync nobody knows what is on the disk.
    broken: bool,
    /// How often it was made durable.
    synced: u32,
    refusals: BTreeMap<(u32, Code), Repeated>,
}

struct Repeated {
    at: Instant,
    left_out: u64,
}

impl Journal {
    /// Begins the log of this daemon.
    pub(super) fn open(state: &Path, run: &RunId) -> Result<Self, Fault> {
        let mut writer = AuditWriter::create(state, run).map_err(|error| fault(&error))?;
        writer
            .append_durable(&note(&json!({ "verdict": "started" })))
            .map_err(|error| fault(&error))?;
        Ok(Self {
            writer,
            pending: false,
            broken: false,
            synced: 0,
            refusals: BTreeMap::new(),
        })
    }

    /// Records something; it is durable after [`Self::commit`].
    pub(super) fn record(&mut self, what: &Value) -> Result<(), Fault> {
        if self.broken {
            return Err(after_failure());
        }
        match self.writer.append(&note(what)) {
            Ok(_) => {
                self.pending = true;
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                Err(fault(&error))
            }
        }
    }

    /// Records a refusal, if the last one of its kind is long enough ago.
    pub(super) fn refusal(
        &mut self,
        (uid, pid): (u32, u32),
        refused: &Fault,
        now: Instant,
    ) -> Result<(), Fault> {
        let key = (uid, refused.code);
        let mut left_out = 0;
        if let Some(last) = self.refusals.get_mut(&key) {
            if now.saturating_duration_since(last.at) < BETWEEN {
                last.left_out += 1;
                return if self.broken { Err(after_failure()) } else { Ok(()) };
            }
            left_out = last.left_out;
        }
        if self.refusals.len() >= MOST_REMEMBERED {
            self.refusals
                .retain(|_, last| now.saturating_duration_since(last.at) < BETWEEN);
        }
        if self.refusals.len() < MOST_REMEMBERED {
            self.refusals.insert(key, Repeated { at: now, left_out: 0 });
        }
        self.record(&json!({
            "verdict": "refused",
            "uid": uid,
            "pid": pid,
            "code": refused.code,
            "what": refused.what,
            "why": refused.why,
            "more": left_out,
        }))
    }

    /// Whether something waits to be made durable.
    pub(super) fn is_pending(&self) -> bool {
        self.pending && !self.broken
    }

    /// Makes everything durable at once.
    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        if self.broken {
            return Err(after_failure());
        }
        if !self.pending {
            return Ok(());
        }
        self.pending = false;
        self.synced = self.synced.saturating_add(1);
        let disk = crate::hooks::disk(self.synced).map_err(|error| cannot(&error));
        let synced = disk.and_then(|()| self.writer.sync().map_err(|error| fault(&error)));
        // Never the other way: a later success says nothing about what was lost before it.
        self.broken |= synced.is_err();
        synced
    }

    /// Ends the log. The index is told by the mother, which can still open it.
    pub(super) fn end(mut self) -> Result<(), Fault> {
        self.record(&json!({ "verdict": "stopped" }))?;
        self.writer.end().map_err(|error| fault(&error))
    }
}

/// Tells the index how the log ended.
pub(super) fn settle(state: &Path, run: &RunId) -> Result<(), Fault> {
    match AuditWriter::resume(state, run) {
        // It was ended in order, and the index is told.
        Err(AuditError::Sealed { .. }) => Ok(()),
        // It was not: it is taken up and ended here.
        Ok((writer, _)) => writer.seal().map(|_| ()).map_err(|error| fault(&error)),
        Err(error) => Err(fault(&error)),
    }
}

fn note(what: &Value) -> AuditEvent {
    AuditEvent::Note {
        topic: "spawner".to_owned(),
        text: what.to_string(),
    }
}

fn fault(error: &AuditError) -> Fault {
    cannot(error)
}

fn cannot(error: &dyn std::error::Error) -> Fault {
    Fault::new(
        Code::AuditWrite,
        "the spawner cannot write its audit log",
        error.to_string(),
    )
    .help("free disk space, then: systemctl restart bastle-spawner")
}

fn after_failure() -> Fault {
    Fault::new(
        Code::AuditWrite,
        "the spawner cannot write its audit log",
        "writing failed before, and nothing is done without a record",
    )
    .help("free disk space, then: systemctl restart bastle-spawner")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_refusal_is_one_record_a_second_and_another_callers_is_recorded() {
        let state = std::env::temp_dir().join(format!("bastle-journal-{}", std::process::id()));
        let run = RunId::try_from("spawner-test".to_owned()).unwrap();
        let mut journal = Journal::open(&state, &run).unwrap();
        let before = journal.writer.records();
        let refused = Fault::new(Code::SpawnRate, "too fast", "");
        let start = Instant::now();
        for _ in 0..1000 {
            journal.refusal((7, 1), &refused, start).unwrap();
        }
        journal.refusal((8, 1), &refused, start).unwrap();
        journal.refusal((7, 1), &refused, start + BETWEEN).unwrap();
        let records = journal.writer.records() - before;
        journal.commit().unwrap();
        journal.end().unwrap();
        settle(&state, &run).unwrap();
        let log = std::fs::read_to_string(state.join("audit/spawner-test/log.jsonl")).unwrap();
        std::fs::remove_dir_all(&state).unwrap();
        assert_eq!(records, 3);
        assert!(log.contains("\\\"more\\\":999"), "{log}");
    }
}
