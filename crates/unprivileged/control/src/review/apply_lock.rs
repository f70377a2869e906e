//! The lock of a state directory under which projects are changed and their markers removed.
//!
//! **Trust:** a marker that goes while an apply is between its marker and its first journal would leave a later kill of
//! that apply unseen; therefore only who has this lock removes one.
use bastle_contract::{Code, Fault};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Held until it is dropped, or the process ends.
pub(super) struct ApplyLock {
    _file: OwnedFd,
}

impl ApplyLock {
    /// Waits for whoever applies.
    pub(super) fn wait(state: &Path) -> Result<Self, Fault> {
        Self::take(state, FlockOperation::LockExclusive).map_err(|errno| {
            let what = format!("lock {}", path(state).display());
            Fault::new(Code::WorkspaceIo, what, std::io::Error::from(errno).to_string())
        })
    }

    /// None while an apply is under way, and where the file cannot be opened.
    pub(super) fn try_now(state: &Path) -> Option<Self> {
        Self::take(state, FlockOperation::NonBlockingLockExclusive).ok()
    }

    fn take(state: &Path, operation: FlockOperation) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path(state), flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, operation)?;
        Ok(Self { _file: file })
    }
}

fn path(state: &Path) -> PathBuf {
    state.join("apply.lock")
}
