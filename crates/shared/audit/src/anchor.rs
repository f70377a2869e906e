//! The anchor: a copy of the last line of the index, kept beside the audit directory and, if the operator wants, in a
//! file elsewhere. It makes visible what the directory alone cannot show: that its newest runs, its end or all of it are
//! gone, or that an older copy was put in its place.
//!
//! ```text
//! <state>/audit.anchor        two slots of 1024 bytes, used in turn: a torn write leaves the other one
//! <state>/audit.anchor-file   optional: one line, the absolute path of an append-only file that gets every line too
//! ```
//!
//! **Order:** the index is durable before the anchor names a line of it, so after a crash the anchor is never ahead. It is
//! not synced itself: after a power loss it may name an older line, which is no contradiction.
//!
//! **Lines elsewhere** come in any order: a run appends when its log is first durable, not when its line is made. So each
//! one is held against the index by its own number, and none against the line before it.
//!
//! **Trust:** whoever has the user's rights can remove the anchor too; the file elsewhere is for those who must not rely
//! on that.
use crate::AuditError;
use crate::dir::Dir;
use crate::finding::{Defect, Finding, LogFile};
use crate::heads::{IndexLine, MAX_INDEX_LINE};
use crate::key::PublicKey;
use crate::read::Lines;
use blake3::Hash;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Name of the anchor, in the state directory.
const ANCHOR: &str = "audit.anchor";
/// Name of the file that names another one.
const ELSEWHERE: &str = "audit.anchor-file";
/// Length of a slot: the longest line of the index.
const SLOT: usize = MAX_INDEX_LINE as usize;
/// How much of the end of a file elsewhere is read for its last line.
const TAIL: u64 = 2 * MAX_INDEX_LINE;

/// The line that an anchor holds.
struct Anchored {
    line: IndexLine,
    /// Where it was found.
    path: PathBuf,
}

/// What the anchors of a state directory say, as they are when they are opened.
pub(crate) struct Anchors {
    /// The one beside the directory.
    own: Option<Anchored>,
    elsewhere: Option<Elsewhere>,
}

/// A file elsewhere that is read line by line: it is never shortened, so it may be long.
struct Elsewhere {
    file: File,
    /// Its length when it was opened: lines that come later may be newer than the index that is read meanwhile.
    length: u64,
    path: PathBuf,
}

/// The lines of an index: the fingerprint of each, in order. 32 bytes a line, as an index can have very many.
#[derive(Default)]
pub(crate) struct IndexPrints(Vec<Hash>);

impl IndexPrints {
    /// The next line. One whose fingerprint is none fits to no anchor.
    pub(crate) fn push(&mut self, line: &IndexLine) {
        let print = Hash::from_hex(&line.fingerprint);
        self.0.push(print.unwrap_or_else(|_| Hash::from_bytes([0; 32])));
    }

    fn last(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }

    /// The line of that number. Numbers are counted from 1 without a gap; whoever scanned the index has checked it.
    fn get(&self, sequence: u64) -> Option<&Hash> {
        self.0.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }
}

/// Names a line of the index that is durable. An anchor that contradicts the index stays as it is: it is evidence. What
/// contradicts it is returned.
pub(crate) fn update(state: &Path, dir: &Dir, line: &IndexLine) -> Result<Option<String>, AuditError> {
    let path = state.join(ANCHOR);
    let failed = |operation, error: std::io::Error| AuditError::io(operation, &path, error);
    let file = open(&path, OFlags::RDWR | OFlags::CREATE)?
        .ok_or_else(|| failed("open", ErrorKind::NotFound.into()))?;
    file.lock().map_err(|e| failed("lock", e))?;
    let known = newest(&file).map_err(|e| failed("read", e))?;
    let own = warning(dir, known.as_ref(), &path)?;
    // Another run may have named a newer line meanwhile.
    if own.is_none() && known.is_none_or(|known| known.sequence < line.sequence) {
        let mut bytes = line.bytes().ok_or(AuditError::TooDeep)?;
        bytes.resize(SLOT - 1, b' ');
        bytes.push(b'\n');
        let slot = (line.sequence % 2) * SLOT as u64;
        file.write_all_at(&bytes, slot).map_err(|e| failed("write", e))?;
    }
    drop(file);
    let other = match elsewhere(state)? {
        Some(path) => append(&path, dir, line)?,
        None => None,
    };
    Ok(own.or(other))
}

