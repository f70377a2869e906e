//! What the rules of a run say when the agent's own permission layer asks about a tool, before a person is asked.
//!
//! **Trust:** what an agent asks is untrusted text, and whatever is answered widens nothing: the fence holds either way.
use crate::decide::{Outcome, decide};
use crate::effective::Effective;
use crate::query::Query;
use crate::toolrule::ToolRule;

/// The answer of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// An allow rule of a trusted layer names it.
    Allowed {
        /// Which, where it is one.
        rule: Option<String>,
    },
    /// A deny rule names it.
    Denied {
        /// Why, in one sentence.
        reason: String,
    },
    /// No rule settles it: a person does.
    Ask,
}

/// Judges the use of a tool, such as `Bash(cargo test)` or `Edit(./src/a.rs)`.
#[must_use]
pub fn permit(effective: &Effective, used: &str) -> Permit {
    let Ok(rule) = ToolRule::new(used) else {
        return Permit::Ask;
    };
    let decision = decide(effective, &Query::Tool(used.to_owned()));
    let named = decision.rule.map(|(rule, _)| rule);
    match (decision.outcome, named) {
        // What no list has is not denied by a list: a person may allow it.
        (Outcome::Deny, None) | (Outcome::Ask, _) => Permit::Ask,
        (Outcome::Deny, Some(rule)) => Permit::Denied {
            reason: format!("{rule}: {}", decision.reason),
        },
        (Outcome::Allow, rule_named) => {
            // Where nobody wrote a list everything is allowed, which is no yes to this. And a project's own list only
            // narrows: what counts is the first tier.
            let listed = effective
                .tools
                .first()
                .is_some_and(|tier| tier.allow.is_some() && tier.judge_tool(&rule).outcome == Outcome::Allow);
            if listed {
                Permit::Allowed { rule: rule_named }
            } else {
                Permit::Ask
            }
        }
    }
}
