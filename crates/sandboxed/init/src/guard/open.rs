//! `open`, `openat` and `creat`: existing files are opened without `O_CREAT`, new ones with `O_EXCL`, so that init
//! always knows which of the two it did.
use super::caller::Base;
use super::names::Reach;
use super::walk::{self, Link, Place, Start, Walk};
use super::{Call, Done, Guard, MODE_BITS, Stop};
use bastle_sys::seccomp::{Answer, CloseOnExec};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Times a name may change between look and open before the caller is told to try again.
const ATTEMPTS: u32 = 64;
/// Never wait, never get a controlling terminal, never leak: whatever the caller asked for.
const ALWAYS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Status flags that are set again when `O_NONBLOCK` is taken back.
const STATUS: OFlags = OFlags::APPEND.union(OFlags::DIRECT).union(OFlags::NOATIME);
/// The major number of pseudo-terminals.
const PTY_MAJOR: u32 = 136;
/// The major numbers of the other terminals.
const TTY_MAJORS: [u32; 2] = [4, 5];

/// What the caller asked for.
#[derive(Clone, Copy, Debug)]
struct Want {
    flags: OFlags,
    mode: u32,
}

/// An existing file: by its name, or pinned where only the kernel could follow.
#[derive(Debug)]
enum Existing<'a> {
    Named(&'a Place),
    Pinned(OwnedFd, Vec<u8>),
}

impl Want {
    fn creates(self) -> bool {
        self.flags.contains(OFlags::CREATE)
    }

    fn exclusive(self) -> bool {
        self.flags.contains(OFlags::CREATE | OFlags::EXCL)
    }

    fn changes(self) -> bool {
        self.flags
            .intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
    }

    fn close_on_exec(self) -> CloseOnExec {
        if self.flags.contains(OFlags::CLOEXEC) {
            CloseOnExec::Yes
        } else {
            CloseOnExec::No
        }
    }

    /// The flags for what exists: it must not come into being by this.
    fn for_existing(self) -> OFlags {
        self.flags.difference(OFlags::CREATE | OFlags::EXCL) | ALWAYS
    }

    /// Gives the descriptor the flags that were asked for.
    fn finish(self, fd: OwnedFd) -> Result<Done, Stop> {
        if !self.flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&fd, self.flags.intersection(STATUS))?;
        }
        Ok(Done::Descriptor(fd, self.close_on_exec()))
    }
}

impl Existing<'_> {
    fn path(&self) -> &[u8] {
        match self {
            Self::Named(place) => &place.path,
            Self::Pinned(_, path) => path,
        }
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self {
            Self::Named(place) => {
                rustix::fs::openat(&place.dir, &place.name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            Self::Pinned(fd, _) => rustix::fs::openat(
                CWD,
                walk::own_link(fd.as_fd()),
                flags.difference(OFlags::NOFOLLOW),
                Mode::empty(),
            ),
        }
    }

    /// A descriptor that only names the file.
    fn pin(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Named(place) => walk::open_name(place.dir.as_fd(), &place.name),
            Self::Pinned(fd, _) => Ok(fd),
        }
    }
}

