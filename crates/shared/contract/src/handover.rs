//! What the spawner hands to the child that becomes init. Never crosses a socket: the child is a copy of the spawner.
use crate::{IdMapping, LaunchPlan, LimitKind};
use std::os::fd::OwnedFd;

/// Everything init starts with. All other descriptors are closed.
#[derive(Debug)]
pub struct Handover {
    /// What to do.
    pub plan: LaunchPlan,
    /// Who to become.
    pub identity: IdMapping,
    /// What enforces it, for the statement.
    pub fence: String,
    /// Started as root: the binds as detached mounts, in the order of the plan's binds. Otherwise empty and init opens them.
    pub sources: Vec<OwnedFd>,
    /// Gives one byte once identity and cgroups are set from outside; end of file when the spawner is gone.
    pub release: OwnedFd,
    /// Socket to control.
    pub events: OwnedFd,
    /// Bytes of the files that are too large for the plan (sealed), when it has any.
    pub attachments: Option<OwnedFd>,
    /// Standard streams, when the plan says pipes.
    pub stdio: Vec<OwnedFd>,
    /// Limits the spawner set in cgroups.
    pub cgroups: Vec<CgroupEvidence>,
    /// The spawner's own namespaces, `("net", inode)`: init must be in others.
    pub host_namespaces: Vec<(&'static str, u64)>,
}

/// A limit held by a cgroup: what the spawner wrote and read back, and where init must find itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupEvidence {
    /// Which limit.
    pub limit: LimitKind,
    /// The controller's name as `/proc/self/cgroup` spells it (empty for v2).
    pub controller: String,
    /// The group's path below the hierarchy's mount.
    pub group: String,
    /// The limit file's name and value as read back.
    pub read_back: String,
}
