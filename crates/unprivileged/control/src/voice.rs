//! What a front end is told while a run lives. Text in events comes from the agent: a front end shows it escaped.
use bastle_contract::egress::{BudgetReached, NetDecision};
use bastle_contract::runs::{ModelsReported, RunState};
use bastle_contract::{CapabilityStatement, Denied, LaunchPlan, LimitHit, ReadSight};

/// A front end of one run.
pub trait Voice {
    /// The fence stands and was proven; the agent starts now.
    fn proven(&mut self, plan: &LaunchPlan, statement: &CapabilityStatement);
    /// The agent's program runs.
    fn executed(&mut self) {}
    /// Whether the reading of files is seen; told before the fence is proven.
    fn reads(&mut self, _sight: &ReadSight) {}
    /// Something was denied; `id` names the audit record.
    fn denied(&mut self, id: &str, denied: &Denied);
    /// A limit was hit.
    fn limit(&mut self, hit: &LimitHit);
    /// A request was denied; its own id names it everywhere.
    fn net_denied(&mut self, _decision: &NetDecision) {}
    /// A person is asked; the run stands still until somebody answers.
    fn question(&mut self, _question: &Question<'_>) {}
    /// A question was answered.
    fn answered(&mut self, _id: &str, _answer: Reply, _by: &str) {}
    /// A share of a budget was reached.
    fn budget(&mut self, _reached: &BudgetReached) {}
    /// The rules of the living run were replaced.
    fn changed(&mut self, _change: &str, _cut: u32, _by: &str) {}
    /// A change of the rules was refused; the old ones stay.
    fn unchanged(&mut self, _fault: &bastle_contract::Fault) {}
    /// The agent asked for a rule.
    fn wanted(&mut self, _rule: &str, _why: &str) {}
    /// The egress process is gone.
    fn egress_lost(&mut self, _why: &str, _after: AfterLoss) {}
    /// The sandbox exists; `pid` is its init.
    fn launched(&mut self, _pid: u32) {}
    /// A request was decided, whatever about it.
    fn net_decided(&mut self, _decision: &NetDecision) {}
    /// A question came up; it is put to the person in its turn.
    fn asked(&mut self, _question: &Question<'_>) {}
    /// The run stands still, or goes on.
    fn state(&mut self, _state: RunState, _reason: Option<&str>) {}
    /// Somebody ends the run.
    fn stopping(&mut self, _by: &str) {}
    /// A driven agent tells what it used of models. It may tell anything: this is for showing alone.
    fn reported(&mut self, _reported: ModelsReported) {}
    /// An anchor of the audit logs contradicts their index. The run goes on; a person must see it all the same.
    fn audit_contradicted(&mut self, _text: &str) {}
    /// Something else happened, by its kind.
    fn happened(&mut self, _kind: &str, _data: serde_json::Value) {}
    /// Why this front end cannot keep what it was told; the run is ended then.
    fn trouble(&mut self) -> Option<bastle_contract::Fault> {
        None
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It may go on.
    Yes,
    /// It may not.
    No,
}

/// What follows when the egress process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Another takes its place.
    Replaced,
    /// The run ends.
    Ended,
}

impl Reply {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "allowed",
            Self::No => "denied",
        }
    }

    /// Whether it is a yes.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// What a person is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// By which it is answered.
    pub id: &'a str,
    /// What exactly was asked: an answer that names another is refused.
    pub hash: &'a str,
    /// What it is about.
    pub about: About<'a>,
    /// Whether the keyboard of this process answers it.
    pub keyboard: bool,
}

/// What a question is about.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// A request.
    Request(&'a NetDecision),
    /// Going on beyond a budget.
    Budget(&'a BudgetReached),
    /// Something that the agent's own permission layer asks for.
    Tool(&'a ToolWish),
}

/// A tool that an agent wants to use. Untrusted text.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ToolWish {
    /// The tool.
    pub tool: String,
    /// What it is about, in our words; text of the agent in it is quoted.
    pub title: String,
    /// With what exactly.
    pub input: serde_json::Value,
    /// The agent's own words about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl About<'_> {
    /// What it is about, in words. Text of the agent is in it as it came.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Request(decision) => {
                let place = match decision.port {
                    0 | 80 | 443 => decision.host.clone(),
                    port => format!("{}:{port}", decision.host),
                };
                let path = decision.path.as_deref().unwrap_or_default();
                match decision.operation.as_ref().or(decision.method.as_ref()) {
                    Some(method) => format!("{method} {place}{path}"),
                    None => format!("connect to {place}{path}"),
                }
            }
            Self::Budget(reached) => format!(
                "go on beyond a budget: {:?}, {} of {} used",
                reached.kind, reached.used, reached.limit
            ),
            Self::Tool(wish) => match &wish.words {
                None => format!("use {}", wish.title),
                Some(words) => format!("use {} (the agent says: {words:?})", wish.title),
            },
        }
    }

    /// The same for programs.
    #[must_use]
    pub fn document(&self) -> serde_json::Value {
        let value = match self {
            Self::Request(decision) => serde_json::to_value(decision),
            Self::Budget(reached) => serde_json::to_value(reached),
            Self::Tool(wish) => serde_json::to_value(wish),
        };
        value.unwrap_or_default()
    }
}
