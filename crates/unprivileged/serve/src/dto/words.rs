//! What requests say.
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// No parameters.
#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// One run that is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "the form of the document; the fleet's own type reads the body"
)]
pub(crate) struct SpawnOne {
    /// Its name; default `<prefix>-<batch>-<index>`.
    #[serde(default)]
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,63}$")]
    name: Option<String>,
    /// What is executed; or the profile says it.
    #[serde(default)]
    argv: Vec<String>,
    /// The profile it is made from.
    #[serde(default)]
    profile: Option<String>,
    /// How the agent is spoken to: `plain`, `claude`, `codex`, `acp`, `opencode`; `none` passes its streams on. Default:
    /// as its profile says.
    #[serde(default)]
    driver: Option<String>,
    /// What the agent is asked. The preamble goes before it.
    #[serde(default)]
    prompt: Option<String>,
    /// The project: an absolute path.
    #[schema(pattern = "^/")]
    workspace: String,
    /// `copy`, `overlay`, `worktree`, `in-place`.
    #[serde(default)]
    mode: Option<String>,
    /// `RUN[@SNAPSHOT]` whose tree it begins with.
    #[serde(default)]
    from: Option<String>,
    /// Preset to start from.
    #[serde(default)]
    preset: Option<String>,
    /// An `agent-permissions` document. From whoever is no admin it only narrows, and may not have `secrets`, `env.set`,
    /// `net.addresses`, `net.resolvers` or `net.upstream`.
    #[serde(default)]
    policy: Option<BTreeMap<String, Value>>,
    /// `none`, `allowlist`, `open` or `offline`.
    #[serde(default)]
    #[schema(pattern = "^(none|allowlist|open|offline)$")]
    net: Option<String>,
    /// Variables for the agent.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Labels.
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// Wall time, such as `15m`.
    #[serde(default)]
    timeout: Option<String>,
    /// Most turns with a model.
    #[serde(default)]
    max_turns: Option<u64>,
    /// Places it writes, absolute.
    #[serde(default)]
    scopes: Vec<String>,
    /// Whether its copy has a repository of one commit without hidden names.
    #[serde(default)]
    hide_history: bool,
    /// The run it is a child of.
    #[serde(default)]
    parent: Option<String>,
    /// Whether its input stays open for whoever attaches; a driven agent waits for what else is said to it.
    #[serde(default)]
    open_input: bool,
    /// A terminal of its own.
    #[serde(default)]
    tty: Option<Tty>,
    /// Whether the answer holds a token of its own.
    #[serde(default)]
    token: bool,
}

/// The size of a terminal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the form of the document")]
struct Tty {
    /// Lines.
    #[schema(minimum = 1, maximum = 1000)]
    rows: u16,
    /// Columns.
    #[schema(minimum = 1, maximum = 1000)]
    cols: u16,
}

/// One or many runs that are asked for together. One alone may be given as itself.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "the form of the document; the fleet's own type reads the body"
)]
pub(crate) struct Spawning {
    /// Sent again under the same key, the same request gets the first answer.
    #[serde(default)]
    key: Option<String>,
    /// First part of the names; default `run`.
    #[serde(default)]
    prefix: Option<String>,
    /// What is to run, 1 to 1000.
    #[schema(min_items = 1, max_items = 1000)]
    runs: Vec<SpawnOne>,
    /// `refuse` or `queue`: when another run writes the same place.
    #[serde(default)]
    on_conflict: Option<String>,
    /// Most runs of this batch that live at once.
    #[serde(default)]
    max_parallel: Option<u32>,
    /// Labels of every run of it.
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// Whether the good ones are started when others are refused.
    #[serde(default)]
    partial: bool,
    /// Higher goes first.
    #[serde(default)]
    priority: i32,
}

