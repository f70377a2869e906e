//! The listing of what is blocked, for people.

use super::rule::CommandRule;
use super::{CommandOutcome, CommandRules};
use serde::Serialize;

/// One blocked command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// The rule as written.
    pub rule: String,
    /// `Deny` or `Ask`.
    pub kind: CommandOutcome,
    /// A command the rule stops.
    pub example: String,
}

/// What the rules deny or ask about, denials first, each with an example.
#[must_use]
pub fn blocked(rules: &CommandRules) -> Vec<Blocked> {
    let list = |rules: &[CommandRule], kind: CommandOutcome| -> Vec<Blocked> {
        rules
            .iter()
            .map(|rule| Blocked {
                rule: rule.to_string(),
                kind,
                example: example(rule),
            })
            .collect()
    };
    let mut all = list(&rules.deny, CommandOutcome::Deny);
    all.extend(list(&rules.ask, CommandOutcome::Ask));
    all
}

fn example(rule: &CommandRule) -> String {
    let mut words = vec![quoted(&rule.program)];
    words.extend(rule.words.iter().map(|w| quoted(&w.replace('*', "x"))));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = !word.is_empty()
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:=@+,%".contains(&b));
    if plain {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
