//! What is asked of the fleet and what it answers about runs, batches and events. Plain values, no effects.
use bastle_contract::runs::{RunFile, RunState, Tags};
use bastle_contract::{EnvName, Fault, RunId};
use bastle_policy::AuthorityCeiling;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Most runs of one request.
pub const MAX_BATCH: usize = 1000;
/// Wall time of a run that names none.
pub const DEFAULT_TIMEOUT: &str = "15m";
/// Turns of a run that names none.
pub const DEFAULT_TURNS: u64 = 50;

/// How a fleet is opened.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The state directory.
    pub state: PathBuf,
    /// The program that keeps a run under the verb `__keep`; default this one.
    pub program: Option<PathBuf>,
    /// Most runs that live at once.
    pub max_parallel: u32,
    /// Most runs that wait.
    pub max_queued: u32,
    /// How many events are kept, newest first.
    pub keep_events: u64,
    /// How long the record of a run stays after its end.
    pub keep_runs: Duration,
    /// How long removed copies stay in the trash.
    pub keep_trash: Duration,
    /// How long a question waits for an answer.
    pub patience: Duration,
    /// The most that anybody but an admin may give to a run, where a token does not say less.
    pub ceiling: AuthorityCeiling,
}

impl FleetOptions {
    /// The usual ones for a state directory.
    #[must_use]
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            program: None,
            max_parallel: 16,
            max_queued: 10_000,
            keep_events: 2_000_000,
            keep_runs: Duration::from_secs(30 * 24 * 3600),
            keep_trash: crate::review::TRASH_AGE,
            patience: Duration::from_secs(24 * 3600),
            ceiling: AuthorityCeiling::default(),
        }
    }
}

/// What happens to a run whose write scopes another one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnConflict {
    /// The request is refused, naming the holder.
    #[default]
    Refuse,
    /// It waits until the place is free.
    Queue,
}

/// By which way runs were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Any way but the next.
    #[default]
    Runs,
    /// The addresses of the original interface, below `/agents`.
    Agents,
}

impl Via {
    /// The word in the records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Agents => "agents",
        }
    }
}

/// One or many runs that are asked for together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpawnRequest {
    /// Sent again under the same key, the same request gets the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// First part of the names; default `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What is to run, 1 to 1000.
    pub runs: Vec<RunRequest>,
    /// When another run writes the same place.
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// Most runs of this batch that live at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Labels of every run of it.
    #[serde(default)]
    pub tags: Tags,
    /// Whether the good ones are started when others are refused; else it is all or none.
    #[serde(default)]
    pub partial: bool,
    /// Higher goes first; equal ones in the order they came.
    #[serde(default)]
    pub priority: i32,
    /// The trace of the request. Not part of what is asked: asked again within another one, it is the same request.
    #[serde(skip)]
    pub trace: Option<bastle_contract::TraceParent>,
    /// By which way it came.
    #[serde(skip)]
    pub via: Via,
}

/// One run that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Its name; default `<prefix>-<batch>-<index>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is executed; or the profile says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// The profile it is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How the agent is spoken to: `plain`, `claude`, `codex`, `acp`, `opencode`; `none` passes its streams on. Default:
    /// as its profile says, where there is something to ask and no terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// What the agent is asked. The preamble goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The project: an absolute path.
    pub workspace: String,
    /// `copy`, `overlay`, `worktree`, `in-place`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `RUN[@SNAPSHOT]` whose tree it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Preset to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// An `agent-permissions` document. From whoever is no admin it only narrows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
    /// `none`, `offline`, `allowlist`, `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// Variables for the agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<EnvName, String>,
    /// Labels.
    #[serde(default)]
    pub tags: Tags,
    /// Wall time, such as `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Most turns with a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Places it writes, absolute; default the project when it works in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether its copy has a repository of one commit without hidden names. A child of such a run has it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hide_history: bool,
    /// The run it is a child of. A run's own token sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Whether its input stays open for whoever attaches; a driven agent waits for what else is said to it.
    #[serde(default)]
    pub open_input: bool,
    /// A terminal of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<bastle_contract::runs::TtySize>,
    /// Whether the answer holds a token of its own, with which it may start children and read itself.
    #[serde(default)]
    pub token: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchReport {
    /// Id of the batch, 8 characters.
    pub batch: String,
    /// The runs, in the order of the request.
    pub runs: Vec<Spawned>,
    /// Whether this is the answer to an earlier request of the same key.
    pub repeated: bool,
}

/// One run of a [`BatchReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Place in the request, from 0.
    pub index: usize,
    /// Its name; `None` when it was refused.
    pub name: Option<RunId>,
    /// Why it was refused.
    pub faults: Vec<Fault>,
    /// Its own token, where one was asked for. Not told again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What was decided about how it is run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What is known of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The name of the run.
    pub name: RunId,
    /// The batch it belongs to.
    pub batch: Option<String>,
    /// Its place in the batch, from 0.
    pub index: Option<u32>,
    /// The state of the run.
    pub state: RunState,
    /// Why it is in that state, where there is a reason.
    pub reason: Option<String>,
    /// Whether it waits for another run's write scope, and whose.
    pub waits_for: Option<RunId>,
    /// When it was asked for, started, ended: milliseconds since 1970.
    pub created_ms: u64,
    /// When the agent started.
    pub started_ms: Option<u64>,
    /// When everything of it was gone.
    pub ended_ms: Option<u64>,
    /// Exit code.
    pub code: Option<u8>,
    /// Why it did not run.
    pub fault: Option<Fault>,
    /// Labels.
    pub tags: Tags,
    /// Its profile.
    pub profile: Option<String>,
    /// The first word of its command.
    pub agent: String,
    /// Its project.
    pub workspace: String,
    /// The run that asked for it.
    pub parent: Option<RunId>,
    /// Who asked for it.
    pub caller: String,
    /// Attempts that were denied.
    pub denials: u64,
    /// Its open question, where there is one.
    pub question: Option<String>,
    /// Tokens of models, and millionths of a dollar, where known.
    pub model_tokens: u64,
    /// Cost in millionths of a dollar.
    pub micro_usd: u64,
    /// Number of its last event.
    pub last_event: u64,
    /// Its own file, as its keeper wrote it last, where it can be read.
    pub file: Option<RunFile>,
}

