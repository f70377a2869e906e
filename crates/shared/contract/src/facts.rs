//! What the spawner found out about this host. Facts come from trying, not from version numbers.
use crate::{AbsPath, Authority, CgroupProblem, LandlockParts};
use serde::{Deserialize, Serialize};

/// The host as the spawner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// `uname -r`.
    pub kernel: String,
    /// Machine architecture, e.g. `x86_64`.
    pub arch: String,
    /// Effective user id of the spawner.
    pub uid: u32,
    /// Effective group id of the spawner.
    pub gid: u32,
    /// Whether it can act as root of the host, or only as an ordinary user.
    pub authority: Authority,
    /// The Landlock ABI that the kernel claims; 0 when Landlock is off.
    pub landlock_abi: u32,
    /// The parts of Landlock that it has.
    pub landlock: LandlockParts,
    /// Whether seccomp user notification is there.
    pub seccomp_notify: bool,
    /// Processors this process may use.
    pub cpus: u32,
    /// Bytes of memory; 0 when unknown.
    #[serde(default)]
    pub memory: u64,
    /// cgroups that can be used.
    pub cgroup: CgroupFacts,
}

/// Which cgroup hierarchy is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupFlavour {
    /// Unified hierarchy with controllers.
    V2,
    /// Separate hierarchies, with or without an empty unified one.
    V1,
    /// None that this user may write.
    None,
}

/// A controller bastle uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processes.
    Pids,
    /// Processor bandwidth.
    Cpu,
    /// Freezing (v1 only; part of the core in v2).
    Freezer,
}

/// cgroup directories below which this user can make groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupFacts {
    /// Which hierarchy.
    pub flavour: CgroupFlavour,
    /// Controllers that can be used and the parent directory of each (equal for all in v2).
    pub controllers: Vec<(Controller, AbsPath)>,
    /// A unified directory usable for `cgroup.kill` and `cgroup.freeze`, if any.
    pub unified: Option<AbsPath>,
    /// Why cgroup v2 does not hold every limit; `None` where it does, and where cgroup v1 is in use.
    #[serde(default)]
    pub problem: Option<CgroupProblem>,
}

/// The identity a sandbox got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdMapping {
    /// User id inside.
    pub inside: u32,
    /// User id outside: what the host's kernel checks.
    pub outside: u32,
}

impl CgroupFacts {
    /// Nothing usable.
    #[must_use]
    pub fn none() -> Self {
        Self {
            flavour: CgroupFlavour::None,
            controllers: Vec::new(),
            unified: None,
            problem: None,
        }
    }

    /// Where groups of `controller` are made, if it can be used.
    #[must_use]
    pub fn parent(&self, controller: Controller) -> Option<&AbsPath> {
        self.controllers
            .iter()
            .find(|(c, _)| *c == controller)
            .map(|(_, path)| path)
    }
}
