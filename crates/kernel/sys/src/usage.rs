//! What a child used.
use std::io;

/// What a child and all that it waited for itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// The largest resident set, in bytes.
    pub peak_memory: u64,
    /// Bytes that files on storage were made dirty with (getrusage(2), `ru_oublock`): whole pages, nothing of a tmpfs, nothing of children that the
    /// kernel reaped because their parent ignores SIGCHLD.
    pub bytes_written: u64,
}

/// The unit of `ru_oublock`.
const BLOCK: u64 = 512;

/// Waits for the end of a child.
///
/// By its number: it stays the child's until this call has taken its end, and nobody else waits for it.
pub fn at_the_end_of(child: u32) -> io::Result<Used> {
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
    Ok(Used {
        cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
        peak_memory: usage.ru_maxrss as u64 * 1024,
        bytes_written: usage.ru_oublock as u64 * BLOCK,
    })
}
