//! Waiting for something to change in the directory of a run.
use super::RunDir;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Wakes when a file of the run was written or replaced.
#[derive(Debug)]
pub struct Waiter {
    /// The instance and its watch; `None` where the kernel gives no more of them: then only time passes.
    line: Option<(OwnedFd, i32)>,
}

impl RunDir {
    /// Notices changes from now on.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        let wanted = WatchFlags::MODIFY | WatchFlags::MOVED_TO | WatchFlags::CREATE;
        let line = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let line = line.and_then(|line| {
            let watch = inotify::add_watch(&line, self.path(), wanted).ok()?;
            Some((line, watch))
        });
        Waiter { line }
    }
}

impl Waiter {
    /// Waits for a change, at most so long. Who waits looks for itself what there is.
    pub fn wait(&self, most: Duration) {
        // Without the kernel's word, looking again soon is all there is.
        let most = match self.line {
            Some(_) => most,
            None => most.min(Duration::from_millis(50)),
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        let mut waiting: Vec<PollFd<'_>> = self
            .line
            .iter()
            .map(|(line, _)| PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN))
            .collect();
        // A signal is as good as a change.
        match rustix::event::poll(&mut waiting, Some(&timeout)) {
            Ok(_) | Err(_) => {}
        }
        if let Some((line, _)) = &self.line {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(line, &mut buffer);
            while reader.next().is_ok() {}
        }
    }
}

impl Drop for Waiter {
    /// Removes the watch before the descriptor closes: closing an instance that still has one waits for an SRCU grace period
    /// (about 15 ms).
    fn drop(&mut self) {
        if let Some((line, watch)) = &self.line {
            // The kernel has removed the watch by itself when the directory is gone.
            match inotify::remove_watch(line, *watch) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}
