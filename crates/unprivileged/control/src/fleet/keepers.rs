//! Keepers: starting one, telling whether one is there, and recording the loss of one.
use super::Inner;
use super::words::now_ms;
use crate::keeper::{KEEP_VERB, Mother};
use crate::runs::RunDir;
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Fault, RunId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a service manager told the daemon and nobody else.
const NOT_FOR_KEEPERS: [&str; 5] = [
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "BASTLE_TOKEN_FILE",
];

/// A keeper that is a child of this process.
pub(super) struct Started {
    pid: Pid,
    /// Tells its end; `None` where there was no room for one more descriptor.
    pub(super) watched: Option<OwnedFd>,
}

impl Started {
    /// Whether it has ended; then it is no child any more.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(
            rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG),
            Ok(None)
        )
    }
}

/// Starts the keeper of a run. It leaves the daemon's session by itself.
pub(super) fn start(inner: &Inner, name: &RunId) -> std::io::Result<Started> {
    let born = match inner.options.program {
        None => inner.with_mother(|mother| bear(mother, &inner.options.state, name)),
        // Only this program is known to be able to copy itself.
        Some(_) => None,
    };
    match born {
        Some((pid, watched)) => Ok(Started {
            pid,
            watched: Some(watched),
        }),
        // It costs more memory and does the same. Should a copy have been made after all, the lock of the run lets one begin.
        None => execute(inner, name),
    }
}

/// A copy of the mother; of a new one where there is none, or she is lost, or was asked often.
fn bear(mother: &mut Option<Mother>, state: &Path, name: &RunId) -> Option<(Pid, OwnedFd)> {
    if mother.as_ref().is_some_and(Mother::is_worn) {
        *mother = None;
    }
    for _ in 0..2 {
        if mother.is_none() {
            *mother = Some(Mother::start(bare(None), state).ok()?);
        }
        match mother.as_mut()?.bear(name) {
            Ok(born) => return Some(born),
            Err(_) => *mother = None,
        }
    }
    None
}

/// A fresh image.
fn execute(inner: &Inner, name: &RunId) -> std::io::Result<Started> {
    let child = bare(inner.options.program.as_deref())
        .arg(KEEP_VERB)
        .arg(&inner.options.state)
        .arg(name.as_str())
        .stdin(Stdio::null())
        .spawn()?;
    let pid = Pid::from_child(&child);
    Ok(Started {
        pid,
        watched: rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok(),
    })
}

/// A process with nothing of the daemon's but the environment, and of that not everything.
fn bare(program: Option<&Path>) -> Command {
    let mut command = Command::new(program.unwrap_or_else(|| Path::new("/proc/self/exe")));
    command
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for name in NOT_FOR_KEEPERS {
        command.env_remove(name);
    }
    command
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
