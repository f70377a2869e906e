//! Calls that write bytes or change a size, and shared mappings: counted, then done on a duplicate of the caller's
//! descriptor, which shares its offset and its flags.
use super::caller::{Base, Caller};
use super::ledger::{Extent, FileId};
use super::names::Trees;
use super::walk::{self, Link, Start, Walk};
use super::{Call, Done, Guard, Stop};
use bastle_sys::seccomp::Answer;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Bytes copied at a time.
const CHUNK: usize = 256 << 10;
/// `O_DIRECT` wants buffers aligned to a block.
const ALIGNMENT: usize = 4096;
/// Bytes written in one call before it ends short: other callers wait meanwhile, some 20 ms.
const MOST: u64 = 64 << 20;
/// Most parts of a scattered write, as the kernel has it.
const MAX_PARTS: u64 = 1024;
const RWF_APPEND: u32 = 0x10;
const RWF_NOAPPEND: u32 = 0x20;

/// Devices and mounts of the guarded trees.
#[derive(Debug, Default)]
pub(super) struct Places {
    devices: Vec<u64>,
    mounts: Vec<u64>,
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// At the descriptor's offset, which moves.
    Offset,
    /// There.
    At(u64),
}

/// Bytes in the caller's memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    address: u64,
    length: u64,
}

/// A write as it was asked for.
#[derive(Debug)]
struct Request {
    parts: Vec<Part>,
    position: Position,
    flags: u32,
}

/// A counted file.
#[derive(Debug)]
struct File {
    fd: OwnedFd,
    id: FileId,
    path: Vec<u8>,
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
            .map_err(|over| over.refuse(&file.path))?;
        call.confirm()?;
        let mut cursor = Cursor::new(&request.parts);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK + ALIGNMENT, 0);
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let chunk = &mut buffer[aligned..aligned + CHUNK];
        let mut done = 0;
        let stop = loop {
            match self.write_chunk(&call.caller, &mut file, &request, &mut cursor, done, chunk) {
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
        caller: &Caller,
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
        let wanted = cursor.fill(caller, &mut chunk[..room])?;
        // Nothing to write is still asked of the kernel once: it may have an error to tell.
        if wanted == 0 && done > 0 {
            return Ok(None);
        }
        let start = file.start(request, done)?;
        let allowed = self
            .ledger
            .may_write(file.extent, start, wanted as u64)
            .map_err(|over| over.refuse(&file.path))?;
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
        let counted = self.counts(&file)?;
        if counted {
            self.ledger
                .may_change(&[file.id])
                .map_err(|over| over.refuse(&file.path))?;
            self.ledger
                .may_grow(grown)
                .map_err(|over| over.refuse(&file.path))?;
        }
        call.confirm()?;
        rustix::fs::ftruncate(&file.fd, length)?;
        if counted {
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
        let counted = self.counts(&file)?;
        if counted {
            self.ledger
                .may_change(&[file.id])
                .map_err(|over| over.refuse(&file.path))?;
            self.ledger
                .may_grow(grown)
                .map_err(|over| over.refuse(&file.path))?;
        }
        call.confirm()?;
        rustix::fs::fallocate(&file.fd, mode, offset, length)?;
        if counted {
            self.ledger.changed(&[file.id]);
            self.ledger.grew(file.id, grown, 0);
        }
        Ok(Done::Answer(Answer::Return(0)))
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
            .map_err(|over| over.refuse(&file.path))?;
        let reachable = length.min(file.extent.size.saturating_sub(offset));
        self.ledger
            .map(reachable)
            .map_err(|over| over.refuse(&file.path))?;
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
        Ok(if self.counts(&file)? { Some(file) } else { None })
    }

    fn describe(&self, fd: OwnedFd) -> Result<File, Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let status = rustix::fs::fcntl_getfl(&fd)?;
        let path = walk::canonical(fd.as_fd())?;
        Ok(File {
            id: (stat.st_dev, stat.st_ino),
            path,
            extent: Extent::of(&stat),
            status,
            fd,
        })
    }

    fn counts(&mut self, file: &File) -> Result<bool, Errno> {
        let stat = rustix::fs::fstat(&file.fd)?;
        Ok(self.places().hold(&stat, || mount_of(file.fd.as_fd(), b"")))
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
            let opened = rustix::fs::openat(CWD, walk::own_link(pinned.as_fd()), flags, Mode::empty());
            return opened.map_err(|errno| self.kernel(errno, &target));
        }
    }
}

