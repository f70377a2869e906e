//! Host paths as detached mount trees, opened once and never resolved again.
use crate::mount::{Attributes, set_apart};
use rustix::mount::OpenTreeFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a host path. No component may be a symlink or a magic link: the caller resolved it, and a path
/// that changed since then is refused with `ELOOP`.
pub fn open_exactly(path: &Path) -> io::Result<OwnedFd> {
    Ok(crate::walk::open_host(path)?)
}

/// Clones the mount tree at an open path: detached, without set-uid and device nodes, with `extra` on top, and private:
/// neither the host's later mounts nor those of the sandbox pass to the other side.
pub fn detach(path: &OwnedFd, extra: Attributes) -> io::Result<OwnedFd> {
    restricted(clone_tree(path)?, extra)
}

/// The same for a name in an open directory, which must be no link: for what this process made there itself.
pub fn detach_at(directory: impl AsFd, name: &str, extra: Attributes) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
        | OpenTreeFlags::AT_RECURSIVE;
    restricted(rustix::mount::open_tree(directory, name, flags)?, extra)
}

fn restricted(tree: OwnedFd, extra: Attributes) -> io::Result<OwnedFd> {
    let attributes = Attributes::NO_SUID.and(Attributes::NO_DEV).and(extra);
    set_apart(tree.as_fd(), attributes)?;
    Ok(tree)
}

/// Clones the mount tree at an open path as it is.
fn clone_tree(path: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(path, "", flags)?)
}

/// Clones the mount at a path of the host as it is: for the device nodes of `/dev`.
pub fn clone_host(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(rustix::fs::CWD, path, flags)?)
}

/// Clones one mount without what is mounted on it, as it is.
pub fn clone_top(path: &OwnedFd) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(path, "", flags)?)
}
