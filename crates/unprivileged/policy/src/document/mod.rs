//! One policy document: what a file says, with the place of every rule, before any layer is merged.
mod models;
mod network;
mod print;
pub(crate) mod read;
mod sections;
mod values;

use crate::caches::CacheMerge;
use crate::host::HostPattern;
use crate::json::Diagnostic;
use crate::net::{Cidr, ModelEndpoint, NetMode, SecretHeader, UpstreamProxy};
use crate::netrule::NetRule;
use crate::pathrule::PathRule;
use bastle_contract::{EnvName, Fault};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The JSON Schema of policy files, for editors.
pub const SCHEMA: &str = include_str!("../../schema/agent-permissions.v1.schema.json");

/// A value and the place where it stands. Two are equal when they say the same, wherever they stand.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// What it says.
    pub value: T,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// A policy document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// `$schema`, for editors only.
    pub schema: Option<String>,
    /// Presets and groups it builds on.
    pub extends: Vec<At<Reference>>,
    /// How strictly it is held.
    pub mode: Option<At<Mode>>,
    /// The lowest Landlock ABI whose parts must all be enforced.
    pub min_landlock_abi: Option<At<u64>>,
    /// Sections that lower layers may only narrow.
    pub lock: Vec<At<Section>>,
    /// System paths; only built-in documents have any.
    pub system: Vec<At<PathRule>>,
    /// What an agent needs besides policy; only presets have it.
    pub agent: Option<Box<crate::agent::Agent>>,
    /// Files.
    pub fs: FsSection,
    /// Network.
    pub net: NetSection,
    /// Programs and command lines.
    pub exec: CommandLists,
    /// The agent's own tools.
    pub tools: CommandLists,
    /// Environment.
    pub env: EnvSection,
    /// Credentials by reference.
    pub secrets: Vec<At<Secret>>,
    /// Git.
    pub git: GitSection,
    /// Limits.
    pub limits: Limits,
    /// Named caches.
    pub cache: Vec<At<String>>,
    /// What becomes of a run's layer above them.
    pub cache_merge: Option<At<CacheMerge>>,
    /// Spending.
    pub budget: Budget,
    /// Who decides, and for how long one waits.
    pub approvals: Approvals,
    /// Audit.
    pub audit: AuditSection,
    /// Expectations about the effective policy.
    pub tests: Vec<At<TestCase>>,
    /// Remarks of the parser that are no errors.
    pub notes: Notes,
}

/// Remarks; they never make documents differ.
#[derive(Clone, Debug, Default)]
pub struct Notes(pub Vec<Diagnostic>);

impl PartialEq for Notes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// `preset:NAME[@VERSION]` or `group:NAME[@VERSION]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A preset, with its version if one was named.
    Preset(String, Option<u32>),
    /// A group.
    Group(Group),
}

/// A named group of hosts, not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name that rules refer to the group by.
    pub name: String,
    /// Its version, if one was named.
    pub version: Option<u32>,
}

/// How strictly a policy is held; the stricter is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Record what was missing.
    Learn,
    /// Record what would be denied.
    Audit,
    /// Hold it.
    Enforce,
}

/// A section that can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Files.
    Fs,
    /// Network.
    Net,
    /// Programs.
    Exec,
    /// Tools.
    Tools,
    /// Git.
    Git,
    /// Limits.
    Limits,
}

/// `fs`. A missing list inherits; an empty one grants nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FsSection {
    /// Readable.
    pub read: Option<Vec<At<PathRule>>>,
    /// Readable and writable.
    pub write: Option<Vec<At<PathRule>>>,
    /// Never visible.
    pub hide: Vec<At<PathRule>>,
    /// Writing asks.
    pub protect: Vec<At<PathRule>>,
}

/// What happens to a host that no rule names; the stricter is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetDefault {
    /// Refuse.
    Deny,
    /// Ask.
    Ask,
}

/// `net`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetSection {
    /// For hosts no rule names.
    pub default: Option<At<NetDefault>>,
    /// Allowed.
    pub allow: Option<Vec<At<NetRule>>>,
    /// Asked about.
    pub ask: Vec<At<NetRule>>,
    /// Refused.
    pub deny: Vec<At<NetRule>>,
    /// Whether rules may name IP addresses.
    pub ip_literals: Option<At<bool>>,
    /// Ports that may be dialled when a rule names none.
    pub ports: Option<Vec<At<u16>>>,
    /// Ports inside that are forwarded.
    pub listen: Option<Vec<At<u16>>>,
    /// Special addresses that allowed names may resolve to.
    pub addresses: Option<Vec<At<Cidr>>>,
    /// Name servers instead of the host's.
    pub resolvers: Option<Vec<At<SocketAddr>>>,
    /// A proxy through which everything goes out.
    pub upstream: Option<At<UpstreamProxy>>,
    /// Endpoints of models beside the built-in ones.
    pub models: Vec<At<ModelEndpoint>>,
    /// How much network there is. Only the command line says so: no file can.
    pub mode: Option<At<NetMode>>,
}