/// Which runs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRuns {
    /// States, separated by commas.
    pub(crate) state: Option<String>,
    /// A label: `key` or `key=value`.
    pub(crate) tag: Option<String>,
    /// Names that begin so.
    pub(crate) prefix: Option<String>,
    /// Of this batch.
    pub(crate) batch: Option<String>,
    /// Children of this run.
    pub(crate) parent: Option<String>,
    /// The cursor of the page before.
    pub(crate) cursor: Option<String>,
    /// At most so many, up to 1000.
    pub(crate) limit: Option<usize>,
}

/// How a run is stopped.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stopping {
    /// Time between the polite signal and the end, in milliseconds; default 10 000.
    #[schema(maximum = 3600000)]
    pub(crate) grace_ms: Option<u64>,
}

/// Which runs are stopped. Exactly one of the first four.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopMany {
    /// All with this label.
    pub(crate) tag: Option<String>,
    /// All of this batch.
    pub(crate) batch: Option<String>,
    /// All whose names begin so.
    pub(crate) prefix: Option<String>,
    /// All there are.
    pub(crate) all: Option<bool>,
    /// Time between the polite signal and the end, in milliseconds.
    #[schema(maximum = 3600000)]
    pub(crate) grace_ms: Option<u64>,
    /// At once.
    #[serde(default)]
    pub(crate) kill: bool,
}

/// Removing.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removing {
    /// Digest of the work that may be lost, as the refusal named it, or its first 8 digits or more.
    pub(crate) discard: Option<String>,
    /// For good instead of to the trash: its room is free at once.
    pub(crate) now: Option<bool>,
}

/// Which part of what a run printed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Logs {
    /// Place in the log where a record begins: `next` of the answer before.
    pub(crate) since: Option<u64>,
    /// At most so many bytes, up to 1 MiB.
    pub(crate) limit: Option<usize>,
    /// `output` or `errors`; both when it is left out.
    pub(crate) stream: Option<String>,
    /// `raw`, the default: what the program printed, byte for byte. `agent`: what a driven agent said instead of the
    /// frames of its protocol; the same as `raw` for other runs. `since` of one view means nothing in the other.
    pub(crate) view: Option<LogView>,
}

/// Which form of a run's output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogView {
    /// What was printed.
    Raw,
    /// What a driven agent said.
    Agent,
}

/// Which events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEvents {
    /// After this number.
    pub(crate) since: Option<u64>,
    /// Of this run.
    pub(crate) run: Option<String>,
    /// Of these kinds, separated by commas.
    pub(crate) kind: Option<String>,
    /// Of this batch.
    pub(crate) batch: Option<String>,
    /// Of runs with this label.
    pub(crate) tag: Option<String>,
    /// At most so many, up to 1000; for lists only.
    pub(crate) limit: Option<usize>,
}

/// Two states of a run's tree.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ranged {
    /// Snapshot (number, name, `base`); default `base`.
    pub(crate) from: Option<String>,
    /// Snapshot (number, name, `last`, `now`); default `now`.
    pub(crate) to: Option<String>,
    /// Also what the project's ignore files name.
    #[serde(default)]
    pub(crate) ignored: bool,
}

/// How changes come back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Applying {
    /// Commit to this new branch instead of writing to the tree.
    pub(crate) branch: Option<String>,
    /// The message of the commit.
    pub(crate) message: Option<String>,
    /// `ours` or `theirs`, where both sides changed the same lines; refused when left out.
    pub(crate) resolve: Option<String>,
    /// Only these paths and what lies below them.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// Hashes of contents that were looked at and approved.
    #[serde(default)]
    pub(crate) approve: Vec<String>,
    /// Only say what would happen.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Take the last apply back instead.
    #[serde(default)]
    pub(crate) undo: bool,
}

/// A snapshot that is taken.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshotting {
    /// Its name.
    pub(crate) name: Option<String>,
}

/// Going back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollingBack {
    /// Snapshot (number, name, `last`, `base`).
    pub(crate) to: String,
}

