//! What a policy stops, listed from the same decision that `can-i` and the launch ask: an entry that the evaluator would
//! allow is not listed.
use crate::command::{CommandRule, CommandRules, blocked as examples};
use crate::decide::{Decision, Outcome, decide};
use crate::effective::{Effective, Origin, Sourced};
use crate::query::Query;
use crate::tiers::{DangerEntry, Tier, danger_matrix};
use serde::Serialize;

/// One entry: something that is denied or asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedEntry {
    /// `exec.deny`, `exec.ask`, `tools.deny`, `tools.ask`; for a row of the danger matrix its kind.
    pub section: String,
    /// The rule as written, or the name of the row.
    pub rule: String,
    /// The question that was asked, as `can-i` takes it.
    pub example: String,
    /// What the evaluator says to the example: never `allow`.
    pub outcome: Outcome,
    /// The reason that a refused command is answered with.
    pub why: String,
    /// Where the rule that decided stands.
    pub origin: Option<Origin>,
    /// Where it is held.
    pub held: &'static str,
}

/// What a policy stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedList {
    /// By rules of layers.
    pub rules: Vec<BlockedEntry>,
    /// By tier 3 of the danger matrix.
    pub tier3: Vec<BlockedEntry>,
}

/// Held outside the agent.
const ENFORCED: &str = "enforced: by the fence or egress";
/// Command and tool rules.
const ADVISORY: &str = "at launch and for driven agents; advisory inside an agent that is not driven";

/// Everything the policy denies or asks about, with the decision on an example of each.
#[must_use]
pub fn blocked_list(effective: &Effective) -> BlockedList {
    let mut rules = Vec::new();
    for tier in &effective.exec {
        for (section, list) in [("exec.deny", &tier.deny), ("exec.ask", &tier.ask)] {
            rules.extend(list.iter().filter_map(|rule| {
                let example = format!("exec {}", line_of(&rule.value)?);
                entry(effective, section, &rule.value, example, Some(&rule.origin))
            }));
        }
    }
    for tier in &effective.tools {
        for (section, list) in [("tools.deny", &tier.deny), ("tools.ask", &tier.ask)] {
            rules.extend(list.iter().filter_map(|rule: &Sourced<String>| {
                let example = format!("tool {}", without_stars(&rule.value));
                entry(effective, section, &rule.value, example, Some(&rule.origin))
            }));
        }
    }
    let tier3 = danger_matrix()
        .iter()
        .filter(|row| row.tier == Tier::Stops)
        .filter_map(|row| {
            let listed = entry(effective, row.kind, row.name, question(row)?, None)?;
            let why = row.why.to_owned();
            Some(BlockedEntry { why, ..listed })
        })
        .collect();
    BlockedList { rules, tier3 }
}

/// A question for `can-i` about what a row of the matrix names.
pub(crate) fn question(row: &DangerEntry) -> Option<String> {
    if let Some(example) = row.example {
        return Some(example.to_owned());
    }
    match row.kind {
        "exec" => Some(format!("exec {}", line_of(row.name)?)),
        "tool" => Some(format!("tool {}", without_stars(row.name))),
        _ => None,
    }
}

fn entry(
    effective: &Effective,
    section: &str,
    rule: &str,
    example: String,
    origin: Option<&Origin>,
) -> Option<BlockedEntry> {
    let query = Query::parse(&example, &effective.surroundings).ok()?;
    let Decision {
        outcome,
        reason,
        rule: decided,
        enforced,
        ..
    } = decide(effective, &query);
    (outcome != Outcome::Allow).then(|| BlockedEntry {
        section: section.to_owned(),
        rule: rule.to_owned(),
        example,
        outcome,
        why: reason,
        origin: origin.cloned().or_else(|| decided.map(|(_, origin)| origin)),
        held: if enforced { ENFORCED } else { ADVISORY },
    })
}

/// A command line that a rule names.
fn line_of(rule: &str) -> Option<String> {
    let deny = vec![CommandRule::parse_restriction(rule).ok()?];
    let rules = CommandRules {
        deny,
        ..CommandRules::default()
    };
    examples(&rules).into_iter().next().map(|blocked| blocked.example)
}

/// A name that a pattern matches.
fn without_stars(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        match c {
            '*' if text.ends_with('x') => {}
            '*' => text.push('x'),
            c => text.push(c),
        }
    }
    text
}
