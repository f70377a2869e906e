//! What a cause is proven from: the steps that were tried, and what the kernel shows of this process. Nothing is judged here.
use super::apparmor::Installed;
use super::container::{Container, Signs};
use bastle_contract::HostFacts;
use bastle_control::fence_steps::{self, FenceSteps};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Kinds of namespaces that have a limit of their own in `/proc/sys/user`.
const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "net", "ipc", "uts"];
/// Inode numbers of the first namespaces of a machine, fixed in the kernel (`include/linux/proc_ns.h`).
const FIRST_NAMESPACES: [(&str, u64); 4] = [
    ("ipc", 0xEFFF_FFFF),
    ("uts", 0xEFFF_FFFE),
    ("pid", 0xEFFF_FFFC),
    ("cgroup", 0xEFFF_FFFB),
];
const SYSCTLS: [&str; 3] = [
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/unprivileged_userns_clone",
    "kernel/yama/ptrace_scope",
];

/// Everything that is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Code of the fault that the trial ended with; empty where there is none.
    pub(super) fault: String,
    /// What the trial was refused with EACCES, in the words of its fault.
    pub(super) denied: Option<String>,
    /// Whether a service builds the fence: what is tried here says nothing of that process.
    pub(super) service: bool,
    pub(super) root: bool,
    pub(super) steps: FenceSteps,
    /// Release of the kernel.
    pub(super) release: String,
    /// Whether the kernel has the parts of Landlock that a fence needs; none where no spawner told.
    pub(super) landlock: Option<bool>,
    /// Whether it has user notification; none where no spawner told.
    pub(super) notify: Option<bool>,
    /// Values by their path below `/proc/sys`.
    pub(super) sysctls: BTreeMap<String, String>,
    /// Whether a system-call filter is in force on this process.
    pub(super) filter: bool,
    /// The AppArmor label of this process.
    pub(super) label: String,
    /// What shows that this process is in a chroot.
    pub(super) chroot: Option<String>,
    /// Places of `/proc` that are covered.
    pub(super) covers: Vec<String>,
    /// `/sys/kernel/security/lsm`.
    pub(super) lsm: String,
    pub(super) container: Option<Container>,
    /// This program.
    pub(super) binary: PathBuf,
    /// AppArmor profiles for programs of this name.
    pub(super) profiles: Vec<Installed>,
    /// Whether the user namespace of this process has a map for its user and its group.
    pub(super) mapped: bool,
    /// Whether this process may mount in the namespaces that it is in.
    pub(super) may_mount: bool,
}

impl Observed {
    /// Looks at this host.
    pub(super) fn of_host(
        fault: Option<(String, String, String)>,
        facts: Option<&HostFacts>,
        steps: FenceSteps,
    ) -> Self {
        let (fault, what, why) = fault.unwrap_or_default();
        let errno = format!("(os error {})", rustix::io::Errno::ACCESS.raw_os_error());
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        let sysctls = SYSCTLS
            .iter()
            .map(|name| (*name).to_owned())
            .chain(
                NAMESPACES
                    .iter()
                    .map(|kind| format!("user/max_{kind}_namespaces")),
            )
            .filter_map(|name| {
                let text = std::fs::read_to_string(Path::new("/proc/sys").join(&name)).ok()?;
                Some((name, text.trim().to_owned()))
            })
            .collect();
        Self {
            fault,
            denied: why.ends_with(&errno).then_some(what),
            service: bastle_control::has_spawner_daemon(),
            root: rustix::process::geteuid().is_root(),
            steps,
            release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            landlock: facts.map(|facts| facts.landlock.reach_the_floor()),
            notify: facts.map(|facts| facts.seccomp_notify),
            sysctls,
            filter: read("/proc/self/status")
                .lines()
                .any(|line| line.strip_prefix("Seccomp:").map(str::trim) == Some("2")),
            label: fence_steps::label(),
            chroot: chroot(&mounts, &read("/proc/1/mountinfo")),
            covers: covers(&mounts),
            lsm: read("/sys/kernel/security/lsm").trim().to_owned(),
            container: container(),
            binary: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/bastle")),
            profiles: Installed::find(Path::new("/etc/apparmor.d")),
            mapped: maps(&read("/proc/self/uid_map"), rustix::process::geteuid().as_raw())
                && maps(&read("/proc/self/gid_map"), rustix::process::getegid().as_raw()),
            may_mount: may_mount(&read("/proc/self/status")),
        }
    }

