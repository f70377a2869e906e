//! The one network setting a sandbox needs: its loopback interface up.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Brings `lo` of the current network namespace up, through any socket of that namespace.
pub fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: ifreq is plain data; all zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which outlives the call.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    super::check(libc::c_long::from(ret))?;
    Ok(())
}
