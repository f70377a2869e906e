//! The marks of an overlay in its upper directory: a name that is gone, a directory that shows nothing from below.
//!
//! **Trust:** the upper directory is the agent's, but these marks are the kernel's: through the mount nobody can make a
//! device of number 0:0 or write an attribute `user.overlay.*`.
use crate::beneath::Dir;
use crate::path::TreePath;
use rustix::fs::{FileType, Mode, Stat, XattrFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

const OPAQUE: &str = "user.overlay.opaque";

/// Whether this is the mark of a name that is gone.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Marks a name as gone; whatever file stood there is replaced.
pub(crate) fn make_whiteout(dir: &Dir, name: &[u8]) -> io::Result<()> {
    let make = || {
        rustix::fs::mknodat(
            dir.as_fd(),
            crate::beneath::name_of(name),
            FileType::CharacterDevice,
            Mode::empty(),
            rustix::fs::makedev(0, 0),
        )
    };
    match make() {
        Err(Errno::EXIST) => {
            dir.remove_one(name)?;
            Ok(make()?)
        }
        made => Ok(made?),
    }
}

/// Makes a directory show nothing from below.
pub(crate) fn make_opaque(dir: &Dir) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(
        dir.as_fd(),
        OPAQUE,
        b"y",
        XattrFlags::empty(),
    )?)
}

/// Whether a directory shows nothing from below.
pub(crate) fn is_opaque(dir: &Dir) -> io::Result<bool> {
    let mut value = [0_u8; 4];
    match rustix::fs::fgetxattr(dir.as_fd(), OPAQUE, &mut value[..]) {
        Ok(length) => Ok(&value[..length] == b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        // Longer than the kernel ever writes it.
        Err(Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory of the upper tree, making those that only the lower one has, with its permissions.
pub(crate) fn open_or_make(upper: &Dir, lower: &Dir, path: Option<&TreePath>) -> io::Result<Dir> {
    let opened = upper.beneath(path);
    let (Err(error), Some(path)) = (&opened, path) else {
        return opened;
    };
    if error.kind() != io::ErrorKind::NotFound {
        return opened;
    }
    let above = path.parent();
    let parent = open_or_make(upper, lower, above.as_ref())?;
    parent.make_writable()?;
    parent.make_dir(path.name())?;
    let made = upper.beneath(Some(path))?;
    if let Ok(below) = lower.beneath(Some(path)) {
        let bits = rustix::fs::fstat(below.as_fd())?.st_mode & 0o777;
        rustix::fs::fchmod(made.as_fd(), Mode::from_raw_mode(bits | 0o700))?;
    }
    Ok(made)
}
