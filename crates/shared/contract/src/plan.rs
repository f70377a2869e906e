//! The complete plan of one launch: executing it makes no choice.
use crate::{
    AbsPath, Argv, Digest, EnvName, Guarantee, LandlockParts, LimitKind, LimitRule, NameList, RunId, Waiver,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Everything the spawner and init need to know.
///
/// The executor destructures this without `..`: a control added here does not compile until it is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPlan {
    /// Which run.
    pub run: RunId,
    /// Digest of the effective policy this was compiled from.
    pub policy: Digest,
    /// What enforces it.
    pub backend: BackendKind,
    /// What exists inside, in the order it is mounted (parents before children).
    pub mounts: Vec<Mount>,
    /// Landlock rules over the finished root.
    pub landlock: Vec<LandlockRule>,
    /// The parts of Landlock that are enforced; what replaces the others is among the guarantees.
    pub landlock_parts: LandlockParts,
    /// What the write guard watches.
    pub guard: Guard,
    /// Network reach.
    pub network: Network,
    /// Limits, each with what holds it.
    pub limits: Vec<LimitRule>,
    /// The whole environment.
    pub env: Vec<(EnvName, String)>,
    /// Working directory inside.
    pub cwd: AbsPath,
    /// What to run.
    pub argv: Argv,
    /// Terminal or pipes.
    pub stdio: Stdio,
    /// Whether debugging calls (`ptrace`, `process_vm_*`) work between the agent's own processes.
    pub debuggers: bool,
    /// The only programs that execute inside, where the policy has an allow list of commands; `None`: any.
    pub exec: Option<ExecList>,
    /// Digest (BLAKE3) of the attachments, a sealed memfd beside the plan, where an entry of the root needs them: for
    /// the record; they come from the same hand as the plan.
    pub attachments: Option<Digest>,
    /// What must be proven before the agent starts.
    pub guarantees: Vec<Guarantee>,
    /// What the operator gave up by name.
    pub waivers: Vec<Waiver>,
}

/// A way to enforce a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// Namespaces, constructed root, Landlock, seccomp, cgroups.
    Native,
    /// No fence: checks and soft limits only.
    Host,
}

/// One entry of the constructed root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where, inside.
    pub at: AbsPath,
    /// What.
    pub kind: MountKind,
}

/// What an entry of the root is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum MountKind {
    /// A host file or directory, opened without following symlinks and mounted by descriptor.
    Bind {
        /// Path on the host; every component must be a real directory, the last one not a symlink.
        source: AbsPath,
        /// Reading or also writing.
        access: Access,
        /// Whether files of the invoking user appear as the agent's own (needed only when started as root).
        owned: bool,
    },
    /// A host directory that is only read, with a layer of the run's own above it that takes every change.
    Overlay {
        /// The directory below: opened like the source of a bind, never written.
        lower: AbsPath,
        /// A directory of the run's own that has the directories `upper` and `work`.
        layer: AbsPath,
        /// Reading or also writing. Parts of a read-only one are writable where an [`MountKind::Again`] says so.
        access: Access,
        /// Whether files of the invoking user appear as the agent's own (needed only when started as root).
        owned: bool,
    },
    /// What the constructed root has at a path already, once more at this place. Skipped when nothing is there. For
    /// writing only where the path lies in an overlay, or in something that may be written.
    Again {
        /// Path inside.
        of: AbsPath,
        /// Reading or also writing.
        access: Access,
    },
    /// A directory of the run's private scratch tmpfs (limited by [`LimitKind::Disk`] and [`LimitKind::Inodes`]).
    Scratch {
        /// Permission bits.
        mode: u32,
    },
    /// A fresh `/proc` of the sandbox's PID namespace, with kernel files masked.
    Proc,
    /// A minimal `/dev`.
    Dev,
    /// A symlink in the constructed root.
    Symlink {
        /// Its target.
        target: String,
    },
    /// A file made for this run, read-only.
    File {
        /// Its bytes.
        contents: String,
    },
    /// A larger file made for this run, read-only: a part of the attachments that travel beside the plan.
    Attached {
        /// Where it begins in the attachments.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// A file of the run's private scratch space that begins with a part of the attachments: the agent's own to change.
    Given {
        /// Where its bytes begin in the attachments.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// An empty, unreadable cover over what is already there.
    Mask,
}

impl MountKind {
    /// The host paths that it shows and what each allows, in the order in which their descriptors travel.
    #[must_use]
    pub fn sources(&self) -> [Option<(&AbsPath, Access)>; 2] {
        match self {
            Self::Bind { source, access, .. } => [Some((source, *access)), None],
            Self::Overlay { lower, layer, .. } => {
                [Some((lower, Access::ReadOnly)), Some((layer, Access::ReadWrite))]
            }
            Self::Again { .. }
            | Self::Scratch { .. }
            | Self::Proc
            | Self::Dev
            | Self::Symlink { .. }
            | Self::File { .. }
            | Self::Attached { .. }
            | Self::Given { .. }
            | Self::Mask => [None, None],
        }
    }

    /// Whether files of the invoking user appear as the agent's own in what it shows.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        match self {
            Self::Bind { owned, .. } | Self::Overlay { owned, .. } => *owned,
            Self::Again { .. }
            | Self::Scratch { .. }
            | Self::Proc
            | Self::Dev
            | Self::Symlink { .. }
            | Self::File { .. }
            | Self::Attached { .. }
            | Self::Given { .. }
            | Self::Mask => false,
        }
    }
}

