//! The one trait behind which every agent is the same.
use crate::{Acp, Claude, Codex, Plain};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest thing said to an agent at once.
pub const MAX_PROMPT: usize = 512 * 1024;

/// How an agent is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// Lines in, text out.
    Plain,
    /// `claude -p --input-format stream-json --output-format stream-json --verbose --permission-prompt-tool stdio`.
    Claude,
    /// `codex app-server`.
    Codex,
    /// The Agent Client Protocol, version 1.
    Acp,
    /// `opencode acp`: ACP, where a second prompt reaches the working agent.
    Opencode,
}

/// What a conversation starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The working directory inside.
    pub cwd: String,
    /// The model, where one was chosen.
    pub model: Option<String>,
}

/// What an agent has used, as it tells: for showing. Budgets are held by egress, which counts itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentUsage {
    /// Answers of the model.
    pub turns: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// In US dollars, where it tells.
    pub cost_usd: Option<f64>,
}

/// Where a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolState {
    /// Asked for.
    Pending,
    /// Works.
    Running,
    /// Done.
    Completed,
    /// Failed or refused.
    Failed,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnEnd {
    /// The agent is done.
    Done,
    /// It was interrupted.
    Interrupted,
    /// It reached its own number of turns or tokens.
    Limit,
    /// It refused.
    Refused,
    /// It failed.
    Failed,
}

/// What became of a message to a working agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// Sent; the agent does not tell more. It sees it at its next request to the model.
    Sent,
    /// It took it into the turn.
    Injected,
    /// It came too late and began a new turn.
    NewTurn,
    /// It was not taken.
    Failed,
}

/// The agent's own permission layer asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// By which it is answered.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What it is about, in our words; text of the agent in it is quoted.
    pub title: String,
    /// What exactly.
    pub input: Value,
    /// The agent's own words about it. Untrusted: shown as a quotation, never as the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Box<str>>,
}

impl Permission {
    /// The use as rules about tools write it: `Bash(cargo test)`, `Edit(./src/a.rs)`. What for is left out where it is not
    /// plainly told, and then only rules without an argument can allow it. Paths in `cwd` are told from there.
    #[must_use]
    pub fn used(&self, cwd: &str) -> String {
        let field = |names: &[&str]| names.iter().find_map(|name| self.input.get(name)?.as_str());
        let path = || {
            let path = field(&["file_path", "filePath", "path", "abs_path", "notebook_path"])?;
            let inside = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
            Some(inside.map_or_else(|| path.to_owned(), |inside| format!("./{inside}")))
        };
        // An approval of Codex may be about more than the command it shows.
        let more = ["networkApprovalContext", "additionalPermissions"];
        let plain = more
            .iter()
            .all(|name| self.input.get(name).is_none_or(Value::is_null));
        let (name, argument) = match self.tool.as_str() {
            "Bash" | "bash" | "shell" | "execute" | "command" => {
                let line = field(&["command"]).filter(|_| plain);
                ("Bash", line.map(str::to_owned))
            }
            "Read" | "read" => ("Read", path()),
            "Write" => ("Write", path()),
            "Edit" | "MultiEdit" | "edit" | "file change" => ("Edit", path()),
            "Grep" | "Glob" | "search" => ("Grep", None),
            "WebFetch" | "fetch" => {
                let host = field(&["url"]).and_then(|url| url.split("://").nth(1));
                let host = host.and_then(|rest| rest.split(['/', '?', '#']).next());
                // With a name or a port in it, whose host it is is not plain.
                let host = host.filter(|host| !host.contains(['@', ':', '\\']));
                ("WebFetch", host.map(|host| format!("domain:{host}")))
            }
            other => (other, None),
        };
        match argument {
            Some(argument) => format!("{name}({argument})"),
            None => name.to_owned(),
        }
    }
}

/// The answer to a permission request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This once.
    Once,
    /// For the rest of the conversation, where the agent knows that.
    Session,
    /// No, with a word to the agent.
    No(String),
}

