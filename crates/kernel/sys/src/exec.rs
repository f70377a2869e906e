//! Replacing the process image.
use std::ffi::CString;
use std::io;

/// Executes `path`; returns only on failure.
pub fn execve(path: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: all three are NUL-terminated and outlive the call; on success nothing of this process remains.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends the whole process at once, without running anything that was registered for its end.
pub fn exit(code: u8) -> ! {
    // SAFETY: takes an integer and does not return; a forked child must not run its parent's exit handlers.
    unsafe { libc::_exit(i32::from(code)) }
}
