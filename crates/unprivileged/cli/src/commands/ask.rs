//! Questions as typed on a command line, and their answers. The evaluator is the one that plans the fence.
use crate::commands::source::absolute;
use crate::context::Failed;
use bastle_contract::AbsPath;
use bastle_policy::{Decision, Effective, Origin, Outcome, Query, decide};
use serde_json::{Value, json};
use std::path::Path;

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Reading a path
    Read,
    /// Writing, creating or removing a path
    Write,
    /// Running a command line
    Exec,
    /// A request that goes out: [METHOD] URL or HOST[:PORT]
    Net,
    /// Using one of the agent's own tools
    Tool,
}

/// A question and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) query: Query,
    pub(crate) decision: Decision,
    /// Where a symlink leads, if that decided.
    pub(crate) resolved: Option<AbsPath>,
}

impl Kind {
    /// The kind from its word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            "exec" => Some(Self::Exec),
            "net" => Some(Self::Net),
            "tool" => Some(Self::Tool),
            _ => None,
        }
    }
}

/// Reads a question. Paths are relative to the current directory, as everywhere on a command line.
pub(crate) fn question(kind: Kind, words: &[String], effective: &Effective) -> Result<Query, Failed> {
    let line = words.join(" ");
    let parse = |verb: &str| Query::parse(&format!("{verb} {line}"), &effective.surroundings);
    Ok(match kind {
        Kind::Read => Query::Read(absolute(Path::new(&line))?),
        Kind::Write => Query::Write(absolute(Path::new(&line))?),
        // One word is a line as a shell would read it; several are the arguments of one program.
        Kind::Exec if words.len() > 1 => Query::Exec(quoted(words)),
        Kind::Exec => parse("exec")?,
        Kind::Net => parse("net")?,
        Kind::Tool => parse("tool")?,
    })
}

/// Asks the evaluator. A granted name that is a symlink is only as good as the place it leads to.
pub(crate) fn answer(query: Query, effective: &Effective) -> Answer {
    let decision = decide(effective, &query);
    // A place without a rule is the run's own: the host's link is not behind it.
    if decision.outcome == Outcome::Allow && decision.rule.is_some() {
        let target = match &query {
            Query::Read(path) => followed(path).map(Query::Read),
            Query::Write(path) => followed(path).map(Query::Write),
            Query::Exec(_) | Query::Net(_) | Query::Tool(_) => None,
        };
        if let Some(target) = target {
            let behind = decide(effective, &target);
            if behind.outcome < decision.outcome {
                let resolved = match target {
                    Query::Read(path) | Query::Write(path) => Some(path),
                    Query::Exec(_) | Query::Net(_) | Query::Tool(_) => None,
                };
                return Answer {
                    query,
                    decision: behind,
                    resolved,
                };
            }
        }
    }
    Answer {
        query,
        decision,
        resolved: None,
    }
}

/// Where a path leads when its symlinks are followed; `None` when nowhere else. What does not exist yet is judged
/// by the directory it would be made in.
fn followed(path: &AbsPath) -> Option<AbsPath> {
    let mut rest: Vec<&str> = Vec::new();
    let mut at = path.as_path();
    let base = loop {
        match std::fs::canonicalize(at) {
            Ok(base) => break base,
            Err(_) => {
                rest.push(at.file_name()?.to_str()?);
                at = at.parent()?;
            }
        }
    };
    let whole = rest.iter().rev().fold(base, |base, part| base.join(part));
    AbsPath::from_path(&whole).ok().filter(|whole| whole != path)
}

/// Arguments as one shell line, each quoted where it must be.
fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The exit code of an answer.
pub(crate) fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Allow => 0,
        Outcome::Deny => 1,
        Outcome::Ask => 10,
    }
}

impl Answer {
    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let decision = &self.decision;
        json!({
            "query": self.query.to_string(),
            "outcome": decision.outcome,
            "code": decision.code.map(|code| code.info().code),
            "reason": decision.reason,
            "rule": rule(decision.rule.as_ref()),
            "nearest": rule(decision.nearest.as_ref()),
            "mechanism": decision.mechanism,
            "enforced": decision.enforced,
            "tier": decision.tier.number(),
            "help": decision.help,
            "resolved": self.resolved,
        })
    }
}

fn rule(rule: Option<&(String, Origin)>) -> Value {
    match rule {
        Some((text, origin)) => json!({ "text": text, "origin": origin }),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_a_line_that_a_shell_reads_as_the_same_words() {
        let words = ["git", "commit", "-m", "it's; rm -rf /"].map(str::to_owned);
        assert_eq!(quoted(&words), "git commit -m 'it'\\''s; rm -rf /'");
        assert_eq!(quoted(&["".to_owned()]), "''");
    }
}
