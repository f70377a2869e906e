//! Calls that probes make in order to see them refused. Each is harmless where it is not refused.
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What a probing call came to: `Ok` when it succeeded, else the errno.
pub type Outcome = Result<i64, i32>;

/// Makes a system call by number with up to three integer arguments, none of them a pointer to our memory.
///
/// Pointers are given as 0: a call that gets past the filter fails on them with `EFAULT` or `EINVAL`.
pub fn by_number(number: libc::c_long, args: [libc::c_long; 3]) -> Outcome {
    // SAFETY: callers pass integers and null pointers only, so the kernel can neither read nor write our memory.
    outcome(unsafe { libc::syscall(number, args[0], args[1], args[2], 0, 0, 0) })
}

/// The same call through the 32-bit entry, where it exists: `getpid` there.
#[cfg(target_arch = "x86_64")]
pub fn getpid_through_int80() -> Outcome {
    const GETPID_I386: u64 = 20;
    let ret: i64;
    // SAFETY: getpid takes no argument and touches no memory; the entry clobbers r8–r11, which are declared.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") GETPID_I386 => ret, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if (-4095..0).contains(&ret) {
        Err(-ret as i32)
    } else {
        Ok(ret)
    }
}

/// `getpid` under its x32 number.
#[cfg(target_arch = "x86_64")]
pub fn getpid_through_x32() -> Outcome {
    const X32: libc::c_long = 0x4000_0000;
    by_number(libc::SYS_getpid | X32, [0; 3])
}

/// What became of a call that a child made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It was carried out.
    Succeeded,
    /// It failed with this errno.
    Failed(i32),
    /// The child was ended by this signal.
    Ended(i32),
}

/// Has a child make the call, and tells what became of it: a filter may end whoever tries.
pub fn by_a_child(call: fn() -> Outcome) -> io::Result<Tried> {
    let Some(pid) = crate::clone::fork()? else {
        // Every errno fits; one that did not would not look like a success.
        let code = call().map_or_else(|errno| u8::try_from(errno).unwrap_or(u8::MAX), |_| 0);
        crate::exec::exit(code);
    };
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    loop {
        match rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) => Ok(Tried::Succeeded),
                    (Some(errno), _) => Ok(Tried::Failed(errno)),
                    (None, Some(signal)) => Ok(Tried::Ended(signal)),
                    (None, None) => Err(io::Error::other("the child neither ended nor was ended")),
                };
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Executes a file that has no format the kernel knows, so that getting past every check ends in `ENOEXEC`.
pub fn execute_no_program(path: &CStr) -> Outcome {
    let no_strings: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: the path is NUL-terminated, the two lists end with a null pointer, and all outlive the call.
    outcome(libc::c_long::from(unsafe {
        libc::execve(path.as_ptr(), no_strings.as_ptr(), no_strings.as_ptr())
    }))
}

/// Executes a program with arguments at an address that is never mapped: who gets past the filter fails with `EFAULT`.
pub fn execute_unreadable(path: &CStr) -> Outcome {
    let nowhere = std::ptr::without_provenance::<*const libc::c_char>(1);
    // SAFETY: the path is NUL-terminated; the kernel reads the other two as user memory and fails without touching ours.
    outcome(libc::c_long::from(unsafe {
        libc::execve(path.as_ptr(), nowhere, nowhere)
    }))
}

/// Sets the length of a file by its path.
pub fn truncate(path: &str, length: u64) -> Result<(), i32> {
    let Ok(path) = std::ffi::CString::new(path) else {
        return Err(libc::EINVAL);
    };
    let length = libc::off_t::try_from(length).map_err(|_| libc::EINVAL)?;
    // SAFETY: the path is NUL-terminated and outlives the call; the rest is an integer.
    outcome(libc::c_long::from(unsafe {
        libc::truncate(path.as_ptr(), length)
    }))
    .map(drop)
}

/// Pushes one byte into a terminal's input.
pub fn push_terminal_input(terminal: BorrowedFd<'_>) -> Outcome {
    let byte = b'#';
    // SAFETY: TIOCSTI reads one byte that outlives the call.
    outcome(libc::c_long::from(unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const byte)
    }))
}

/// The leader of this process's session: 0 when it lies outside the PID namespace, which a typed wrapper cannot say.
pub fn session() -> Outcome {
    // SAFETY: takes an integer only.
    outcome(libc::c_long::from(unsafe { libc::getsid(0) }))
}

fn outcome(ret: libc::c_long) -> Outcome {
    if ret == -1 {
        Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(ret)
    }
}
