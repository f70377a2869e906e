//! Covering names of a living sandbox again: a rename or removal on the host takes a mount off the name it holds
//! (`detach_mounts` in the kernel), and the file that comes in its place is open until it is covered.
//!
//! **Trust:** the paths come from control, from its own plan and its own look at the host. They are opened without
//! following a link; what is mounted there already stays. The run is frozen meanwhile, the host is not: what it changes
//! after this is told to control by another event.
use super::bring::{attach, empty_like};
use super::inside::{enter_mounts, enter_user};
use super::{Rooms, fault};
use bastle_contract::grants::{Cover, CoverKind};
use bastle_contract::{AbsPath, Fault, FromSpawner};
use bastle_sys::mount::Attributes;
use bastle_sys::tree;
use bastle_sys::walk::{self, Within};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub(super) fn cover(rooms: &Rooms, mounts: BorrowedFd<'_>, covers: &[Cover]) -> Result<FromSpawner, Fault> {
    let first = covers
        .first()
        .map_or_else(AbsPath::root, |cover| cover.at.clone());
    enter_user(rooms, &first)?;
    enter_mounts(mounts, &first)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty()).map_err(|error| fault(&first, "root", error))?;
    let mut count = 0;
    for cover in covers {
        if put(&root, cover)? {
            count += 1;
        }
    }
    Ok(FromSpawner::Covered { count })
}

/// Covers one name; `false` where there is nothing to cover, or it is covered.
fn put(root: &OwnedFd, Cover { at, kind }: &Cover) -> Result<bool, Fault> {
    let failed = |error: Errno| fault(at, "cover", error);
    let below = Path::new(at.as_str().trim_start_matches('/'));
    let target = match walk::open(root.as_fd(), below, OFlags::empty(), Within::Directory) {
        Ok(target) => target,
        // Gone, or a link: there is nothing to mount on, and the write guard keeps the agent from making one.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let seen = rustix::fs::statx(&target, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).map_err(failed)?;
    let mounted = seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    if mounted || FileType::from_raw_mode(seen.stx_mode.into()) == FileType::Symlink {
        return Ok(false);
    }
    let cover = match kind {
        CoverKind::ReadOnly => tree::detach(&target, Attributes::READ_ONLY),
        CoverKind::Hidden => empty_like(&target),
    };
    let cover = cover.map_err(|error| fault(at, "cover", error))?;
    match attach(&cover, &target) {
        Ok(()) => Ok(true),
        // Removed between the look and the mount: the host's next change is told by itself.
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
