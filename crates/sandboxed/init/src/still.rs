//! Stopping every process where no cgroup can freeze them.
//!
//! **Trust:** the processes are hostile. One that is not stopped yet can continue the others, and a timer of its own
//! (`timer_create` with `SIGCONT`) continues a process that is stopped. So they are stopped again until all of them are,
//! looked at while they should stay so, and what woke by itself is told: signals cannot promise more. Calls that make or
//! change names wait meanwhile, because nobody serves them.
use bastle_sys::signal::kill_everything_else;
use std::io;
use std::time::{Duration, Instant};

/// Rounds until it is told that some go on.
const ROUNDS: u32 = 200;
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two looks afterwards.
const LOOK: Duration = Duration::from_millis(20);

/// Everything is stopped, and looked at from time to time.
pub(crate) struct Still {
    next: Instant,
    /// Processes that were found running, as far as told.
    told: u32,
}

impl Still {
    /// Stops everything; beside it how many processes could not be stopped.
    pub(crate) fn begin() -> io::Result<(Self, u32)> {
        let awake = stop()?;
        let still = Self {
            next: Instant::now() + LOOK,
            told: awake,
        };
        Ok((still, awake))
    }

    /// How long nothing has to be looked at.
    pub(crate) fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Stops what woke; how many did, the first time.
    pub(crate) fn look(&mut self) -> io::Result<Option<u32>> {
        if Instant::now() < self.next {
            return Ok(None);
        }
        let awake = awake()?;
        if awake > 0 {
            stop()?;
        }
        self.next = Instant::now() + LOOK;
        let news = (awake > 0 && self.told == 0).then_some(awake);
        self.told = self.told.max(awake);
        Ok(news)
    }
}

fn stop() -> io::Result<u32> {
    let mut left = 0;
    for _ in 0..ROUNDS {
        kill_everything_else(libc::SIGSTOP)?;
        left = awake()?;
        if left == 0 {
            break;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the kernel tells nobody but a parent that a process has stopped"
        )]
        std::thread::sleep(PAUSE);
    }
    Ok(left)
}

/// Processes that run or could: neither stopped nor dead. One that waits in the kernel for a device stops when it returns.
fn awake() -> io::Result<u32> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
            .filter(|pid| *pid != 1)
        else {
            continue;
        };
        // Gone meanwhile: it does not run.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        let runs = threads.flatten().any(|thread| {
            std::fs::read_to_string(thread.path().join("stat"))
                .is_ok_and(|stat| matches!(state(&stat), Some('R' | 'S')))
        });
        count += u32::from(runs);
    }
    Ok(count)
}

/// The state in a line of `/proc/PID/stat`: behind the name, which may have anything in it but a later parenthesis.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::state;

    #[test]
    fn a_name_with_parentheses_does_not_hide_that_its_process_runs() {
        assert_eq!(state("7 (sh) S 1 7"), Some('S'));
        assert_eq!(state("7 (a) T ) R 1 7"), Some('R'));
        assert_eq!(state("7 (broken"), None);
    }
}
