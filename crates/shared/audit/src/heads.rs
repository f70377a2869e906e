//! The index of all runs: a chained, signed line when a log is opened, sealed or removed.
//!
//! It is what makes a missing end visible: a log cut back to an earlier checkpoint is perfect in itself, but the
//! index knows its last record. The index's own last lines are held by the logs opened after them.
use crate::AuditError;
use crate::canonical;
use crate::chain::{NO_HEAD, fingerprint, now_ms};
use crate::dir::{Dir, Open};
use crate::finding::{Defect, Finding, LogFile};
use crate::key::{Key, PublicKey, Signed};
use crate::read::{End, Lines};
use crate::tail;
use bastle_contract::RunId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const INDEX: &str = "heads.jsonl";

/// Longest line of the index: fixed fields and a run id of at most 64 bytes.
pub(crate) const MAX_INDEX_LINE: u64 = 1024;

/// How much of the index is read at once from its end.
const WINDOW: u64 = 8 * MAX_INDEX_LINE;

/// What an index line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IndexEvent {
    /// A log was begun.
    Opened,
    /// A log was ended.
    Sealed,
    /// A log was removed on purpose.
    Removed,
}

/// One line of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexLine {
    pub(crate) sequence: u64,
    pub(crate) event: IndexEvent,
    pub(crate) run: RunId,
    /// Fingerprint of the log's last record at this time.
    pub(crate) head: String,
    /// Number of its records at this time.
    pub(crate) count: u64,
    pub(crate) time: u64,
    /// BLAKE3 of the whole line before, its signature included.
    pub(crate) prev: String,
    pub(crate) fingerprint: String,
    pub(crate) signature: String,
}

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) sequence: u64,
    /// BLAKE3 of the whole line.
    pub(crate) fingerprint: String,
}

/// What the index says about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// Which run.
    pub run: RunId,
    /// When its log was begun, in milliseconds since 1970.
    pub opened_ms: u64,
    /// What became of it.
    pub state: RunState,
}

/// What became of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Begun and not sealed: the run is alive, or died.
    Open,
    /// Sealed.
    Sealed {
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// Number of records.
        records: u64,
        /// Fingerprint of the last one.
        head: String,
    },
    /// Removed through [`crate::remove`].
    Removed {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

impl IndexLine {
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Defect> {
        let parsed: Self = serde_json::from_slice(line).map_err(|e| Defect::Malformed(e.to_string()))?;
        if parsed.bytes().as_deref() != Some(line) {
            return Err(Defect::NotCanonical);
        }
        if parsed.computed().as_ref() != Some(&parsed.fingerprint) {
            return Err(Defect::Changed);
        }
        Ok(parsed)
    }

    /// The fingerprint that fits the content.
    fn computed(&self) -> Option<String> {
        let mut value = serde_json::to_value(self).ok()?;
        let object = value.as_object_mut()?;
        object.remove("fingerprint");
        object.remove("signature");
        let mut canonical = Vec::new();
        canonical::write(&value, &mut canonical).ok()?;
        Some(fingerprint(&canonical))
    }

    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let mut canonical = Vec::new();
        canonical::write(&serde_json::to_value(self).ok()?, &mut canonical).ok()?;
        Some(canonical)
    }

    /// Where it stands.
    pub(crate) fn place(&self) -> Option<Place> {
        let fingerprint = fingerprint(&self.bytes()?);
        Some(Place {
            sequence: self.sequence,
            fingerprint,
        })
    }

    pub(crate) fn signed_by(&self, key: &PublicKey) -> bool {
        key.verifies(
            Signed::Index {
                fingerprint: &self.fingerprint,
            },
            &self.signature,
        )
    }
}

/// Appends a line; another process that appends at the same time waits. Not yet durable: sync the file returned.
pub(crate) fn append(
    dir: &Dir,
    key: &Key,
    event: IndexEvent,
    log: (&RunId, &str, u64),
) -> Result<(IndexLine, File), AuditError> {
    let path = dir.path_of(INDEX);
    let mut file = dir.must(INDEX, Open::AppendOrCreate)?;
    file.lock().map_err(|e| AuditError::io("lock", &path, e))?;
    let last = last_line(dir, &mut file)?.and_then(|last| last.place());
    let (run, head, count) = log;
    let mut line = IndexLine {
        sequence: last.as_ref().map_or(1, |last| last.sequence + 1),
        event,
        run: run.clone(),
        head: head.to_owned(),
        count,
        time: now_ms(),
        prev: last.map_or_else(|| NO_HEAD.to_owned(), |last| last.fingerprint),
        fingerprint: String::new(),
        signature: String::new(),
    };
    line.fingerprint = line.computed().ok_or(AuditError::TooDeep)?;
    line.signature = key.sign(Signed::Index {
        fingerprint: &line.fingerprint,
    });
    let mut bytes = line.bytes().ok_or(AuditError::TooDeep)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
        .map_err(|e| AuditError::io("write", &path, e))?;
    file.unlock().map_err(|e| AuditError::io("unlock", &path, e))?;
    Ok((line, file))
}

