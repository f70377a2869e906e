//! Whether the limits of a living run hold: the files of its groups are watched by inotify(7), which costs nothing while nobody
//! writes to them. The kernel tells nothing where a controller is taken away with its files, so that everything is read again
//! at intervals too.
use super::Group;
use bastle_contract::LimitLost;
use rustix::event::Timespec;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often everything is read again. Each time costs a few reads of small files.
const EVERY: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// The same where inotify cannot be used: a user may have 128 instances (`fs.inotify.max_user_instances`).
const WITHOUT_EVENTS: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The watch of one run.
pub(crate) struct LimitWatch {
    events: Option<OwnedFd>,
}

impl LimitWatch {
    /// Begins to watch. `None`: no cgroup holds a limit of this run.
    pub(crate) fn begin(group: &Group) -> Option<Self> {
        let files = group.watched_files();
        if files.is_empty() {
            return None;
        }
        let watched = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|events| {
            for file in files {
                inotify::add_watch(&events, file, WatchFlags::MODIFY | WatchFlags::DELETE_SELF)?;
            }
            Ok(events)
        });
        // Without it the interval alone decides.
        Some(Self { events: watched.ok() })
    }

    /// For waiting until somebody writes to one of the files.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// How long to wait at most before everything is read again.
    pub(crate) fn interval(&self) -> &'static Timespec {
        match self.events {
            Some(_) => &EVERY,
            None => &WITHOUT_EVENTS,
        }
    }

    /// Reads everything again: the first limit that is lost.
    pub(crate) fn check(&mut self, group: &Group, pid: u32) -> Option<LimitLost> {
        if let Some(events) = &self.events
            && !drained(events)
        {
            self.events = None;
        }
        group.lost(pid)
    }
}

/// Drains the queue without looking at the events. `false`: the descriptor can no longer be read.
fn drained(events: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    loop {
        match reader.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}
