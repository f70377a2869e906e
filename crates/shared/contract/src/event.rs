//! What happens while a run lives.
use crate::{Code, Fault, LimitKind};
use serde::{Deserialize, Serialize};

/// Something init or the spawner saw. Text in it comes from the agent and is untrusted: show it escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event", deny_unknown_fields)]
pub enum Event {
    /// An attempt was refused.
    Denied(Denied),
    /// A limit was hit.
    Limit(LimitHit),
    /// A limit does not hold any more. The run is ended.
    LimitLost(LimitLost),
    /// A program was started inside.
    Exec(ExecSeen),
    /// As many more names were created, renamed or removed, or opened to be.
    Files {
        /// How many since this was last said.
        changed: u64,
    },
}

/// What kind of attempt was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenialKind {
    /// Writing or creating where the mounts or Landlock do not allow it.
    Write,
    /// Creating or reaching a hidden name.
    Hidden,
    /// Changing a protected name.
    Protected,
    /// A system call.
    Syscall,
    /// Starting a program.
    Exec,
    /// Writing on account of a limit.
    Limit,
}

/// A refused attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Denied {
    /// What kind.
    pub kind: DenialKind,
    /// System call or operation, e.g. `openat`.
    pub operation: String,
    /// Path, program or argument it was about; lossy UTF-8, at most 4 KiB.
    pub target: String,
    /// The rule that refused it, if one is known: a pattern, a limit, `read-only mount`.
    pub rule: String,
    /// What the agent saw, e.g. `EACCES`.
    pub errno: String,
    /// Process id inside.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
}

/// A limit that was hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitHit {
    /// The limit of the plan that was hit.
    pub limit: LimitKind,
    /// Its value, in the kind's unit.
    pub value: u64,
    /// What followed, in words.
    pub effect: String,
}

/// A limit that the kernel held when the run was started and holds no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitLost {
    /// The limit of the plan.
    pub limit: LimitKind,
    /// Its value, in the kind's unit.
    pub value: u64,
    /// What shows that it is lost.
    pub sign: LossSign,
    /// The file of the cgroup that was read.
    pub file: String,
}

/// What shows that a cgroup does not hold a limit any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "sign", deny_unknown_fields)]
pub enum LossSign {
    /// Somebody wrote another value.
    Changed {
        /// What was set.
        set: String,
        /// What is there now.
        found: String,
    },
    /// The file is gone: the controller was taken from the group, or the group was removed.
    Gone,
    /// init is in another group.
    Moved,
}

impl LimitLost {
    /// The fault that ends the run.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let Self {
            limit, file, sign, ..
        } = self;
        let why = match sign {
            LossSign::Changed { set, found } => {
                format!("{file} was set to {set} and is now {found}; every process of the run was killed")
            }
            LossSign::Gone => format!(
                "{file} is gone: the controller was taken away from the group, as systemd does in groups that are not \
                 delegated; every process of the run was killed"
            ),
            LossSign::Moved => {
                format!("the run was moved out of the group of {file}; every process of the run was killed")
            }
        };
        Fault::new(
            Code::LimitLost,
            format!("limits.{limit} does not hold any more"),
            why,
        )
        .help("bastle doctor")
    }
}

/// A program that was started. Observed, not judged: its arguments can change under the observer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSeen {
    /// Process id inside.
    pub pid: u32,
    /// Path as given.
    pub path: String,
    /// Arguments, cut to 16 and 4 KiB in all.
    pub argv: Vec<String>,
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// Processor time in milliseconds. At the end of a run with a network that of its egress processes is in it.
    pub cpu_ms: u64,
    /// Peak memory of what ran inside, in bytes; 0 when unknown. The peak of egress is told with the network.
    pub peak_memory: u64,
    /// Bytes written to files: exactly in the workspace where a limit counts them, else whole pages of files on storage,
    /// and at least what the workspace's new and changed files needed.
    pub bytes_written: u64,
    /// Files created in the workspace, where counted.
    pub created: u64,
    /// Distinct files changed in the workspace, where counted.
    pub files: u64,
}