impl File {
    /// Where the next bytes will land.
    fn start(&self, request: &Request, done: u64) -> Result<u64, Errno> {
        let appends = request.flags & RWF_APPEND != 0
            || (self.status.contains(OFlags::APPEND) && request.flags & RWF_NOAPPEND == 0);
        match request.position {
            _ if appends => Ok(self.extent.size),
            Position::At(offset) => Ok(offset.saturating_add(done)),
            Position::Offset => rustix::fs::seek(&self.fd, SeekFrom::Current(0)),
        }
    }
}

impl Request {
    fn read(call: &Call<'_>) -> Result<Self, Errno> {
        let a = call.args;
        let one = || {
            vec![Part {
                address: a[1],
                length: a[2],
            }]
        };
        let at = |offset: u64| {
            if i64::try_from(offset).is_ok() {
                Ok(Position::At(offset))
            } else {
                Err(Errno::INVAL)
            }
        };
        let (parts, position, flags) = match call.operation {
            "write" => (one(), Position::Offset, 0),
            "pwrite64" => (one(), at(a[3])?, 0),
            "writev" => (parts(&call.caller, a[1], a[2])?, Position::Offset, 0),
            "pwritev" => (parts(&call.caller, a[1], a[2])?, at(a[3])?, 0),
            "pwritev2" if a[3] == u64::MAX => {
                (parts(&call.caller, a[1], a[2])?, Position::Offset, a[5] as u32)
            }
            "pwritev2" => (parts(&call.caller, a[1], a[2])?, at(a[3])?, a[5] as u32),
            _ => return Err(Errno::NOSYS),
        };
        if parts.iter().any(|part| i64::try_from(part.length).is_err()) {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            parts,
            position,
            flags,
        })
    }

    fn write(&self, fd: BorrowedFd<'_>, done: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = ReadWriteFlags::from_bits_retain(self.flags);
        match self.position {
            Position::Offset if self.flags == 0 => rustix::io::write(fd, bytes),
            Position::At(offset) if self.flags == 0 => {
                rustix::io::pwrite(fd, bytes, offset.saturating_add(done))
            }
            Position::Offset => rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], u64::MAX, flags),
            Position::At(offset) => {
                rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], offset.saturating_add(done), flags)
            }
        }
    }
}

/// Copies the list of a scattered write.
fn parts(caller: &Caller, address: u64, count: u64) -> Result<Vec<Part>, Errno> {
    if count > MAX_PARTS {
        return Err(Errno::INVAL);
    }
    let mut raw = vec![0_u8; usize::try_from(count).map_err(|_| Errno::INVAL)? * 16];
    caller.read_exact(address, &mut raw)?;
    let words: Vec<u64> = raw
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    Ok(words
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[address, length]| Part {
            address: *address,
            length: *length,
        })
        .collect())
}

/// How far a write has come in the caller's memory.
#[derive(Debug)]
struct Cursor<'a> {
    rest: std::slice::Iter<'a, Part>,
    now: Part,
    /// No more bytes are wanted.
    short: bool,
}

impl<'a> Cursor<'a> {
    fn new(parts: &'a [Part]) -> Self {
        Self {
            rest: parts.iter(),
            now: Part {
                address: 0,
                length: 0,
            },
            short: false,
        }
    }

    /// Copies the next bytes. Unreadable memory ends the copy; it is an error when nothing came before it.
    fn fill(&mut self, caller: &Caller, into: &mut [u8]) -> Result<usize, Errno> {
        let mut have = 0;
        while have < into.len() {
            if self.now.length == 0 {
                match self.rest.next() {
                    Some(part) => self.now = *part,
                    None => break,
                }
                continue;
            }
            let wanted = usize::try_from(self.now.length)
                .unwrap_or(usize::MAX)
                .min(into.len() - have);
            let got = match caller.read(self.now.address, &mut into[have..have + wanted]) {
                Err(Errno::FAULT) if have > 0 => 0,
                other => other?,
            };
            have += got;
            self.now.address = self.now.address.saturating_add(got as u64);
            self.now.length -= got as u64;
            if got < wanted {
                self.now.length = 0;
                self.rest = [].iter();
                break;
            }
        }
        Ok(have)
    }
}