/// Something an agent said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "said")]
pub enum Said {
    /// It can be asked.
    Ready {
        /// Its name for the conversation.
        session: Option<String>,
        /// Who it says it is.
        agent: Option<String>,
    },
    /// A turn began.
    TurnBegan,
    /// It says.
    Text {
        /// What.
        text: String,
    },
    /// It thinks.
    Thought {
        /// What.
        text: String,
    },
    /// It uses a tool.
    Tool {
        /// Which call.
        id: String,
        /// Which tool.
        name: String,
        /// How far the call of the tool has come.
        state: ToolState,
        /// With what.
        input: Value,
    },
    /// It asks for permission.
    Permission(Permission),
    /// It does not wait for that answer any more.
    Withdrawn {
        /// Of which request.
        id: String,
    },
    /// What became of a message to it while it worked.
    Steered {
        /// How.
        how: Steering,
    },
    /// What it used so far.
    Usage(AgentUsage),
    /// A turn ended.
    TurnEnded {
        /// How.
        how: TurnEnd,
        /// Its last word, where it gives one.
        text: Option<String>,
    },
    /// It reports an error.
    Trouble {
        /// What.
        text: String,
    },
    /// Something that is not of its protocol.
    Noise {
        /// What.
        text: String,
    },
}

/// What came of bytes from an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// In order.
    pub said: Vec<Said>,
    /// What must be written to it now.
    pub reply: Vec<u8>,
}

/// Why something cannot be said to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// It knows no such thing.
    #[error("this agent cannot be {0}")]
    Unsupported(&'static str),
    /// Nothing works.
    #[error("the agent is not working on anything")]
    Idle,
    /// It works already.
    #[error("the agent works already: steer it, or wait")]
    Busy,
    /// No such request waits.
    #[error("no permission request of that name waits")]
    Unknown,
    /// Too long.
    #[error("a message has at most 524288 bytes")]
    TooLong,
}

/// One agent behind one conversation.
pub trait AgentDriver: Send {
    /// What is written first.
    fn start(&mut self, session: &Session) -> Vec<u8>;
    /// Asks something. Before it is ready this is held back until it is.
    fn prompt(&mut self, text: &str) -> Result<Vec<u8>, DriverError>;
    /// Says something to it while it works. It sees it at its next request to the model.
    fn steer(&mut self, text: &str) -> Result<Vec<u8>, DriverError>;
    /// Has it stop what it does; the conversation goes on.
    fn interrupt(&mut self) -> Result<Vec<u8>, DriverError>;
    /// Answers a permission request.
    fn answer_permission(&mut self, id: &str, answer: &Answer) -> Result<Vec<u8>, DriverError>;
    /// Takes what it printed.
    fn take(&mut self, bytes: &[u8]) -> Heard;
    /// What it used so far.
    fn usage(&self) -> AgentUsage;
    /// Whether a turn is under way.
    fn is_working(&self) -> bool;
    /// What is written last; its input is closed afterwards.
    fn close(&mut self) -> Vec<u8> {
        // Every agent known so far takes the end of its input for the end.
        Vec::new()
    }
}

/// The driver of a kind.
#[must_use]
pub fn driver(kind: DriverKind) -> Box<dyn AgentDriver> {
    match kind {
        DriverKind::Plain => Box::new(Plain::default()),
        DriverKind::Claude => Box::new(Claude::default()),
        DriverKind::Codex => Box::new(Codex::default()),
        DriverKind::Acp => Box::new(Acp::default()),
        DriverKind::Opencode => Box::new(Acp::prompts_steer()),
    }
}

/// Refuses what is too long to be said at once.
pub(crate) fn bounded(text: &str) -> Result<&str, DriverError> {
    if text.len() > MAX_PROMPT {
        return Err(DriverError::TooLong);
    }
    Ok(text)
}
