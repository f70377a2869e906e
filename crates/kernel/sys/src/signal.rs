//! Signal masks and a descriptor to read signals from.
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks `signals` and returns a descriptor that becomes readable when one is pending.
pub fn descriptor_for(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    let ret = unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    super::check(libc::c_long::from(ret))?;
    // SAFETY: -1 asks for a new descriptor; `set` is initialised and copied by the kernel.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    super::check(libc::c_long::from(fd))?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives every signal its default action: a program must not inherit our choices.
pub fn default_all() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no code of ours. KILL, STOP and the two that libc keeps answer EINVAL, which is meant.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks every signal, for the same reason.
pub fn unblock_all() -> io::Result<()> {
    let empty = set_of(&[]);
    // SAFETY: `empty` is an initialised signal set; the old mask is not asked for.
    let ret = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut()) };
    super::check(libc::c_long::from(ret))?;
    Ok(())
}

/// Kills every process this one may signal, itself excepted. For PID 1 of a sandbox: everything else inside.
pub fn kill_everything_else(signal: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    let ret = unsafe { libc::kill(-1, signal) };
    match super::check(libc::c_long::from(ret)) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(|_| ()),
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigset_t is plain data; sigemptyset initialises it below.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours and writable.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: `set` was initialised; a signal number out of range is refused without touching memory.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}
