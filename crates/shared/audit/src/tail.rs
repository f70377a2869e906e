//! Setting the torn end of a file aside after a crash, without losing a byte of it.
use crate::AuditError;
use crate::dir::{Dir, Open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// What was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    /// Name of the file it was moved to.
    pub(crate) file: String,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Their BLAKE3 hash, hexadecimal.
    pub(crate) digest: String,
}

/// Most torn pieces kept of one file. More means that something else than a crash cuts it.
const MOST: u32 = 1000;

/// Moves everything from `from` on to `NAME.torn-N`: copied and durable first, cut off afterwards, so that a
/// second crash in between leaves both.
pub(crate) fn set_aside(dir: &Dir, name: &str, file: &mut File, from: u64) -> Result<Torn, AuditError> {
    let (aside, mut copy) = new_piece(dir, name)?;
    let copied = copy_from(file, from, &mut copy);
    let (bytes, digest) = copied.map_err(|e| AuditError::io("write", &dir.path_of(&aside), e))?;
    dir.sync()?;
    file.set_len(from)
        .and_then(|()| file.sync_all())
        .map_err(|e| AuditError::io("cut", &dir.path_of(name), e))?;
    Ok(Torn {
        file: aside,
        bytes,
        digest,
    })
}

fn new_piece(dir: &Dir, name: &str) -> Result<(String, File), AuditError> {
    for number in 1..=MOST {
        let aside = format!("{name}.torn-{number}");
        match dir.must(&aside, Open::CreateNew) {
            Ok(file) => return Ok((aside, file)),
            Err(AuditError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(AuditError::io(
        "set aside the end of",
        &dir.path_of(name),
        Errno::EXIST,
    ))
}

fn copy_from(file: &mut File, from: u64, copy: &mut File) -> io::Result<(u64, String)> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut bytes = 0;
    file.seek(SeekFrom::Start(from))?;
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            copy.sync_all()?;
            return Ok((bytes, hasher.finalize().to_hex().to_string()));
        }
        copy.write_all(&chunk[..count])?;
        hasher.update(&chunk[..count]);
        bytes += u64::try_from(count).unwrap_or(u64::MAX);
    }
}
