//! Bringing a path of the host into a sandbox: opened by name without symlinks, cloned, restricted, covered, attached.
use super::inside::{Skeleton, enter_mounts, enter_user, open_place};
use super::{Rooms, fault};
use crate::bounds::Bounds;
use crate::idmap;
use bastle_contract::grants::{Cover, CoverKind, GrantOrder, place_of};
use bastle_contract::{AbsPath, Access, Authority, Fault, FromSpawner};
use bastle_sys::mount::Attributes;
use bastle_sys::tree;
use bastle_sys::walk::{self, Within};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where a tree waits while its names are covered: below a directory that Landlock grants to nobody.
const STAGE: &str = "/.mask/stage";
/// What covers a hidden file, and a hidden directory.
const EMPTY: [&str; 2] = ["/.mask/file", "/.mask/directory"];

pub(super) fn bring(
    (rooms, bounds): (&Rooms, Option<&Bounds>),
    mounts: BorrowedFd<'_>,
    order: GrantOrder,
    judged: &OwnedFd,
) -> Result<FromSpawner, Fault> {
    let path = order.path;
    let extra = match order.access {
        Access::ReadOnly => Attributes::READ_ONLY,
        Access::ReadWrite => Attributes::default(),
    };
    let (tree, kind) = if Authority::of_this_process().is_root() {
        let (opened, kind) = open(&path, order.access, judged, bounds)?;
        let tree = tree::detach(&opened, extra).map_err(|error| fault(&path, "clone", error))?;
        idmap::show_owned(&tree, &opened, rooms.identity, bounds)?;
        enter_user(rooms, &path)?;
        (tree, kind)
    } else {
        enter_user(rooms, &path)?;
        // A copy of the host's mounts that belongs to the sandbox's user namespace: only there may it clone a tree.
        bastle_sys::clone::unshare_mounts().map_err(|error| fault(&path, "copy of the mounts", error))?;
        // Private: what the host mounts below the path later must not follow it inside.
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|error| fault(&path, "private mounts", error))?;
        let (opened, kind) = open(&path, order.access, judged, bounds)?;
        let tree = tree::detach(&opened, extra).map_err(|error| fault(&path, "clone", error))?;
        (tree, kind)
    };
    enter_mounts(mounts, &path)?;
    let alias = place(&path, &tree, kind, &order.covers)?;
    Ok(FromSpawner::Granted { path, alias })
}

/// Opens the path and makes sure that it is what was judged.
fn open(
    path: &AbsPath,
    access: Access,
    judged: &OwnedFd,
    bounds: Option<&Bounds>,
) -> Result<(OwnedFd, FileType), Fault> {
    let opened = idmap::open(path, access, bounds).map_err(|error| fault(path, "open", error))?;
    let identity = |fd: &OwnedFd| {
        rustix::fs::fstat(fd)
            .map(|stat| (stat.st_dev, stat.st_ino, FileType::from_raw_mode(stat.st_mode)))
            .map_err(|error| fault(path, "stat", error))
    };
    let found = identity(&opened)?;
    if found != identity(judged)? {
        return Err(fault(path, "compare", "it is not any more what was judged"));
    }
    match found.2 {
        kind @ (FileType::Directory | FileType::RegularFile) => Ok((opened, kind)),
        _ => Err(fault(path, "kind", "it is neither a file nor a directory")),
    }
}

/// Attaches the tree, with its covers on before the agent can reach it.
fn place(path: &AbsPath, tree: &OwnedFd, kind: FileType, covers: &[Cover]) -> Result<bool, Fault> {
    let place = place_of(path).map_err(|error| fault(path, "place", error))?;
    let failed = |error: Errno| fault(path, "place", error);
    let skeleton = Skeleton::open(path)?;
    if open_place(&place).is_ok() {
        return Err(fault(path, "place", "something is there already"));
    }
    let make = |at: &AbsPath| match kind {
        FileType::Directory => skeleton.directory(at).map(|_| ()),
        _ => skeleton.file(at),
    };
    make(&place).map_err(failed)?;
    let attached = stage(path, tree, covers, make).and_then(|()| {
        let target = open_place(&place).map_err(failed)?;
        attach(tree, &target).map_err(failed)
    });
    if let Err(cause) = attached {
        // Nothing of it may be left where the next one would be refused.
        return Err(skeleton.clear(&place).err().map_or(cause, failed));
    }
    skeleton.alias(path, &place).map_err(failed)
}

fn stage(
    path: &AbsPath,
    tree: &OwnedFd,
    covers: &[Cover],
    make: impl Fn(&AbsPath) -> Result<(), Errno>,
) -> Result<(), Fault> {
    if covers.is_empty() {
        return Ok(());
    }
    let stage = AbsPath::new(STAGE).map_err(|error| fault(path, "stage", error))?;
    let failed = |error: Errno| fault(path, "stage", error);
    match open_place(&stage) {
        Ok(_) => {}
        Err(Errno::NOENT) => make(&stage).map_err(failed)?,
        Err(other) => return Err(failed(other)),
    }
    attach(tree, &open_place(&stage).map_err(failed)?).map_err(failed)?;
    for Cover { at, kind } in covers {
        let Some(below) = at.relative_to(path) else {
            return Err(fault(at, "cover", "it does not lie in what is granted"));
        };
        let target = match walk::open(tree.as_fd(), Path::new(below), OFlags::empty(), Within::Directory) {
            Ok(target) => target,
            // Gone since it was judged: there is nothing to cover, and the write guard keeps the name from coming back.
            Err(Errno::NOENT) => continue,
            Err(other) => return Err(fault(at, "cover", other)),
        };
        let cover = match kind {
            CoverKind::ReadOnly => tree::detach(&target, Attributes::READ_ONLY),
            CoverKind::Hidden => empty_like(&target),
        };
        let cover = cover.map_err(|error| fault(at, "cover", error))?;
        attach(&cover, &target).map_err(|error| fault(at, "cover", error))?;
    }
    Ok(())
}

/// Something empty and unreadable of the same kind.
pub(super) fn empty_like(target: &OwnedFd) -> std::io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(target)?;
    let [file, directory] = EMPTY;
    let empty = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        directory
    } else {
        file
    };
    let empty = rustix::fs::open(
        empty,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    tree::detach(&empty, Attributes::READ_ONLY.and(Attributes::NO_EXEC))
}

pub(super) fn attach(tree: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", target, "", flags)
}
