//! What the spawner hands to the child that becomes init.
//!
//! The child is made before a plan is there, so that its namespaces and the parts of its root that no plan changes
//! are ready when one comes. What it has at birth it has as a copy of the spawner; the rest comes over its line.
//! Where the same plan came before, the child is born with it, builds to the end, proves, and waits to be claimed.
use crate::{Argv, EnvName, IdMapping, LaunchPlan, LimitKind, RunId};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// What the child has when it is made. All other descriptors are closed.
#[derive(Debug)]
pub struct Birth {
    /// Who to become.
    pub identity: IdMapping,
    /// Whether the spawner is root: then binds come over the line, opened with root's reach and mapped.
    pub by_root: bool,
    /// Socket to the spawner: [`ToChild`] frames. End of file when the spawner is gone or needs no sandbox.
    pub line: OwnedFd,
    /// The spawner's own namespaces, `("net", inode)`: init must be in others.
    pub host_namespaces: Vec<(&'static str, u64)>,
    /// What init must not reach.
    pub out_of_reach: OutOfReach,
    /// An admitted plan that is likely to come again; `None`: one comes over the line.
    pub plan: Option<LaunchPlan>,
}

/// Things outside of the sandbox that are there while it is proven: what probes try to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfReach {
    /// A living process, by its number outside.
    pub pid: i32,
    /// An abstract socket in the network namespace outside, which was reached from there; `None`: not needed, or there is none.
    pub abstract_name: Option<Vec<u8>>,
}

/// From the spawner to its child, in this order. A child that was born with its plan gets no `Plan` and no `Admitted`, and
/// a `Claim` and its confirmation at last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToChild {
    /// The identity is mapped: the child may build what needs no plan.
    Mapped,
    /// The launch frame's own descriptors, unopened. The child reads the plan while the spawner admits it.
    Plan,
    /// The plan is admitted: the child may lay out what of its root is its own, and nothing else yet.
    Admitted,
    /// Some of the binds as detached mounts, in the order of the plan.
    Sources,
    /// The child is in its cgroups and has the binds: carry the plan out.
    Release {
        /// What enforces it, for the statement.
        fence: String,
        /// Limits the spawner set in cgroups.
        cgroups: Vec<CgroupEvidence>,
    },
    /// Whose run a sandbox that stands becomes. Descriptors: the socket to control, then stdin, stdout, stderr. Nothing is
    /// said to control before it is confirmed.
    Claim(Claim),
    /// What the sandbox shows is what the host has now, and the run is on record.
    Confirmed,
}

/// What of a plan may be another each time although the fence is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Which run.
    pub run: RunId,
    /// What to run.
    pub argv: Argv,
    /// The whole environment.
    pub env: Vec<(EnvName, String)>,
}

impl Claim {
    /// Takes it out of a plan.
    #[must_use]
    pub fn of(plan: &LaunchPlan) -> Self {
        Self {
            run: plan.run.clone(),
            argv: plan.argv.clone(),
            env: plan.env.clone(),
        }
    }

    /// Puts it into a plan: everything else stays.
    pub fn put_into(self, plan: &mut LaunchPlan) {
        let Self { run, argv, env } = self;
        plan.run = run;
        plan.argv = argv;
        plan.env = env;
    }
}

/// From a child that was born with its plan to the spawner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromChild {
    /// The fence stands, and what can be proven before the run is known was proven.
    Stands,
}

/// Everything init works with once it is released.
#[derive(Debug)]
pub struct Handover {
    /// What to do.
    pub plan: LaunchPlan,
    /// Who it is.
    pub identity: IdMapping,
    /// Whether the spawner is root, which gives each run a uid of its own.
    pub by_root: bool,
    /// What enforces it, for the statement.
    pub fence: String,
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
    /// What must be out of reach.
    pub out_of_reach: OutOfReach,
}

/// A limit held by a cgroup: what the spawner wrote and read back, and where init must find itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
