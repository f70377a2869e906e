//! What a child used.
use std::io;

/// Waits for the end of a child. Processor time in milliseconds and the largest resident set in bytes, of it and of all
/// that it waited for itself.
///
/// By its number: it stays the child's until this call has taken its end, and nobody else waits for it.
pub fn at_the_end_of(child: u32) -> io::Result<(u64, u64)> {
    // SAFETY: rusage is plain data; all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: a null status is allowed; one structure is written that outlives the call.
        let ret = unsafe { libc::wait4(child as libc::pid_t, std::ptr::null_mut(), 0, &raw mut usage) };
        match super::check(libc::c_long::from(ret)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
    Ok((
        ms(usage.ru_utime) + ms(usage.ru_stime),
        usage.ru_maxrss as u64 * 1024,
    ))
}
