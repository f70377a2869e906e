//! `mount_setattr`: properties of a mount or a whole tree, set on its descriptor.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Properties to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    bits: u64,
}

/// Whether mounts below are changed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// This mount only.
    One,
    /// This mount and all below.
    Tree,
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

impl Attributes {
    /// No writing.
    pub const READ_ONLY: Self = Self { bits: 0x1 };
    /// Set-uid bits have no effect.
    pub const NO_SUID: Self = Self { bits: 0x2 };
    /// Device nodes cannot be opened.
    pub const NO_DEV: Self = Self { bits: 0x4 };
    /// Nothing can be executed.
    pub const NO_EXEC: Self = Self { bits: 0x8 };

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
        }
    }
}

/// Sets attributes on the mount that `mount` refers to.
pub fn set_attributes(mount: BorrowedFd<'_>, attributes: Attributes, depth: Depth) -> io::Result<()> {
    setattr(
        mount,
        &MountAttr {
            attr_set: attributes.bits,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        },
        depth,
    )
}

/// Sets attributes on a detached copy of a tree and takes it out of the peer groups of the mounts it was copied from. A copy
/// of a shared mount is shared with it (mount_namespaces(7)): what is mounted on the copy would appear on the host too.
pub fn set_apart(tree: BorrowedFd<'_>, attributes: Attributes) -> io::Result<()> {
    setattr(
        tree,
        &MountAttr {
            attr_set: attributes.bits,
            attr_clr: 0,
            propagation: libc::MS_PRIVATE,
            userns_fd: 0,
        },
        Depth::Tree,
    )
}

/// Lets a detached copy of a read-only mount be written; the mount it was copied from stays as it is.
pub fn make_writable(mount: BorrowedFd<'_>) -> io::Result<()> {
    setattr(
        mount,
        &MountAttr {
            attr_set: 0,
            attr_clr: Attributes::READ_ONLY.bits,
            propagation: 0,
            userns_fd: 0,
        },
        Depth::One,
    )
}

/// Maps the owners of a detached mount through the user namespace behind `userns`.
pub fn set_idmap(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    let userns_fd = u64::try_from(userns.as_raw_fd()).map_err(io::Error::other)?;
    setattr(
        mount,
        &MountAttr {
            attr_set: MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd,
        },
        Depth::Tree,
    )
}

fn setattr(mount: BorrowedFd<'_>, attr: &MountAttr, depth: Depth) -> io::Result<()> {
    const AT_RECURSIVE: i32 = 0x8000;
    let flags = libc::AT_EMPTY_PATH
        | match depth {
            Depth::One => 0,
            Depth::Tree => AT_RECURSIVE,
        };
    // SAFETY: the path is a NUL-terminated literal, `attr` is the kernel's structure of the size given, and
    // both outlive the call.
    super::check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}
