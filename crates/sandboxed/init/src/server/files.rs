//! An empty root for a process of bastle itself, which has no sandbox: where the kernel lacks Landlock, this alone keeps the
//! host's files from it.
use crate::hooks;
use crate::step::Step;
use bastle_contract::Fault;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::CapabilitySet;
use std::io;

/// One directory and nothing in it: even its inode is the last.
const OPTIONS: &std::ffi::CStr = c"size=4k,nr_inodes=1,mode=0555";

/// Where it is mounted first. Any directory will do: it is covered in this namespace only, and goes with the host's tree.
const ANCHOR: &str = "/proc";

/// What became of the host's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// There is no path to them.
    Gone,
    /// This host lets this process have no namespace of its own.
    InView,
}

/// Whether this process may have a mount namespace without a user namespace.
pub(super) fn is_capable() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Leaves them for good. Descriptors that are open stay open.
pub(super) fn leave() -> Result<Files, Fault> {
    let what = "own mount namespace";
    let unshared = if is_capable() {
        bastle_sys::clone::unshare_mounts()
    } else {
        bastle_sys::clone::unshare_user_and_mounts()
    };
    if let Err(error) = unshared {
        return refused(&error).map_or_else(|| Err(error).step(what, "unshare"), Ok);
    }
    // AppArmor lets a process have the namespace on some hosts, and nothing in it.
    match empty_directory() {
        Ok(()) => {}
        Err(Errno::PERM | Errno::ACCESS) => return Ok(Files::InView),
        Err(cause) => return Err(cause).step(what, "empty directory"),
    }
    if hooks::enforces("egress-files") {
        replace_root().step(what, "empty root")?;
    }
    Ok(Files::Gone)
}

fn empty_directory() -> rustix::io::Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("bastle-egress", ANCHOR, "tmpfs", flags, OPTIONS)
}

fn replace_root() -> rustix::io::Result<()> {
    rustix::process::chdir(ANCHOR)?;
    rustix::process::pivot_root(".", ".")?;
    // The host's root is stacked on the new one now; "." is the host's.
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// Whether the host refuses namespaces to this process: by a setting, a limit or a filter.
fn refused(error: &io::Error) -> Option<Files> {
    let errno = Errno::from_io_error(error)?;
    let refusals = [
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOSPC,
        Errno::USERS,
        Errno::NOSYS,
        // No user namespaces in this kernel.
        Errno::INVAL,
    ];
    refusals.contains(&errno).then_some(Files::InView)
}
