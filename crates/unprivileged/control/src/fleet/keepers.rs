//! Keepers: starting one, telling whether one is there, and recording the loss of one.
use super::Inner;
use super::words::now_ms;
use crate::runs::RunDir;
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Fault, RunId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The verb under which the program keeps a run.
const VERB: &str = "__keep";
/// What a service manager told the daemon and nobody else.
const NOT_FOR_KEEPERS: [&str; 5] = [
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "BASTLE_TOKEN_FILE",
];

/// Starts the keeper of a run. It leaves the daemon's session by itself.
pub(super) fn start(inner: &Inner, name: &RunId) -> std::io::Result<Child> {
    let program = inner.options.program.as_deref();
    let mut command = Command::new(program.unwrap_or_else(|| Path::new("/proc/self/exe")));
    command
        .arg(VERB)
        .arg(&inner.options.state)
        .arg(name.as_str())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for name in NOT_FOR_KEEPERS {
        command.env_remove(name);
    }
    command.spawn()
}

/// Whether somebody keeps a run.
pub(super) enum Kept {
    /// Somebody does.
    Yes,
    /// Nobody; the lock is held here while the value lives.
    No(#[expect(dead_code, reason = "the lock is held by the open file")] OwnedFd),
}

/// Tries the lock of a run. Opened for reading only: whoever waits for it to be closed after writing is not woken.
pub(super) fn kept(dir: &RunDir) -> std::io::Result<Kept> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(dir.path().join("lock"), flags, Mode::RUSR | Mode::WUSR)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Kept::No(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Kept::Yes),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor that tells the end of the keeper. Whether it is still the keeper is for the lock to say.
pub(super) fn watch(file: &RunFile) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(file.keeper?).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Writes that the keeper was lost. Only for who holds the lock.
pub(super) fn bury(dir: &RunDir, lock: &Kept, why: &str) -> Result<RunFile, Fault> {
    // Somebody wanted its end before it had a socket.
    if dir.path().join("stop").exists() {
        return end(dir, lock, RunState::Cancelled, "stopped");
    }
    end(dir, lock, RunState::Failed, why)
}

/// Writes that a run was stopped before its keeper began. Only for who holds the lock: a keeper that comes later finds
/// that there is nothing to keep.
pub(super) fn cancel(dir: &RunDir, lock: &Kept) -> Result<RunFile, Fault> {
    end(dir, lock, RunState::Cancelled, "stopped")
}

fn end(dir: &RunDir, _lock: &Kept, state: RunState, why: &str) -> Result<RunFile, Fault> {
    let mut file = dir.file()?;
    if file.state.is_final() {
        return Ok(file);
    }
    let mut log = dir.events()?;
    let fail = |error: std::io::Error| {
        Fault::new(
            bastle_contract::Code::StateDir,
            format!("cannot write the events of {}", dir.name()),
            error.to_string(),
        )
    };
    let event = log
        .append("state", json!({"state": state, "reason": why}))
        .map_err(fail)?;
    log.sync().map_err(fail)?;
    file.state = state;
    file.reason = Some(why.to_owned());
    file.ended_ms = Some(now_ms());
    file.last_event = event.seq;
    dir.put(&file)?;
    Ok(file)
}
