//! What was possible before confinement: the positive controls of the probes that come after.
use crate::programs::Programs;
use bastle_contract::{LaunchPlan, ProbeResult};
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::MetadataExt;

/// Observations of init, made before the layers they are controls for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    /// `/proc/self/cgroup` as the host shows it.
    pub(crate) cgroups: String,
    /// Device and inode of the host's root.
    pub(crate) host_root: Option<(u64, u64)>,
    /// Opening `/proc/self/comm` for writing worked before Landlock.
    pub(crate) wrote_proc: bool,
    /// The same in the host's `/proc`, before there was another.
    pub(crate) wrote_host_proc: bool,
    /// There were capabilities before they were dropped.
    pub(crate) had_capabilities: bool,
    /// `get_mempolicy` worked before the filter.
    pub(crate) had_mempolicy: bool,
    /// Somebody's filter, a service manager's say, was on this process before ours.
    pub(crate) had_filter: bool,
    /// The files that execute, where the plan lists them.
    pub(crate) programs: Option<Programs>,
    /// A file that is no program got past every check but that before Landlock.
    pub(crate) tried_unlisted: bool,
    /// What was found about the parts of Landlock, and what replaces them, at the end of the confinement.
    pub(crate) landlock: Vec<ProbeResult>,
    /// Whether a path socket of the tree outside can be reached, where Landlock does not refuse it.
    pub(crate) path_socket: Option<ProbeResult>,
}

impl Baseline {
    /// Before the root and the cgroup namespace are replaced.
    pub(crate) fn before_root() -> Self {
        let host_root = std::fs::metadata("/").ok().map(|meta| (meta.dev(), meta.ino()));
        let cgroups = super::text_of("/proc/self/cgroup");
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Self {
            wrote_host_proc: rustix::fs::open("/proc/self/comm", flags, Mode::empty()).is_ok(),
            cgroups,
            host_root,
            ..Self::default()
        }
    }

    /// The group of a controller (`""` for the unified hierarchy), if it was listed.
    pub(crate) fn cgroup(&self, controller: &str) -> Option<String> {
        self.cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
            controllers
                .split(',')
                .any(|name| name == controller)
                .then(|| group.to_owned())
        })
    }

    /// In the finished root, before confinement.
    pub(crate) fn before_confinement(mut self, plan: &LaunchPlan) -> Self {
        self.programs = Programs::of(plan);
        self.tried_unlisted = self.programs.is_some() && super::programs::plant();
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        self.wrote_proc = rustix::fs::open("/proc/self/comm", flags, Mode::empty()).is_ok();
        self.had_capabilities =
            rustix::thread::capabilities(None).is_ok_and(|sets| !sets.effective.is_empty());
        self.had_mempolicy = bastle_sys::probe::by_number(libc::SYS_get_mempolicy, [0; 3]).is_ok();
        // One that hides this answer is one that is there.
        self.had_filter = !rustix::thread::secure_computing_mode()
            .is_ok_and(|mode| mode == rustix::thread::SecureComputingMode::Disabled);
        self
    }
}
