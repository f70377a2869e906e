//! Profiles: which agent is run, how it is asked, and within which bounds. Data, checked before it is used.
//!
//! **Trust:** read from untrusted bytes (a file, a request). A profile restricts and chooses; what it may grant is its
//! `policy`, which counts for no more than the word of whoever asks for the run.
mod agents;
mod argv;
mod builtin;
mod print;
mod read;

pub use argv::How;
pub use builtin::{builtin, builtins};

use crate::authority::AuthorityCeiling;
use crate::document::{At, CommandLists, Document};
use crate::json::Diagnostic;
use bastle_contract::{Code, EnvName, Fault, LimitKind};

/// The JSON Schema of profiles, for editors.
pub const PROFILE_SCHEMA: &str = include_str!("../../schema/profile.v1.schema.json");
/// How long a run may take when a profile does not say.
pub const DEFAULT_TIMEOUT_MS: u64 = 15 * 60 * 1000;
/// The longest that a profile may say.
pub const MAX_TIMEOUT_MS: u64 = 24 * 3600 * 1000;
/// Turns when a profile does not say.
pub const DEFAULT_TURNS: u32 = 50;
/// Runs at once when a profile does not say.
pub const DEFAULT_CONCURRENCY: u32 = 4;

/// How the agent gets its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptBy {
    /// On standard input, which then ends.
    Stdin,
    /// In place of the element `{prompt}` of the command.
    Argument,
    /// The agent is given no prompt.
    None,
}

/// A profile, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name: `[a-z0-9][a-z0-9._-]{0,63}`.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// `claude`, `codex`, `opencode`, `gemini`, `aider`, `shell`, or another name: a plain command.
    pub agent: String,
    /// What is executed; empty: the request names it.
    pub command: Vec<String>,
    /// How the prompt gets there.
    pub prompt: PromptBy,
    /// How its agent is spoken to in its own protocol, one of [`bastle_contract::runs::DRIVERS`].
    pub driver: Option<String>,
    /// What is executed then; empty: the same command.
    pub driven: Vec<String>,
    /// Rules for the agent's own tools.
    pub tools: CommandLists,
    /// Milliseconds a run may take.
    pub timeout_ms: u64,
    /// Model requests a run may make.
    pub max_turns: u32,
    /// The model, if it is not the agent's own choice.
    pub model: Option<String>,
    /// Models a request may choose; empty: only `model`.
    pub models: Vec<String>,
    /// Runs of this profile at once.
    pub concurrency: u32,
    /// Preset to start from.
    pub preset: Option<String>,
    /// Policy beyond it.
    pub policy: Document,
    /// Variables for the agent.
    pub env: Vec<(EnvName, String)>,
    /// The most that a request of whoever is no admin may give to a run of it.
    pub ceiling: AuthorityCeiling,
}

/// Reads a profile; every error is told at once where that is possible. `name` is the file's, for messages.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Profile, Vec<Fault>> {
    read::profile(name, bytes).map_err(|found| found.iter().map(Diagnostic::fault).collect())
}

impl PromptBy {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stdin => "stdin",
            Self::Argument => "argument",
            Self::None => "none",
        }
    }
}

impl Profile {
    /// This profile with a model that a request chose.
    pub fn with_model(&self, model: &str) -> Result<Self, Fault> {
        let mut allowed: Vec<&str> = self.models.iter().map(String::as_str).collect();
        allowed.extend(self.model.as_deref());
        if !allowed.contains(&model) {
            let why = if allowed.is_empty() {
                "it names no model, so the agent's own settings choose".to_owned()
            } else {
                format!("it allows {}", allowed.join(", "))
            };
            return Err(Fault::new(
                Code::UsageArgument,
                format!("profile {} does not allow the model {model:?}", self.name),
                why,
            )
            .help(format!("bastle profile show {}", self.name)));
        }
        let mut chosen = self.clone();
        chosen.model = Some(model.to_owned());
        Ok(chosen)
    }

    /// Everything it says as one policy document: its `policy`, and time, turns, tools and variables with it.
    #[must_use]
    pub fn document(&self) -> Document {
        let mut document = self.policy.clone();
        let limits = &mut document.limits.0;
        limits.push((LimitKind::WallTime, At::nowhere(self.timeout_ms)));
        limits.sort_by_key(|(kind, _)| *kind);
        document.budget.turns = Some(At::nowhere(u64::from(self.max_turns)));
        if self.tools != CommandLists::default() {
            document.tools = self.tools.clone();
        }
        let set = self
            .env
            .iter()
            .map(|(name, value)| (At::nowhere(name.clone()), value.clone()));
        document.env.set.extend(set);
        document
    }

    /// What has to be said about how its agent is run: of its own sandbox, and of rules it is not told by a switch.
    #[must_use]
    pub fn notes(&self, how: How) -> Vec<String> {
        let agent = agents::find(&self.agent);
        let mut notes = Vec::new();
        notes.extend(
            agent
                .and_then(|agent| agent.inner)
                .map(|inner| inner.said.to_owned()),
        );
        let told = agent.is_some_and(|agent| agent.tools.is_some()) || how == How::Driven;
        if self.tools != CommandLists::default() && !told {
            notes.push(format!(
                "{} takes no list of tools: these rules are told in the preamble and hold nothing by themselves; \
                 exec, fs and net rules of a policy do",
                self.agent
            ));
        }
        notes
    }

    /// Variables for an agent that is driven: what it takes by no switch and no message.
    #[must_use]
    pub fn driven_env(&self) -> Vec<(EnvName, String)> {
        // Its permission layer asks about everything that can have an effect; the rules of the run answer, or a person.
        if self.agent != "opencode" {
            return Vec::new();
        }
        let ask = serde_json::json!({ "edit": "ask", "bash": "ask", "webfetch": "ask", "external_directory": "deny" });
        let mut config = serde_json::json!({ "permission": ask, "autoupdate": false, "share": "disabled" });
        if let Some(model) = &self.model {
            config["model"] = serde_json::json!(model);
        }
        let name = EnvName::try_from("OPENCODE_CONFIG_CONTENT".to_owned()).ok();
        name.map(|name| (name, config.to_string())).into_iter().collect()
    }
}
