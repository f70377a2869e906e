//! New objects in their slots: written from stored contents, or taken from the originals that a journal keeps.
//!
//! **Trust:** contents are checked against their digests before they get a name of the host's; only kinds that a review
//! can show are ever made. Ownership and permissions come from the host's own objects.
use super::inherit::{Inherited, take_from_old};
use super::journal::{Operation, Swap};
use super::settle::{SettleError, moved};
use crate::attributes::{Attributes, Held};
use crate::blobs::{self, Blobs, Checked};
use crate::manifest::{Content, Kind, Mode as FileMode};
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::Authority;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Where new objects come from.
pub(super) enum Source<'a> {
    /// Stored contents, by digest.
    Contents(&'a dyn Blobs),
    /// The objects that an earlier transaction replaced.
    Originals(&'a Originals),
}

/// Objects of the host's that a journal keeps, by their paths in the tree.
pub(super) struct Originals {
    pub(super) areas: Vec<Root>,
    /// The area and the path in it.
    pub(super) at: BTreeMap<TreePath, (usize, TreePath)>,
}

/// Writes all objects of a swap into its slot.
pub(super) fn stage(root: &Root, area: &Root, swap: &Swap, source: &Source<'_>) -> Result<(), SettleError> {
    let owner = match rustix::process::geteuid().is_root() {
        true => owner_of(root, swap.path())?,
        false => None,
    };
    for operation in swap.operations.iter().filter(|one| one.after.is_some()) {
        let at = moved(&operation.path, swap.path(), &swap.slot)?;
        match source {
            Source::Contents(blobs) => {
                write(root, area, operation, &at, *blobs)?;
                if let Some((uid, gid)) = owner {
                    let place = area.place(&at)?.ok_or(SettleError::Drift)?;
                    give(&place.directory, place.name, (uid, gid))?;
                }
            }
            Source::Originals(originals) => {
                let (from, path) = originals.at.get(&operation.path).ok_or(SettleError::Drift)?;
                link(&originals.areas[*from], path, area, &at)?;
            }
        }
    }
    if let Source::Originals(originals) = source {
        // Filling a directory has changed its time.
        for operation in swap.operations.iter().rev() {
            if operation.after == Some(Kind::Dir)
                && let Some((from, path)) = originals.at.get(&operation.path)
                && let Some(stat) = originals.areas[*from].stat(path)?
            {
                set_times(area, &moved(&operation.path, swap.path(), &swap.slot)?, &stat)?;
            }
        }
    }
    Ok(())
}

/// What root makes belongs to whom the old object belonged, or to whom the directory belongs: a project of somebody
/// else's stays theirs. Everybody else owns what they make anyway.
fn owner_of(root: &Root, path: &TreePath) -> Result<Option<(Uid, Gid)>, SettleError> {
    let stat = match root.stat(path)? {
        Some(stat) => stat,
        None => match root.place(path)? {
            Some(place) => {
                let parent = Inherited::of(&place.directory)?;
                let stat = rustix::fs::fstat(&place.directory)?;
                let gid = parent.group().unwrap_or(stat.st_gid);
                return Ok(Some((Uid::from_raw(stat.st_uid), Gid::from_raw(gid))));
            }
            None => return Ok(None),
        },
    };
    Ok(Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))))
}

fn write(
    root: &Root,
    area: &Root,
    operation: &Operation,
    at: &TreePath,
    blobs: &dyn Blobs,
) -> Result<(), SettleError> {
    let place = area.place(at)?.ok_or(SettleError::Drift)?;
    match &operation.after {
        None => Ok(()),
        Some(Kind::Dir) => Ok(rustix::fs::mkdirat(
            &place.directory,
            place.name,
            Mode::from_raw_mode(0o777),
        )?),
        Some(Kind::Symlink { target }) => Ok(rustix::fs::symlinkat(
            target.0.as_slice(),
            &place.directory,
            place.name,
        )?),
        Some(Kind::File {
            digest,
            mode,
            attributes,
            ..
        }) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let bits = Mode::from_raw_mode(mode.create_bits());
            let file = File::from(rustix::fs::openat(&place.directory, place.name, flags, bits)?);
            match blobs::copy_checked(&blobs.open(digest).map_err(SettleError::Content)?, &file, digest)? {
                Checked::Right => {}
                Checked::Wrong => return Err(SettleError::Damaged),
            }
            if let Some(id) = attributes {
                give_attributes(&file, id, operation, blobs)?;
            }
            keep_permissions(root, operation, &file, *mode)
        }
        Some(Kind::Submodule { .. } | Kind::Opaque { .. }) => Err(SettleError::Drift),
    }
}

