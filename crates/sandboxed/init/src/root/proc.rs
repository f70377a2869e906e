//! `/proc` of the sandbox's own PID namespace, with the kernel's own files covered.
use super::place::{Root, make_read_only};
use crate::step::Step;
use bastle_contract::{AbsPath, Fault};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Files and directories that tell about or reach the kernel: covered.
pub(crate) const MASKED: &[&str] = &[
    "acpi",
    "asound",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "sched_debug",
    "scsi",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
    "interrupts",
    "softirqs",
];

/// Directories that may be read but not written.
pub(crate) const READ_ONLY: &[&str] = &["bus", "fs", "irq", "sys"];

/// Mounts it and covers what must not be reached.
pub(crate) fn mount(root: &Root, at: &AbsPath) -> Result<(), Fault> {
    let what = "/proc of the sandbox";
    let fs = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).step(what, "fsopen")?;
    rustix::mount::fsconfig_create(&fs).step(
        what,
        "the host's own /proc must not be partly covered, as it is in many containers",
    )?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount =
        rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(what, "fsmount")?;
    root.attach_dir(at, mount)?;
    if !crate::hooks::enforces("proc-masks") {
        return Ok(());
    }
    for name in MASKED {
        let place = at.join(name).step(what, name)?;
        // What belongs to the host's root alone is refused to this identity already: a cover would add a mount and nothing else.
        if !root.refused(&place) {
            super::mask(root, &place)?;
        }
    }
    for name in READ_ONLY {
        make_read_only(root, &at.join(name).step(what, name)?)?;
    }
    Ok(())
}
