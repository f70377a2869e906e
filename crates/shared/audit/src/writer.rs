//! Writing a log. No record, no effect: what returns an error here must stop what it was about to record.
use crate::AuditError;
use crate::anchor;
use crate::chain::{NO_HEAD, Position, RecordId, Scribe, Thread};
use crate::dir::{Dir, LOG, Open};
use crate::event::AuditEvent;
use crate::heads::{self, IndexEvent, IndexLine};
use crate::key::{Key, KeyId};
use crate::medium::{LogMedium, Sink};
use crate::verify::{Report, Verdict, verify};
use bastle_contract::RunId;
use std::fs::{File, TryLockError};
use std::path::Path;

/// The one writer of a run's log. Dropping it without [`AuditWriter::seal`] leaves the log unsealed.
pub struct AuditWriter {
    pub(crate) scribe: Scribe,
    pub(crate) sink: Sink,
    pub(crate) dir: Dir,
    /// The opening line in the index, until it is durable and the anchor can name it.
    pub(crate) unanchored: Option<IndexLine>,
    /// What an anchor has against the index, until somebody is told.
    pub(crate) warning: Option<String>,
}

/// How a log ended: what to compare it with later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Which run.
    pub run: RunId,
    /// Number of records.
    pub records: u64,
    /// Fingerprint of the last one.
    pub head: String,
    /// The key that signed it.
    pub key: KeyId,
}

impl AuditWriter {
    /// Begins the log of a run: key, index line, opening record and its signature. Nothing is durable before the
    /// first [`Self::sync`], which also syncs the directories.
    pub fn create(state: &Path, run: &RunId) -> Result<Self, AuditError> {
        Self::begin(state, run, new_trace()?)
    }

    /// The same, within a trace that exists already (the trace id of a `traceparent`).
    pub fn create_with_trace(state: &Path, run: &RunId, trace: [u8; 16]) -> Result<Self, AuditError> {
        Self::begin(state, run, crate::canonical::hex(&trace))
    }

    fn begin(state: &Path, run: &RunId, trace: String) -> Result<Self, AuditError> {
        let dir = Dir::create(state)?;
        let key = Key::load_or_create(&dir)?;
        let run_dir = dir.create_run(run)?;
        let log = run_dir.must(LOG, Open::CreateNew)?;
        let path = run_dir.path_of(LOG);
        lock(&log, run, &path)?;
        // The file first, then the index line, then the opening record that names the line: whatever a crash leaves
        // is told apart from a log that somebody removed.
        let (line, index) = heads::append(&dir, &key, IndexEvent::Opened, (run, NO_HEAD, 0))?;
        let place = line.place().ok_or(AuditError::TooDeep)?;
        let first = vec![run_dir.handle()?, dir.handle()?, index];
        let sink = Sink::new(Box::new(LogMedium::new(log, first)), path);
        let scribe = Scribe::new(
            run.clone(),
            key,
            Thread { trace, policy: None },
            Position::start(),
        );
        let mut writer = Self {
            scribe,
            sink,
            dir,
            unanchored: Some(line),
            warning: None,
        };
        writer.scribe.open(&place, writer.sink.buffer())?;
        Ok(writer)
    }

    /// Adds a record in memory. It reaches the kernel when much has gathered, and the disk with [`Self::sync`].
    pub fn append(&mut self, event: &AuditEvent) -> Result<RecordId, AuditError> {
        self.sink.check()?;
        let id = self.scribe.append(event, self.sink.buffer())?;
        self.sink.relieve()?;
        Ok(id)
    }

    /// Hands everything to the kernel: it survives the death of this process, not a power loss.
    pub fn flush(&mut self) -> Result<(), AuditError> {
        self.sink.flush()
    }

    /// Makes everything durable. Required before an effect that cannot be undone. A failure is final.
    pub fn sync(&mut self) -> Result<(), AuditError> {
        self.sink.sync()?;
        if let Some(line) = self.unanchored.take()
            && let Some(warning) = anchor::update(self.dir.state(), &self.dir, &line)?
        {
            // The run goes on: whoever can break an anchor must not be able to stop every run by it.
            self.append(&AuditEvent::Note {
                topic: "anchor".to_owned(),
                text: warning.clone(),
            })?;
            self.sink.sync()?;
            self.warning = Some(warning);
        }
        Ok(())
    }

