//! Judgement of shell command lines against prefix rules. Pure; trusts the rules, does not trust the line.
//!
//! The judgement is *advice*: it tells an agent's permission layer and the shims what a line would run. The fence
//! holds without it. It is still written to be hard to fool:
//!
//! * The line is read with a real shell grammar ([`tree-sitter-bash`]) and every leaf and every gap of the tree is
//!   read a second time by our own rules (`reading`). Where the two readings differ the line is *unreadable*.
//! * Every simple command is judged, wherever it hides, and the strictest answer wins.
//! * Wrappers (`env`, `timeout`, `sh -c`, `find -exec`, …) are seen through; what they start is judged too.
//! * Options that make an allowed program start another one are refused unless the allow rule spells them out.
//!
//! Two modes follow from the default outcome. With a default of `Deny` or `Ask` an allow-list is in force: whatever
//! cannot be read for certain is denied. With a default of `Allow` only the ask and deny rules restrict: a line that
//! cannot be read is denied when it names a denied program, and asked about otherwise. Unreadable is never allowed.
//!
//! [`tree-sitter-bash`]: https://github.com/tree-sitter/tree-sitter-bash

mod builtins;
mod dangers;
mod engine;
mod environment;
mod heredoc;
mod leaves;
mod listing;
mod matching;
mod options;
mod plain;
mod reading;
mod redirect;
mod rule;
mod sed_awk;
mod tables;
mod values;
mod walk;
mod width;
mod word;
mod wrapper_tables;
mod wrappers;

pub use listing::{Blocked, blocked};
pub use redirect::{RedirectDirection, RedirectTarget, redirect_targets};
pub use rule::{CommandRule, CommandRuleError};

use serde::{Deserialize, Serialize};

/// The longest line that is read; a person or an agent types far less, a parser attack needs far more.
pub const MAX_LINE: usize = 64 * 1024;
/// How deep shells may start shells (`sh -c`, `eval`, wrappers) before the line is refused.
pub const MAX_DEPTH: usize = 8;
/// How many simple commands one line may hold.
pub const MAX_COMMANDS: usize = 256;

/// What is to happen to a command, from the mildest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandOutcome {
    /// Runs without a question.
    Allow,
    /// A person is asked first.
    Ask,
    /// Does not run.
    Deny,
}

/// The three lists of rules. Order and specificity do not matter: deny beats ask beats allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRules {
    /// Commands that run without a question. A rule that is too wide is ignored here.
    pub allow: Vec<CommandRule>,
    /// Commands a person is asked about.
    pub ask: Vec<CommandRule>,
    /// Commands that never run.
    pub deny: Vec<CommandRule>,
}

/// The judgement of one line.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandVerdict {
    /// What is to happen to the whole line.
    pub outcome: CommandOutcome,
    /// The sub-command that decided, as written.
    pub part: String,
    /// The rule that decided, when one did.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
}

/// Judges a command line. Total, deterministic, without side effects.
pub fn judge(line: &str, rules: &CommandRules, default: CommandOutcome) -> CommandVerdict {
    engine::judge_line(line, rules, default)
}
