//! Names of tool calls towards an editor.
//!
//! **Trust:** the numbers are ours. Text of an agent is never part of a name, so no agent can name a question of ours.

/// What stands behind a tool call that the editor shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallName {
    /// A call of the agent, by our number for it.
    Agent(u64),
    /// A question, by its number.
    Question(u64),
}

impl std::fmt::Display for CallName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(number) => write!(f, "call-{number}"),
            Self::Question(number) => write!(f, "question-{number}"),
        }
    }
}
