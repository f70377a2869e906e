//! One path of the host tree from what it is to what it shall be, by one change of a name.
//!
//! **Trust:** every look and every change goes through descriptors beneath the root. A path that is neither in
//! its old nor in its new state was changed by somebody else: it is reported and left alone.
use super::journal::Operation;
use crate::attributes::{Attributes, Held};
use crate::blobs::Blobs;
use crate::manifest::{Content, Kind, Mode as FileMode};
use crate::path::TreePath;
use crate::rooted::{Place, Root, sync_directory};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Why a path could not be settled.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    /// It is neither old nor new.
    #[error("it changed while the apply was under way")]
    Drift,
    /// A directory holds files that the plan does not know.
    #[error("the directory holds other files")]
    NotEmpty,
    /// Its content is not what its digest says.
    #[error("the stored content is damaged")]
    Damaged,
    /// The file system cannot hold what the file had.
    #[error("the file system has no room for its extended attributes")]
    NoRoom,
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The content cannot be had.
    #[error("{0}")]
    Content(#[source] bastle_contract::Fault),
}

impl From<io::Error> for SettleError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for SettleError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Puts the new content beside its place, synced, under its waiting name. Replaces a leftover of an earlier try.
pub(super) fn lay_beside(root: &Root, operation: &Operation, blobs: &dyn Blobs) -> Result<(), SettleError> {
    let directory = waiting_room(root, operation)?;
    let name = operation.waits_as.as_str();
    remove_waiting(&directory, name)?;
    match &operation.after {
        None | Some(Kind::Dir) => {}
        Some(Kind::File {
            digest,
            mode,
            attributes,
            ..
        }) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(mode.create_bits()))?;
            let file = File::from(file);
            let source = blobs.open(digest).map_err(SettleError::Content)?;
            copy_checked(source, &file, digest)?;
            if let Some(id) = attributes {
                give_attributes(&file, id, operation, blobs)?;
            }
            keep_permissions(operation, &file, *mode)?;
            file.sync_all()?;
        }
        Some(Kind::Symlink { target }) => rustix::fs::symlinkat(target.0.as_slice(), &directory, name)?,
        Some(Kind::Submodule { .. } | Kind::Opaque { .. }) => return Err(SettleError::Drift),
    }
    if matches!(operation.after, Some(Kind::File { .. } | Kind::Symlink { .. })) {
        let owner = match root.place(&operation.path) {
            Ok(Some(place)) => owner_of(&place.directory, place.name)?,
            Ok(None) => None,
            // What is above it is still a file that the same apply makes a directory.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
            Err(error) => return Err(error.into()),
        };
        give(&directory, name.as_bytes(), owner)?;
    }
    Ok(sync_directory(&directory)?)
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

/// Who owns what stands there, if anything does.
fn owner_of(directory: &OwnedFd, name: &[u8]) -> Result<Option<(Uid, Gid)>, SettleError> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// By root's hand, what is new belongs to whom the old belonged, or to whom the directory belongs: a project of
/// somebody else's stays theirs. Everybody else owns what they make anyway.
fn give(directory: &OwnedFd, name: &[u8], owner: Option<(Uid, Gid)>) -> Result<(), SettleError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let stat = rustix::fs::fstat(directory)?;
    let (uid, gid) = owner.unwrap_or((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(directory, name, Some(uid), Some(gid), flags)?)
}

/// Removes the waiting name, if it is there.
pub(super) fn clear_beside(root: &Root, operation: &Operation) -> Result<(), SettleError> {
    match root_directory(root, operation.waits_in.as_ref())? {
        Some(directory) => remove_waiting(&directory, &operation.waits_as),
        None => Ok(()),
    }
}

/// Makes the path what it shall be; already being so is fine.
pub(super) fn settle(root: &Root, operation: &Operation) -> Result<(), SettleError> {
    settle_watched(root, operation, || {})
}

/// The same; `between` runs after the look at the path and before its change.
pub(super) fn settle_watched(
    root: &Root,
    operation: &Operation,
    between: impl FnOnce(),
) -> Result<(), SettleError> {
    let now = root.kind_or_nothing(&operation.path)?;
    if now == operation.after {
        // A crash may have come between the change and the look at what it took out.
        return match root.place(&operation.path)? {
            Some(place) => look_at_old(root, operation, &place),
            None => Ok(()),
        };
    }
    if now != operation.before {
        return Err(SettleError::Drift);
    }
    let Some(place) = root.place(&operation.path)? else {
        return Err(SettleError::Drift);
    };
    between();
    match (&now, &operation.after) {
        (Some(Kind::Dir), None) => remove_dir(&place, Rest::Keep)?,
        (_, None) => take_out(root, operation, &place)?,
        (old, Some(Kind::Dir)) => {
            if old.is_some() {
                take_out(root, operation, &place)?;
            }
            rustix::fs::mkdirat(&place.directory, place.name, Mode::from_raw_mode(0o777))?;
            give(&place.directory, place.name, None)?;
        }
        (Some(Kind::Dir), Some(_)) => {
            remove_dir(&place, Rest::Refuse)?;
            put_in(root, operation, &place)?;
        }
        (None, Some(_)) => put_in(root, operation, &place)?,
        (Some(_), Some(_)) => exchange(root, operation, &place)?,
    }
    Ok(sync_directory(&place.directory)?)
}

