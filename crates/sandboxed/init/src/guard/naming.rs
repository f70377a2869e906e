//! Calls that create, rename, link and remove names.
use super::caller::Base;
use super::names::Reach;
use super::walk::{self, Link, Place, Start, Walk};
use super::{Call, Done, Guard, MODE_BITS, Stop};
use bastle_sys::seccomp::Answer;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Times a link may change between look and act.
const ATTEMPTS: u32 = 64;

/// An existing file to be linked, pinned.
#[derive(Debug)]
struct Source {
    fd: OwnedFd,
    /// The name it was asked for by; the same as `found` where a descriptor was meant.
    spelled: Vec<u8>,
    /// The path of the source, as the kernel gives it.
    found: Vec<u8>,
}

impl Source {
    fn of(fd: OwnedFd, spelled: Option<Vec<u8>>) -> Result<Self, Stop> {
        let found = walk::canonical(fd.as_fd())?;
        walk::refuse_own(&found)?;
        Ok(Self {
            fd,
            spelled: spelled.unwrap_or_else(|| found.clone()),
            found,
        })
    }
}

impl Guard {
    pub(super) fn name(&mut self, call: &Call<'_>) -> Result<Done, Stop> {
        let a = call.args;
        match call.operation {
            "mkdir" => self.make_directory(call, Base::Cwd, a[0], a[1]),
            "mkdirat" => self.make_directory(call, Base::of(a[0]), a[1], a[2]),
            "mknod" => self.make_node(call, Base::Cwd, a[0], a[1]),
            "mknodat" => self.make_node(call, Base::of(a[0]), a[1], a[2]),
            "symlink" => self.make_symlink(call, a[0], Base::Cwd, a[1]),
            "symlinkat" => self.make_symlink(call, a[0], Base::of(a[1]), a[2]),
            "link" => self.link(call, (Base::Cwd, a[0]), (Base::Cwd, a[1]), 0),
            "linkat" => self.link(call, (Base::of(a[0]), a[1]), (Base::of(a[2]), a[3]), a[4] as u32),
            "rename" => self.rename(call, (Base::Cwd, a[0]), (Base::Cwd, a[1]), 0),
            "renameat" => self.rename(call, (Base::of(a[0]), a[1]), (Base::of(a[2]), a[3]), 0),
            "renameat2" => self.rename(call, (Base::of(a[0]), a[1]), (Base::of(a[2]), a[3]), a[4] as u32),
            "bind" => self.bind(call, a[0], a[1], a[2]),
            _ => Err(call.refused()),
        }
    }

    fn make_directory(&mut self, call: &Call<'_>, base: Base, path: u64, mode: u64) -> Result<Done, Stop> {
        let place = locate(call, base, path)?;
        self.admit(&place, Reach::Itself)?;
        let mode = Mode::from_bits_retain(mode as u32 & MODE_BITS & !call.caller.umask()?);
        call.confirm()?;
        let made = rustix::fs::mkdirat(&place.dir, place.spelled(), mode);
        self.settle(&place, made)
    }