/// What a bind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Read, write and execute.
    ReadWrite,
}

/// A Landlock grant beneath a path of the finished root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LandlockRule {
    /// File or directory inside.
    pub path: AbsPath,
    /// What is granted.
    pub access: Access,
}

/// What the write guard holds: names that must not come into being, and counts.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Writable host trees and the names guarded in each.
    pub trees: Vec<GuardedTree>,
}

/// One writable host tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardedTree {
    /// Its root inside.
    pub root: AbsPath,
    /// Names that may not be created, renamed to or linked: hidden.
    pub hide: NameList,
    /// Names that may not be created, changed, renamed or removed: protected.
    pub protect: NameList,
    /// Names that are protected by themselves, without what is below them.
    #[serde(default, skip_serializing_if = "NameList::is_empty")]
    pub pinned: NameList,
    /// Whose tree it is.
    pub kind: TreeKind,
}

/// Whether processes outside change a tree during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeKind {
    /// The run's own: a copy, a layer, a cache.
    Own,
    /// The host's: a rename there detaches a mount that holds a name, so names are judged at every write, too.
    Live,
}

/// The program files that may be executed, by the agent and by every process it starts.
///
/// Dynamic loaders and `#!` interpreters that these need are found by init in the finished root: they may be loaded
/// with a listed program, and are not executed by themselves unless they are listed too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecList {
    /// Files inside, without symlinks on the way. One that is not there inside is skipped.
    pub programs: Vec<AbsPath>,
    /// The program of the launch line, which was judged as a whole: executed once, at the start.
    pub launch: Option<AbsPath>,
}

/// Network reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Own loopback only.
    None,
    /// Own loopback, and on it the faces of an egress process that decides about every request.
    Egress(crate::egress::Faces),
}

impl Network {
    fn transparent(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Egress(faces) => faces.transparent.len(),
        }
    }
}

/// How the agent's standard streams are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum Stdio {
    /// Three pipes to the relay.
    Pipes,
    /// An own pseudo-terminal; its master goes to the relay.
    Pty {
        /// Height.
        rows: u16,
        /// Width.
        cols: u16,
    },
}

/// Why a plan cannot be executed by anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More entries than the format carries.
    #[error("the plan has {count} {what}; at most {most} are accepted")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The number that was found.
        count: usize,
        /// How many are accepted.
        most: usize,
    },
    /// Parents must come before children.
    #[error("mount {0} comes before its parent directory's mount")]
    Order(AbsPath),
    /// The host's root or a kernel file system must not be mounted.
    #[error("mount of {0} would put the host's root or a kernel file system inside")]
    HostRoot(AbsPath),
    /// A file of the attachments in a plan without any.
    #[error("{0} is part of the attachments, and the plan has none")]
    Attachment(AbsPath),
    /// A second way to something that would allow more than the first.
    #[error("mount {at} shows {of} for writing, which is no part of an overlay or of anything writable")]
    Widened {
        /// The place.
        at: AbsPath,
        /// What is shown there.
        of: AbsPath,
    },
    /// Outside what can be held.
    #[error("limit {limit} = {value} is outside {least}..={most}")]
    Limit {
        /// Which.
        limit: LimitKind,
        /// The value.
        value: u64,
        /// Smallest.
        least: u64,
        /// Largest.
        most: u64,
    },
}

