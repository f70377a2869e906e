//! Directories by descriptor: every open stays beneath, follows no link and hangs on nothing.
//!
//! **Trust:** this is how the agent's tree is read and changed while the agent may still rename, replace and
//! recreate everything in it. No function here takes a name apart or trusts an earlier look at it: a file is what
//! `fstat` says after the open.
use crate::path::{TreePath, visible};
use rustix::fs::{self as rfs, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes asked of the kernel per listing call: some thousand names, so that most directories need one call.
const LISTING: usize = 64 * 1024;
/// Most names of one directory; more are refused rather than gathered in memory.
const MAX_NAMES: usize = crate::manifest::MAX_ENTRIES;

/// Levels that a removal holds open at once.
const REMOVE_DEPTH: usize = 64;
/// How the names of directories begin that were too deep; a start removes what an interrupted removal left.
pub(crate) const DEEP: &str = ".gone-deep-";

/// A directory that is open.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    owner: Owner,
}

/// Whose tree it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The user's: nothing in it is ever changed in order to read it.
    User,
    /// A copy of ours: what the agent locked is unlocked.
    Copy,
}

/// What a listing says of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name's bytes.
    pub name: Vec<u8>,
    /// The kernel's hint; `Unknown` on some file systems.
    pub kind: FileType,
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// `NONBLOCK`: a FIFO that took the file's place answers at once instead of waiting for a writer.
const REGULAR: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

