//! What a front end is told while a run lives. Text in events comes from the agent: a front end shows it escaped.
use bastle_contract::egress::{BudgetReached, NetDecision};
use bastle_contract::{CapabilityStatement, Denied, LaunchPlan, LimitHit, ReadSight};

/// A front end of one run.
pub trait Voice {
    /// The fence stands and was proven; the agent starts now.
    fn proven(&mut self, plan: &LaunchPlan, statement: &CapabilityStatement);
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
    fn changed(&mut self, _change: &str, _cut: u32) {}
    /// A change of the rules was refused; the old ones stay.
    fn unchanged(&mut self, _fault: &bastle_contract::Fault) {}
    /// The agent asked for a rule.
    fn wanted(&mut self, _rule: &str, _why: &str) {}
    /// The egress process is gone.
    fn egress_lost(&mut self, _why: &str, _after: AfterLoss) {}
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
}
