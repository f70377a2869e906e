//! Who still has something of a mount open, and ending those through whom something could still be done.
//!
//! A descriptor cannot be taken back. A file that is open for reading stays readable, and that is told. Through a directory
//! a process could still connect to a socket that appears there later, and through a file that is open for writing it
//! could write on: such a process is ended.
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The host's list of processes, open before its paths are left behind.
pub(super) struct Processes(OwnedFd);

/// How a process holds something of a mount; the stronger comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// A file that is open for reading.
    Reads,
    /// A directory, a name without its content, a working directory, or a file that is open for writing.
    Reaches,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How long the end of a killed process is waited for: a frozen one ends when it goes on.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

impl Processes {
    pub(super) fn open() -> Option<Self> {
        rustix::fs::open("/proc", DIRECTORY, Mode::empty()).ok().map(Self)
    }

    /// The numbers of the mounts at and below `place`, as this process sees them.
    pub(super) fn mounts_below(&self, place: &str) -> BTreeSet<u64> {
        let table = self.text("self/mountinfo", usize::MAX).unwrap_or_default();
        let below = |at: &str| {
            at.strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        table
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(' ');
                let id = fields.next()?.parse().ok()?;
                below(&unescape(fields.nth(3)?)).then_some(id)
            })
            .collect()
    }

    /// Processes of the sandbox behind `namespace` that hold something of these mounts, and how.
    pub(super) fn holding(&self, namespace: BorrowedFd<'_>, mounts: &BTreeSet<u64>) -> Vec<(Pid, Hold)> {
        self.inside(namespace)
            .into_iter()
            .filter_map(|pid| Some((pid, self.hold(pid, mounts)?)))
            .collect()
    }

    /// Processes of the sandbox, init not among them: it holds nothing but for the time of one call.
    pub(super) fn inside(&self, namespace: BorrowedFd<'_>) -> Vec<Pid> {
        let Ok(namespace) = rustix::fs::fstat(namespace) else {
            return Vec::new();
        };
        let own = rustix::process::getpid();
        let all = names(&self.0)
            .into_iter()
            .filter_map(|name| Pid::from_raw(name.parse().ok()?));
        all.filter(|pid| *pid != own && self.namespace(*pid) == Some(namespace.st_ino) && !self.is_init(*pid))
            .collect()
    }

    /// The mount namespace of a process, by the first thread that has one: a main thread that called `pthread_exit` has
    /// none (proc(5), `/proc/pid/task`), though the other threads go on.
    fn namespace(&self, pid: Pid) -> Option<u64> {
        self.threads(pid).find_map(|thread| {
            let mounts = rustix::fs::statat(&self.0, format!("{thread}/ns/mnt"), AtFlags::empty());
            mounts.ok().map(|mounts| mounts.st_ino)
        })
    }

    /// The directories of a process's threads. Each may have its own descriptors, working directory and root (`CLONE_FILES`
    /// and `CLONE_FS` are optional).
    fn threads(&self, pid: Pid) -> impl Iterator<Item = String> + use<> {
        let tasks = format!("{}/task", number(pid));
        self.list(&tasks)
            .into_iter()
            .map(move |thread| format!("{tasks}/{thread}"))
    }

    /// Ends a process if `still` says so of it once it cannot be another any more. Whether it was ended.
    pub(super) fn end(&self, pid: Pid, still: impl Fn(&Self) -> bool) -> bool {
        let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        if !still(self) || rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).is_err() {
            return false;
        }
        // Waiting longer helps nobody: one that is frozen does nothing until it ends.
        let mut waiting = [PollFd::new(&pidfd, PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&PATIENCE)).is_ok()
    }

    /// How a process holds something of these mounts. What cannot be looked at is init, or has ended.
    pub(super) fn hold(&self, pid: Pid, mounts: &BTreeSet<u64>) -> Option<Hold> {
        self.threads(pid)
            .filter_map(|thread| self.hold_of_thread(&thread, mounts))
            .max()
    }

    fn hold_of_thread(&self, thread: &str, mounts: &BTreeSet<u64>) -> Option<Hold> {
        let at = |name: &str| {
            let path = format!("{thread}/{name}");
            let seen = rustix::fs::statx(&self.0, path, AtFlags::empty(), StatxFlags::MNT_ID);
            seen.is_ok_and(|seen| mounts.contains(&seen.stx_mnt_id))
        };
        if at("cwd") || at("root") {
            return Some(Hold::Reaches);
        }
        let descriptors = self.list(&format!("{thread}/fdinfo"));
        let held = descriptors
            .iter()
            .filter_map(|fd| self.descriptor(thread, fd, mounts));
        let mapped = at("exe").then_some(Hold::Reads);
        held.chain(mapped).max()
    }

    fn descriptor(&self, thread: &str, fd: &str, mounts: &BTreeSet<u64>) -> Option<Hold> {
        let info = self.text(&format!("{thread}/fdinfo/{fd}"), 4096)?;
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let mount: u64 = field("mnt_id:")?.parse().ok()?;
        if !mounts.contains(&mount) {
            return None;
        }
        let flags = field("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok());
        let flags = OFlags::from_bits_retain(flags?);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let stat = rustix::fs::statat(&self.0, format!("{thread}/fd/{fd}"), AtFlags::empty());
        let file = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if file && !writes && !flags.contains(OFlags::PATH) {
            Some(Hold::Reads)
        } else {
            Some(Hold::Reaches)
        }
    }

    /// Whether it is the first process of a PID namespace that is not this one's.
    fn is_init(&self, pid: Pid) -> bool {
        let status = self
            .text(&format!("{}/status", number(pid)), 8192)
            .unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.is_some_and(|numbers| {
            let numbers: Vec<&str> = numbers.split_whitespace().collect();
            numbers.len() > 1 && numbers.last() == Some(&"1")
        })
    }

    fn list(&self, path: &str) -> Vec<String> {
        rustix::fs::openat(&self.0, path, DIRECTORY, Mode::empty())
            .map_or_else(|_| Vec::new(), |open| names(&open))
    }

    fn text(&self, path: &str, most: usize) -> Option<String> {
        let file = rustix::fs::openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        std::fs::File::from(file)
            .take(most)
            .read_to_string(&mut text)
            .ok()?;
        Some(text)
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// The kernel writes space, tab, newline and backslash as octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// Entries that are numbers.
fn names(directory: &OwnedFd) -> Vec<String> {
    let Ok(entries) = Dir::read_from(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}
