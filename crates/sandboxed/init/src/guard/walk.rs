//! From a path of the caller to a directory descriptor and a last name, as the kernel would walk it for the caller.
//!
//! Trust: the path, every symlink on the way and the caller's descriptors are hostile. init shares the caller's root,
//! so only a few places mean something else to it: `/proc/self` and what leads there, and its own entries in
//! `/proc`, which the caller may not reach and init could. The former are rewritten, the latter refused.
use super::caller::{Base, Caller};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;
/// The inode of the root directory of every `/proc`.
const PROC_ROOT_INODE: u64 = 1;
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Walks paths of one caller; counts links over the whole call.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    caller: &'a Caller,
    links: u32,
}

/// A directory and a name in it that need not exist.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    /// The name without slashes; `.` and `..` are possible.
    pub(super) name: Vec<u8>,
    /// Whether slashes followed the name.
    pub(super) slash: bool,
    /// Canonical absolute path of the directory with the name: what patterns are matched with.
    pub(super) path: Vec<u8>,
}

/// Where a path starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a> {
    /// Where the caller says.
    Caller(Base),
    /// At the directory of a symlink.
    At(BorrowedFd<'a>),
}

/// What a symlink leads to.
#[derive(Debug)]
pub(super) enum Link {
    /// Another path.
    Text(Vec<u8>),
    /// An open file or directory: a link of `/proc` that only the kernel can follow.
    Magic,
}

impl<'a> Walk<'a> {
    pub(super) fn new(caller: &'a Caller) -> Self {
        Self { caller, links: 0 }
    }

    /// Finds the directory that holds the last component of `path`; does not look at that component.
    pub(super) fn locate(&mut self, start: Start<'_>, path: &[u8]) -> Result<Place, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let end = path
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(0, |last| last + 1);
        let (trimmed, slash) = (&path[..end], end < path.len());
        let split = trimmed
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (parent, name) = if trimmed.is_empty() {
            (path, &b"."[..])
        } else {
            trimmed.split_at(split)
        };
        let dir = self.directory(start, parent)?;
        let mut full = canonical(dir.as_fd())?;
        refuse_own(&full)?;
        if full.last() != Some(&b'/') {
            full.push(b'/');
        }
        full.extend_from_slice(name);
        Ok(Place {
            dir,
            name: name.to_vec(),
            slash,
            path: full,
        })
    }

    /// Opens the directory `path`, following links everywhere; an empty path is the start itself.
    pub(super) fn directory(&mut self, start: Start<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        // An absolute path needs no start: the kernel ignores a bad one, too.
        let from = if path.first() == Some(&b'/') {
            None
        } else {
            let from = match start {
                Start::Caller(base) => self.caller.directory(base)?,
                Start::At(dir) => dir.try_clone_to_owned().map_err(|_| Errno::MFILE)?,
            };
            if path.is_empty() {
                return Ok(from);
            }
            Some(from)
        };
        // Without a symlink on the way the kernel's walk is the caller's walk.
        let at = from.as_ref().map_or(CWD, AsFd::as_fd);
        match rustix::fs::openat2(at, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP | Errno::NOSYS) => {}
            other => return other,
        }
        match from {
            Some(from) => self.step_by_step(from, path),
            None => self.step_by_step(root()?, path),
        }
    }

    /// What the symlink `name` in `dir` leads to. `link` is that symlink, opened.
    pub(super) fn follow(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        link: BorrowedFd<'_>,
    ) -> Result<Link, Errno> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        if rustix::fs::fstatfs(link)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
            if rustix::fs::fstat(dir)?.st_ino != PROC_ROOT_INODE {
                refuse_own(&canonical(dir)?)?;
                return Ok(Link::Magic);
            }
            let tid = self.caller.tid;
            match name {
                b"self" => return Ok(Link::Text(self.caller.process()?.to_string().into_bytes())),
                b"thread-self" => {
                    return Ok(Link::Text(
                        format!("{}/task/{tid}", self.caller.process()?).into_bytes(),
                    ));
                }
                _ => {}
            }
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes();
        if target.is_empty() {
            Err(Errno::NOENT)
        } else {
            Ok(Link::Text(target))
        }
    }

    fn step_by_step(&mut self, mut at: OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut rest = components(path);
        while let Some(name) = rest.pop() {
            let next = open_name(at.as_fd(), &name)?;
            match FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) {
                FileType::Directory => at = next,
                FileType::Symlink => match self.follow(at.as_fd(), &name, next.as_fd())? {
                    Link::Text(target) => {
                        if target.first() == Some(&b'/') {
                            at = root()?;
                        }
                        rest.append(&mut components(&target));
                    }
                    Link::Magic => at = rustix::fs::openat(&at, name, DIRECTORY, Mode::empty())?,
                },
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok(at)
    }
}

impl Place {
    /// The name as the caller spelt it: trailing slashes change what some calls answer, never which name they mean.
    pub(super) fn spelled(&self) -> Vec<u8> {
        let mut name = self.name.clone();
        if self.slash {
            name.push(b'/');
        }
        name
    }

    /// Whether the last component is a name that can come into being.
    pub(super) fn is_name(&self) -> bool {
        !matches!(self.name.as_slice(), b"." | b"..")
    }

    /// What is there now, links not followed.
    pub(super) fn stat(&self) -> Result<Option<rustix::fs::Stat>, Errno> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// A file or link by name, opened without following.
pub(super) fn open_name(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Where an open file or directory is, as this root sees it.
pub(super) fn canonical(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlinkat(CWD, own_link(fd), Vec::new())?.into_bytes())
}

/// The link of `/proc` that leads to one of init's own descriptors.
pub(super) fn own_link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Refuses what `/proc` shows of init itself: init may open it and the caller may not.
pub(super) fn refuse_own(path: &[u8]) -> Result<(), Errno> {
    let Some(rest) = path.strip_prefix(b"/proc/") else {
        return Ok(());
    };
    let number = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
        return Ok(());
    }
    // A thread of init's own has a number of its own.
    let task = [&b"/proc/self/task/"[..], number].concat();
    match rustix::fs::stat(task) {
        Err(Errno::NOENT) => Ok(()),
        Ok(_) | Err(_) => Err(Errno::ACCESS),
    }
}

fn root() -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, "/", DIRECTORY, Mode::empty())
}

/// The components of a path, last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".");
    parts.rev().map(<[u8]>::to_vec).collect()
}

/// Walks `path` from `start` as for a caller and as the kernel does for this process: both must come to the same directory, or
/// fail alike.
pub(crate) fn agrees_with_kernel(start: BorrowedFd<'_>, path: &[u8]) -> bool {
    let caller = Caller::new(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
    let identity = |fd: OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    let ours = Walk::new(&caller)
        .directory(Start::At(start), path)
        .and_then(identity);
    let kernels = rustix::fs::openat(start, path, DIRECTORY, Mode::empty()).and_then(identity);
    ours == kernels
}
