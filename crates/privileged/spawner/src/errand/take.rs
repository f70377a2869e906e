//! Taking a granted path out of a sandbox. Afterwards nothing of it can be opened there; what is open stays open.
use super::inside::{Skeleton, enter_mounts, enter_user, open_place};
use super::{Rooms, fault, holders};
use bastle_contract::grants::place_of;
use bastle_contract::{AbsPath, Fault, FromSpawner};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::os::fd::BorrowedFd;

pub(super) fn take(rooms: &Rooms, mounts: BorrowedFd<'_>, path: AbsPath) -> Result<FromSpawner, Fault> {
    let failed = |error: Errno| fault(&path, "unmount", error);
    let place = place_of(&path).map_err(|error| fault(&path, "place", error))?;
    // The host's processes, while its paths still resolve.
    let processes = holders::Processes::open();
    enter_user(rooms, &path)?;
    enter_mounts(mounts, &path)?;
    let seen = rustix::fs::statx(CWD, place.as_str(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID)
        .map_err(failed)?;
    // Detached at once, whoever uses it: a name that is not there any more cannot be opened, and Landlock refuses what
    // is opened through a directory that somebody still holds.
    rustix::mount::unmount(place.as_str(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(failed)?;
    // A second tree below the first would be the next one to be seen.
    open_place(&place).map_err(|error| fault(&path, "check", error))?;
    // Before anything else is mounted here: the number of a mount that nobody holds is used again at once.
    let holders = processes.map_or(0, |processes| processes.holding(mounts, seen.stx_mnt_id));
    let skeleton = Skeleton::open(&path)?;
    skeleton.unalias(&path, &place).map_err(failed)?;
    skeleton.clear(&place).map_err(failed)?;
    Ok(FromSpawner::Withdrawn { path, holders })
}
