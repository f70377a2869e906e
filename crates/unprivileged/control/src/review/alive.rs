//! Whether a run still works in its copy: its control holds a lock for as long as it lives.
//!
//! **Trust:** the lock lies beside the copy, which no sandbox sees. A process that was killed loses it with its
//! descriptors, so a record that still says `running` is believed only while somebody holds the lock.
use bastle_contract::{Code, Fault};
use bastle_workspace::meta::State;
use bastle_workspace::workspace::Workspace;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The file whose lock says that the run lives.
const NAME: &str = "alive";

/// Held by the control of a run while the agent works.
#[derive(Debug)]
pub struct Alive(#[expect(dead_code, reason = "the lock is held by the open file")] OwnedFd);

/// Says that the run lives, until the value is dropped or the process ends.
///
/// # Errors
/// When another process works in this copy.
pub fn stay_alive(space: &Workspace) -> Result<Alive, Fault> {
    match lock(space)? {
        Some(held) => Ok(Alive(held)),
        None => Err(Fault::new(
            Code::WorkspaceBusy,
            format!("run {} is alive", space.run()),
            "another process of bastle works in its copy",
        )),
    }
}

/// Whether the control of the run lives.
///
/// # Errors
/// When the kernel refuses one of the calls; the error is the kernel's own.
pub fn is_alive(space: &Workspace) -> Result<bool, Fault> {
    Ok(lock(space)?.is_none())
}

/// A run whose control was killed is recorded as ended, so that its work can be rolled back and removed.
///
/// # Errors
/// When the kernel refuses one of the calls; the error is the kernel's own.
pub fn settle_state(space: &Workspace) -> Result<State, Fault> {
    let state = space.meta()?.state;
    if state != State::Running {
        return Ok(state);
    }
    // Held over the change: a run that begins in this moment finds it busy instead of being declared ended.
    let Some(held) = lock(space)? else {
        return Ok(State::Running);
    };
    space.set_state(State::Finished)?;
    drop(held);
    Ok(State::Finished)
}

fn lock(space: &Workspace) -> Result<Option<OwnedFd>, Fault> {
    let path = space.path(NAME);
    let fail = |errno: Errno| {
        Fault::new(
            Code::WorkspaceIo,
            format!("lock {}", path.display()),
            std::io::Error::from(errno).to_string(),
        )
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(fail(errno)),
    }
}
