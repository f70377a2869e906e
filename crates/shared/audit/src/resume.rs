//! Going on after a crash: the torn end is set aside, everything before it is checked, the chain continues.
use crate::AuditError;
use crate::chain::{NO_HEAD, Scribe};
use crate::dir::{Dir, LOG, Open};
use crate::finding::Defect;
use crate::heads::{self, IndexEvent};
use crate::key::Key;
use crate::medium::{LogMedium, Sink};
use crate::tail::{self, Torn};
use crate::verify::Indexed;
use crate::walk::{WalkEnd, walk};
use crate::writer::{AuditWriter, lock, new_trace, seal_index};
use bastle_contract::RunId;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

/// What was found when a log was taken up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Good records that were there.
    pub records: u64,
    /// Bytes of an incomplete last line that were set aside; 0 if there was none.
    pub torn_bytes: u64,
    /// The file they were moved to, beside the log.
    pub torn_file: Option<String>,
}

impl AuditWriter {
    /// Takes up the log of a run whose writer died. The last line is set aside if it is incomplete or unreadable;
    /// any other damage is an error and changes nothing. The log gets a `recovered` record, which is synced.
    ///
    /// A log that was sealed stays sealed; if only the index was not told any more, it is told now.
    pub fn resume(state: &Path, run: &RunId) -> Result<(Self, Recovery), AuditError> {
        let missing = || AuditError::Missing { run: run.clone() };
        let dir = Dir::open(state)?.ok_or_else(missing)?;
        let run_dir = dir.open_run(run)?.ok_or_else(missing)?;
        let mut log = run_dir.file(LOG, Open::Append)?.ok_or_else(missing)?;
        let path = run_dir.path_of(LOG);
        lock(&log, run, &path)?;
        let dir = Dir::create(state)?;
        let key = Key::load_or_create(&dir)?;
        let public = key.public();
        let read = log.try_clone().map_err(|e| AuditError::io("open", &path, e))?;
        let found =
            walk(BufReader::new(read), Some(run), &public).map_err(|e| AuditError::io("read", &path, e))?;
        let torn_at = match found.end {
            WalkEnd::Clean => None,
            WalkEnd::Torn { offset, .. } => Some(offset),
            WalkEnd::Bad { finding, last } => match finding.defect {
                // Unreadable, and nothing after it: what a power loss leaves of a line.
                Defect::Malformed(_) | Defect::TooLong if last => Some(finding.offset),
                _ => return Err(AuditError::Tampered(finding)),
            },
        };
        let (indexed, finding) = Indexed::read(&dir, &public, run)?;
        if let Some(finding) = finding.or_else(|| indexed.contradicts(&found.checker, run)) {
            return Err(AuditError::Tampered(finding));
        }
        let (at, mut thread) = (found.checker.at.clone(), found.checker.thread());
        if found.checker.sealed {
            if torn_at.is_none() && !indexed.knows_seal() {
                seal_index(&dir, run, &key, &at)?;
            }
            return Err(AuditError::Sealed { run: run.clone() });
        }
        if at.sequence == 0 {
            thread.trace = new_trace()?;
        }
        let torn = match torn_at {
            Some(offset) => Some(tail::set_aside(&run_dir, LOG, &mut log, offset)?),
            None => None,
        };
        log.seek(SeekFrom::End(0))
            .map_err(|e| AuditError::io("read", &path, e))?;
        let sink = Sink::new(
            Box::new(LogMedium::new(log, vec![run_dir.handle()?, dir.handle()?])),
            path,
        );
        let scribe = Scribe::new(run.clone(), key, thread, at.clone());
        let mut writer = Self {
            scribe,
            sink,
            dir,
            unanchored: None,
            warning: None,
        };
        if at.sequence == 0 {
            writer.begin_again(&indexed)?;
        }
        let recovery = Recovery {
            records: at.sequence,
            torn_bytes: torn.as_ref().map_or(0, |torn| torn.bytes),
            torn_file: torn.as_ref().map(|torn| torn.file.clone()),
        };
        let digest = torn.map(|Torn { digest, .. }| digest).unwrap_or_default();
        writer
            .scribe
            .recovered(recovery.torn_bytes, digest, writer.sink.buffer())?;
        writer.sync()?;
        Ok((writer, recovery))
    }

    /// The writer died before its opening record was on disk; its index line may be there.
    fn begin_again(&mut self, indexed: &Indexed) -> Result<(), AuditError> {
        let place = match indexed.opened() {
            Some(place) => place.clone(),
            None => {
                let log = (self.scribe.run(), NO_HEAD, 0);
                let (line, index) = heads::append(&self.dir, self.scribe.key(), IndexEvent::Opened, log)?;
                let place = line.place().ok_or(AuditError::TooDeep)?;
                let path = self.dir.path_of("heads.jsonl");
                index.sync_data().map_err(|e| AuditError::io("sync", &path, e))?;
                self.unanchored = Some(line);
                place
            }
        };
        self.scribe.open(&place, self.sink.buffer())
    }
}