impl Guard {
    pub(super) fn open(
        &mut self,
        call: &Call<'_>,
        base: Base,
        path: u64,
        flags: OFlags,
        mode: u32,
    ) -> Result<Done, Stop> {
        // Names a file without opening it and ignores O_CREAT: registers say so, memory cannot change it.
        if flags.contains(OFlags::PATH) {
            return Ok(Done::Answer(Answer::Continue));
        }
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL.into());
        }
        let want = Want { flags, mode };
        let path = call.caller.path(path)?;
        let mut walk = Walk::new(&call.caller);
        if flags.contains(OFlags::TMPFILE) {
            return self.open_unnamed(call, want, walk.directory(Start::Caller(base), &path)?);
        }
        let mut place = walk.locate(Start::Caller(base), &path)?;
        for _ in 0..ATTEMPTS {
            if place.slash || !place.is_name() {
                return self.open_directory(call, want, &place);
            }
            let Some(stat) = place.stat()? else {
                match self.create(call, want, &place) {
                    Err(Stop::Errno(Errno::EXIST)) if !want.exclusive() => continue,
                    other => return other,
                }
            };
            if want.exclusive() {
                return Err(Errno::EXIST.into());
            }
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                match self.open_existing(call, want, Existing::Named(&place), &stat) {
                    // It was removed, or a symlink took its place.
                    Err(Stop::Errno(Errno::NOENT | Errno::LOOP)) => continue,
                    other => return other,
                }
            }
            if flags.contains(OFlags::NOFOLLOW) {
                return Err(Errno::LOOP.into());
            }
            let link = match walk::open_name(place.dir.as_fd(), &place.name) {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            match walk.follow(place.dir.as_fd(), &place.name, link.as_fd()) {
                // No symlink any more.
                Err(Errno::NOENT) if place.stat()?.is_none_or(|now| now.st_ino != stat.st_ino) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(Link::Text(target)) => {
                    let next = walk.locate(Start::At(place.dir.as_fd()), &target)?;
                    place = next;
                }
                Ok(Link::Magic) => return self.open_magic(call, want, &place),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// A file that does not exist yet.
    fn create(&mut self, call: &Call<'_>, want: Want, place: &Place) -> Result<Done, Stop> {
        if !want.creates() {
            return Err(Errno::NOENT.into());
        }
        self.refuse(self.trees.guard(&place.path, Reach::Itself), &place.path)?;
        let counted = self.trees.hold(&place.path);
        if counted {
            self.ledger
                .may_create()
                .map_err(|over| over.refuse(&place.path))?;
        }
        let mode = Mode::from_bits_retain(want.mode & MODE_BITS & !call.caller.umask()?);
        call.confirm()?;
        let flags = want.flags | OFlags::EXCL | OFlags::NOFOLLOW | ALWAYS;
        let fd = rustix::fs::openat(&place.dir, &place.name, flags, mode)
            .map_err(|errno| self.kernel(errno, &place.path))?;
        if counted {
            let stat = rustix::fs::fstat(&fd)?;
            self.ledger.created((stat.st_dev, stat.st_ino));
        }
        want.finish(fd)
    }

    /// A file without a name. It gets one by `linkat`, which is judged then.
    fn open_unnamed(&mut self, call: &Call<'_>, want: Want, dir: OwnedFd) -> Result<Done, Stop> {
        let path = walk::canonical(dir.as_fd())?;
        let counted = self.trees.hold(&path);
        if counted {
            self.ledger.may_create().map_err(|over| over.refuse(&path))?;
        }
        let mode = Mode::from_bits_retain(want.mode & MODE_BITS & !call.caller.umask()?);
        call.confirm()?;
        let fd = rustix::fs::openat(&dir, ".", want.flags | ALWAYS, mode)
            .map_err(|errno| self.kernel(errno, &path))?;
        if counted {
            let stat = rustix::fs::fstat(&fd)?;
            self.ledger.created((stat.st_dev, stat.st_ino));
        }
        want.finish(fd)
    }

    /// A path that can only be a directory: it ends in a slash, `.` or `..`.
    fn open_directory(&mut self, call: &Call<'_>, want: Want, place: &Place) -> Result<Done, Stop> {
        if want.creates() {
            return Err(Errno::ISDIR.into());
        }
        call.confirm()?;
        let flags = want.for_existing() | OFlags::DIRECTORY;
        want.finish(rustix::fs::openat(
            &place.dir,
            place.spelled(),
            flags,
            Mode::empty(),
        )?)
    }

    /// What an open file of some process refers to, `/dev/stdout` for one.
    fn open_magic(&mut self, call: &Call<'_>, want: Want, place: &Place) -> Result<Done, Stop> {
        let fd = rustix::fs::openat(
            &place.dir,
            &place.name,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let path = walk::canonical(fd.as_fd())?;
        walk::refuse_own(&path)?;
        let stat = rustix::fs::fstat(&fd)?;
        self.open_existing(call, want, Existing::Pinned(fd, path), &stat)
    }

    fn open_existing(
        &mut self,
        call: &Call<'_>,
        want: Want,
        file: Existing<'_>,
        stat: &Stat,
    ) -> Result<Done, Stop> {
        self.refuse(self.trees.hidden(file.path()), file.path())?;
        if want.changes() {
            // By name and not only by mount: a rename on the host takes the mount off the name.
            self.refuse(self.trees.guard(file.path(), Reach::Itself), file.path())?;
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        // What is continued is read again from the caller's memory, so nothing is that could be a guarded name by then,
        // but for terminals: who opens one may become its owner, and that init cannot do for another.
        let waits = match kind {
            FileType::Fifo => !want.changes(),
            FileType::CharacterDevice => is_terminal(stat) && !want.flags.contains(OFlags::NOCTTY),
            _ => false,
        };
        if waits && !want.flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
            return Ok(Done::Answer(Answer::Continue));
        }
        match kind {
            FileType::Directory if want.creates() => return Err(Errno::ISDIR.into()),
            FileType::Fifo => return self.open_fifo(call, want, file),
            FileType::CharacterDevice if stat.st_rdev == rustix::fs::makedev(5, 0) => {
                return self.open_terminal(call, want);
            }
            _ => {}
        }
        let file = match kind {
            FileType::RegularFile if want.changes() && self.judge.is_some() => {
                let path = file.path().to_vec();
                // Pinned: the file that is opened is the one that was judged.
                let pinned = file.pin()?;
                self.refuse_program(&pinned, &path)?;
                Existing::Pinned(pinned, path)
            }
            _ => file,
        };
        let id = (stat.st_dev, stat.st_ino);
        let counted = kind == FileType::RegularFile && want.changes() && self.trees.hold(file.path());
        if counted {
            self.ledger
                .may_change(&[id])
                .map_err(|over| over.refuse(file.path()))?;
        }
        call.confirm()?;
        let fd = match file.open(want.for_existing()) {
            Ok(fd) => fd,
            Err(errno) if want.changes() => return Err(self.kernel(errno, file.path())),
            Err(errno) => return Err(errno.into()),
        };
        if counted {
            self.ledger.changed(&[id]);
        }
        want.finish(fd)
    }

    fn open_fifo(&mut self, call: &Call<'_>, want: Want, file: Existing<'_>) -> Result<Done, Stop> {
        call.confirm()?;
        let reads = want.flags.intersection(OFlags::RWMODE) == OFlags::RDONLY;
        if want.flags.contains(OFlags::NONBLOCK) || !reads {
            match file.open(want.for_existing()) {
                // Nobody reads yet.
                Err(Errno::NXIO) if !want.flags.contains(OFlags::NONBLOCK) => {}
                Err(errno) => return Err(self.kernel(errno, file.path())),
                Ok(fd) => return want.finish(fd),
            }
        }
        let flags = want
            .for_existing()
            .difference(OFlags::NONBLOCK | OFlags::NOFOLLOW);
        self.fifos
            .open(call.listener, call.id, file.pin()?, flags, want.close_on_exec())?;
        Ok(Done::Later)
    }

    /// `/dev/tty`: to init it would be init's own.
    fn open_terminal(&mut self, call: &Call<'_>, want: Want) -> Result<Done, Stop> {
        let number = call.caller.terminal()?;
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        if !(PTY_MAJOR..PTY_MAJOR + 8).contains(&major) {
            return Err(Errno::NXIO.into());
        }
        let path = format!("/dev/pts/{}", (major - PTY_MAJOR) * 256 + minor);
        call.confirm()?;
        let fd = rustix::fs::openat(CWD, path, want.for_existing() | OFlags::NOFOLLOW, Mode::empty())?;
        // Another instance of the file system may give the same number to another terminal.
        if rustix::fs::fstat(&fd)?.st_rdev != number {
            return Err(Errno::NXIO.into());
        }
        want.finish(fd)
    }
}

fn is_terminal(stat: &Stat) -> bool {
    let major = rustix::fs::major(stat.st_rdev);
    TTY_MAJORS.contains(&major) || (PTY_MAJOR..PTY_MAJOR + 8).contains(&major)
}
