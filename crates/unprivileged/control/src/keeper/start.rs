//! Starting a keeper from a process that will end before it.
use super::{KEEP_VERB, TELL};
use crate::runs::RunDir;
use bastle_contract::runs::RunFile;
use bastle_contract::{Code, Fault};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the keeper of a run that was asked for, and waits until the agent works or everything is over; at most for
/// `patience`, then it goes on by itself. The keeper is this binary unless another `program` is named. Gives back where
/// the run is.
pub fn start(
    state: &Path,
    dir: &RunDir,
    program: Option<&Path>,
    patience: Duration,
) -> Result<RunFile, Fault> {
    let cannot = |why: String| Fault::new(Code::FenceLost, "cannot start the keeper of the run", why);
    let mut child = Command::new(program.unwrap_or_else(|| Path::new("/proc/self/exe")))
        .arg(KEEP_VERB)
        .arg(state)
        .arg(dir.name().as_str())
        .arg(TELL)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| cannot(error.to_string()))?;
    let Some(mut told) = child.stdout.take() else {
        return Err(cannot("it has no output".to_owned()));
    };
    let until = Instant::now() + patience;
    // A word, or the end of the keeper: both make it readable.
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut waiting = [PollFd::from_borrowed_fd(told.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut waiting, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                // What it says does not matter: the files do.
                drop(told.read(&mut [0; 16]));
                break;
            }
            Err(error) => return Err(cannot(error.to_string())),
        }
    }
    // One that has ended already is not left behind as a zombie.
    drop(child.try_wait());
    super::settle(dir)
}