/// What an anchor that names this line has against the index, in words.
fn warning(dir: &Dir, known: Option<&IndexLine>, path: &Path) -> Result<Option<String>, AuditError> {
    Ok(match known {
        Some(known) if !crate::heads::holds(dir, known)? => Some(format!(
            "{} has line {} of the index, of run {}, which the index does not have: newest runs were removed or an older \
             copy was put in its place (bastle audit verify --all)",
            path.display(),
            known.sequence,
            known.run,
        )),
        Some(_) | None => None,
    })
}

impl Anchors {
    /// Opens them. Before the index is read, which only grows: an anchor read later could be newer.
    pub(crate) fn open(state: &Path) -> Result<Self, AuditError> {
        let path = state.join(ANCHOR);
        let own = match open(&path, OFlags::RDONLY)? {
            Some(file) => newest(&file).map_err(|e| AuditError::io("read", &path, e))?,
            None => None,
        };
        let own = own.map(|line| Anchored { line, path });
        let elsewhere = match elsewhere(state)? {
            Some(path) => {
                let failed = |operation, error| AuditError::io(operation, &path, error);
                let mut file =
                    open(&path, OFlags::RDONLY)?.ok_or_else(|| failed("open", ErrorKind::NotFound.into()))?;
                let length = file.seek(SeekFrom::End(0)).map_err(|e| failed("read", e))?;
                file.rewind().map_err(|e| failed("read", e))?;
                Some(Elsewhere { file, length, path })
            }
            None => None,
        };
        Ok(Self { own, elsewhere })
    }

    /// What they have against a directory without an index.
    pub(crate) fn against_nothing(self) -> Result<Option<Finding>, AuditError> {
        self.find(|anchored| {
            Some(contradiction(
                anchored,
                Defect::Emptied {
                    anchor: anchored.place(),
                },
            ))
        })
    }

    /// The first thing that they have against an index.
    pub(crate) fn against(self, key: &PublicKey, index: &IndexPrints) -> Result<Option<Finding>, AuditError> {
        self.find(|anchored| {
            let (line, anchor) = (&anchored.line, anchored.place());
            let found = index.get(line.sequence);
            // The fingerprint stands for all of a line but its signature, and fits it: the line was parsed.
            if found.is_some_and(|print| print.to_hex().as_str() == line.fingerprint) {
                return None;
            }
            let sequence = line.sequence;
            let defect = match found {
                _ if !line.signed_by(key) => Defect::AnchorForeign { anchor },
                Some(_) => Defect::Replaced { sequence, anchor },
                None => Defect::RolledBack {
                    expected: sequence,
                    found: index.last(),
                    anchor,
                },
            };
            Some(contradiction(anchored, defect))
        })
    }

    /// The first finding about a line that they have.
    fn find(
        self,
        mut judge: impl FnMut(&Anchored) -> Option<Finding>,
    ) -> Result<Option<Finding>, AuditError> {
        if let Some(finding) = self.own.as_ref().and_then(&mut judge) {
            return Ok(Some(finding));
        }
        let Some(Elsewhere { file, length, path }) = self.elsewhere else {
            return Ok(None);
        };
        let failed = |e| AuditError::io("read", &path, e);
        let mut lines = Lines::new(BufReader::new(file.take(length)));
        while let Some(line) = lines.next_line().map_err(failed)? {
            // What is no line of an index was torn by a crash, or is not ours.
            let Ok(line) = IndexLine::parse(line.bytes) else {
                continue;
            };
            let path = path.clone();
            if let Some(finding) = judge(&Anchored { line, path }) {
                return Ok(Some(finding));
            }
        }
        Ok(None)
    }
}