    fn make_node(&mut self, call: &Call<'_>, base: Base, path: u64, mode: u64) -> Result<Done, Stop> {
        let mode = mode as u32;
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileType::RegularFile,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            _ => return Err(Errno::PERM.into()),
        };
        let place = locate(call, base, path)?;
        self.admit(&place, Reach::Itself)?;
        let mode = Mode::from_bits_retain(mode & MODE_BITS & !call.caller.umask()?);
        call.confirm()?;
        let made = rustix::fs::mknodat(&place.dir, place.spelled(), kind, mode, 0);
        self.settle(&place, made)
    }

    fn make_symlink(&mut self, call: &Call<'_>, target: u64, base: Base, path: u64) -> Result<Done, Stop> {
        let target = call.caller.path(target)?;
        if target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let place = locate(call, base, path)?;
        // To whoever follows it, a symlink is the directory it leads to, with all that is below.
        self.admit(&place, Reach::Below)?;
        call.confirm()?;
        let made = rustix::fs::symlinkat(target, &place.dir, place.spelled());
        self.settle(&place, made)
    }

    fn link(
        &mut self,
        call: &Call<'_>,
        old: (Base, u64),
        new: (Base, u64),
        flags: u32,
    ) -> Result<Done, Stop> {
        let flags = AtFlags::from_bits_retain(flags);
        if !AtFlags::from_bits_retain((libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) as u32).contains(flags)
        {
            return Err(Errno::INVAL.into());
        }
        let source = self.link_source(call, old, flags)?;
        let place = locate(call, new.0, new.1)?;
        let stat = rustix::fs::fstat(&source.fd)?;
        let reach = reach_of(&stat);
        for path in [&source.spelled, &source.found] {
            self.refuse(self.trees.guard_source(path, reach), path)?;
        }
        self.admit_name(&place, reach)?;
        let id = (stat.st_dev, stat.st_ino);
        let counted = self.trees.hold(&place.path);
        if counted {
            self.ledger
                .may_name(id)
                .map_err(|over| over.refuse(&place.path))?;
        }
        call.confirm()?;
        // The very file that was looked at, whatever its name leads to by now. Without a capability only the link in
        // /proc names a file by its descriptor.
        let linked = rustix::fs::linkat(
            CWD,
            walk::own_link(source.fd.as_fd()),
            &place.dir,
            place.spelled(),
            AtFlags::SYMLINK_FOLLOW,
        );
        match linked {
            Ok(()) if counted => self.ledger.named(id),
            Ok(()) => {}
            // Directories cannot be linked anywhere: no fence speaks here.
            Err(Errno::PERM) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(Errno::PERM.into());
            }
            Err(errno) => return Err(self.kernel(errno, &place.path)),
        }
        Ok(Done::Answer(Answer::Return(0)))
    }

    /// The file to be linked, opened once (`O_PATH`): what is judged and what is linked are one.
    fn link_source(
        &self,
        call: &Call<'_>,
        (base, path): (Base, u64),
        flags: AtFlags,
    ) -> Result<Source, Stop> {
        let path = call.caller.path(path)?;
        if path.is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            let tid = call.caller.tid;
            let link = match base {
                Base::Cwd => format!("/proc/{tid}/cwd"),
                Base::Descriptor(fd) if fd < 0 => return Err(Errno::BADF.into()),
                Base::Descriptor(fd) => format!("/proc/{tid}/fd/{fd}"),
            };
            let fd = rustix::fs::openat(CWD, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            return Source::of(fd, None);
        }
        let mut walk = Walk::new(&call.caller);
        let mut place = walk.locate(Start::Caller(base), &path)?;
        for _ in 0..ATTEMPTS {
            // With the slashes that were typed: a file that is no directory is refused with them.
            let fd = walk::open_name(place.dir.as_fd(), &place.spelled())?;
            let symlink = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Symlink;
            if !symlink || !flags.contains(AtFlags::SYMLINK_FOLLOW) {
                return Source::of(fd, Some(place.path));
            }
            match walk.follow(place.dir.as_fd(), &place.name, fd.as_fd())? {
                Link::Text(target) => {
                    let next = walk.locate(Start::At(place.dir.as_fd()), &target)?;
                    place = next;
                }
                Link::Magic => {
                    let flags = OFlags::PATH | OFlags::CLOEXEC;
                    let fd = rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty())?;
                    return Source::of(fd, None);
                }
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn rename(
        &mut self,
        call: &Call<'_>,
        old: (Base, u64),
        new: (Base, u64),
        flags: u32,
    ) -> Result<Done, Stop> {
        let flags = RenameFlags::from_bits_retain(flags);
        // A whiteout would leave a new device behind under the old name: no file system has to know it.
        if !(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE).contains(flags) {
            return Err(Errno::INVAL.into());
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let (old, new) = (locate(call, old.0, old.1)?, locate(call, new.0, new.1)?);
        let moved = old.stat()?.ok_or(Errno::NOENT)?;
        let replaced = new.stat()?;
        self.judge_move(&old, &new, reach_of(&moved))?;
        if let (true, Some(replaced)) = (exchange, &replaced) {
            self.judge_move(&new, &old, reach_of(replaced))?;
        }
        let counted = self.trees.hold(&new.path) || self.trees.hold(&old.path);
        let changed: Vec<_> = std::iter::once(&moved)
            .chain(&replaced)
            .map(|stat| (stat.st_dev, stat.st_ino))
            .collect();
        if counted {
            self.ledger
                .may_change(&changed)
                .map_err(|over| over.refuse(&new.path))?;
        }
        call.confirm()?;
        rustix::fs::renameat_with(&old.dir, old.spelled(), &new.dir, new.spelled(), flags)
            .map_err(|errno| self.kernel(errno, &new.path))?;
        if counted {
            self.ledger.changed(&changed);
        }
        Ok(Done::Answer(Answer::Return(0)))
    }

    /// Whether what is at `old` may come to be at `new`.
    fn judge_move(&self, old: &Place, new: &Place, reach: Reach) -> Result<(), Stop> {
        self.refuse(self.trees.guard_source(&old.path, reach), &old.path)?;
        self.refuse(self.trees.guard(&new.path, reach), &new.path)
    }

    pub(super) fn remove(&mut self, call: &Call<'_>) -> Result<Done, Stop> {
        let a = call.args;
        let (base, path, flags) = match call.operation {
            "unlink" => (Base::Cwd, a[0], AtFlags::empty()),
            "rmdir" => (Base::Cwd, a[0], AtFlags::REMOVEDIR),
            "unlinkat" => (Base::of(a[0]), a[1], AtFlags::from_bits_retain(a[2] as u32)),
            _ => return Err(call.refused()),
        };
        let place = locate(call, base, path)?;
        let stat = place.stat()?.ok_or(Errno::NOENT)?;
        let id = (stat.st_dev, stat.st_ino);
        let counted = self.trees.hold(&place.path);
        if counted {
            self.refuse(self.trees.guard(&place.path, Reach::Itself), &place.path)?;
            self.ledger
                .may_change(&[id])
                .map_err(|over| over.refuse(&place.path))?;
        }
        call.confirm()?;
        match rustix::fs::unlinkat(&place.dir, place.spelled(), flags) {
            Ok(()) if counted => self.ledger.changed(&[id]),
            Ok(()) => {}
            Err(errno) => return Err(self.kernel(errno, &place.path)),
        }
        Ok(Done::Answer(Answer::Return(0)))
    }

    /// Whether a new name may come into being, and a new file with it.
    pub(super) fn admit(&self, place: &Place, reach: Reach) -> Result<(), Stop> {
        self.admit_name(place, reach)?;
        match self.ledger.may_create() {
            Err(over) if self.trees.hold(&place.path) => {
                Err(self.unless_there(place, over.refuse(&place.path)))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn admit_name(&self, place: &Place, reach: Reach) -> Result<(), Stop> {
        self.refuse(self.trees.guard(&place.path, reach), &place.path)
            .map_err(|stop| self.unless_there(place, stop))
    }

    /// `mkdir -p` and friends ask for what is there already: that is no attempt at anything.
    fn unless_there(&self, place: &Place, refusal: Stop) -> Stop {
        match place.stat() {
            Ok(Some(_)) => Errno::EXIST.into(),
            Ok(None) | Err(_) => refusal,
        }
    }

    /// Counts what came into being, or passes on why it did not.
    pub(super) fn settle(&mut self, place: &Place, made: Result<(), Errno>) -> Result<Done, Stop> {
        made.map_err(|errno| self.kernel(errno, &place.path))?;
        if self.trees.hold(&place.path) {
            // Gone already or not to be looked at: it came into being all the same.
            let stat = place.stat().unwrap_or_default();
            self.ledger
                .created(stat.map_or((0, 0), |stat| (stat.st_dev, stat.st_ino)));
        }
        Ok(Done::Answer(Answer::Return(0)))
    }
}

fn locate(call: &Call<'_>, base: Base, path: u64) -> Result<Place, Stop> {
    let path = call.caller.path(path)?;
    Ok(Walk::new(&call.caller).locate(Start::Caller(base), &path)?)
}

/// The same for a path that was read already, from the caller's working directory.
pub(super) fn locate_path(call: &Call<'_>, path: &[u8]) -> Result<Place, Stop> {
    Ok(Walk::new(&call.caller).locate(Start::Caller(Base::Cwd), path)?)
}

/// A directory brings along what is below it; a symlink is one to whoever follows it.
fn reach_of(stat: &Stat) -> Reach {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory | FileType::Symlink => Reach::Below,
        _ => Reach::Itself,
    }
}
