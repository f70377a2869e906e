//! Calls that write bytes or change a size, and shared mappings: counted, then done on a duplicate of the caller's
//! descriptor, which shares its offset and its flags.
use super::caller::Base;
use super::ledger::{Extent, FileId, Over};
use super::names::{Reach, Trees};
use super::transfer::{Cursor, Position, Request};
use super::walk::{self, Link, Start, Walk};
use super::{Call, Done, Guard, Stop};
use bastle_sys::seccomp::Answer;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Bytes copied at a time.
const CHUNK: usize = 256 << 10;
/// `TMPFS_MAGIC` (include/uapi/linux/magic.h).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
/// `O_DIRECT` wants buffers aligned to a block.
const ALIGNMENT: usize = 4096;
/// Bytes written in one call before it ends short: other callers wait meanwhile, some 20 ms.
const MOST: u64 = 64 << 20;

/// Devices and mounts of the guarded trees.
#[derive(Debug, Default)]
pub(super) struct Places {
    devices: Vec<u64>,
    mounts: Vec<u64>,
}

/// A counted file.
#[derive(Debug)]
struct File {
    fd: OwnedFd,
    id: FileId,
    /// Whether it is one of a guarded tree.
    counted: bool,
    extent: Extent,
    status: OFlags,
}

impl Places {
    fn of(trees: &Trees) -> Self {
        let mut places = Self::default();
        for root in trees.roots() {
            places
                .devices
                .extend(rustix::fs::stat(root).map(|stat| stat.st_dev));
            places.mounts.extend(mount_of(CWD, root));
        }
        places
    }

    /// Whether a file is one of a guarded tree. `mount` is asked only when the device does not say it.
    fn hold(&self, stat: &Stat, mount: impl Fn() -> Result<u64, Errno>) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (self.devices.contains(&stat.st_dev)
                || mount().is_ok_and(|mount| self.mounts.contains(&mount)))
    }
}