    /// A value below `/proc/sys`.
    pub(super) fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }
}

/// The container that this process runs in.
pub(super) fn container() -> Option<Container> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Container::detect(&Signs {
        variable: &|name| std::env::var(name).ok(),
        exists: &|path| Path::new(path).exists(),
        version: &read("/proc/version"),
        groups: &read("/proc/1/cgroup"),
        apart: FIRST_NAMESPACES.iter().any(|(kind, first)| {
            std::fs::metadata(format!("/proc/self/ns/{kind}")).is_ok_and(|meta| meta.ino() != *first)
        }),
    })
}

/// Number and mount point of a line of `mountinfo`.
fn mount(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split(' ');
    Some((fields.next()?, fields.nth(3)?))
}

/// What shows that the root of this process is not the root of its mount namespace: the kernel makes no user namespace for
/// such a process.
fn chroot(own: &str, first: &str) -> Option<String> {
    let root = own.lines().filter_map(mount).find(|(_, point)| *point == "/");
    let Some((number, _)) = root else {
        return (!own.is_empty()).then(|| {
            "the root directory of this process is no mount point (/proc/self/mountinfo)".to_owned()
        });
    };
    // Numbers of mounts are the same for all who see the mount. Where /proc/1 is of another namespace it is not in there.
    let (_, point) = first
        .lines()
        .filter_map(mount)
        .find(|(other, point)| *other == number && *point != "/")?;
    Some(format!(
        "the root directory of this process is {point} for process 1"
    ))
}

/// Covers that the kernel counts: a new `/proc` in a user namespace would show what is below them.
fn covers(mounts: &str) -> Vec<String> {
    mounts
        .lines()
        .filter_map(mount)
        .map(|(_, point)| point)
        .filter(|point| point.starts_with("/proc/") && *point != "/proc/sys/fs/binfmt_misc")
        .map(str::to_owned)
        .collect()
}

/// Whether the effective capabilities have CAP_SYS_ADMIN.
fn may_mount(status: &str) -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .is_some_and(|set| set & SYS_ADMIN != 0)
}

fn maps(map: &str, uid: u32) -> bool {
    // Without the file there is nothing to tell.
    map.is_empty()
        || map.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
            let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else {
                return false;
            };
            (first..first.saturating_add(count)).contains(&u64::from(uid))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chroot_is_seen_by_a_root_that_is_no_mount_and_by_one_that_process_1_has_elsewhere() {
        let host = "21 1 254:0 / / rw - ext4 /dev/vda rw\n30 21 0:40 / /mnt/jail rw - tmpfs none rw\n";
        assert_eq!(chroot("21 1 254:0 / / rw - ext4 /dev/vda rw\n", host), None);
        assert!(chroot("24 21 0:22 / /proc rw - proc proc rw\n", host).is_some());
        let inside = chroot("30 21 0:40 / / rw - tmpfs none rw\n", host).unwrap();
        assert!(inside.contains("/mnt/jail"), "{inside}");
        // A container: the mounts of process 1 are its own.
        let own = "900 800 0:50 / / rw - overlay overlay rw\n";
        assert_eq!(chroot(own, own), None);
        assert_eq!(chroot("", host), None, "nothing is known without /proc");
    }

    #[test]
    fn covers_of_proc_are_counted_without_the_one_that_every_host_has() {
        let mounts = "24 21 0:22 / /proc rw - proc proc rw\n\
                      25 24 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
                      26 24 0:31 / /proc/kcore rw - tmpfs tmpfs rw\n";
        assert_eq!(covers(mounts), ["/proc/kcore"]);
    }

    #[test]
    fn the_capability_to_mount_is_read_from_the_effective_set() {
        assert!(may_mount("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_mount(
            "CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n"
        ));
    }

    #[test]
    fn a_user_outside_every_range_of_the_map_is_not_mapped() {
        assert!(maps("         0          0 4294967295\n", 1000));
        assert!(maps("0 100000 1\n1000 1000 1\n", 1000));
        assert!(!maps("0 100000 65536\n", 65536));
    }
}
