//! `fanotify`: the kernel tells which files were opened, read, written and executed through marked mounts.
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// What a mount is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Opening, reading, writing and executing.
    Everything,
    /// Executing only.
    Programs,
}

/// One event.
#[derive(Debug)]
pub struct Seen {
    /// What happened, as bits of this module.
    pub mask: u64,
    /// Who did it, in the reader's process namespace; 0 when that cannot see it.
    pub pid: u32,
    /// The file; `None` where the kernel could not open it, and for a lost part of the queue.
    pub file: Option<OwnedFd>,
}

/// It was read.
pub const READ: u64 = libc::FAN_ACCESS;
/// It was written.
pub const WRITTEN: u64 = libc::FAN_MODIFY;
/// It was opened.
pub const OPENED: u64 = libc::FAN_OPEN;
/// It was opened in order to be executed.
pub const EXECUTED: u64 = libc::FAN_OPEN_EXEC;
/// The queue was full, and events were lost.
pub const LOST: u64 = libc::FAN_Q_OVERFLOW;

/// Bytes of one event without further records.
const EVENT: usize = 24;
/// Events per reading: each carries a descriptor, and a process may not have many.
const MOST: usize = 64;

/// A new group of watched mounts. Needs the privilege to administer the system.
pub fn group() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    // Opening what was opened must neither wait for the other end of a FIFO nor leave an access time.
    let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOATIME;
    // SAFETY: takes two numbers.
    let fd = unsafe { libc::fanotify_init(flags, files.cast_unsigned()) };
    super::check(libc::c_long::from(fd))?;
    // SAFETY: a descriptor that the kernel has just made for us, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Watches the mount that `mount` lies on, attached or not.
pub fn watch(group: BorrowedFd<'_>, mount: BorrowedFd<'_>, what: Watched) -> io::Result<()> {
    let mask = match what {
        Watched::Everything => OPENED | READ | WRITTEN | EXECUTED,
        Watched::Programs => EXECUTED,
    };
    // The call takes no descriptor of the kind that only names a path, but the name of one.
    let path = CString::new(format!("/proc/self/fd/{}", mount.as_raw_fd())).map_err(io::Error::other)?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let ret = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT,
            mask,
            libc::AT_FDCWD,
            path.as_ptr(),
        )
    };
    super::check(libc::c_long::from(ret)).map(|_| ())
}

/// The next events, at most 64; none when there are none. An event that the kernel could not deliver is an error, and
/// the next reading goes on behind it.
pub fn read(group: BorrowedFd<'_>) -> io::Result<Vec<Seen>> {
    let mut buffer = [0_u8; EVENT * MOST];
    let count = match rustix::io::read(group, &mut buffer) {
        Ok(count) => count,
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut seen = Vec::new();
    let mut rest = buffer.get(..count).unwrap_or_default();
    while let Some((event, length)) = event(rest) {
        seen.push(event);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(seen)
}

fn event(bytes: &[u8]) -> Option<(Seen, usize)> {
    let four = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|part| part.try_into().ok())
            .map(u32::from_ne_bytes)
    };
    let length = usize::try_from(four(0)?).ok()?;
    let mask = bytes
        .get(8..16)
        .and_then(|part| part.try_into().ok())
        .map(u64::from_ne_bytes)?;
    let fd: RawFd = four(16)?.cast_signed();
    let pid = four(20)?;
    // SAFETY: the kernel has just made this descriptor for the reader of the event, which nobody else reads.
    let file = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
    (length >= EVENT).then_some((Seen { mask, pid, file }, length))
}
