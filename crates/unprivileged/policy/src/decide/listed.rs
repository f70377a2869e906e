//! What a decision on a command says where an allow list of programs is held inside.
use super::{Decision, Outcome};
use crate::command::CommandRule;
use crate::effective::Effective;
use bastle_contract::Mechanism;

/// What an allow list of commands holds inside: the program file, and nothing of its arguments.
pub(super) fn listed(effective: &Effective, line: &str, mut decision: Decision) -> Decision {
    let program = line.split_ascii_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let named = effective
        .exec
        .iter()
        .filter_map(|tier| tier.allow.as_ref())
        .all(|allow| {
            let rules = allow
                .iter()
                .filter_map(|rule| CommandRule::parse(&rule.value).ok());
            rules
                .map(|rule| rule.program().to_owned())
                .any(|own| own == program || (!own.contains('/') && own == name))
        });
    match decision.outcome {
        Outcome::Deny if !named => {
            decision.mechanism = Mechanism::Landlock;
            decision.enforced = true;
            decision
                .help
                .retain(|line| !line.starts_with("command rules are advice"));
            decision.help.insert(
                0,
                "no program outside exec.allow executes inside, whoever starts it".to_owned(),
            );
            decision
        }
        Outcome::Allow | Outcome::Ask | Outcome::Deny if named => decision.help(
            "inside, exec.allow holds the program file; its arguments and the scripts it reads are not held",
        ),
        Outcome::Allow | Outcome::Ask | Outcome::Deny => decision,
    }
}
