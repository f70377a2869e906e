//! Runs whose keeper is not there to speak for them: it was killed, has not begun, or still builds.
//!
//! **Trust:** whoever writes here holds the run's lock, so no keeper does. A process is signalled only when it is the
//! keeper of this very run by its own command line.
use super::KEEP_VERB;
use super::journal::Journal;
use crate::runs::RunDir;
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Code, Fault};
use rustix::process::{Pid, PidfdFlags, Signal};

/// The file that says that a run is to end before it begins.
pub(super) const STOP: &str = "stop";

/// Where the run is. One whose keeper is gone is recorded as lost first: the kernel ended everything of it.
pub fn settle(dir: &RunDir) -> Result<RunFile, Fault> {
    let file = dir.file()?;
    if file.state.is_final() || file.state == RunState::Queued {
        return Ok(file);
    }
    let Some(_lock) = dir.lock()? else {
        return Ok(file);
    };
    // The keeper may have written its last word since.
    let mut journal = Journal::open(dir)?;
    if journal.file.state.is_final() || journal.file.state == RunState::Queued {
        return Ok(journal.file);
    }
    let (state, reason) = if dir.path().join(STOP).exists() {
        (RunState::Cancelled, "stopped")
    } else {
        (RunState::Failed, "lost")
    };
    if journal.state(state, Some(reason)).is_err() {
        // A disk that takes nothing keeps nobody from knowing it; the next who asks writes it down.
        journal.file.state = state;
        journal.file.reason = Some(reason.to_owned());
    }
    Ok(journal.file)
}

/// Cancels a run that waits for its turn; `false` where it does not wait any more.
pub fn cancel_queued(dir: &RunDir) -> Result<bool, Fault> {
    let Some(_lock) = dir.lock()? else {
        return Ok(false);
    };
    let mut journal = Journal::open(dir)?;
    if journal.file.state != RunState::Queued {
        return Ok(false);
    }
    journal.state(RunState::Cancelled, Some("stopped"))?;
    Ok(true)
}

/// Ends a run that is still being built: its keeper has no socket yet. What was copied is removed by it.
pub fn interrupt(dir: &RunDir) -> Result<(), Fault> {
    let cannot = |why: String| Fault::new(Code::StateDir, format!("cannot stop {}", dir.name()), why);
    std::fs::File::create(dir.path().join(STOP)).map_err(|error| cannot(error.to_string()))?;
    let Some(keeper) = dir.file()?.keeper else {
        return Ok(());
    };
    let Some(pid) = i32::try_from(keeper).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    // Held before it is looked at: from then on the number means this process.
    let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(());
    };
    let line = std::fs::read(format!("/proc/{keeper}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    let ours = words.any(|word| word == KEEP_VERB.as_bytes())
        && words.any(|word| word == dir.name().as_str().as_bytes());
    if ours {
        // One that ended meanwhile needs no signal.
        match rustix::process::pidfd_send_signal(process, Signal::TERM) {
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
