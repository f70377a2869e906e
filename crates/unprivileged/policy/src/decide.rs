//! The one evaluator: the same answer for the plan, `why`, `can-i`, lint, dry-run and in-file tests.
//!
//! Total and deterministic. The operator's tier decides first; every other tier can only make the answer stricter.
mod listed;

use self::listed::listed;
use crate::commands::strictest;
use crate::document::Decided;
use crate::effective::{Effective, Origin, Sourced};
use crate::fsmap::Grade;
use crate::layers::LayerKind;
use crate::plan::shown_in;
use crate::query::Query;
use crate::text::{quoted, quoted_tree};
use crate::tiers::{MATRIX, PushRule, Tier, stopping_line, stopping_tool, tier_of};
use crate::toolrule::ToolRule;
use bastle_contract::{AbsPath, Code, Mechanism};
use serde::Serialize;

/// The answer; the stricter is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request is refused.
    Deny,
    /// A person decides; without one attached: no.
    Ask,
    /// Yes.
    Allow,
}

/// The answer to one question, with its reasons.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Yes, no, or a person decides.
    pub outcome: Outcome,
    /// How much attention it gets.
    pub tier: Tier,
    /// The rule that decided and where it stands.
    pub rule: Option<(String, Origin)>,
    /// Why, in one sentence.
    pub reason: String,
    /// Stable code of a refusal.
    pub code: Option<Code>,
    /// What holds it.
    pub mechanism: Mechanism,
    /// Whether something outside the agent holds it; `false` is advice.
    pub enforced: bool,
    /// The rule that comes nearest to allowing it.
    pub nearest: Option<(String, Origin)>,
    /// What to do, as commands or settings.
    pub help: Vec<String>,
    /// Allowed only because the run learns: for reading, without credentials.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub learned: bool,
    /// Whether the bytes of the connection need not be TLS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
    /// Largest body that the rule allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body: Option<u64>,
}

/// Places every sandbox has of its own; the host's are not behind them.
pub(crate) const PRIVATE: &[&str] = &["/home/agent", "/tmp", "/var/tmp", "/dev/shm"];
const OWN: &[&str] = &["/proc", "/dev"];

/// Files made for each run.
pub(crate) const MADE: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/hostname",
    "/etc/nsswitch.conf",
];

/// Answers a question, for a person: with the rule that comes nearest to allowing it.
pub fn decide(effective: &Effective, query: &Query) -> Decision {
    let mut decision = judge(effective, query);
    if let (Query::Net(net), true, None) = (query, decision.outcome != Outcome::Allow, &decision.rule) {
        decision.nearest = effective.net.nearest(&net.host);
    }
    decision
}

/// Answers a question, for a machine. The same answer: [`decide`] only adds advice.
pub fn judge(effective: &Effective, query: &Query) -> Decision {
    match query {
        Query::Read(path) => read(effective, path),
        Query::Write(path) => write(effective, path),
        Query::Exec(line) => exec(effective, line),
        Query::Net(net) => effective.net.query(net),
        Query::Tool(text) => tool(effective, text),
    }
}

pub(crate) fn allowed(tier: Tier, mechanism: Mechanism, reason: impl Into<String>) -> Decision {
    Decision {
        outcome: Outcome::Allow,
        tier,
        rule: None,
        reason: reason.into(),
        code: None,
        mechanism,
        enforced: mechanism != Mechanism::Advisory,
        nearest: None,
        help: Vec::new(),
        learned: false,
        opaque: false,
        max_body: None,
    }
}

pub(crate) fn refused(
    outcome: Outcome,
    code: Code,
    mechanism: Mechanism,
    reason: impl Into<String>,
) -> Decision {
    Decision {
        outcome,
        code: Some(code),
        ..allowed(Tier::Stops, mechanism, reason)
    }
}

