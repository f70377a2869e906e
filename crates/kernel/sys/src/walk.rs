//! Opening a path without following a link, also where `openat2` is switched off.
//!
//! A service manager that keeps a service from making set-uid files switches it off, because it cannot look into the
//! call's arguments. Then the path is walked name by name, which says the same: every name is opened below the directory
//! that was opened before it, and a link is an error.
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Where a walk may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Anywhere: the path is absolute.
    Host,
    /// Below the directory it starts in.
    Directory,
    /// The same, and nothing that is mounted there.
    Mount,
}

/// Opens a path as a name (`O_PATH`), with `O_DIRECTORY` where `also` has it. A symlink or magic link on the way or at its
/// end is `ELOOP`, a way out is `EXDEV`.
pub fn open(from: BorrowedFd<'_>, path: &Path, also: OFlags, within: Within) -> Result<OwnedFd, Errno> {
    let strict = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = match within {
        Within::Host => strict,
        Within::Directory => strict | ResolveFlags::BENEATH,
        Within::Mount => strict | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC | also;
    match rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => by_name(from, path, also, within),
        other => other,
    }
}

/// Opens an absolute path.
pub fn open_host(path: &Path) -> Result<OwnedFd, Errno> {
    open(CWD, path, OFlags::empty(), Within::Host)
}

/// The walk name by name.
fn by_name(from: BorrowedFd<'_>, path: &Path, also: OFlags, within: Within) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let start = match within {
        Within::Host => rustix::fs::open("/", flags | OFlags::DIRECTORY, Mode::empty())?,
        Within::Directory | Within::Mount => {
            rustix::fs::openat(from, ".", flags | OFlags::DIRECTORY, Mode::empty())?
        }
    };
    let mount = match within {
        Within::Mount => Some(mount_of(&start)?),
        Within::Host | Within::Directory => None,
    };
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::RootDir if within == Within::Host => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let (mut current, last) = (start, names.len().saturating_sub(1));
    for (place, name) in names.into_iter().enumerate() {
        let next = rustix::fs::openat(&current, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Directory => {}
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                if place < last || also.contains(OFlags::DIRECTORY) {
                    return Err(Errno::NOTDIR);
                }
            }
        }
        if let Some(mount) = mount
            && mount_of(&next)? != mount
        {
            return Err(Errno::XDEV);
        }
        current = next;
    }
    Ok(current)
}

/// The number of the mount that a descriptor is on.
fn mount_of(what: &OwnedFd) -> Result<u64, Errno> {
    let found = rustix::fs::statx(what.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::NOSYS);
    }
    Ok(found.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn number(fd: &OwnedFd) -> (u64, u64) {
        let stat = rustix::fs::fstat(fd).unwrap();
        (stat.st_dev, stat.st_ino)
    }

    /// A tree with a file, a link to it, a directory and a link to that.
    fn tree() -> (std::path::PathBuf, OwnedFd) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("bastle-walk-{}-{next}", std::process::id()));
        std::fs::create_dir_all(place.join("a/b")).unwrap();
        std::fs::write(place.join("a/b/file"), "x").unwrap();
        symlink("file", place.join("a/b/link")).unwrap();
        symlink("b", place.join("a/way")).unwrap();
        let root = rustix::fs::open(&place, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        (place, root)
    }

    #[test]
    fn a_walk_by_name_answers_as_the_kernel_does() {
        let (place, root) = tree();
        for within in [Within::Directory, Within::Mount] {
            for also in [OFlags::empty(), OFlags::DIRECTORY] {
                for path in [
                    ".",
                    "a",
                    "a/b",
                    "a/b/",
                    "a/./b/file",
                    "a/b/file",
                    "a/b/link",
                    "a/way",
                    "a/way/file",
                    "none",
                    "a/none/file",
                    "a/b/file/none",
                    "../x",
                    "/etc",
                ] {
                    let path = Path::new(path);
                    let kernel = open(root.as_fd(), path, also, within).map(|fd| number(&fd));
                    let ours = by_name(root.as_fd(), path, also, within).map(|fd| number(&fd));
                    assert_eq!(ours, kernel, "{} {within:?} {also:?}", path.display());
                }
            }
        }
        let whole = place.join("a/b/file");
        let file = by_name(CWD, &whole, OFlags::empty(), Within::Host).unwrap();
        assert_eq!(number(&file).1, std::fs::metadata(&whole).unwrap().ino());
        let through = by_name(CWD, &place.join("a/way/file"), OFlags::empty(), Within::Host);
        assert_eq!(through.unwrap_err(), Errno::LOOP);
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_walk_by_name_does_not_enter_what_is_mounted_where_it_must_not() {
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let proc = Path::new("proc");
        let walk = |within| by_name(root.as_fd(), proc, OFlags::empty(), within).map(drop);
        assert_eq!(walk(Within::Mount), Err(Errno::XDEV));
        assert_eq!(walk(Within::Directory), Ok(()));
        assert_eq!(
            open(root.as_fd(), proc, OFlags::empty(), Within::Mount).map(drop),
            Err(Errno::XDEV),
            "control: so does the kernel"
        );
        // A magic link is a link.
        let own = Path::new("proc/self/cwd");
        assert_eq!(
            by_name(root.as_fd(), own, OFlags::empty(), Within::Directory).map(drop),
            Err(Errno::LOOP)
        );
    }
}
