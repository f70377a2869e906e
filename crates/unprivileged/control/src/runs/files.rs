//! Small files that are replaced whole: old or new after a crash, never between.
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes beside, syncs, renames, syncs the directory.
pub(super) fn replace(directory: &Path, name: &str, value: &impl Serialize) -> std::io::Result<()> {
    let beside = directory.join(format!(".{name}.new"));
    let bytes = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    std::fs::rename(&beside, directory.join(name))?;
    sync_directory(directory)
}

/// Makes names in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads a file of at most `most` bytes.
pub(super) fn read<T: DeserializeOwned>(directory: &Path, name: &str, most: usize) -> std::io::Result<T> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX);
    File::open(directory.join(name))?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(std::io::Error::other(format!("more than {most} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(std::io::Error::other)
}