fn mount_of(dir: BorrowedFd<'_>, path: &[u8]) -> Result<u64, Errno> {
    let flags = if path.is_empty() {
        AtFlags::EMPTY_PATH
    } else {
        AtFlags::empty()
    };
    Ok(rustix::fs::statx(dir, path, flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

impl Guard {
    pub(super) fn change(&mut self, call: &Call<'_>) -> Result<Done, Stop> {
        let a = call.args;
        let fd = a[0] as RawFd;
        match call.operation {
            "truncate" => {
                let file = self.open_to_truncate(call, a[0])?;
                self.truncate(call, file, a[1])
            }
            "ftruncate" => self.truncate(call, call.caller.duplicate(fd)?, a[1]),
            "fallocate" => self.reserve(call, call.caller.duplicate(fd)?, a[1] as u32, (a[2], a[3])),
            _ => self.write(call, fd),
        }
    }

    fn write(&mut self, call: &Call<'_>, fd: RawFd) -> Result<Done, Stop> {
        let Some(mut file) = self.counted_file(call, fd)? else {
            return Ok(Done::Answer(Answer::Continue));
        };
        let access = file.status.intersection(OFlags::RWMODE);
        if access == OFlags::RDONLY || file.status.contains(OFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        let request = Request::read(call)?;
        self.ledger
            .may_change(&[file.id])
            .map_err(|over| file.over(over))?;
        let mut cursor = Cursor::new(&request);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK + ALIGNMENT, 0);
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let chunk = &mut buffer[aligned..aligned + CHUNK];
        let mut done = 0;
        let stop = loop {
            match self.write_chunk(call, &mut file, &request, &mut cursor, done, chunk) {
                Ok(Some(count)) => done += count,
                Ok(None) => break None,
                Err(stop) => break Some(stop),
            }
        };
        self.buffer = buffer;
        match stop {
            // What was written before something went wrong is what the caller hears of.
            Some(stop) if done == 0 => Err(stop),
            Some(_) | None => {
                self.ledger.changed(&[file.id]);
                Ok(Done::Answer(Answer::Return(
                    i64::try_from(done).unwrap_or(i64::MAX),
                )))
            }
        }
    }

    /// Writes the next bytes; `None` when there are none or the write came out short.
    fn write_chunk(
        &mut self,
        call: &Call<'_>,
        file: &mut File,
        request: &Request,
        cursor: &mut Cursor<'_>,
        done: u64,
        chunk: &mut [u8],
    ) -> Result<Option<u64>, Stop> {
        if cursor.short {
            return Ok(None);
        }
        let room = chunk.len().min(usize::try_from(MOST - done).unwrap_or(0));
        let wanted = cursor.fill(&call.caller, &mut chunk[..room])?;
        // The bytes are the caller's only if it is still there.
        call.confirm()?;
        // Nothing to write is still asked of the kernel once: it may have an error to tell.
        if wanted == 0 && done > 0 {
            return Ok(None);
        }
        let start = file.start(request, done)?;
        let allowed = self
            .ledger
            .may_write(file.id, file.extent, start, wanted as u64)
            .map_err(|over| file.over(over))?;
        let bytes = &chunk[..usize::try_from(allowed).unwrap_or(wanted).min(wanted)];
        let count = request.write(file.fd.as_fd(), done, bytes)?;
        let after = Extent::of(&rustix::fs::fstat(&file.fd)?);
        self.ledger.wrote(file.id, count as u64, file.extent, after);
        file.extent = after;
        // Short, or cut at a limit: the next call hears why.
        cursor.short = count < wanted;
        Ok(if count == 0 { None } else { Some(count as u64) })
    }

    fn truncate(&mut self, call: &Call<'_>, fd: OwnedFd, length: u64) -> Result<Done, Stop> {
        if i64::try_from(length).is_err() {
            return Err(Errno::INVAL.into());
        }
        let file = self.describe(fd)?;
        let grown = length.saturating_sub(file.extent.size);
        if file.counted {
            self.ledger
                .may_change(&[file.id])
                .map_err(|over| file.over(over))?;
            self.ledger.may_grow(grown).map_err(|over| file.over(over))?;
        }
        call.confirm()?;
        rustix::fs::ftruncate(&file.fd, length)?;
        if file.counted {
            self.ledger.changed(&[file.id]);
            self.ledger.grew(file.id, grown, grown);
        }
        Ok(Done::Answer(Answer::Return(0)))
    }

    fn reserve(
        &mut self,
        call: &Call<'_>,
        fd: OwnedFd,
        mode: u32,
        (offset, length): (u64, u64),
    ) -> Result<Done, Stop> {
        if i64::try_from(offset).is_err() || i64::try_from(length).is_err() {
            return Err(Errno::INVAL.into());
        }
        let mode = FallocateFlags::from_bits_retain(mode);
        let file = self.describe(fd)?;
        let end = offset.saturating_add(length);
        let beyond = end.saturating_sub(file.extent.size);
        let grown = if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE) {
            0
        } else if mode.contains(FallocateFlags::INSERT_RANGE) {
            length
        } else {
            // The gap before `offset` stays a hole; it is part of the size all the same.
            beyond + length.saturating_sub(beyond).min(file.extent.hole())
        };
        if file.counted {
            self.ledger
                .may_change(&[file.id])
                .map_err(|over| file.over(over))?;
            self.ledger.may_grow(grown).map_err(|over| file.over(over))?;
        }
        if grown > 0 && !self.leaves_reserve(&file, grown)? {
            return Err(Errno::NOSPC.into());
        }
        call.confirm()?;
        rustix::fs::fallocate(&file.fd, mode, offset, length)?;
        if file.counted {
            self.ledger.changed(&[file.id]);
            self.ledger.grew(file.id, grown, 0);
        }
        Ok(Done::Answer(Answer::Return(0)))
    }

    /// Whether the disk reserve is left when the file grows. A tmpfs has a size of its own and is no storage.
    fn leaves_reserve(&self, file: &File, grown: u64) -> Result<bool, Errno> {
        if rustix::fs::fstatfs(&file.fd)?.f_type == TMPFS {
            return Ok(true);
        }
        let space = rustix::fs::fstatvfs(&file.fd)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(self
            .ledger
            .leaves_reserve(bytes(space.f_blocks), bytes(space.f_bavail), grown))
    }

    /// A shared mapping of a file that is open for writing: it can be made writable later, so it counts at once.
    pub(super) fn map(&mut self, call: &Call<'_>) -> Result<Done, Stop> {
        let [_, length, _, flags, fd, offset] = call.args;
        let go_on = Ok(Done::Answer(Answer::Continue));
        if flags as u32 & libc::MAP_ANONYMOUS as u32 != 0 {
            return go_on;
        }
        let Some(file) = self.counted_file(call, fd as RawFd)? else {
            return go_on;
        };
        if file.status.intersection(OFlags::RWMODE) != OFlags::RDWR {
            return go_on;
        }
        self.ledger
            .may_change(&[file.id])
            .map_err(|over| file.over(over))?;
        let reachable = length.min(file.extent.size.saturating_sub(offset));
        self.ledger.map(reachable).map_err(|over| file.over(over))?;
        self.ledger.changed(&[file.id]);
        go_on
    }

    /// The file behind a descriptor of the caller, if it is one that counts.
    fn counted_file(&mut self, call: &Call<'_>, fd: RawFd) -> Result<Option<File>, Stop> {
        if fd < 0 {
            return Ok(None);
        }
        let stat = match call.caller.descriptor_stat(fd) {
            Ok(stat) => stat,
            // The kernel knows what to say to that.
            Err(Errno::BADF) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let link = format!("/proc/{}/fd/{fd}", call.caller.tid);
        if !self.places().hold(&stat, || mount_of(CWD, link.as_bytes())) {
            return Ok(None);
        }
        let file = self.describe(call.caller.duplicate(fd)?)?;
        Ok(if file.counted { Some(file) } else { None })
    }

    fn describe(&mut self, fd: OwnedFd) -> Result<File, Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let status = rustix::fs::fcntl_getfl(&fd)?;
        Ok(File {
            id: (stat.st_dev, stat.st_ino),
            counted: self.places().hold(&stat, || mount_of(fd.as_fd(), b"")),
            extent: Extent::of(&stat),
            status,
            fd,
        })
    }

    fn places(&mut self) -> &Places {
        let trees = &self.trees;
        self.places.get_or_insert_with(|| Places::of(trees))
    }

    fn open_to_truncate(&self, call: &Call<'_>, path: u64) -> Result<OwnedFd, Stop> {
        let path = call.caller.path(path)?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut walk = Walk::new(&call.caller);
        let mut place = walk.locate(Start::Caller(Base::Cwd), &path)?;
        loop {
            let pinned = walk::open_name(place.dir.as_fd(), &place.spelled())?;
            let pinned = match FileType::from_raw_mode(rustix::fs::fstat(&pinned)?.st_mode) {
                FileType::Symlink => match walk.follow(place.dir.as_fd(), &place.name, pinned.as_fd())? {
                    Link::Text(target) => {
                        let next = walk.locate(Start::At(place.dir.as_fd()), &target)?;
                        place = next;
                        continue;
                    }
                    Link::Magic => rustix::fs::openat(
                        &place.dir,
                        &place.name,
                        OFlags::PATH | OFlags::CLOEXEC,
                        Mode::empty(),
                    )?,
                },
                _ => pinned,
            };
            match FileType::from_raw_mode(rustix::fs::fstat(&pinned)?.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
            call.confirm()?;
            let target = walk::canonical(pinned.as_fd())?;
            walk::refuse_own(&target)?;
            self.refuse(self.trees.guard(&target, Reach::Itself), &target)?;
            self.refuse_program(&pinned, &target)?;
            let opened = rustix::fs::openat(CWD, walk::own_link(pinned.as_fd()), flags, Mode::empty());
            return opened.map_err(|errno| self.kernel(errno, &target));
        }
    }
}

impl File {
    /// Refuses what goes over a limit. Only then is it asked where the file is.
    fn over(&self, over: Over) -> Stop {
        over.refuse(&walk::canonical(self.fd.as_fd()).unwrap_or_default())
    }

    /// Where the next bytes will land.
    fn start(&self, request: &Request, done: u64) -> Result<u64, Errno> {
        match request.position {
            _ if request.appends(self.status) => Ok(self.extent.size),
            Position::At(offset) => Ok(offset.saturating_add(done)),
            Position::Offset => rustix::fs::seek(&self.fd, SeekFrom::Current(0)),
        }
    }
}