/// `exec` and `tools`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandLists {
    /// Allowed; when given, nothing else is.
    pub allow: Option<Vec<At<String>>>,
    /// Asked about.
    pub ask: Vec<At<String>>,
    /// Refused.
    pub deny: Vec<At<String>>,
}

/// `env`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnvSection {
    /// Taken from the host's environment.
    pub pass: Option<Vec<At<EnvName>>>,
    /// Set.
    pub set: Vec<(At<EnvName>, String)>,
}

/// One entry of `secrets`: a reference, never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Variable under which the agent sees a placeholder.
    pub name: EnvName,
    /// Where the value is kept.
    pub from: String,
    /// Hosts it is for.
    pub hosts: Vec<HostPattern>,
    /// Methods it is for; empty means all.
    pub methods: Vec<String>,
    /// Paths it is for; empty means all.
    pub paths: Vec<String>,
    /// Ports it is for; empty means 443.
    pub ports: Vec<u16>,
    /// How it is sent.
    pub header: SecretHeader,
}

/// A decision written in a policy; the stricter is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// Refuse.
    Deny,
    /// Ask.
    Ask,
    /// Allow.
    Allow,
}

/// `git`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GitSection {
    /// Pushing.
    pub push: Option<At<Decided>>,
    /// Pushing with force.
    pub force_push: Option<At<Decided>>,
    /// Branches that may be pushed.
    pub branches: Option<Vec<At<String>>>,
    /// Remotes that may be pushed to.
    pub remotes: Option<Vec<At<String>>>,
    /// Hosts on which pushes and other writes are judged, besides the known forges and the workspace's remotes.
    pub hosts: Option<Vec<At<String>>>,
    /// Push options that may be sent.
    pub push_options: Option<Vec<At<String>>>,
}

/// `limits`, in the units of [`bastle_contract::LimitKind`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits(pub Vec<(bastle_contract::LimitKind, At<u64>)>);

/// What follows when money or turns run out; the stricter is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExceed {
    /// End the run.
    Stop,
    /// Suspend and ask.
    Pause,
}

/// `budget`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Money.
    pub usd: Option<At<f64>>,
    /// Model tokens.
    pub tokens: Option<At<u64>>,
    /// Turns.
    pub turns: Option<At<u64>>,
    /// Bytes out.
    pub bytes_out: Option<At<u64>>,
    /// Bytes in.
    pub bytes_in: Option<At<u64>>,
    /// Requests.
    pub requests: Option<At<u64>>,
    /// Connections.
    pub connections: Option<At<u64>>,
    /// What follows.
    pub on_exceed: Option<At<OnExceed>>,
}

/// What follows when nobody answers; the stricter is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// Refuse.
    Deny,
    /// Stay suspended.
    Pause,
}

/// `approvals`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Approvals {
    /// Milliseconds.
    pub timeout: Option<At<u64>>,
    /// What follows.
    pub on_timeout: Option<At<OnTimeout>>,
    /// Who may answer.
    pub reviewers: Vec<At<String>>,
}

/// How much is recorded; more is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditLevel {
    /// Names and verdicts.
    Metadata,
    /// Contents too.
    Full,
}

/// `audit`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditSection {
    /// How much.
    pub level: Option<At<AuditLevel>>,
    /// What is blacked out.
    pub redact: Vec<At<String>>,
    /// Whether a decoy credential lies in the run's home directory.
    pub canary: Option<At<bool>>,
}

/// One expectation: what is asked, and the decision it must get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// The question, as on the command line of `can-i`.
    pub can: String,
    /// The decision.
    pub is: Decided,
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> At<T> {
    /// A value that stands nowhere in particular, e.g. one from a command-line flag.
    pub fn nowhere(value: T) -> Self {
        Self {
            value,
            line: 0,
            column: 0,
        }
    }
}

/// Reads a policy document; every error is told at once where that is possible.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Document, Vec<Fault>> {
    diagnose(name, bytes).map_err(|found| found.iter().map(Diagnostic::fault).collect())
}

/// Reads a policy document; errors keep their structure.
pub fn diagnose(name: &str, bytes: &[u8]) -> Result<Document, Vec<Diagnostic>> {
    read::document(name, bytes, read::Author::Person)
}

/// Reads a preset that the operator keeps; it may have a `system` and an `agent` section.
pub(crate) fn parse_preset(name: &str, bytes: &[u8]) -> Result<Document, Vec<Diagnostic>> {
    read::document(name, bytes, read::Author::Bastle)
}

/// Reads a document that is part of bastle; it may have a `system` section.
pub(crate) fn parse_builtin(name: &str, text: &str) -> Result<Document, Vec<Diagnostic>> {
    read::document(name, text.as_bytes(), read::Author::Bastle)
}