pub(crate) fn name_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Dir {
    /// Opens a directory of the user's own by its absolute path; the last component must not be a link.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rfs::open(path, DIRECTORY, Mode::empty())?;
        Ok(Self {
            fd,
            owner: Owner::User,
        })
    }

    /// Opens a directory of bastle's own, whose modes may be changed when they are in the way.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn open_own(path: &Path) -> io::Result<Self> {
        let fd = rfs::open(path, DIRECTORY, Mode::empty())?;
        Ok(Self {
            fd,
            owner: Owner::Copy,
        })
    }

    /// A directory of the user's that is open already.
    pub(crate) fn from_user(fd: OwnedFd) -> Self {
        Self {
            fd,
            owner: Owner::User,
        }
    }

    /// A directory that is open already, whose contents are bastle's own.
    pub(crate) fn from_own(fd: OwnedFd) -> Self {
        Self {
            fd,
            owner: Owner::Copy,
        }
    }

    /// Opens a directory beneath this one; `None` is this one again, with its own read position.
    ///
    /// # Errors
    /// `ELOOP` or `ENOTDIR` when a component is a link, `EXDEV` when the way leads out.
    pub fn beneath(&self, path: Option<&TreePath>) -> io::Result<Self> {
        let path = path.map_or(Path::new("."), TreePath::as_path);
        let open = || rfs::openat2(&self.fd, path, DIRECTORY, Mode::empty(), BENEATH);
        match open() {
            // The agent may lock its own directories; on its copy the owner's rights are given back.
            Err(Errno::ACCESS) if self.owner == Owner::Copy => {
                self.unlock(path, FileType::Directory)?;
                Ok(self.same_owner(open()?))
            }
            opened => Ok(self.same_owner(opened?)),
        }
    }

    fn same_owner(&self, fd: OwnedFd) -> Self {
        Self {
            fd,
            owner: self.owner,
        }
    }

    /// Opens a regular file by name and tells what it is after the open.
    ///
    /// # Errors
    /// `InvalidInput` when it is anything but a regular file; otherwise the kernel's.
    pub fn open_regular(&self, name: &[u8]) -> io::Result<(File, Stat)> {
        let path = name_of(name);
        let open = || rfs::openat2(&self.fd, path, REGULAR, Mode::empty(), BENEATH);
        let fd = match open() {
            Err(Errno::ACCESS) if self.owner == Owner::Copy => {
                self.unlock(path, FileType::RegularFile)?;
                open()?
            }
            other => other?,
        };
        let stat = rfs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok((File::from(fd), stat))
    }

    /// Gives the owner back the right to read what is ours and has no other name. Through an `O_PATH` descriptor,
    /// so that the check and the change concern the same file.
    fn unlock(&self, path: &Path, kind: FileType) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rfs::openat2(&self.fd, path, flags, Mode::empty(), BENEATH)?;
        let stat = rfs::fstat(&fd)?;
        let same = FileType::from_raw_mode(stat.st_mode) == kind
            && stat.st_uid == rustix::process::getuid().as_raw();
        let alone = kind == FileType::Directory || stat.st_nlink == 1;
        if !same || !alone {
            return Err(Errno::ACCESS.into());
        }
        let add = if kind == FileType::Directory { 0o700 } else { 0o600 };
        let through = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(rfs::chmod(
            through,
            Mode::from_raw_mode(stat.st_mode & 0o7777 | add),
        )?)
    }

    /// What stands under a name, the link itself when it is one.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        Ok(rfs::statat(&self.fd, name_of(name), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The target of a link, as written.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` when it is no link.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rfs::readlinkat(&self.fd, name_of(name), Vec::new())?.into_bytes())
    }

    /// All names but `.` and `..`. Reads the position of this descriptor: list each `Dir` once.
    ///
    /// # Errors
    /// The kernel's, and when there are more names than one tree may have.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut space = vec![MaybeUninit::uninit(); LISTING];
        let mut raw = RawDir::new(&self.fd, &mut space);
        let mut names = Vec::new();
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == MAX_NAMES {
                return Err(io::Error::other("too many names in one directory"));
            }
            names.push(Listed {
                name: name.to_vec(),
                kind: entry.file_type(),
            });
        }
        Ok(names)
    }

    /// Makes a new file; fails when the name is taken, by whatever.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn create_new(&self, name: &[u8], mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rfs::openat(
            &self.fd,
            name_of(name),
            flags,
            Mode::from_raw_mode(mode),
        )?))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn make_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rfs::mkdirat(&self.fd, name_of(name), Mode::from_raw_mode(0o777))?)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn make_link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(rfs::symlinkat(name_of(target), &self.fd, name_of(name))?)
    }

    /// Moves a name of this directory to a name of another.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn rename_to(&self, name: &[u8], other: &Self, new: &[u8]) -> io::Result<()> {
        Ok(rfs::renameat(&self.fd, name_of(name), &other.fd, name_of(new))?)
    }

    /// Removes one name; `false` when it is a directory with something in it. A missing name is fine.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn remove_one(&self, name: &[u8]) -> io::Result<bool> {
        match rfs::unlinkat(&self.fd, name_of(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        match rfs::unlinkat(&self.fd, name_of(name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the owner the right to change the names in this directory.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn make_writable(&self) -> io::Result<()> {
        let bits = rfs::fstat(&self.fd)?.st_mode & 0o7777;
        if bits & 0o700 == 0o700 {
            return Ok(());
        }
        Ok(rfs::fchmod(&self.fd, Mode::from_raw_mode(bits | 0o700))?)
    }

    /// Removes a name and, when it is a directory, everything in it; a missing name is fine.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn remove_all(&self, name: &[u8]) -> io::Result<()> {
        let mut deep = Vec::new();
        self.remove_nested(self, name, 0, &mut deep)?;
        // What was too deep for one go now lies in this directory, and may hold something deep again.
        while let Some(name) = deep.pop() {
            self.remove_nested(self, &name, 0, &mut deep)?;
        }
        Ok(())
    }

    /// One descriptor per level: what lies deeper than [`REMOVE_DEPTH`] is moved to `top` for later, so that no nesting
    /// of the agent's making exhausts descriptors or stack.
    fn remove_nested(
        &self,
        top: &Self,
        name: &[u8],
        depth: usize,
        deep: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        if self.remove_one(name)? {
            return Ok(());
        }
        if depth == REMOVE_DEPTH {
            let fresh = format!(
                "{DEEP}{}-{}",
                rustix::process::getpid().as_raw_pid(),
                self.stat(name)?.st_ino
            );
            self.rename_to(name, top, fresh.as_bytes())?;
            deep.push(fresh.into_bytes());
            return Ok(());
        }
        let inner = self.beneath_name(name)?;
        inner.make_writable()?;
        for listed in inner.list()? {
            inner.remove_nested(top, &listed.name, depth + 1, deep)?;
        }
        self.remove_one(name).map(|_| ())
    }

    fn beneath_name(&self, name: &[u8]) -> io::Result<Self> {
        let path = TreePath::join(None, name).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("impossible name {}", visible(name)),
            )
        })?;
        self.beneath(Some(&path))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
