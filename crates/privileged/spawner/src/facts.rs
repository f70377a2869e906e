//! What this host has. Asked of the kernel, not of version numbers.
use crate::cgroup;
use crate::hooks;
use bastle_contract::{Authority, HostFacts, LandlockPart, LandlockParts};

/// Collects the facts; a few system calls and the cgroup lists.
#[must_use]
pub fn collect() -> HostFacts {
    let name = rustix::system::uname();
    let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    HostFacts {
        kernel: name.release().to_string_lossy().into_owned(),
        arch: name.machine().to_string_lossy().into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        authority: Authority::of_this_process(),
        landlock_abi: bastle_sys::landlock::abi(),
        landlock: landlock(),
        seccomp_notify: bastle_sys::seccomp::has_notification(),
        cpus,
        memory: memory(),
        cgroup: cgroup::detect(),
    }
}

/// The parts of Landlock that this kernel has. Found once in a process.
pub(crate) fn landlock() -> LandlockParts {
    let features = bastle_sys::landlock::features();
    hooks::landlock(LandlockParts::found(|part| match part {
        LandlockPart::Fs => features.files,
        LandlockPart::Truncate => features.truncate,
        LandlockPart::Ioctl => features.ioctl,
        LandlockPart::Scopes => features.scopes,
        LandlockPart::Unix => features.unix,
    }))
}

fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
