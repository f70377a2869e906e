//! Entering a sandbox, and changing its constructed root, which is read-only to everybody inside.
use super::{Rooms, fault};
use bastle_contract::grants::GRANTS;
use bastle_contract::{AbsPath, Authority, Fault};
use bastle_sys::walk::{self, Within};
use bastle_sys::{mount, tree};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Enters the user namespace: capabilities over the sandbox's namespaces, and none over the host's any more.
pub(super) fn enter_user(rooms: &Rooms, path: &AbsPath) -> Result<(), Fault> {
    let failed = |error: Errno| fault(path, "user namespace", error);
    let by_root = Authority::of_this_process().is_root();
    rustix::thread::set_keep_capabilities(true).map_err(failed)?;
    rustix::thread::move_into_link_name_space(rooms.user.as_fd(), Some(LinkNameSpaceType::User))
        .map_err(failed)?;
    // Root's uid means nothing in there, and files made by it would have no owner.
    if by_root {
        let (uid, gid) = (
            Uid::from_raw(rooms.identity.inside),
            Gid::from_raw(rooms.identity.inside),
        );
        rustix::thread::set_thread_groups(&[]).map_err(failed)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed)?;
        let all = rustix::thread::capabilities(None).map_err(failed)?.permitted;
        let sets = CapabilitySets {
            effective: all,
            permitted: all,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    }
    Ok(())
}

/// Enters the mount namespace: from here on every path is one of the sandbox.
pub(super) fn enter_mounts(mounts: BorrowedFd<'_>, path: &AbsPath) -> Result<(), Fault> {
    rustix::thread::move_into_link_name_space(mounts, Some(LinkNameSpaceType::Mount))
        .map_err(|error| fault(path, "mount namespace", error))
}

/// Opens what is at a path of the constructed root itself: nothing that is mounted on it, no link.
pub(super) fn open_place(at: &AbsPath) -> Result<OwnedFd, Errno> {
    let root = rustix::fs::open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    walk::open(
        root.as_fd(),
        Path::new(relative(at)),
        OFlags::empty(),
        Within::Mount,
    )
}

/// The constructed root as a mount of its own that can be written, until it is dropped. Nothing mounted shows in it.
pub(super) struct Skeleton(OwnedFd);

impl Skeleton {
    pub(super) fn open(path: &AbsPath) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| fault(path, "root", error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let copy = tree::clone_top(&root).map_err(failed)?;
        mount::make_writable(copy.as_fd()).map_err(failed)?;
        Ok(Self(copy))
    }

    /// Makes a directory and those above it; gives it back open.
    pub(super) fn directory(&self, at: &AbsPath) -> Result<OwnedFd, Errno> {
        let mut current = rustix::io::dup(&self.0)?;
        for name in relative(at)
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
        {
            let open = |directory: &OwnedFd| {
                walk::open(
                    directory.as_fd(),
                    Path::new(name),
                    OFlags::DIRECTORY,
                    Within::Directory,
                )
            };
            current = match open(&current) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(0o755))?;
                    open(&current)?
                }
                other => other?,
            };
        }
        Ok(current)
    }

    /// Makes an empty file, to be mounted on.
    pub(super) fn file(&self, at: &AbsPath) -> Result<(), Errno> {
        let directory = self.directory(&at.parent().ok_or(Errno::INVAL)?)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&directory, at.name(), flags, Mode::from_raw_mode(0o444))?;
        Ok(())
    }

    /// Makes the path a person knows lead to the place inside. `false`: something else stands there or above it.
    pub(super) fn alias(&self, path: &AbsPath, place: &AbsPath) -> Result<bool, Errno> {
        let Some(parent) = path.parent() else {
            return Ok(false);
        };
        // The deepest directory above it that is there must be the root's own: below a mount nobody would see the link.
        let mut above = Some(parent.clone());
        while let Some(directory) = above {
            match open_place(&directory) {
                Ok(_) => break,
                Err(Errno::NOENT) => above = directory.parent(),
                Err(Errno::XDEV | Errno::LOOP | Errno::NOTDIR) => return Ok(false),
                Err(other) => return Err(other),
            }
        }
        let directory = self.directory(&parent)?;
        match rustix::fs::symlinkat(place.as_str(), &directory, path.name()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Removes a mount point and the directories above it that nothing else needs.
    pub(super) fn clear(&self, place: &AbsPath) -> Result<(), Errno> {
        let remove = |path: &AbsPath, kind: AtFlags| {
            let parent = self.directory(&path.parent().ok_or(Errno::INVAL)?)?;
            rustix::fs::unlinkat(&parent, path.name(), kind)
        };
        match remove(place, AtFlags::REMOVEDIR) {
            Err(Errno::NOTDIR) => remove(place, AtFlags::empty())?,
            other => other?,
        }
        let mut above = place.parent();
        while let Some(path) = above.filter(|path| path.as_str() != GRANTS) {
            match remove(&path, AtFlags::REMOVEDIR) {
                Ok(()) => above = path.parent(),
                // Another grant lies there.
                Err(Errno::NOTEMPTY | Errno::BUSY) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Removes the link from the path a person knows, if it leads to the place.
    pub(super) fn unalias(&self, path: &AbsPath, place: &AbsPath) -> Result<(), Errno> {
        let link = rustix::fs::readlinkat(&self.0, relative(path), Vec::new());
        if link.is_ok_and(|target| target.as_bytes() == place.as_str().as_bytes()) {
            rustix::fs::unlinkat(&self.0, relative(path), AtFlags::empty())?;
        }
        Ok(())
    }
}

fn relative(at: &AbsPath) -> &str {
    match at.as_str().trim_start_matches('/') {
        "" => ".",
        below => below,
    }
}