/// Host paths that must never be bound, whatever a policy says.
const NEVER_BOUND: &[&str] = &["/", "/proc", "/sys", "/dev", "/run", "/boot"];

impl LaunchPlan {
    /// Most mounts a plan may have: 512 of each policy list, and the constructed root's own.
    pub const MAX_MOUNTS: usize = 4096;
    /// Most files of [`ExecList::programs`].
    pub const MAX_PROGRAMS: usize = 4096;

    /// Checks what no single field can check. The spawner calls it again after parsing.
    pub fn check(&self) -> Result<(), PlanError> {
        let counts = [
            ("mounts", self.mounts.len(), Self::MAX_MOUNTS),
            ("Landlock rules", self.landlock.len(), 2048),
            ("environment variables", self.env.len(), 1024),
            ("guarded trees", self.guard.trees.len(), 64),
            (
                "programs",
                self.exec.as_ref().map_or(0, |list| list.programs.len()),
                Self::MAX_PROGRAMS,
            ),
            ("limits", self.limits.len(), LimitKind::ALL.len()),
            (
                "transparent ports",
                self.network.transparent(),
                crate::egress::MAX_TRANSPARENT,
            ),
        ];
        if let Some((what, count, most)) = counts.into_iter().find(|(_, count, most)| count > most) {
            return Err(PlanError::TooMany { what, count, most });
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            if self.mounts[index + 1..]
                .iter()
                .any(|later| later.at != mount.at && mount.at.is_within(&later.at))
            {
                return Err(PlanError::Order(mount.at.clone()));
            }
            let attached = matches!(mount.kind, MountKind::Attached { .. } | MountKind::Given { .. });
            if attached && self.attachments.is_none() {
                return Err(PlanError::Attachment(mount.at.clone()));
            }
            if let MountKind::Again {
                of,
                access: Access::ReadWrite,
            } = &mount.kind
                && !may_be_written(&self.mounts[..index], of)
            {
                return Err(PlanError::Widened {
                    at: mount.at.clone(),
                    of: of.clone(),
                });
            }
            let mut sources = mount.kind.sources().into_iter().flatten();
            if let Some((source, _)) = sources.find(|(path, _)| NEVER_BOUND.contains(&path.as_str())) {
                return Err(PlanError::HostRoot(source.clone()));
            }
        }
        for rule in &self.limits {
            let (least, most) = rule.limit.range();
            if !(least..=most).contains(&rule.value) {
                return Err(PlanError::Limit {
                    limit: rule.limit,
                    value: rule.value,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }

    /// The rule for `limit`, if the plan has one.
    #[must_use]
    pub fn limit(&self, limit: LimitKind) -> Option<&LimitRule> {
        self.limits.iter().find(|rule| rule.limit == limit)
    }
}

/// Whether a part of what these mounts show at `path` may be writable: the innermost one decides, and of an overlay, which
/// takes every change into a layer of the run's own, any part may be.
fn may_be_written(mounts: &[Mount], path: &AbsPath) -> bool {
    let shows = mounts
        .iter()
        .filter(|mount| path.is_within(&mount.at) && !matches!(mount.kind, MountKind::Again { .. }))
        .max_by_key(|mount| mount.at.as_str().len());
    match shows.map(|mount| &mount.kind) {
        Some(MountKind::Bind { access, .. }) => *access == Access::ReadWrite,
        Some(MountKind::Overlay { .. } | MountKind::Scratch { .. }) => true,
        Some(
            MountKind::Again { .. }
            | MountKind::Proc
            | MountKind::Dev
            | MountKind::Symlink { .. }
            | MountKind::File { .. }
            | MountKind::Attached { .. }
            | MountKind::Given { .. }
            | MountKind::Mask,
        )
        | None => false,
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Host => "host",
        })
    }
}
