//! What this host has. Asked of the kernel, not of version numbers.
use crate::cgroup;
use bastle_contract::HostFacts;

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
        landlock_abi: bastle_sys::landlock::abi(),
        seccomp_notify: bastle_sys::seccomp::has_notification(),
        cpus,
        memory: memory(),
        cgroup: cgroup::detect(),
    }
}

fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
