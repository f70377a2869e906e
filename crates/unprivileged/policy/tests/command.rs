//! Command lines against rules: the corpora of evasions and of everyday commands, and what must hold for any line.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use bastle_policy::command::{CommandOutcome, CommandRule, CommandRules, CommandVerdict, judge};
use std::fmt::Write as _;

/// A corpus: `@allow`, `@ask` and `@deny` lines, then one command per line; `␤` stands for a newline, `#` opens a
/// comment line.
struct Corpus {
    rules: CommandRules,
    lines: Vec<String>,
}

fn corpus(text: &str) -> Corpus {
    let mut rules = CommandRules::default();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(rule) = line.strip_prefix("@allow ") {
            rules.allow.push(CommandRule::parse(rule).expect(rule));
        } else if let Some(rule) = line.strip_prefix("@ask ") {
            rules.ask.push(CommandRule::parse_restriction(rule).expect(rule));
        } else if let Some(rule) = line.strip_prefix("@deny ") {
            rules.deny.push(CommandRule::parse_restriction(rule).expect(rule));
        } else if !line.is_empty() && !line.starts_with("# ") {
            lines.push(line.replace('␤', "\n"));
        }
    }
    Corpus { rules, lines }
}

fn evasions() -> Corpus {
    corpus(include_str!("data/commands/evasions.txt"))
}

fn harmless() -> Corpus {
    corpus(include_str!("data/commands/harmless.txt"))
}

fn listed(verdicts: &[(String, CommandVerdict)]) -> String {
    verdicts.iter().fold(String::new(), |mut out, (line, verdict)| {
        writeln!(
            out,
            "{:?} {line:?}\n      {} ({:?})",
            verdict.outcome, verdict.reason, verdict.part
        )
        .expect("a string");
        out
    })
}

#[test]
fn no_evasion_is_allowed() {
    let Corpus { rules, lines } = evasions();
    assert!(lines.len() >= 500, "only {} evasions", lines.len());
    let allowed: Vec<_> = lines
        .into_iter()
        .map(|line| (line.clone(), judge(&line, &rules, CommandOutcome::Deny)))
        .filter(|(_, verdict)| verdict.outcome == CommandOutcome::Allow)
        .collect();
    assert!(
        allowed.is_empty(),
        "{} evasions allowed:\n{}",
        allowed.len(),
        listed(&allowed)
    );
}

#[test]
fn everyday_commands_are_rarely_refused() {
    let Corpus { rules, lines } = harmless();
    let total = lines.len();
    assert!(total >= 500, "only {total} commands");
    let refused: Vec<_> = lines
        .into_iter()
        .map(|line| (line.clone(), judge(&line, &rules, CommandOutcome::Deny)))
        .filter(|(_, verdict)| verdict.outcome != CommandOutcome::Allow)
        .collect();
    println!("{} of {total} refused:\n{}", refused.len(), listed(&refused));
    assert!(
        refused.len() * 50 <= total,
        "{} of {total} refused:\n{}",
        refused.len(),
        listed(&refused)
    );
}

#[test]
fn everyday_commands_are_rarely_refused_without_an_allow_list() {
    let Corpus { mut rules, lines } = harmless();
    rules.allow.clear();
    let total = lines.len();
    let refused: Vec<_> = lines
        .into_iter()
        .map(|line| (line.clone(), judge(&line, &rules, CommandOutcome::Allow)))
        .filter(|(_, verdict)| verdict.outcome != CommandOutcome::Allow)
        .collect();
    println!("{} of {total} refused:\n{}", refused.len(), listed(&refused));
    assert!(
        refused.len() * 50 <= total,
        "{} of {total} refused:\n{}",
        refused.len(),
        listed(&refused)
    );
}
