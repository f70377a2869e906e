//! What is recorded about one copy, and about its snapshots.
//!
//! **Trust:** written and read below the state directory, unknown keys refused. A change of `state` is the commit
//! point of the operation that makes it.
use crate::finding::Finding;
use crate::identity::Identity;
use crate::manifest::Content;
use crate::path::{deserialize_bytes, serialize_bytes};
use bastle_contract::{Code, Fault, RunId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The format this build writes and reads.
pub const FORMAT: u32 = 1;

/// Exported states that are remembered: more than a person makes of one run, and 2 KiB in the record.
pub const MAX_EXPORTED: usize = 32;

/// A path of the host: absolute bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath(PathBuf);

impl HostPath {
    /// `None` unless it is absolute.
    #[must_use]
    pub fn new(path: PathBuf) -> Option<Self> {
        path.is_absolute().then_some(Self(path))
    }

    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_bytes(self.0.as_os_str().as_bytes(), serializer)
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::from(OsString::from_vec(deserialize_bytes(deserializer)?));
        Self::new(path).ok_or_else(|| D::Error::custom("not an absolute path"))
    }
}

/// How the agent's tree comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkMode {
    /// A copy of the files.
    Copy,
    /// A writable layer above the source.
    Overlay,
    /// A work tree of the source's repository.
    Worktree,
    /// The source itself.
    InPlace,
}

/// Where a copy is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Being made; no agent has seen it. Undone at the next start.
    Making,
    /// Complete.
    Ready,
    /// The agent works in it.
    Running,
    /// The agent has ended.
    Finished,
    /// Its work, as of `applied`, is elsewhere.
    Applied,
}

/// Where the copy came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The tree as it was copied; none while it is being made.
    pub manifest: Option<Content>,
    /// The commit that was checked out.
    pub head: Option<String>,
    /// The branch that was checked out.
    pub branch: Option<String>,
}

/// The run and snapshot that a copy was forked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The run.
    pub run: RunId,
    /// Its snapshot.
    pub snapshot: u32,
}

/// All that is recorded about a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// [`FORMAT`].
    pub format: u32,
    /// Whose copy it is.
    pub run: RunId,
    /// The tree it was copied from.
    pub source: HostPath,
    /// How.
    pub mode: WorkMode,
    /// When, in nanoseconds since the epoch.
    pub created: i64,
    /// From what.
    pub base: Base,
    /// The agent's own branch in the copy.
    pub agent_branch: Option<String>,
    /// Where it is in its life.
    pub state: State,
    /// The state of the tree that was applied to the project last.
    pub applied: Option<Content>,
    /// States that are in an archive, a patch or a branch, oldest first: the newest [`MAX_EXPORTED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exported: Vec<Content>,
    /// What the source was when it was copied; records of older builds have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Set when it is a fork.
    pub origin: Option<Origin>,
    /// What is worth knowing about the copy; the first ones.
    pub findings: Vec<Finding>,
    /// How many there were.
    pub findings_total: usize,
}

/// The name that a person gave to a snapshot. Invariant: 1–64 bytes of `[A-Za-z0-9._-]`, starting with a letter, so
/// that it is never taken for a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl TryFrom<String> for SnapshotName {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        let rest = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let fits = text.len() <= 64 && text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        if fits && text.as_bytes().iter().all(rest) {
            return Ok(Self(text));
        }
        let what = format!(
            "{:?} cannot name a snapshot",
            crate::path::visible(text.as_bytes())
        );
        let why = "a name has 1 to 64 letters, digits, '.', '_' and '-', the first one a letter";
        Err(Fault::new(Code::UsageArgument, what, why))
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a snapshot exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The copy as it was made.
    Base,
    /// Somebody asked for it.
    Asked,
    /// Before a turn or a command of the agent.
    Turn,
    /// So that a rollback loses nothing.
    BeforeRollback,
    /// For a comparison.
    Look,
    /// What a fork began with.
    Fork,
}

/// One recorded state of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// Counted from 0, the base.
    pub number: u32,
    /// Its name, if it has one.
    pub name: Option<SnapshotName>,
    /// Why it exists.
    pub reason: Reason,
    /// When, in nanoseconds since the epoch.
    pub created: i64,
    /// The tree.
    pub manifest: Content,
    /// Files in it and bytes in them.
    pub totals: (u64, u64),
}

/// How a person names a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// By number.
    Number(u32),
    /// By name; the newest of that name.
    Name(SnapshotName),
    /// The newest.
    Last,
}
