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
//! **Trust:** whoever has the user's rights can remove the anchor too; the file elsewhere is for those who must not rely
//! on that.
use crate::AuditError;
use crate::dir::Dir;
use crate::finding::{Defect, Finding, LogFile};
use crate::heads::{IndexLine, MAX_INDEX_LINE};
use crate::key::PublicKey;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchored {
    pub(crate) line: IndexLine,
    /// Where it was found.
    pub(crate) path: PathBuf,
}

/// Names a line of the index that is durable. An anchor that contradicts the index stays as it is: it is evidence.
pub(crate) fn update(state: &Path, dir: &Dir, line: &IndexLine) -> Result<(), AuditError> {
    let path = state.join(ANCHOR);
    let failed = |operation, error: std::io::Error| AuditError::io(operation, &path, error);
    let file = open(&path, OFlags::RDWR | OFlags::CREATE)?
        .ok_or_else(|| failed("open", std::io::Error::from(std::io::ErrorKind::NotFound)))?;
    file.lock().map_err(|e| failed("lock", e))?;
    let known = newest(&file).map_err(|e| failed("read", e))?;
    let fits = match &known {
        None => true,
        Some(known) if known.sequence >= line.sequence => false,
        Some(known) => crate::heads::holds(dir, known)?,
    };
    if fits {
        let mut bytes = line.bytes().ok_or(AuditError::TooDeep)?;
        bytes.resize(SLOT - 1, b' ');
        bytes.push(b'\n');
        let slot = (line.sequence % 2) * SLOT as u64;
        file.write_all_at(&bytes, slot).map_err(|e| failed("write", e))?;
    }
    drop(file);
    match elsewhere(state)? {
        Some(path) => append(&path, line),
        None => Ok(()),
    }
}

/// What the anchors say.
pub(crate) fn read(state: &Path) -> Result<Vec<Anchored>, AuditError> {
    let mut anchors = Vec::new();
    let path = state.join(ANCHOR);
    if let Some(file) = open(&path, OFlags::RDONLY)? {
        let line = newest(&file).map_err(|e| AuditError::io("read", &path, e))?;
        anchors.extend(line.map(|line| Anchored { line, path }));
    }
    if let Some(path) = elsewhere(state)? {
        let mut file = open(&path, OFlags::RDONLY)?.ok_or_else(|| {
            AuditError::io("open", &path, std::io::Error::from(std::io::ErrorKind::NotFound))
        })?;
        let line = last_line(&mut file).map_err(|e| AuditError::io("read", &path, e))?;
        anchors.extend(line.map(|line| Anchored { line, path }));
    }
    Ok(anchors)
}

/// What an anchor has against an index whose lines are `line_of`.
pub(crate) fn contradiction(
    anchored: &Anchored,
    key: Option<&PublicKey>,
    found: Option<&IndexLine>,
    last: u64,
) -> Option<Finding> {
    let line = &anchored.line;
    let place = anchored.path.display().to_string();
    let defect = match (key, found) {
        (None, _) => Defect::Emptied { anchor: place },
        (Some(_), Some(found)) if found == line => return None,
        (Some(key), _) if !line.signed_by(key) => Defect::AnchorForeign { anchor: place },
        (Some(_), Some(_)) => Defect::Replaced {
            sequence: line.sequence,
            anchor: place,
        },
        (Some(_), None) => Defect::RolledBack {
            expected: line.sequence,
            found: last,
            anchor: place,
        },
    };
    Some(Finding {
        run: Some(line.run.clone()),
        file: LogFile::Index,
        line: 0,
        offset: 0,
        sequence: Some(line.sequence),
        defect,
    })
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

/// Adds a line to a file elsewhere. It is not made here: whoever keeps it decides what it is and who may write it.
fn append(path: &Path, line: &IndexLine) -> Result<(), AuditError> {
    let failed = |operation, error: std::io::Error| AuditError::io(operation, path, error);
    let mut file = open(path, OFlags::WRONLY | OFlags::APPEND)?
        .ok_or_else(|| failed("open", std::io::Error::from(std::io::ErrorKind::NotFound)))?;
    let mut bytes = line.bytes().ok_or(AuditError::TooDeep)?;
    bytes.push(b'\n');
    // One write: lines of several processes do not mix in a file opened for appending.
    file.write_all(&bytes).map_err(|e| failed("write", e))
}

/// The newest of the last lines of a file elsewhere.
fn last_line(file: &mut File) -> std::io::Result<Option<IndexLine>> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut window = Vec::new();
    file.take(TAIL).read_to_end(&mut window)?;
    let lines = window.split(|byte| *byte == b'\n');
    Ok(lines
        .filter_map(|line| IndexLine::parse(line).ok())
        .max_by_key(|line| line.sequence))
}
