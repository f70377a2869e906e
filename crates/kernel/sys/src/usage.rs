//! What waited-for children used.
use std::io;

/// Processor time in milliseconds and the largest resident set in bytes, of all children waited for.
pub fn of_children() -> io::Result<(u64, u64)> {
    // SAFETY: rusage is plain data; all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes one structure that outlives the call.
    let ret = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    super::check(libc::c_long::from(ret))?;
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
    Ok((
        ms(usage.ru_utime) + ms(usage.ru_stime),
        usage.ru_maxrss as u64 * 1024,
    ))
}