/// A path of a run's tree.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choosing {
    /// From the root of the tree; the root when it is left out.
    #[serde(default)]
    pub(crate) path: String,
}

/// A path of the host that a run is shown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Granting {
    /// Absolute.
    #[schema(pattern = "^/")]
    pub(crate) path: String,
    /// `read-only` or `read-write`.
    pub(crate) access: String,
    /// `mount` or `broker`; default `mount`.
    pub(crate) way: Option<String>,
    /// After how long it ends by itself.
    pub(crate) seconds: Option<u64>,
}

/// A rule for a living run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ruling {
    /// `allow`, `deny` or `revoke`.
    pub(crate) verb: String,
    /// A rule such as `GET api.example.com/v1/**`, or the id of a denial.
    pub(crate) target: String,
    /// `once` or `session`.
    pub(crate) scope: Option<String>,
}

/// Something that is said to a driven agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saying {
    /// What: a prompt when it waits, a word in between while it works.
    pub(crate) text: String,
}

/// An answer to a question.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answering {
    /// Digest of the request that was looked at. An answer to another one is refused.
    pub(crate) hash: Option<String>,
    /// `once` or `session`; default `once`.
    pub(crate) scope: Option<String>,
    /// For the record.
    pub(crate) message: Option<String>,
}

/// A token that is wished for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeToken {
    /// `viewer`, `operator`, `approver`, `admin` or `run`.
    pub(crate) role: String,
    /// `person` (default) or `program`: a program never approves what its own runs ask for.
    pub(crate) kind: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub(crate) note: String,
    /// How long it holds, in seconds; until it is revoked when left out.
    #[schema(minimum = 1, maximum = 315360000)]
    pub(crate) expires_s: Option<u64>,
    /// Only runs whose names begin so.
    pub(crate) prefix: Option<String>,
    /// Only these verbs: `read`, `spawn`, `control`, `remove`, `answer`, `administer`.
    pub(crate) verbs: Option<Vec<String>>,
    /// The run it belongs to; only for the role `run`.
    pub(crate) run: Option<String>,
    /// The most it may give to runs; not for the roles `admin` and `run`.
    pub(crate) ceiling: Option<super::Ceiling>,
}

/// Which agents are ended together.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopAgents {
    /// `own`: those that the caller started through `/agents`, the default. Only for admins: `agents`, those that anybody
    /// started there, and `all`, every run.
    #[serde(default)]
    pub(crate) scope: Option<String>,
}

/// A profile.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutProfile {
    /// The document.
    pub(crate) document: BTreeMap<String, Value>,
}

/// Which policy.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicySource {
    /// Preset to start from; default `default`.
    pub(crate) preset: Option<String>,
    /// An `agent-permissions` document on top.
    pub(crate) policy: Option<BTreeMap<String, Value>>,
    /// The project, an absolute path: `./` in rules is about it.
    #[schema(pattern = "^/")]
    pub(crate) workspace: Option<String>,
}

/// A question to a policy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CanI {
    /// `read`, `write`, `exec`, `net` or `tool`.
    pub(crate) kind: String,
    /// Path, command line, URL or tool.
    pub(crate) target: String,
    /// The profile whose policy is asked; not together with `policy`.
    pub(crate) profile: Option<String>,
    /// Preset to start from; default that of the profile.
    pub(crate) preset: Option<String>,
    /// An `agent-permissions` document on top.
    pub(crate) policy: Option<BTreeMap<String, Value>>,
    /// The project, an absolute path.
    #[schema(pattern = "^/")]
    pub(crate) workspace: Option<String>,
}

/// Which questions, batches or tokens.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which1 {
    /// In this state.
    pub(crate) state: Option<String>,
    /// Of this run.
    pub(crate) run: Option<String>,
    /// After this one.
    pub(crate) after: Option<String>,
    /// At most so many, up to 1000.
    pub(crate) limit: Option<usize>,
}
