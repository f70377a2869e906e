//! What a way to build fences offers, whichever it is: one trait for the way, one for what it made.
//!
//! **Trust:** runs as the invoking user. A backend never does less than it says: an operation that it does not have is
//! answered with `Unsupported`, and what it says about its fence is what the probes inside it found.
mod host;
mod native;
mod sandbox;

pub use host::HostBackend;
pub use native::NativeBackend;
pub use sandbox::NativeSandbox;

use crate::beside::{Ends, Finished};
use crate::workspaces::Which;
use bastle_contract::grants::GrantWay;
use bastle_contract::runs::{LaunchSpec, RunState, TtySize};
use bastle_contract::{
    AbsPath, Access, Argv, BackendKind, CapabilityStatement, Code, Digest, EnvName, Fault, RunId, Usage,
};
use bastle_workspace::meta::{Snapshot, SnapshotName};
use bastle_workspace::rollback::RolledBack;
use bastle_workspace::snapshot::Taken;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A way to build sandboxes.
pub trait IsolationBackend {
    /// Which.
    fn name(&self) -> BackendKind;

    /// Whether it can build anything on this host. Builds nothing.
    fn probe(&self) -> Probe;

    /// Builds a sandbox and starts its command. Comes back when the command works, or is over already.
    ///
    /// # Errors
    /// When the request is refused, its name is taken or the fence is not proven; then nothing is left of it.
    fn create(&self, spec: &LaunchSpec) -> Result<Box<dyn Sandbox>, Vec<Fault>>;

    /// Every sandbox of which there is something, alive or ended, by name.
    ///
    /// # Errors
    /// When nobody can tell.
    fn list(&self) -> Result<Vec<RunId>, Fault>;

    /// One of them.
    ///
    /// # Errors
    /// When there is none of that name.
    fn get(&self, id: &RunId) -> Result<Box<dyn Sandbox>, Fault>;

    /// Destroys every sandbox. One whose work is nowhere else is ended and stays.
    ///
    /// # Errors
    /// When nobody can tell which there are; what became of each is in the list.
    fn destroy_all(&self) -> Result<Vec<Destroyed>, Fault>;

    /// Whether what it needs is there right now, beyond the host's kernel.
    fn health(&self) -> Health;
}

/// One sandbox.
pub trait Sandbox {
    /// The name of the run.
    fn id(&self) -> &RunId;

    /// What can be done with it, and what its probes proved.
    ///
    /// # Errors
    /// When its records cannot be read.
    fn capabilities(&self) -> Result<Capabilities, Fault>;

    /// Runs a further command to its end and gives what it printed, up to [`MOST_PRINTED`] bytes of each stream.
    ///
    /// # Errors
    /// When the sandbox does not live or the command cannot be asked for. A command that does not exist inside, or
    /// fails, is no error: see its code.
    fn exec(&self, request: &ExecRequest) -> Result<Printed, Vec<Fault>> {
        if request.tty.is_some() {
            let what = "a command whose output is collected has no terminal";
            return Err(vec![Fault::new(Code::UsageArgument, what, "")]);
        }
        let (mut output, mut errors) = (Bounded::default(), Bounded::default());
        let ends = Ends::piped(None, &mut output, &mut errors);
        let finished = self.exec_streaming(request, ends)?;
        Ok(Printed {
            finished,
            cut: output.left_out + errors.left_out,
            output: output.kept,
            errors: errors.kept,
        })
    }

    /// Runs a further command, connected to the caller's ends while it lives.
    ///
    /// # Errors
    /// As [`Self::exec`].
    fn exec_streaming(&self, request: &ExecRequest, ends: Ends<'_>) -> Result<Finished, Vec<Fault>>;

    /// Whether anything of it lives.
    ///
    /// # Errors
    /// When nobody can tell.
    fn is_alive(&self) -> Result<bool, Fault>;

    /// Makes everything in it stand still.
    ///
    /// # Errors
    /// When it does not live.
    fn suspend(&self) -> Result<(), Vec<Fault>>;

    /// Lets it go on, unless something else still holds it.
    ///
    /// # Errors
    /// When it does not live.
    fn resume(&self) -> Result<Standing, Vec<Fault>>;

    /// Keeps its tree as it is now.
    ///
    /// # Errors
    /// When it has no tree of its own.
    fn snapshot(&self, name: Option<SnapshotName>) -> Result<Taken, Fault>;

    /// Its snapshots, oldest first.
    ///
    /// # Errors
    /// When it has no tree of its own.
    fn snapshots(&self) -> Result<Vec<Snapshot>, Fault>;

    /// Makes its tree what it was; what it is now is kept as a snapshot first.
    ///
    /// # Errors
    /// While it lives; when the snapshot is missing.
    fn restore(&self, which: &Which) -> Result<RolledBack, Fault>;

    /// Shows it a path of the host.
    ///
    /// # Errors
    /// When the policy refuses the path.
    fn grant(&self, request: &GrantRequest) -> Result<Granted, Vec<Fault>>;

    /// Takes a granted path back at once; gives the number of processes that still hold something of it open.
    ///
    /// # Errors
    /// When it is not granted.
    fn revoke(&self, path: &AbsPath) -> Result<Revoked, Vec<Fault>>;

    /// What it uses now, or used in its life.
    ///
    /// # Errors
    /// When nobody can tell.
    fn resource_usage(&self) -> Result<Usage, Fault>;

    /// Ends everything in it and removes what is kept of it; gives every path that went. The audit log stays.
    ///
    /// # Errors
    /// When its work is nowhere else and `discard` does not name it: then it is ended, and its work stays.
    fn destroy(&self, discard: Option<&Digest>) -> Result<Vec<PathBuf>, Vec<Fault>>;
}

/// Bytes of each stream that [`Sandbox::exec`] keeps.
pub const MOST_PRINTED: usize = 4 * 1024 * 1024;

/// Whether a backend can be used on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Whether it can.
    pub available: bool,
    /// What would enforce a policy, or that nothing would.
    pub fence: String,
    /// Why it cannot, and what would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// How a backend does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Sandboxes that live.
    pub alive: usize,
    /// What is wrong; empty: nothing.
    pub faults: Vec<Fault>,
}