fn give_attributes(
    file: &File,
    id: &Content,
    operation: &Operation,
    blobs: &dyn Blobs,
) -> Result<(), SettleError> {
    let set = Attributes::open(blobs, id, operation.path.as_path()).map_err(SettleError::Content)?;
    match set.set(file)? {
        Held::All => Ok(()),
        Held::Nothing => Err(SettleError::NoRoom),
    }
}

/// A replaced file keeps its readers and writers, and only the right to execute follows the change.
fn keep_permissions(
    root: &Root,
    operation: &Operation,
    file: &File,
    mode: FileMode,
) -> Result<(), SettleError> {
    if !matches!(operation.before, Some(Kind::File { .. })) {
        return Ok(());
    }
    let Some(place) = root.place(&operation.path)? else {
        return Err(SettleError::Drift);
    };
    let old = match place.open_file() {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(SettleError::Drift),
        Err(error) => return Err(error.into()),
    };
    take_from_old(&old, file)?;
    let stat = rustix::fs::fstat(&old)?;
    let bits = stat.st_mode & 0o777;
    match rustix::fs::fchown(file, None, Some(Gid::from_raw(stat.st_gid))) {
        // A group that the user is not in cannot be given.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let bits = match mode.executable {
        true => bits & 0o666 | (bits & 0o444) >> 2,
        false => bits & 0o666,
    };
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(bits))?)
}

/// Gives an original a second name, so that its inode, times and other hard links come back with it; copies it where
/// the file systems differ or have no hard links.
fn link(from: &Root, path: &TreePath, to: &Root, at: &TreePath) -> Result<(), SettleError> {
    let (Some(old), Some(new)) = (from.place(path)?, to.place(at)?) else {
        return Err(SettleError::Drift);
    };
    let stat = from.stat(path)?.ok_or(SettleError::Drift)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return copy(from, path, to, at);
    }
    match rustix::fs::linkat(
        &old.directory,
        old.name,
        &new.directory,
        new.name,
        AtFlags::empty(),
    ) {
        Ok(()) => Ok(()),
        Err(Errno::XDEV | Errno::PERM | Errno::NOTSUP | Errno::MLINK) => copy(from, path, to, at),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies one object with its permissions, owner, times and attributes; what is in a directory is the caller's.
pub(super) fn copy(from: &Root, path: &TreePath, to: &Root, at: &TreePath) -> Result<(), SettleError> {
    let (Some(old), Some(new)) = (from.place(path)?, to.place(at)?) else {
        return Err(SettleError::Drift);
    };
    let stat = from.stat(path)?.ok_or(SettleError::Drift)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let bits = Mode::from_raw_mode(stat.st_mode & 0o7777 | 0o700);
            rustix::fs::mkdirat(&new.directory, new.name, bits)?;
            let made = Root::open_beneath(&new.directory, new.name)?;
            rustix::fs::fchmod(made.handle(), bits)?;
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&old.directory, old.name, Vec::new())?;
            rustix::fs::symlinkat(&target, &new.directory, new.name)?;
        }
        FileType::RegularFile => {
            let source = old.open_file()?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let bits = Mode::from_raw_mode(0o600);
            let file = File::from(rustix::fs::openat(&new.directory, new.name, flags, bits)?);
            std::io::copy(&mut &source, &mut &file)?;
            if let crate::attributes::Has::These(set) = crate::attributes::of(&source)? {
                match set.set(&file)? {
                    Held::All => {}
                    Held::Nothing => return Err(SettleError::NoRoom),
                }
            }
            take_from_old(&source, &file)?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        }
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return Err(SettleError::Drift),
    }
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        give(&new.directory, new.name, (uid, gid))?;
    }
    set_times(to, at, &stat)
}

/// Gives an object to whom it belongs. User id 0 of a container or a user namespace may name few owners; what it may not give
/// stays its own, as everything of an ordinary user does.
fn give(directory: &OwnedFd, name: &[u8], (uid, gid): (Uid, Gid)) -> Result<(), SettleError> {
    match rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::PERM | Errno::INVAL) if !Authority::of_this_process().is_root() => Ok(()),
        other => Ok(other?),
    }
}

/// Gives an object the modification time of another one.
pub(super) fn set_times(tree: &Root, at: &TreePath, stat: &Stat) -> Result<(), SettleError> {
    let place = tree.place(at)?.ok_or(SettleError::Drift)?;
    let times = modified_at(
        stat.st_mtime,
        i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
    );
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::utimensat(
        &place.directory,
        place.name,
        &times,
        flags,
    )?)
}

/// A modification time for `utimensat`; the access time stays.
pub(super) fn modified_at(seconds: i64, nanoseconds: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        },
    }
}
