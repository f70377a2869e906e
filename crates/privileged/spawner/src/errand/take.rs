//! Taking a granted path out of a sandbox: read-only first, then detached, then without anybody who could still reach it.
//!
//! Read-only before detached, because a mount that is in no namespace cannot be changed any more: a mode, a time or an
//! attribute would stay changeable through a directory that somebody holds. Opening is refused by Landlock once the mount
//! has no way up to a rule. What neither of the two refuses, connecting to a socket below a held directory, is the reason
//! why processes that hold one are ended.
use super::holders::{Hold, Processes};
use super::inside::{Skeleton, enter_mounts, enter_user, open_place};
use super::{Rooms, fault};
use bastle_contract::grants::place_of;
use bastle_contract::{AbsPath, Fault, FromSpawner};
use bastle_sys::mount::{Attributes, Depth, set_attributes};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

/// Looks for holders until none is found: between two looks one can be passed on.
const ROUNDS: u32 = 64;

pub(super) fn take(
    rooms: &Rooms,
    (mounts, init): (BorrowedFd<'_>, BorrowedFd<'_>),
    path: AbsPath,
) -> Result<FromSpawner, Fault> {
    let failed = |error: Errno| fault(&path, "unmount", error);
    let place = place_of(&path).map_err(|error| fault(&path, "place", error))?;
    // The host's processes, while its paths still resolve.
    let processes = Processes::open().ok_or_else(|| fault(&path, "processes", "/proc cannot be opened"))?;
    enter_user(rooms, &path)?;
    enter_mounts(mounts, &path)?;
    let numbers = processes.mounts_below(place.as_str());
    if numbers.is_empty() {
        return Err(failed(Errno::INVAL));
    }
    let mut ending = Ending {
        processes: &processes,
        namespace: mounts,
        ended: BTreeSet::new(),
    };
    let unchangeable = make_read_only(&place, &numbers, &mut ending).or_else(|_| {
        // The writer was not found: every process ends, and with the agent the run.
        ending.everybody();
        make_read_only(&place, &numbers, &mut ending)
    });
    // A writer that is not listed ends with its PID namespace.
    let killed = match unchangeable {
        Ok(()) => Ok(()),
        Err(_) => match rustix::process::pidfd_send_signal(init, Signal::KILL) {
            // It ended with its agent before it could be killed.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error),
        },
    };
    // In any case: a name that is not there any more cannot be opened.
    rustix::mount::unmount(place.as_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(failed)?;
    killed.map_err(failed)?;
    // A second tree below the first would be the next one to be seen.
    open_place(&place).map_err(|error| fault(&path, "check", error))?;
    // Before anything else is mounted here: the number of a mount that nobody holds is used again at once.
    let holders = ending.whoever_reaches(&numbers);
    let skeleton = Skeleton::open(&path)?;
    skeleton.unalias(&path, &place).map_err(failed)?;
    skeleton.clear(&place).map_err(failed)?;
    Ok(FromSpawner::Withdrawn {
        path,
        holders,
        ended: u32::try_from(ending.ended.len()).unwrap_or(u32::MAX),
    })
}

/// Makes everything at and below `place` read-only. The kernel refuses that while somebody has a file open for writing:
/// such a process is ended.
fn make_read_only(place: &AbsPath, numbers: &BTreeSet<u64>, ending: &mut Ending<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mount = rustix::fs::open(place.as_path(), flags, Mode::empty())?;
    let attributes = Attributes::READ_ONLY.and(Attributes::NO_EXEC);
    for _ in 0..ROUNDS {
        match set_attributes(mount.as_fd(), attributes, Depth::Tree) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                if ending.round(numbers) == 0 {
                    return Err(Errno::BUSY);
                }
            }
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Err(Errno::BUSY)
}

/// Ending processes of a sandbox, and who was.
struct Ending<'a> {
    processes: &'a Processes,
    namespace: BorrowedFd<'a>,
    ended: BTreeSet<i32>,
}

impl Ending<'_> {
    /// Ends everybody who reaches something now; how many.
    fn round(&mut self, numbers: &BTreeSet<u64>) -> usize {
        let mut count = 0;
        for (pid, hold) in self.processes.holding(self.namespace, numbers) {
            let raw = pid.as_raw_nonzero().get();
            let reaches = |processes: &Processes| processes.hold(pid, numbers) == Some(Hold::Reaches);
            if hold == Hold::Reaches && !self.ended.contains(&raw) && self.processes.end(pid, reaches) {
                self.ended.insert(raw);
                count += 1;
            }
        }
        count
    }

    /// Ends whoever reaches something, until nobody does; how many only read what they had open.
    fn whoever_reaches(&mut self, numbers: &BTreeSet<u64>) -> u32 {
        for _ in 0..ROUNDS {
            if self.round(numbers) == 0 {
                break;
            }
        }
        let left = self.processes.holding(self.namespace, numbers);
        let left = left
            .iter()
            .filter(|(pid, _)| !self.ended.contains(&pid.as_raw_nonzero().get()));
        u32::try_from(left.count()).unwrap_or(u32::MAX)
    }

    /// Ends every process but init.
    fn everybody(&mut self) {
        for _ in 0..ROUNDS {
            let living: Vec<_> = self
                .processes
                .inside(self.namespace)
                .into_iter()
                .filter(|pid| !self.ended.contains(&pid.as_raw_nonzero().get()))
                .collect();
            if living.is_empty() {
                break;
            }
            for pid in living {
                if self.processes.end(pid, |_| true) {
                    self.ended.insert(pid.as_raw_nonzero().get());
                }
            }
        }
    }
}