/// Whether the index has this very line. Read from its end: the line looked for is nearly always among the last ones,
/// and an index of many runs must not make each new one slower.
pub(crate) fn holds(dir: &Dir, wanted: &IndexLine) -> Result<bool, AuditError> {
    let Some(file) = dir.file(INDEX, Open::Read)? else {
        return Ok(false);
    };
    let wanted = wanted.bytes().ok_or(AuditError::TooDeep)?;
    let failed = |e| AuditError::io("read", &dir.path_of(INDEX), e);
    let mut end = file.metadata().map_err(failed)?.len();
    let mut window = Vec::new();
    while end > 0 {
        let from = end.saturating_sub(WINDOW);
        window.resize(usize::try_from(end - from).unwrap_or_default(), 0);
        file.read_exact_at(&mut window, from).map_err(failed)?;
        if window.split(|byte| *byte == b'\n').any(|line| line == wanted) {
            return Ok(true);
        }
        // The windows overlap by the longest line, so that each line is whole in one of them.
        end = if from == 0 { 0 } else { from + MAX_INDEX_LINE };
    }
    Ok(false)
}

/// The last line. An incomplete one is set aside: whoever wrote it died before anything relied on it.
fn last_line(dir: &Dir, file: &mut File) -> Result<Option<IndexLine>, AuditError> {
    let path = dir.path_of(INDEX);
    let failed = |e| AuditError::io("read", &path, e);
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    // Room for the last whole line and a torn one behind it.
    let from = length.saturating_sub(2 * MAX_INDEX_LINE);
    let mut window = Vec::new();
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    file.take(2 * MAX_INDEX_LINE)
        .read_to_end(&mut window)
        .map_err(failed)?;
    let damaged = |defect| {
        AuditError::Tampered(Finding {
            run: None,
            file: LogFile::Index,
            line: 0,
            offset: from,
            sequence: None,
            defect,
        })
    };
    let whole = window.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    if whole == 0 && from > 0 {
        return Err(damaged(Defect::TooLong));
    }
    if whole < window.len() {
        tail::set_aside(dir, INDEX, file, from + u64::try_from(whole).unwrap_or(u64::MAX))?;
    }
    let Some(lines) = window[..whole].strip_suffix(b"\n") else {
        return Ok(None);
    };
    let last = lines.rsplit(|b| *b == b'\n').next().unwrap_or(lines);
    IndexLine::parse(last).map(Some).map_err(damaged)
}

/// Goes through the index, checks its chain and the signature of its last line (which covers all before it), and
/// shows every line to `visit`.
pub(crate) fn scan(
    dir: &Dir,
    key: &PublicKey,
    visit: impl FnMut(&IndexLine),
) -> Result<Option<Finding>, AuditError> {
    match dir.file(INDEX, Open::Read)? {
        Some(file) => scan_reader(BufReader::new(file), key, visit)
            .map_err(|e| AuditError::io("read", &dir.path_of(INDEX), e)),
        None => Ok(None),
    }
}

/// [`scan`] over any bytes.
pub(crate) fn scan_reader(
    reader: impl BufRead,
    key: &PublicKey,
    mut visit: impl FnMut(&IndexLine),
) -> std::io::Result<Option<Finding>> {
    let mut lines = Lines::new(reader);
    let (mut sequence, mut head) = (0, NO_HEAD.to_owned());
    let mut last: Option<(IndexLine, u64, u64)> = None;
    while let Some(line) = lines.next_line()? {
        let parsed = match line.end {
            // The last writer died in the middle of it; the next one sets it aside.
            End::Torn => break,
            End::Oversized => Err(Defect::TooLong),
            End::Whole => IndexLine::parse(line.bytes),
        };
        let checked = parsed.and_then(|parsed| {
            if parsed.sequence != sequence + 1 {
                Err(Defect::Order {
                    expected: sequence + 1,
                })
            } else if parsed.prev != head {
                Err(Defect::BrokenLink)
            } else {
                Ok(parsed)
            }
        });
        match checked {
            Ok(parsed) => {
                sequence = parsed.sequence;
                head = fingerprint(line.bytes);
                visit(&parsed);
                last = Some((parsed, line.number, line.offset));
            }
            Err(defect) => return Ok(Some(line.finding(None, LogFile::Index, defect))),
        }
    }
    Ok(last
        .filter(|(line, ..)| !line.signed_by(key))
        .map(|(line, number, offset)| Finding {
            run: None,
            file: LogFile::Index,
            line: number,
            offset,
            sequence: Some(line.sequence),
            defect: Defect::BadSignature,
        }))
}

/// All runs the index has, by name. Fails if the index was changed.
pub fn list(state: &Path) -> Result<Vec<RunEntry>, AuditError> {
    let Some(dir) = Dir::open(state)? else {
        return Ok(Vec::new());
    };
    let Some(key) = PublicKey::load(&dir)? else {
        return Ok(Vec::new());
    };
    let mut runs = BTreeMap::new();
    let finding = scan(&dir, &key, |line| {
        let entry = runs.entry(line.run.clone()).or_insert_with(|| RunEntry {
            run: line.run.clone(),
            opened_ms: line.time,
            state: RunState::Open,
        });
        match line.event {
            IndexEvent::Opened => {
                entry.opened_ms = line.time;
                entry.state = RunState::Open;
            }
            IndexEvent::Sealed => {
                entry.state = RunState::Sealed {
                    at_ms: line.time,
                    records: line.count,
                    head: line.head.clone(),
                };
            }
            IndexEvent::Removed => entry.state = RunState::Removed { at_ms: line.time },
        }
    })?;
    match finding {
        Some(finding) => Err(AuditError::Tampered(finding)),
        None => Ok(runs.into_values().collect()),
    }
}
