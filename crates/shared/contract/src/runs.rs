//! A run as it is asked for, kept and told: the request, the state, the numbered events.
//!
//! Between whoever asks (command line, API), whoever keeps a run (one process each) and whoever shows it.
use crate::{AbsPath, Argv, EnvName, Fault, LimitHit, RunId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Largest request as JSON: a policy document (64 KiB), a command line (128 KiB) and a prompt, escaped.
pub const MAX_SPEC: usize = 1024 * 1024;
/// Longest prompt.
pub const MAX_PROMPT: usize = 256 * 1024;
/// Most labels of one run.
pub const MAX_TAGS: usize = 32;
/// Largest event as one line.
pub const MAX_EVENT: usize = 32 * 1024;

/// Where a run is in its life. The same words on every face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Waits for its turn.
    Queued,
    /// Its tree and its fence are being made.
    Building,
    /// The agent works.
    Running,
    /// It stands still until somebody answers.
    NeedsInput,
    /// It stands still until a credential is there.
    NeedsCredential,
    /// Somebody made it stand still.
    Suspended,
    /// The agent ended by itself with code 0.
    Completed,
    /// The agent failed, a limit ended it, or its keeper was lost.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// Policy, ceiling or fence refused it: the agent never started.
    Refused,
}

impl RunState {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Building,
        Self::Running,
        Self::NeedsInput,
        Self::NeedsCredential,
        Self::Suspended,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Refused,
    ];

    /// Whether nothing follows it.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::Refused => true,
            Self::Queued
            | Self::Building
            | Self::Running
            | Self::NeedsInput
            | Self::NeedsCredential
            | Self::Suspended => false,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Building => "building",
            Self::Running => "running",
            Self::NeedsInput => "needs-input",
            Self::NeedsCredential => "needs-credential",
            Self::Suspended => "suspended",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A label `key=value`: the key `[a-z0-9][a-z0-9._-]{0,31}`, the value 0–128 characters without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Tags(BTreeMap<String, String>);

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A label.
    #[error(
        "label {0:?}: a key is [a-z0-9][a-z0-9._-]{{0,31}}, a value has at most 128 characters, none a control character, and there are at most 32"
    )]
    Tag(String),
    /// The prompt.
    #[error("a prompt has at most 262144 bytes and no NUL, this one has {0} bytes")]
    Prompt(usize),
    /// Two variables of one name, or too many.
    #[error("variable {0} is named twice, or there are more than 256")]
    Variable(String),
    /// A name.
    #[error("{what} {name:?} is [a-z0-9][a-z0-9._@-]{{0,63}}")]
    Name {
        /// Of what.
        what: &'static str,
        /// As given.
        name: String,
    },
    /// A terminal without size.
    #[error("a terminal has 1 to 1000 rows and columns")]
    Size,
}

impl Tags {
    /// The labels.
    #[must_use]
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl TryFrom<BTreeMap<String, String>> for Tags {
    type Error = SpecError;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self, SpecError> {
        for (key, value) in &map {
            let good = is_name(key, 32, "._-")
                && value.chars().count() <= 128
                && !value.chars().any(char::is_control);
            if !good || map.len() > MAX_TAGS {
                return Err(SpecError::Tag(key.clone()));
            }
        }
        Ok(Self(map))
    }
}

impl From<Tags> for BTreeMap<String, String> {
    fn from(tags: Tags) -> Self {
        tags.0
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TtySize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Who can answer while it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attended {
    /// Nobody: a question is answered with no.
    #[default]
    Nobody,
    /// Somebody elsewhere, through the run's socket: a question waits.
    Elsewhere,
}

/// How agents can be spoken to.
pub const DRIVERS: [&str; 5] = ["plain", "claude", "codex", "acp", "opencode"];
/// In a request: the agent's streams are passed on, whatever its profile says.
pub const NO_DRIVER: &str = "none";

/// Everything a run without a terminal of its own is started from. Written once, before its keeper starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawSpec", into = "RawSpec")]
pub struct LaunchSpec(RawSpec);

/// The fields of a [`LaunchSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSpec {
    /// Name of the run.
    pub name: RunId,
    /// What is executed.
    pub argv: Argv,
    /// The project.
    pub workspace: AbsPath,
    /// Where the agent starts; default the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<AbsPath>,
    /// `copy`, `overlay`, `worktree`, `in-place`; default as fits the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Name of the agent's branch after `AGENT/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// `RUN[@SNAPSHOT]` whose tree it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Preset to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Policy files, taken as the caller's own word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy_files: Vec<AbsPath>,
    /// An `agent-permissions` document, taken as the caller's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
    /// What holds it to the authority of whoever asked for it; none: an admin, or the person at this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<crate::Bounds>,
    /// `none`, `offline`, `allowlist`, `open`: what no document can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// Whether the command is the word of a client that is no admin. The credential of a preset then goes only to a command
    /// that names the preset's agent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub client_command: bool,
    /// Whether the project's own policy file may widen the policy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub expand: bool,
    /// Paths of the hard floor that are opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unprotect: Vec<AbsPath>,
    /// Whether the copy's repository has no history: one commit, without hidden names.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hide_history: bool,
    /// Limits given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waive: Vec<String>,
    /// Whether debugging calls between the agent's own processes are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_debuggers: bool,
    /// Whether a person lets it write where another run writes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub share_workspace: bool,
    /// Places of the workspace that alone may be written; all that the policy grants when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<AbsPath>,
    /// Whether the person at the command line approved a command that asks. Never set for a request of a client.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approved: bool,
    /// Variables for the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(EnvName, String)>,
    /// A terminal of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// Whether its input stays open for whoever attaches, or a driven agent for what else is said; else it ends after
    /// the prompt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open_input: bool,
    /// The profile it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How the agent is spoken to: `plain`, `claude`, `codex`, `acp`, `opencode`; without: its streams are passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The model that its driver asks for, where the command line does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the agent is asked, preamble included: written to its standard input at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// What was decided about how it is run that is told and recorded at its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Labels.
    #[serde(default)]
    pub tags: Tags,
    /// The batch it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The run that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Who can answer.
    #[serde(default)]
    pub attended: Attended,
    /// The trace in which it was asked for, as whoever asked said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<crate::TraceParent>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_name(text: &str, most: usize, also: &str) -> bool {
    let first = text.chars().next();
    text.len() <= most
        && first.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || also.contains(c))
}

impl LaunchSpec {
    /// Checks the fields.
    pub fn new(raw: RawSpec) -> Result<Self, SpecError> {
        if let Some(input) = &raw.input
            && (input.len() > MAX_PROMPT || input.contains('\0'))
        {
            return Err(SpecError::Prompt(input.len()));
        }
        let mut names = std::collections::BTreeSet::new();
        for (name, _) in &raw.env {
            if !names.insert(name.as_str()) || raw.env.len() > 256 {
                return Err(SpecError::Variable(name.as_str().to_owned()));
            }
        }
        for (what, name) in [
            ("profile", &raw.profile),
            ("batch", &raw.batch),
            ("preset", &raw.preset),
            ("driver", &raw.driver),
        ] {
            if let Some(name) = name
                && !is_name(name, 64, "._@-")
            {
                return Err(SpecError::Name {
                    what,
                    name: name.clone(),
                });
            }
        }
        let sized = |size: &TtySize| (1..=1000).contains(&size.rows) && (1..=1000).contains(&size.cols);
        if !raw.tty.as_ref().is_none_or(sized) {
            return Err(SpecError::Size);
        }
        Ok(Self(raw))
    }