/// What became of one sandbox when all were destroyed.
#[derive(Clone, Debug)]
pub struct Destroyed {
    /// Which.
    pub id: RunId,
    /// Every path that went, or why it stays.
    pub outcome: Result<Vec<PathBuf>, Vec<Fault>>,
}

/// A further command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// What is executed.
    pub argv: Argv,
    /// Variables beside those of the sandbox.
    pub env: Vec<(EnvName, String)>,
    /// Where it starts inside; else where the agent did.
    pub cwd: Option<AbsPath>,
    /// A terminal of its own.
    pub tty: Option<TtySize>,
    /// After which time it is killed.
    pub timeout: Option<Duration>,
}

/// What a command printed and how it ended.
#[derive(Clone, Debug)]
pub struct Printed {
    /// How it ended.
    pub finished: Finished,
    /// Its output, from the beginning.
    pub output: Vec<u8>,
    /// Its errors, from the beginning.
    pub errors: Vec<u8>,
    /// Bytes that are in neither.
    pub cut: u64,
}

/// Where a sandbox stands after it was let go on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Standing {
    /// Its state; not `running` where something else still holds it.
    pub state: RunState,
    /// What that is.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A path for a sandbox that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRequest {
    /// The path on the host.
    pub path: AbsPath,
    /// Reading or also writing.
    pub access: Access,
    /// Mounted, or one file through the broker.
    pub way: GrantWay,
    /// After which time it ends by itself; whole seconds.
    pub lasts: Option<Duration>,
}

/// A path that was taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Revoked {
    /// Processes that still have a file of it open for reading.
    pub holders: u64,
    /// Processes that were ended because they could still reach it.
    pub ended: u64,
}

/// A path that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The path on the host.
    pub path: AbsPath,
    /// Where it is inside; `None`: by the broker.
    #[serde(default)]
    pub inside: Option<String>,
    /// Reading or also writing.
    pub access: Access,
    /// Mounted, or through the broker.
    pub way: GrantWay,
    /// Seconds that are left.
    #[serde(default)]
    pub seconds: Option<u64>,
}

/// What can be done with a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capabilities {
    /// What built it.
    pub backend: BackendKind,
    /// What cannot be done, and why.
    pub lacks: Vec<(Operation, String)>,
    /// What the probes inside it found; `None` while it is built.
    pub statement: Option<CapabilityStatement>,
}

/// What a sandbox may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Building one.
    Create,
    /// Further commands.
    Exec,
    /// Standing still and going on.
    Suspend,
    /// Snapshots of its tree.
    Snapshot,
    /// Going back to one.
    Restore,
    /// Paths of the host, while it lives.
    Grant,
}

impl Operation {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Exec => "exec",
            Self::Suspend => "suspend",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
            Self::Grant => "grant",
        }
    }
}

/// The answer of a backend that does not have an operation.
#[must_use]
pub fn unsupported(backend: &str, operation: Operation, why: &str) -> Fault {
    Fault::new(
        Code::BackendUnsupported,
        format!("{backend} cannot {}", operation.word()),
        why,
    )
    .help("bastle doctor")
}

/// The first bytes of a stream; the rest is counted.
#[derive(Default)]
struct Bounded {
    kept: Vec<u8>,
    left_out: u64,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(MOST_PRINTED - self.kept.len());
        self.kept.extend_from_slice(&bytes[..taken]);
        self.left_out += (bytes.len() - taken) as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_command_that_prints_without_end_fills_no_memory() {
        let mut bounded = Bounded::default();
        for _ in 0..70 {
            bounded.write_all(&[b'x'; 64 * 1024]).unwrap();
        }
        assert_eq!(bounded.kept.len(), MOST_PRINTED);
        assert_eq!(bounded.left_out, 6 * 64 * 1024);
    }
}
