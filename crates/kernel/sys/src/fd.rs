//! Descriptors of the whole process.
use std::io;
use std::os::fd::RawFd;

/// Closes every descriptor that is not in `keep` (0, 1 and 2 are kept always).
///
/// For a freshly cloned child only: descriptors owned by live values are closed too, so the caller must
/// never drop such a value afterwards (it leaves by `exec` or `exit`).
pub fn close_all_except(keep: &[RawFd]) -> io::Result<()> {
    let mut kept: Vec<u32> = keep
        .iter()
        .filter_map(|fd| u32::try_from(*fd).ok())
        .filter(|fd| *fd > 2)
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes integers only. Descriptors owned elsewhere become invalid: see the caller's contract.
    super::check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}