impl Decision {
    pub(crate) fn rule<T: ToString>(mut self, section: &str, rule: &Sourced<T>) -> Self {
        self.rule = Some((
            format!("{section} {}", rule.value.to_string())
                .trim_start()
                .to_owned(),
            rule.origin.clone(),
        ));
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}

pub(crate) fn within(path: &AbsPath, places: &[&str]) -> bool {
    places.iter().any(|place| {
        path.as_str()
            .strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn hidden(effective: &Effective, path: &AbsPath) -> Option<Decision> {
    let rule = effective.hidden_by(path)?;
    let decision = if rule.origin.layer == LayerKind::Floor {
        refused(
            Outcome::Deny,
            Code::FsFloor,
            Mechanism::Mount,
            "the hard floor hides it: credentials or bastle's own state",
        )
        .help(unprotect(effective, path))
    } else {
        refused(
            Outcome::Deny,
            Code::FsHidden,
            Mechanism::Mount,
            "a policy layer hides this name",
        )
        .help(format!("remove {} from fs.hide at {}", rule.value, rule.origin))
    };
    Some(decision.rule("fs.hide", rule))
}

/// The command that opens a path of the floor and as little else as can be.
fn unprotect(effective: &Effective, path: &AbsPath) -> String {
    let tree = shown_in(effective, path);
    let above = tree.and_then(|tree| {
        std::iter::successors(path.parent(), AbsPath::parent)
            .take_while(|at| at != tree && at.is_within(tree))
            .filter(|at| effective.hidden_by(at).is_some())
            .last()
    });
    let file = quoted(path);
    match (tree, above) {
        (Some(_), Some(above)) => format!(
            "bastle run --unprotect {} -- CMD   (opens all of {above}, which is hidden as a whole; if you mean it)",
            quoted_tree(&above)
        ),
        (Some(_), None) => {
            format!("bastle run --unprotect {file} -- CMD   (opens exactly this file, if you mean it)")
        }
        (None, _) => format!(
            "bastle run --ro {file} --unprotect {file} -- CMD   (shows exactly this file, if you mean it)"
        ),
    }
}

/// Whether the run has its own place here: nothing of the host is behind it, so no rule speaks about it.
fn is_private(effective: &Effective, path: &AbsPath) -> bool {
    within(path, PRIVATE) && !effective.shared.iter().any(|granted| path.is_within(granted))
}

fn read(effective: &Effective, path: &AbsPath) -> Decision {
    if is_private(effective, path) {
        return allowed(
            Tier::Silent,
            Mechanism::Mount,
            "the run has its own, empty at start; the host's is not behind it",
        );
    }
    if let Some(decision) = hidden(effective, path) {
        return decision;
    }
    match effective.fs.find(path) {
        Some((granted, reach)) if reach.grade > Grade::None => {
            let kind = if reach.system {
                "system.read"
            } else if reach.grade == Grade::Write {
                "fs.write"
            } else {
                "fs.read"
            };
            let rule = Sourced {
                value: granted.clone(),
                origin: reach.origin.clone(),
            };
            allowed(
                tier_of("fs", "read"),
                Mechanism::Mount,
                format!("{granted} is visible inside"),
            )
            .rule(kind, &rule)
        }
        Some(_) | None if within(path, OWN) || MADE.contains(&path.as_str()) => allowed(
            Tier::Silent,
            Mechanism::Mount,
            "made for this run; the host's is not behind it",
        ),
        lowered => {
            let mut decision = refused(
                Outcome::Deny,
                Code::FsRead,
                Mechanism::Mount,
                "no rule grants it, so it does not exist inside",
            )
            .help(format!("once     bastle run --ro {path} -- CMD"))
            .help(format!("always   add \"{path}\" to fs.read of your user policy"));
            if let Some((granted, reach)) = lowered {
                decision.reason = "a narrower layer leaves it out".to_owned();
                decision = decision.rule(
                    "fs",
                    &Sourced {
                        value: granted.clone(),
                        origin: reach.origin.clone(),
                    },
                );
            }
            decision.nearest = nearest_grant(effective, path);
            decision
        }
    }
}

fn write(effective: &Effective, path: &AbsPath) -> Decision {
    if is_private(effective, path) {
        let reason = "private to the run, gone with it; the host's is not behind it";
        return allowed(tier_of("fs", "write scratch"), Mechanism::Mount, reason);
    }
    if let Some(decision) = hidden(effective, path) {
        return decision;
    }
    match effective.fs.find(path) {
        Some((granted, reach)) if reach.grade == Grade::Write => {
            let rule = Sourced {
                value: granted.clone(),
                origin: reach.origin.clone(),
            };
            if let Some(protected) = effective.protected_by(path) {
                return refused(
                    Outcome::Ask,
                    Code::FsProtected,
                    Mechanism::Guard,
                    "a program on the host would execute it later",
                )
                .rule("fs.protect", protected)
                .help("make the change yourself after the run")
                .help(format!(
                    "once     bastle run --unprotect {} -- CMD   (opens exactly this file)",
                    quoted(path)
                ));
            }
            let operation = if path.is_within(&effective.surroundings.workspace) {
                "write workspace"
            } else {
                "write elsewhere"
            };
            allowed(
                tier_of("fs", operation),
                Mechanism::Mount,
                format!("{granted} is writable inside"),
            )
            .rule("fs.write", &rule)
        }
        found => {
            let granted = found.is_some_and(|(_, reach)| reach.grade > Grade::None);
            let reason = if granted {
                "it is visible for reading only"
            } else {
                "no rule grants it"
            };
            let mut decision = refused(Outcome::Deny, Code::FsWrite, Mechanism::Mount, reason);
            // Handing a system program to an agent for writing is never the advice.
            decision = if found.is_some_and(|(_, reach)| reach.system) {
                decision.help("no grant is proposed for a system directory")
            } else {
                decision
                    .help(format!("once     bastle run --rw {path} -- CMD"))
                    .help(format!("always   add \"{path}\" to fs.write of your user policy"))
            };
            if let Some((granted, reach)) = found {
                decision = decision.rule(
                    "fs.read",
                    &Sourced {
                        value: granted.clone(),
                        origin: reach.origin.clone(),
                    },
                );
            }
            decision.nearest = nearest_grant(effective, path);
            decision
        }
    }
}

/// The granted path that shares most leading components.
fn nearest_grant(effective: &Effective, path: &AbsPath) -> Option<(String, Origin)> {
    let shared = |other: &AbsPath| {
        path.as_str()
            .split('/')
            .zip(other.as_str().split('/'))
            .skip(1)
            .take_while(|(a, b)| a == b)
            .count()
    };
    let granted = effective.fs.iter().filter(|(_, reach)| reach.grade > Grade::None);
    let best = granted
        .map(|(granted, reach)| (shared(granted), granted, reach))
        .filter(|(n, _, _)| *n > 0);
    best.max_by_key(|(n, granted, _)| (*n, std::cmp::Reverse(*granted)))
        .map(|(_, granted, reach)| (format!("fs {granted}"), reach.origin.clone()))
}

fn exec(effective: &Effective, line: &str) -> Decision {
    let ruled = exec_by_rules(effective, line);
    if ruled.outcome != Outcome::Allow || has_allow_list(&effective.exec) {
        return ruled;
    }
    match stopping_line(line, push_rule(effective)) {
        Some(crate::commands::Judged {
            rule: Some(rule),
            reason,
            ..
        }) => asks_by_matrix(&rule, format!("tier 3 of the danger matrix: {reason}")),
        Some(_) | None => ruled,
    }
}

/// What the operator says about pushing.
pub(crate) fn push_rule(effective: &Effective) -> PushRule {
    match &effective.git.push {
        Some(rule) if rule.value == Decided::Allow && rule.origin.layer.is_trusted() => PushRule::Allowed,
        Some(_) | None => PushRule::Unstated,
    }
}

fn exec_by_rules(effective: &Effective, line: &str) -> Decision {
    let judged = strictest(effective.exec.iter().map(|tier| tier.judge_line(line)));
    let decision = command_decision(judged, "exec", tier_of("exec", line), line);
    if effective.lists_programs() {
        listed(effective, line, decision)
    } else {
        decision
    }
}

/// Whether the operator states what is allowed: then what is on that list was named by them, and the matrix asks no more.
/// Only the first tier counts: a project's list narrows.
fn has_allow_list(tiers: &[crate::commands::CommandTier]) -> bool {
    tiers.first().is_some_and(|tier| tier.allow.is_some())
}

/// Tier 3 asks where somebody can answer; where nobody can, what asks is refused.
fn asks_by_matrix(rule: &Sourced<String>, reason: String) -> Decision {
    refused(Outcome::Ask, Code::ExecCommand, Mechanism::Advisory, reason)
        .rule(MATRIX, rule)
        .help("it asks at launch and where a driven agent wants to use it; inside an agent that is not driven it is advice")
        .help("once     bastle run --approve -- CMD")
        .help("always   name it in exec.allow or tools.allow of your user policy: a list that must name all you allow")
}

fn command_decision(judged: crate::commands::Judged, section: &str, tier: Tier, what: &str) -> Decision {
    let mut decision = match judged.outcome {
        Outcome::Allow => allowed(tier, Mechanism::Advisory, judged.reason),
        outcome => refused(outcome, Code::ExecCommand, Mechanism::Advisory, judged.reason)
            .help("command rules are advice to the agent; the fence holds without them")
            .help(format!(
                "remove the rule from the layer that states it, or allow {:?} in {section}.allow",
                crate::text::shown(what)
            )),
    };
    if let Some(rule) = &judged.rule {
        decision = decision.rule(section, rule);
    }
    decision
}

fn tool(effective: &Effective, text: &str) -> Decision {
    let Ok(used) = ToolRule::new(text) else {
        return refused(
            Outcome::Deny,
            Code::UsageArgument,
            Mechanism::Advisory,
            "this is not the name of a tool",
        );
    };
    let judged = strictest(effective.tools.iter().map(|tier| tier.judge_tool(&used)));
    let mut own = command_decision(judged, "tools", tier_of("tool", &used.name), text);
    let listed = has_allow_list(&effective.tools);
    if let (Outcome::Allow, false, Some(row)) = (own.outcome, listed, stopping_tool(&used.name)) {
        own = asks_by_matrix(
            &row.sourced(),
            format!("tier 3 of the danger matrix: {}", row.why),
        );
    }
    let Some(argument) = &used.argument else {
        return own;
    };
    // What the tool would do is judged too: one evaluator, one answer.
    let question = match used.name.as_str() {
        "Read" | "NotebookRead" => Query::parse(&format!("read {argument}"), &effective.surroundings),
        "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => {
            Query::parse(&format!("write {argument}"), &effective.surroundings)
        }
        // A line that the operator's own list of tools names is judged by rules alone.
        _ if used.is_shell() && listed => {
            let effect = exec_by_rules(effective, argument);
            return if effect.outcome < own.outcome { effect } else { own };
        }
        _ if used.is_shell() => Ok(Query::Exec(argument.clone())),
        _ => return own,
    };
    match question.map(|question| decide(effective, &question)) {
        Ok(effect) if effect.outcome < own.outcome => effect,
        Ok(_) | Err(_) => own,
    }
}

impl From<Decided> for Outcome {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Allow => Self::Allow,
            Decided::Ask => Self::Ask,
            Decided::Deny => Self::Deny,
        }
    }
}

impl Outcome {
    /// The word used in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}