impl Anchored {
    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn contradiction(anchored: &Anchored, defect: Defect) -> Finding {
    let line = &anchored.line;
    Finding {
        run: Some(line.run.clone()),
        file: LogFile::Index,
        line: 0,
        offset: 0,
        sequence: Some(line.sequence),
        defect,
    }
}

fn open(path: &Path, how: OFlags) -> Result<Option<File>, AuditError> {
    let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(AuditError::io("open", path, errno)),
    }
}

/// The newer of the two slots that can be read.
fn newest(file: &File) -> std::io::Result<Option<IndexLine>> {
    let mut whole = vec![0; 2 * SLOT];
    let mut length = 0;
    loop {
        match file.read_at(whole.get_mut(length..).unwrap_or_default(), length as u64)? {
            0 => break,
            n => length += n,
        }
    }
    whole.truncate(length);
    let lines = whole
        .chunks(SLOT)
        .filter_map(|slot| IndexLine::parse(slot.trim_ascii_end()).ok());
    Ok(lines.max_by_key(|line| line.sequence))
}

/// The path that the operator named.
fn elsewhere(state: &Path) -> Result<Option<PathBuf>, AuditError> {
    let path = state.join(ELSEWHERE);
    let Some(file) = open(&path, OFlags::RDONLY)? else {
        return Ok(None);
    };
    let mut text = String::new();
    file.take(4096)
        .read_to_string(&mut text)
        .map_err(|e| AuditError::io("read", &path, e))?;
    let named = PathBuf::from(text.trim());
    if named.is_absolute() {
        Ok(Some(named))
    } else {
        Err(AuditError::Untrusted {
            path,
            why: "it must hold one line, the absolute path of a file",
        })
    }
}

/// Adds a line to a file elsewhere. It is not made here: whoever keeps it decides what it is and who may write it. What
/// its last line has against the index is returned; only `verify_all` reads more of it, so that no run is slower for a
/// long file.
fn append(path: &Path, dir: &Dir, line: &IndexLine) -> Result<Option<String>, AuditError> {
    let failed = |operation, error: std::io::Error| AuditError::io(operation, path, error);
    let mut file = open(path, OFlags::WRONLY | OFlags::APPEND)?
        .ok_or_else(|| failed("open", ErrorKind::NotFound.into()))?;
    let end = last_bytes(path)?;
    let known = end.as_deref().and_then(last_line);
    let warning = warning(dir, known.as_ref(), path)?;
    let mut bytes = line.bytes().ok_or(AuditError::TooDeep)?;
    // Behind a torn line, or one that cannot be seen: what stands on the same line would make this one unreadable.
    if end.is_none_or(|end| end.last().is_some_and(|byte| *byte != b'\n')) {
        bytes.insert(0, b'\n');
    }
    bytes.push(b'\n');
    // One write: lines of several processes do not mix in a file opened for appending.
    file.write_all(&bytes).map_err(|e| failed("write", e))?;
    Ok(warning)
}

/// The end of a file elsewhere; `None` of one that may be written only.
fn last_bytes(path: &Path) -> Result<Option<Vec<u8>>, AuditError> {
    let mut file = match open(path, OFlags::RDONLY) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        Err(AuditError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let failed = |e| AuditError::io("read", path, e);
    let mut end = Vec::new();
    let facts = file.metadata().map_err(failed)?;
    // What is no file, a pipe for one, has no end to be read.
    if facts.is_file() {
        file.seek(SeekFrom::Start(facts.len().saturating_sub(TAIL)))
            .and_then(|_| file.take(TAIL).read_to_end(&mut end))
            .map_err(failed)?;
    }
    Ok(Some(end))
}

/// The last line that can be read.
fn last_line(end: &[u8]) -> Option<IndexLine> {
    let mut lines = end.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| IndexLine::parse(line).ok())
}
