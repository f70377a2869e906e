//! Descriptors of the whole process.
use rustix::fs::Access;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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

/// Takes a descriptor that this process was started with, by its number; from then on it is closed on exec.
///
/// To be called once for a number, before anything else was opened: the value owns it.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only; fails where no such descriptor is open.
    let ret = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    super::check(libc::c_long::from(ret))?;
    // SAFETY: it is open, and by the caller's contract nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Locks one byte of a file for this open description and its copies, without waiting; `WouldBlock` when somebody has it.
pub fn lock_byte(file: BorrowedFd<'_>, at: u32) -> io::Result<()> {
    // SAFETY: flock is plain integers; all zero is a valid value.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = libc::F_WRLCK as libc::c_short;
    wanted.l_whence = libc::SEEK_SET as libc::c_short;
    wanted.l_start = libc::off_t::from(at);
    wanted.l_len = 1;
    // SAFETY: the kernel reads the structure, which outlives the call.
    let ret = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
    super::check(libc::c_long::from(ret))?;
    Ok(())
}

/// Lets the kernel begin to write what is dirty of a file, and waits for nothing. Makes nothing durable: of many files that
/// are synced afterwards, the first sync then finds the others in the same commit of the file system's journal.
pub fn start_writing(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only; a length of 0 is the whole file.
    let ret = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    super::check(libc::c_long::from(ret))?;
    Ok(())
}

/// Whether this process, with its effective identity, has the rights on what an open descriptor names, also one that
/// only names it (`O_PATH`).
pub fn may(what: BorrowedFd<'_>, rights: Access) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: the path is a NUL-terminated literal; everything else is integers.
    super::check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            what.as_raw_fd(),
            c"".as_ptr(),
            rights.bits(),
            flags,
        )
    })?;
    Ok(())
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes integers only. Descriptors owned elsewhere become invalid: see the caller's contract.
    super::check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn writing_is_begun_for_files_and_refused_for_what_has_no_disk() {
        let path = std::env::temp_dir().join(format!("bastle-sys-writing-{}", std::process::id()));
        std::fs::write(&path, [1; 8192]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        start_writing(file.as_fd()).unwrap();
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(start_writing(pipe.as_fd()).is_err());
    }

    #[test]
    fn a_locked_byte_is_refused_to_another_description_until_the_last_copy_is_closed() {
        let file = rustix::fs::memfd_create(c"bytes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let again = || {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let both = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, both, rustix::fs::Mode::empty()).unwrap()
        };
        let (one, other) = (again(), again());
        lock_byte(one.as_fd(), 7).unwrap();
        assert_eq!(
            lock_byte(other.as_fd(), 7).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        lock_byte(other.as_fd(), 8).unwrap();
        let copy = one.try_clone().unwrap();
        drop(one);
        assert!(lock_byte(other.as_fd(), 7).is_err(), "a copy holds it");
        drop(copy);
        lock_byte(other.as_fd(), 7).unwrap();
    }
}