/// Which runs are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// In one of these states; all when empty.
    pub states: Vec<RunState>,
    /// With this label (`key`, or `key=value`).
    pub tag: Option<String>,
    /// Names that begin so.
    pub prefix: Option<String>,
    /// Of this batch.
    pub batch: Option<String>,
    /// Children of this run.
    pub parent: Option<RunId>,
    /// After this name: the cursor of the page before.
    pub after: Option<String>,
    /// At most so many; 0 is 100, never more than 1000.
    pub limit: usize,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows of this page.
    pub items: Vec<T>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Which runs something is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// One, by name or unique beginning of it.
    Name(String),
    /// All with a label (`key`, or `key=value`).
    Tag(String),
    /// All of a batch.
    Batch(String),
    /// All whose names begin so.
    Prefix(String),
    /// All that were asked for through `/agents`: by this caller, or by anybody.
    Agents(Option<String>),
    /// All.
    All,
}

/// How runs are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopHow {
    /// A polite signal, time to end, then the end.
    Stop {
        /// The time.
        grace: Duration,
    },
    /// At once.
    Kill,
}

/// What was done to one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The name of the run.
    pub name: RunId,
    /// What kept it from being done.
    pub fault: Option<Fault>,
}

/// What is known of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Its id.
    pub id: String,
    /// First part of its names.
    pub prefix: String,
    /// Who asked for it.
    pub caller: String,
    /// When, milliseconds since 1970.
    pub created_ms: u64,
    /// How many runs it has.
    pub size: u64,
    /// How many are in which state.
    pub states: BTreeMap<RunState, u64>,
    /// Most that live at once.
    pub max_parallel: Option<u32>,
}

/// An event as it is kept: of a run, or of the fleet itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its number among all events, without order by time.
    pub seq: u64,
    /// The run it is about.
    pub run: Option<RunId>,
    /// Its number within the run; `None` for an event of the fleet itself.
    pub run_seq: Option<u64>,
    /// The batch of the run.
    pub batch: Option<String>,
    /// When, milliseconds since 1970.
    pub time_ms: u64,
    /// What sort of event.
    pub kind: String,
    /// The rest. Text from the agent is in it as it came: show it escaped.
    pub data: Value,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this run.
    pub run: Option<RunId>,
    /// Of runs whose names begin so.
    pub prefix: Option<String>,
    /// Of this batch.
    pub batch: Option<String>,
    /// Of runs with this label (`key`, or `key=value`).
    pub tag: Option<String>,
    /// Of these kinds; all when empty.
    pub kinds: Vec<String>,
}

/// Sums over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// All together.
    pub total: StatsRow,
    /// By the first word of the command.
    pub by_agent: BTreeMap<String, StatsRow>,
    /// By label `key=value`.
    pub by_tag: BTreeMap<String, StatsRow>,
    /// By day, as `2026-05-31` in UTC.
    pub by_day: BTreeMap<String, StatsRow>,
    /// By batch.
    pub by_batch: BTreeMap<String, StatsRow>,
}

/// One row of [`Stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsRow {
    /// Runs.
    pub runs: u64,
    /// In which state.
    pub states: BTreeMap<RunState, u64>,
    /// Wall time, milliseconds.
    pub wall_ms: u64,
    /// Processor time, milliseconds.
    pub cpu_ms: u64,
    /// Denied attempts.
    pub denials: u64,
    /// Tokens of models.
    pub model_tokens: u64,
    /// Cost in millionths of a dollar.
    pub micro_usd: u64,
}

/// Whether it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether the store takes writes.
    pub store: bool,
    /// Why not.
    pub problem: Option<String>,
    /// Since when it is open, milliseconds since 1970.
    pub since_ms: u64,
    /// Runs that live.
    pub living: u64,
    /// Runs that wait.
    pub queued: u64,
    /// Most that live at once.
    pub max_parallel: u32,
    /// Bytes of the database.
    pub store_bytes: u64,
}

/// Numbers for a monitoring system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// Runs by state.
    pub runs: BTreeMap<RunState, u64>,
    /// Runs that were asked for since the store was made.
    pub spawned: u64,
    /// Keepers that could not be started since the daemon started.
    pub spawn_failures: u64,
    /// Denied attempts of all runs.
    pub denials: u64,
    /// Findings of the anomaly rules, by severity, since the store was made.
    pub anomalies: BTreeMap<String, u64>,
    /// Newest event number.
    pub events: u64,
    /// Runs that wait.
    pub queued: u64,
    /// Open questions.
    pub questions: u64,
    /// Writes to the store that failed since the daemon started.
    pub store_errors: u64,
    /// Transactions since the daemon started.
    pub commits: u64,
}