/// What to do with a directory that is not empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Leave it: it holds files of the user's.
    Keep,
    /// Fail: something else must take its place.
    Refuse,
}

fn remove_dir(place: &Place<'_>, rest: Rest) -> Result<(), SettleError> {
    match rustix::fs::unlinkat(&place.directory, place.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) if rest == Rest::Keep => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(SettleError::NotEmpty),
        Err(errno) => Err(errno.into()),
    }
}

/// Where nothing stands, the kernel itself makes sure that nothing is overwritten.
fn put_in(root: &Root, operation: &Operation, place: &Place<'_>) -> Result<(), SettleError> {
    let room = waiting_room(root, operation)?;
    let name = operation.waits_as.as_bytes();
    move_to(&room, name, &place.directory, place.name)
}

/// Moves to a name that is free.
fn move_to(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Result<(), SettleError> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Some file systems do not know the flag; the look before is all there is then.
        Err(Errno::INVAL) => Ok(rustix::fs::renameat(from, name, to, new)?),
        Err(Errno::EXIST) => Err(SettleError::Drift),
        Err(errno) => Err(errno.into()),
    }
}

/// What goes is kept under the waiting name until it was looked at: what was saved there after the look before is not
/// overwritten but put back.
fn take_out(root: &Root, operation: &Operation, place: &Place<'_>) -> Result<(), SettleError> {
    let room = waiting_room(root, operation)?;
    let name = operation.waits_as.as_bytes();
    match move_to(&place.directory, place.name, &room, name) {
        Err(SettleError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Err(SettleError::Drift),
        moved => moved.and_then(|()| look_at_old(root, operation, place)),
    }
}

/// The new content and the old one change places, so that none of them is lost before it was looked at.
fn exchange(root: &Root, operation: &Operation, place: &Place<'_>) -> Result<(), SettleError> {
    let room = waiting_room(root, operation)?;
    let name = operation.waits_as.as_bytes();
    match rustix::fs::renameat_with(&room, name, &place.directory, place.name, RenameFlags::EXCHANGE) {
        Ok(()) => look_at_old(root, operation, place),
        Err(Errno::INVAL) => Ok(rustix::fs::renameat(&room, name, &place.directory, place.name)?),
        Err(Errno::NOENT) => Err(SettleError::Drift),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks at what came out under the waiting name; what is neither old nor new is somebody's and goes back.
fn look_at_old(root: &Root, operation: &Operation, place: &Place<'_>) -> Result<(), SettleError> {
    let waits = TreePath::join(operation.waits_in.as_ref(), operation.waits_as.as_bytes());
    let Ok(waits) = waits else {
        return Err(SettleError::Drift);
    };
    let old = root.kind_or_nothing(&waits)?;
    if old.is_none() || old == operation.before || old == operation.after {
        return Ok(());
    }
    let room = waiting_room(root, operation)?;
    let name = operation.waits_as.as_bytes();
    match rustix::fs::renameat_with(&room, name, &place.directory, place.name, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(Errno::NOENT) => move_to(&room, name, &place.directory, place.name)?,
        Err(errno) => return Err(errno.into()),
    }
    sync_directory(&place.directory)?;
    Err(SettleError::Drift)
}

fn waiting_room(root: &Root, operation: &Operation) -> Result<OwnedFd, SettleError> {
    root_directory(root, operation.waits_in.as_ref())?.ok_or(SettleError::Drift)
}

fn root_directory(root: &Root, path: Option<&TreePath>) -> Result<Option<OwnedFd>, SettleError> {
    Ok(match path {
        None => Some(root.handle().try_clone()?),
        Some(path) => root.directory(path)?,
    })
}

fn remove_waiting(directory: &OwnedFd, name: &str) -> Result<(), SettleError> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies and checks; a content that is not its digest's is never written under a name of the host's.
pub(super) fn copy_checked(source: File, target: &File, digest: &Content) -> Result<(), SettleError> {
    match crate::blobs::copy_checked(source, target, digest)? {
        crate::blobs::Checked::Right => Ok(()),
        crate::blobs::Checked::Wrong => Err(SettleError::Damaged),
    }
}

/// A replaced file keeps its readers and writers, and only the right to execute follows the change; a restored
/// one gets exactly the bits it had.
fn keep_permissions(operation: &Operation, file: &File, mode: FileMode) -> Result<(), SettleError> {
    let derived = operation.old_bits.map(|bits| match mode.executable {
        true => bits & 0o666 | (bits & 0o444) >> 2,
        false => bits & 0o666,
    });
    match operation.new_bits.or(derived) {
        Some(bits) => Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(bits & 0o777))?),
        None => Ok(()),
    }
}

/// The permission bits of a regular file of the tree; `None` for anything else.
pub(super) fn permissions(root: &Root, path: &TreePath) -> Option<u32> {
    let place = root.place(path).ok()??;
    let stat = rustix::fs::statat(&place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat.st_mode & 0o777)
}
