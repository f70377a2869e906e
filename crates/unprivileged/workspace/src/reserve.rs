//! Room that is set aside while there is some, so that a removal can be recorded on a full disk.
//!
//! **Trust:** a file of zeros of bastle's own in the state directory. It is given up before the record of a removal and
//! made again with the next copy; nothing depends on its being there but removals on a full disk.
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file's name.
const NAME: &str = "reserve";
/// The records of a removal, the line of the index and the names of both are a few tens of KiB.
const SIZE: u64 = 1 << 20;
/// A disk with less than this is taken for full: what a copy of a small project and its records need.
const FULL_BELOW: u64 = 4 << 20;

fn path(state: &Path) -> PathBuf {
    state.join(NAME)
}

/// Sees to it that the room is set aside. On a disk that is full already there is none, and removals say so themselves.
pub(crate) fn keep(state: &Path) {
    let path = path(state);
    if path.symlink_metadata().is_ok_and(|found| found.len() == SIZE) {
        return;
    }
    if fill(&path).is_err() {
        drop(std::fs::remove_file(&path));
    }
}

fn fill(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SIZE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            file.write_all(&vec![0; usize::try_from(SIZE).unwrap_or(0)])
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the room up; `true` when there was some to give up.
#[must_use]
pub fn give_up(state: &Path) -> bool {
    std::fs::remove_file(path(state)).is_ok()
}

/// Whether the disk of the state directory is as good as full.
#[must_use]
pub fn is_full(state: &Path) -> bool {
    rustix::fs::statvfs(state).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < FULL_BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_room_is_really_taken_and_given_up_once() {
        let state = tempfile::tempdir().unwrap();
        keep(state.path());
        let found = path(state.path()).metadata().unwrap();
        assert_eq!(found.len(), SIZE);
        assert!(found.blocks() * 512 >= SIZE, "{} blocks", found.blocks());
        assert!(give_up(state.path()) && !give_up(state.path()));
        keep(state.path());
        assert!(path(state.path()).exists());
    }
}
