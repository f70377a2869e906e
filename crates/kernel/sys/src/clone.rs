//! Making processes: `clone3` with namespaces, and plain `fork`.
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Namespaces of a new process, as `CLONE_NEW*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces(u64);

/// Which side of the call this is.
pub enum Cloned {
    /// In the parent: the child's process id here, and a descriptor for it.
    Parent {
        /// Process id in the parent's namespace.
        pid: u32,
        /// Signals and waiting go through this, never through the number.
        pidfd: OwnedFd,
    },
    /// In the child.
    Child,
}

impl Namespaces {
    /// User namespace.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Mount namespace.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// PID namespace.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Network namespace.
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    /// IPC namespace.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// UTS namespace.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);
    /// No namespace.
    pub const NONE: Self = Self(0);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Makes a child in new namespaces, optionally born inside a cgroup v2 directory.
///
/// The child is a copy of this process. The caller must be single-threaded: a lock held by another thread
/// would stay locked in the child for ever.
pub fn clone_into(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut args = arguments(namespaces.0);
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        // libc's own constant is too narrow for this bit.
        const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    clone(args)
}

/// Makes a copy of this process that is a child of this one's own parent: who waits for this one waits for it too.
///
/// As with [`clone_into`], the caller must be single-threaded.
pub fn clone_sibling() -> io::Result<Cloned> {
    // The signal of its end is this process's own; the kernel refuses a second one.
    clone(arguments(libc::CLONE_PARENT as u64))
}

fn arguments(flags: u64) -> libc::clone_args {
    // SAFETY: clone_args is plain integers; all zero is its documented default.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args
}

fn clone(mut args: libc::clone_args) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    // SAFETY: without CLONE_VM and with no new stack this is fork: the child gets a copy of all memory and
    // returns here; `args` and `pidfd` outlive the call, and the size given is that of the structure.
    let ret = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match super::check(ret)? {
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: on success the kernel stored a new descriptor in `pidfd` that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent {
                pid: pid as u32,
                pidfd,
            })
        }
    }
}

/// Makes a plain copy of this process: the child's process id in the parent, `None` in the child.
///
/// Through the C library, which takes the allocator's locks around it: this one may have threads (they wait in `open`),
/// and the child, which has none of them, allocates before it executes.
pub fn fork() -> io::Result<Option<u32>> {
    // SAFETY: takes nothing; the child returns here with a copy of all memory and this thread alone.
    let pid = unsafe { libc::fork() };
    match super::check(libc::c_long::from(pid))? {
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

/// A child that has ended and is not waited for before this value goes: its number is still taken, and signals to it are
/// still judged.
pub struct Ended(Pid);

impl Ended {
    /// Makes one, with the caller's credentials of now. It shares memory, so that nothing is copied.
    pub fn child() -> io::Result<Self> {
        extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
            0
        }
        // Its own, because it runs while the frames of the caller are in use.
        let mut stack = vec![0_u64; 2048];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child runs `end`, which touches no memory but its stack, and leaves; `CLONE_VFORK` lets this thread
        // go on only then, so the stack outlives it. Its end is aligned to 16 bytes by the C library.
        let pid = super::check(libc::c_long::from(unsafe {
            libc::clone(end, top.cast(), flags, std::ptr::null_mut())
        }))?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.map(Self).ok_or_else(|| io::Error::other("no process id"))
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended: this waits for nothing, and where it fails nothing is left to be done.
        let _gone = rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty()).is_err();
    }
}

/// Gives this process a cgroup namespace of its own, rooted at the groups it is in now.
pub fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: takes an integer only; no memory or descriptor table is unshared.
    super::check(libc::c_long::from(unsafe {
        libc::unshare(libc::CLONE_NEWCGROUP)
    }))?;
    Ok(())
}

/// Gives this process a copy of the mount namespace it is in; needs the capability for it in its own user namespace.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: takes an integer only; the caller's working directory and root are moved along, no memory is touched.
    super::check(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNS) }))?;
    Ok(())
}

/// Gives this process a user namespace of its own, in which nobody is mapped, and a copy of the mount namespace that belongs
/// to it. This process must be single-threaded.
pub fn unshare_user_and_mounts() -> io::Result<()> {
    // SAFETY: as above; a process with threads gets EINVAL.
    super::check(libc::c_long::from(unsafe {
        libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
    }))?;
    Ok(())
}
