//! A spawner as a copy of a process that has done nothing yet: the binary's image need not be loaded a second time.
use bastle_contract::socket;
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What whoever asked holds of it.
pub struct Early {
    /// The line to it.
    pub socket: OwnedFd,
    /// Its end is waited for through this.
    pub pidfd: OwnedFd,
}

/// Variables that a test build of the spawner reads.
#[cfg(feature = "test-hooks")]
const KEPT: &[&str] = &["BASTLE_TEST_WITHOUT", "BASTLE_TEST_LANDLOCK", "BASTLE_TEST_PANIC"];
#[cfg(not(feature = "test-hooks"))]
const KEPT: &[&str] = &[];

/// Makes it. To be called before any thread exists and before anything was read that it must not know.
pub fn start(init: crate::Init) -> io::Result<Early> {
    let (ours, theirs) = socket::pair()?;
    match clone_into(Namespaces::NONE, None)? {
        Cloned::Child => {
            drop(ours);
            let code = settle(&theirs).map_or(1, |()| crate::serve(&theirs, init));
            bastle_sys::exec::exit(code)
        }
        Cloned::Parent { pid: _, pidfd } => Ok(Early { socket: ours, pidfd }),
    }
}

/// Leaves everything of the caller's behind: arguments (init is a copy of this process, and its are seen inside),
/// environment, group, directory, descriptors. Standard error stays, for last words.
fn settle(line: &OwnedFd) -> io::Result<()> {
    bastle_sys::environment::wipe_arguments("bastle-spawner")?;
    bastle_sys::environment::wipe(KEPT);
    // A group of its own: ^C at a terminal goes to the whole group, and what ends a run is decided by control.
    rustix::process::setpgid(None, None)?;
    rustix::process::chdir("/")?;
    bastle_sys::fd::close_all_except(&[line.as_raw_fd()])?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
