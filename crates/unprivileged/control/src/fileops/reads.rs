//! Which files were opened, read, written and executed, as the kernel tells it.
//!
//! **Trust:** the descriptors come from the spawner. What is opened there is never read, only asked for its path, which
//! is the agent's and kept as bytes. Everything kept is bounded.
use super::{MOST_USED, Seen};
use bastle_contract::{FileUse, LaunchPlan, ReadSight, socket};
use bastle_sys::fanotify;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Programs that are remembered by process; more are not named.
const MOST_PROGRAMS: usize = 50_000;
/// Longest name of a program that is kept.
const MOST_NAME: usize = 64;
/// Readings without any progress after which the rest is a gap.
const MOST_ERRORS: u64 = 1_000;

/// What is told while a run lives.
#[derive(Debug)]
pub(crate) struct Reads {
    sight: ReadSight,
    group: Option<OwnedFd>,
    /// Holds the run's mounts: a path is read from the top of its namespace.
    mounts: Option<OwnedFd>,
    /// Trees whose files are told; of others only programs.
    roots: Vec<String>,
    init: u32,
    programs: HashMap<u32, String>,
    files: BTreeMap<Vec<u8>, FileUse>,
    left_out: u64,
    gaps: u64,
}

impl Reads {
    /// For the trees that the plan grants.
    pub(crate) fn new(plan: &LaunchPlan) -> Self {
        let owned = plan.mounts.iter().filter(|mount| mount.kind.is_owned());
        Self {
            sight: ReadSight::Nothing {
                why: "the run did not start".to_owned(),
            },
            group: None,
            mounts: None,
            roots: owned.map(|mount| mount.at.to_string()).collect(),
            init: 0,
            programs: HashMap::new(),
            files: BTreeMap::new(),
            left_out: 0,
            gaps: 0,
        }
    }

    /// The sandbox exists; `descriptors` are those of the spawner's word.
    pub(crate) fn begin(&mut self, init: u32, sight: ReadSight, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        (self.group, self.mounts) = (descriptors.next(), descriptors.next());
        (self.init, self.sight) = (init, sight);
    }

    /// For waiting.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref().map(AsFd::as_fd)
    }

    /// Takes some of what there is; `false` when there was nothing.
    pub(crate) fn take(&mut self) -> bool {
        let Some(group) = &self.group else {
            return false;
        };
        match fanotify::read(group.as_fd()) {
            Ok(events) => {
                for event in &events {
                    self.note(event);
                }
                !events.is_empty()
            }
            Err(_) => {
                // One event that could not be opened, e.g. of a file that belongs to nobody inside.
                self.gaps += 1;
                if self.gaps >= MOST_ERRORS {
                    self.group = None;
                }
                self.group.is_some()
            }
        }
    }

    /// Everything that is still waiting, and then no more.
    pub(crate) fn finish(mut self) -> Seen {
        while self.take() {}
        // With the group goes the last hold on the run's mounts, and taking those down takes a while too.
        leave(self.group.into_iter().chain(self.mounts));
        Seen {
            sight: self.sight,
            files: self.files,
            left_out: self.left_out,
            gaps: self.gaps,
        }
    }

    fn note(&mut self, event: &fanotify::Seen) {
        if event.mask & fanotify::LOST != 0 {
            self.gaps += 1;
            return;
        }
        let Some(path) = event.file.as_ref().and_then(path_of) else {
            self.gaps += 1;
            return;
        };
        let executed = event.mask & fanotify::EXECUTED != 0;
        if executed {
            self.program(event.pid, &path);
        }
        if !self.roots.iter().any(|root| is_below(root, &path)) {
            return;
        }
        if !self.files.contains_key(&path) && self.files.len() >= MOST_USED {
            self.left_out += 1;
            return;
        }
        let (process, pid) = self.who(event.pid);
        let used = self.files.entry(path).or_insert_with(|| FileUse {
            read: false,
            written: false,
            executed: false,
            count: 0,
            process: String::new(),
            pid: 0,
        });
        used.read |= event.mask & fanotify::READ != 0;
        used.written |= event.mask & fanotify::WRITTEN != 0;
        used.executed |= executed;
        used.count += 1;
        if used.process.is_empty() && !process.is_empty() {
            (used.process, used.pid) = (process, pid);
        }
    }

    /// Remembers which program a process is: by the time its reading is told it may have ended.
    fn program(&mut self, pid: u32, path: &[u8]) {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        // The loader of a program is opened in the same way as the program, after it.
        let loader = name.starts_with(b"ld-") || name.starts_with(b"ld.so");
        if loader || (self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(&pid)) {
            return;
        }
        self.programs.insert(pid, shown(name));
    }

    /// init opens files in the agent's name; then nobody can tell in whose.
    fn who(&self, pid: u32) -> (String, u32) {
        if pid == self.init || pid == 0 {
            return (String::new(), 0);
        }
        let known = self.programs.get(&pid).cloned();
        let name = known.or_else(|| {
            let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
            Some(shown(comm.strip_suffix(b"\n").unwrap_or(&comm)))
        });
        name.map_or((String::new(), 0), |name| (name, pid))
    }
}

fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name.get(..MOST_NAME).unwrap_or(name));
    bastle_audit::sanitize(&text)
}

fn is_below(root: &str, path: &[u8]) -> bool {
    path.strip_prefix(root.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The path of an open file in the run's own view.
fn path_of(file: &OwnedFd) -> Option<Vec<u8>> {
    const GONE: &[u8] = b" (deleted)";
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let path = link.as_os_str().as_bytes();
    // The kernel says so behind the path of a file without any name.
    let gone = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0);
    let path = if gone {
        path.strip_suffix(GONE).unwrap_or(path)
    } else {
        path
    };
    Some(path.to_vec())
}

/// Leaves descriptors to the kernel's collector, which closes them while nobody waits: taking marks down waits for every
/// processor, ten milliseconds at the end of each run. A socket that lies in its own queue can be reached by nobody, so
/// the collector takes it, and what lies there beside it. Older kernels collect in the caller's time; then they are closed
/// here, and slower.
pub(crate) fn leave(descriptors: impl IntoIterator<Item = OwnedFd>) {
    let descriptors: Vec<OwnedFd> = descriptors.into_iter().collect();
    if descriptors.is_empty() {
        return;
    }
    let Ok((own, other)) = socket::pair() else {
        return;
    };
    let mut sent = vec![own.as_fd()];
    sent.extend(descriptors.iter().map(AsFd::as_fd));
    // What cannot be sent is closed here.
    drop(socket::send(&other, &(), &sent));
    drop((descriptors, own));
    // The last: the end of a socket is what wakes the collector.
    drop(other);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};

    #[test]
    fn a_descriptor_that_is_left_to_the_kernel_does_not_stay_open() {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let most = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let none = Timespec::default();
        let ended = |most: &Timespec| {
            let mut waiting = [PollFd::new(&reading, PollFlags::IN)];
            rustix::event::poll(&mut waiting, Some(most)).unwrap() == 1
        };
        assert!(!ended(&none), "control: somebody has it");
        leave([writing]);
        assert!(ended(&most), "nobody has it any more");
    }
}
