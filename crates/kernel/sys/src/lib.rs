//! The only `unsafe` of bastle: one function per system call that `rustix` does not wrap.
//!
//! **Invariant:** nothing here decides anything. Each function makes one call, checks its result, and argues
//! in a `SAFETY` note why the call is sound. Everything else uses `rustix`, which is re-exported nowhere.

pub mod clone;
pub mod environment;
pub mod exec;
pub mod fanotify;
pub mod fd;
pub mod guard;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod net;
pub mod peer;
pub mod probe;
pub mod reach;
pub mod seccomp;
pub mod signal;
pub mod tree;
pub mod usage;
pub mod walk;

use std::io;

/// Turns a raw return value into a result: every call here reports errors as -1 and `errno`.
fn check(ret: libc::c_long) -> io::Result<libc::c_long> {
    if ret == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}