    /// The fields, for reading.
    #[must_use]
    pub fn get(&self) -> &RawSpec {
        &self.0
    }
}

impl TryFrom<RawSpec> for LaunchSpec {
    type Error = SpecError;

    fn try_from(raw: RawSpec) -> Result<Self, SpecError> {
        Self::new(raw)
    }
}

impl From<LaunchSpec> for RawSpec {
    fn from(spec: LaunchSpec) -> Self {
        spec.0
    }
}

/// What is known of a run: the whole content of its `run.json`. Only its keeper writes it, after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// The name of the run, unique in its state directory.
    pub name: RunId,
    /// Where it is in its life.
    pub state: RunState,
    /// Why it is there, where there is a reason: `timeout`, `stopped`, `budget`, `lost`, the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked for, milliseconds since 1970.
    pub created_ms: u64,
    /// When the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When everything of it was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Process id of its keeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<u32>,
    /// Host process id of its init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<u32>,
    /// Exit code as `bastle run` reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Why the agent did not run, or was ended by bastle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// What it used; final once it ended.
    #[serde(default)]
    pub usage: Usage,
    /// Attempts that were denied.
    #[serde(default)]
    pub denials: u64,
    /// Limits that were hit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitHit>,
    /// Number of its last event.
    #[serde(default)]
    pub last_event: u64,
    /// What was unusual about it.
    #[serde(default, skip_serializing_if = "Findings::is_none")]
    pub findings: Findings,
    /// What it used of models as egress counted it, once it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<ModelsCounted>,
    /// The same as a driven agent tells it of itself, as of its last turn. Nothing is held against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<ModelsReported>,
}

/// What the anomaly rules found in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The number of findings so far.
    pub count: u64,
    /// The gravest: `low`, `medium` or `high`.
    pub worst: Option<String>,
}

impl Findings {
    fn is_none(&self) -> bool {
        self.count == 0
    }

    /// Counts one more.
    pub fn add(&mut self, severity: &str) {
        const ORDER: [&str; 3] = ["low", "medium", "high"];
        let rank = |word: &str| ORDER.iter().position(|known| *known == word);
        self.count += 1;
        if rank(severity) >= self.worst.as_deref().and_then(rank) {
            self.worst = Some(severity.to_owned());
        }
    }
}

/// What a run used of models, counted outside of the agent: what budgets are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsCounted {
    /// Requests that a model answered.
    pub turns: u64,
    /// Tokens, in and out.
    pub tokens: u64,
    /// Cost in millionths of a dollar, as far as prices are known.
    pub cost_micro_usd: u64,
}

/// What an agent says that it used of models. It may say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsReported {
    /// Answers of the model.
    pub turns: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Cost in millionths of a dollar, where it tells.
    pub cost_micro_usd: Option<u64>,
}

/// Something that happened to a run: one line of its `events.jsonl`. Numbers begin with 1 and have no gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEvent {
    /// Its number within the run.
    pub seq: u64,
    /// When, milliseconds since 1970. Order is by number, not by this.
    pub time_ms: u64,
    /// `state`, `denied`, `net`, `limit`, `question`, `answered`, `budget`, `rules`, `grant`, `exec`, `note`, …
    pub kind: String,
    /// The rest, by kind. Text from the agent is in it as it came: show it escaped.
    pub data: Value,
}

#[cfg(test)]
mod tests;