    /// What an anchor has against the index, once. It is in the log as a note already.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Adds a record and makes it durable.
    pub fn append_durable(&mut self, event: &AuditEvent) -> Result<RecordId, AuditError> {
        let id = self.append(event)?;
        self.sync()?;
        Ok(id)
    }

    /// Ends the log: signs its count and its last record, here and in the index, and makes both durable.
    pub fn seal(mut self) -> Result<Seal, AuditError> {
        self.sink.check()?;
        self.scribe.seal(self.sink.buffer())?;
        // The log before the index: the other order would leave, after a crash, an index that knows more records than
        // there are, which is what a cut log looks like.
        self.sink.sync()?;
        seal_index(&self.dir, self.scribe.run(), self.scribe.key(), self.scribe.at())
    }

    /// Ends the log without telling the index, for a process that cannot open it any more. [`Self::resume`] tells the
    /// index later.
    pub fn end(mut self) -> Result<(), AuditError> {
        self.sink.check()?;
        self.scribe.seal(self.sink.buffer())?;
        self.sink.sync()
    }

    /// Which run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.scribe.run()
    }

    /// Number of records so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.scribe.at().sequence
    }
}

impl std::fmt::Debug for AuditWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuditWriter({}, {} records)", self.run(), self.records())
    }
}

/// A trace id of our own.
pub(crate) fn new_trace() -> Result<String, AuditError> {
    let mut trace = [0; 16];
    getrandom::fill(&mut trace).map_err(AuditError::Random)?;
    Ok(crate::canonical::hex(&trace))
}

/// Tells the index how a log ended.
pub(crate) fn seal_index(dir: &Dir, run: &RunId, key: &Key, at: &Position) -> Result<Seal, AuditError> {
    let (line, index) = heads::append(dir, key, IndexEvent::Sealed, (run, &at.head, at.sequence))?;
    let path = dir.path_of("heads.jsonl");
    index.sync_data().map_err(|e| AuditError::io("sync", &path, e))?;
    // A contradiction was recorded when the log was opened; `verify --all` tells it at any time.
    anchor::update(dir.state(), dir, &line).map(drop)?;
    Ok(Seal {
        run: run.clone(),
        records: at.sequence,
        head: at.head.clone(),
        key: key.public().id(),
    })
}

/// One writer per log: the lock lives as long as the descriptor.
pub(crate) fn lock(log: &File, run: &RunId, path: &Path) -> Result<(), AuditError> {
    match log.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(AuditError::Busy { run: run.clone() }),
        Err(TryLockError::Error(error)) => Err(AuditError::io("lock", path, error)),
    }
}

/// Removes a run's log on purpose and says so in the index. A log that is being written stays; so does one that was
/// changed, because it is evidence.
pub fn remove(state: &Path, run: &RunId) -> Result<(), AuditError> {
    let Report {
        verdict,
        records,
        head,
        ..
    } = verify(state, run)?;
    match verdict {
        Verdict::Sealed | Verdict::Unsealed { .. } => {}
        Verdict::Tampered(finding) => return Err(AuditError::Tampered(finding)),
    }
    let dir = Dir::create(state)?;
    let key = Key::load_or_create(&dir)?;
    let missing = || AuditError::Missing { run: run.clone() };
    let run_dir = dir.open_run(run)?.ok_or_else(missing)?;
    let log = run_dir.file(LOG, Open::Append)?.ok_or_else(missing)?;
    lock(&log, run, &run_dir.path_of(LOG))?;
    let (line, index) = heads::append(&dir, &key, IndexEvent::Removed, (run, &head, records))?;
    index
        .sync_data()
        .map_err(|e| AuditError::io("sync", &dir.path_of("heads.jsonl"), e))?;
    anchor::update(dir.state(), &dir, &line).map(drop)?;
    for name in run_dir.names()? {
        run_dir.unlink(&name)?;
    }
    dir.rmdir(run.as_str())?;
    dir.sync()
}
