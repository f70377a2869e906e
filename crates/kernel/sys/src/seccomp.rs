//! Installing a filter and serving its notifications.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One instruction of a classic BPF program, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump when true.
    pub jt: u8,
    /// Jump when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

#[repr(C)]
struct Program {
    len: libc::c_ushort,
    filter: *const Instruction,
}

/// A system call a filter handed over.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// Names this call until it is answered.
    pub id: u64,
    /// Calling thread, in the reader's PID namespace.
    pub pid: u32,
    /// Call number.
    pub number: i32,
    /// Its registers.
    pub args: [u64; 6],
}

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It returns this value.
    Return(i64),
    /// It fails with this errno.
    Fail(i32),
    /// The kernel carries it out. Only where the registers alone decide: memory can change after it was looked at.
    Continue,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawData {
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    data: RawData,
}

#[repr(C)]
struct RawResponse {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct RawAddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

const fn ioctl_number(direction: u64, number: u64, size: usize) -> u64 {
    (direction << 30) | ((size as u64) << 16) | ((b'!' as u64) << 8) | number
}

const NOTIF_RECV: u64 = ioctl_number(3, 0, size_of::<RawNotification>());
const NOTIF_SEND: u64 = ioctl_number(3, 1, size_of::<RawResponse>());
const NOTIF_ID_VALID: u64 = ioctl_number(1, 2, size_of::<u64>());
const NOTIF_SET_FLAGS: u64 = ioctl_number(1, 4, size_of::<u64>());
const NOTIF_ADDFD: u64 = ioctl_number(1, 3, size_of::<RawAddFd>());

/// Installs a filter on the calling thread; `no_new_privs` must be set.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    set_filter(program, 0)?;
    Ok(())
}

/// Installs a filter whose notifications are read from the returned descriptor.
pub fn install_with_listener(program: &[Instruction]) -> io::Result<OwnedFd> {
    // Once a call is being served only a fatal signal may end its wait: otherwise a handled one restarts it, and
    // what was carried out happens twice.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = set_filter(program, flags)?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: with this flag the kernel returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_filter(program: &[Instruction], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    let raw = Program {
        len,
        filter: program.as_ptr(),
    };
    // SAFETY: `raw` points at `len` instructions; the kernel copies and checks them before the call returns.
    super::check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const raw,
        )
    })
}

/// Asks that a waiting caller and its answerer run on one processor: the one waits for the other anyway.
///
/// A wish, not a control: kernels before 6.6 do not know it, and nothing depends on it.
pub fn prefer_same_processor(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: NOTIF_SET_FLAGS takes an integer, no pointer.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS as _, SYNC_WAKE_UP) };
}

/// Whether the kernel knows user notification, and callers that only a fatal signal takes out of a call that is served.
#[must_use]
pub fn has_notification() -> bool {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: with a null pointer for a filter the kernel looks at the flags and then fails; no filter is installed.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::null::<libc::c_void>(),
        )
    };
    // A flag that it does not know is an error before the pointer is.
    if ret != -1 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
        return false;
    }
    let action: u32 = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: reads one u32 that outlives the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    ret == 0
}

/// The next waiting call; `None` when its caller is gone already.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Notification>> {
    // SAFETY: plain data; the kernel demands that it is all zero.
    let mut raw: RawNotification = unsafe { std::mem::zeroed() };
    // SAFETY: NOTIF_RECV writes one structure of the size that is part of its number.
    let ret = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV as _, &raw mut raw) };
    match super::check(libc::c_long::from(ret)) {
        Ok(_) => Ok(Some(Notification {
            id: raw.id,
            pid: raw.pid,
            number: raw.data.nr,
            args: raw.data.args,
        })),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Answers a call. A caller that is gone meanwhile is no error.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    let response = match answer {
        Answer::Return(val) => RawResponse {
            id,
            val,
            error: 0,
            flags: 0,
        },
        Answer::Fail(errno) => RawResponse {
            id,
            val: 0,
            error: -errno,
            flags: 0,
        },
        Answer::Continue => RawResponse {
            id,
            val: 0,
            error: 0,
            flags: CONTINUE,
        },
    };
    // SAFETY: NOTIF_SEND reads one structure of the size that is part of its number.
    let ret = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND as _, &raw const response) };
    gone_is_fine(ret)
}

/// Puts a copy of `fd` into the caller and lets the call return its number there.
pub fn answer_with_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    close_on_exec: CloseOnExec,
) -> io::Result<()> {
    const SEND: u32 = 2;
    let newfd_flags = match close_on_exec {
        CloseOnExec::Yes => libc::O_CLOEXEC as u32,
        CloseOnExec::No => 0,
    };
    let srcfd = u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
    let request = RawAddFd {
        id,
        flags: SEND,
        srcfd,
        newfd: 0,
        newfd_flags,
    };
    // SAFETY: NOTIF_ADDFD reads one structure of the size that is part of its number.
    let ret = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ADDFD as _, &raw const request) };
    if ret >= 0 { Ok(()) } else { gone_is_fine(ret) }
}

/// Whether a descriptor closes when its process executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOnExec {
    /// It does.
    Yes,
    /// It stays.
    No,
}

/// Whether the call named `id` still waits: until then its pid names the same process.
#[must_use]
pub fn still_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: NOTIF_ID_VALID reads one u64 that outlives the call.
    let ret = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID as _, &raw const id) };
    ret == 0
}

fn gone_is_fine(ret: libc::c_int) -> io::Result<()> {
    match super::check(libc::c_long::from(ret)) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
