//! One voice for every answer: what, why, which rule, what holds it, and the command that changes it.
use crate::decide::{Decision, Outcome};
use crate::query::Query;
use crate::text::shown;

/// The answer in lines for a person.
#[must_use]
pub fn explain(decision: &Decision, query: &Query) -> String {
    let (mark, word) = match decision.outcome {
        Outcome::Allow => ('✓', "allowed"),
        Outcome::Ask => ('?', "asks"),
        Outcome::Deny => ('✗', "denied"),
    };
    let code = decision.code.map(|code| format!("   {code}")).unwrap_or_default();
    let mut lines = vec![format!("{mark} {word} {}{code}", shown(&query.to_string()))];
    let mut why = shown(&decision.reason);
    match &decision.rule {
        Some((rule, origin)) => why.push_str(&format!(
            ".  Rule: {} ({})",
            shown(rule),
            shown(&origin.to_string())
        )),
        None => why.push('.'),
    }
    if let Some((near, origin)) = &decision.nearest {
        why.push_str(&format!(
            "  Nearest: {} ({})",
            shown(near),
            shown(&origin.to_string())
        ));
    }
    lines.push(format!("   ╰─ {why}"));
    let held = if decision.enforced {
        format!("enforced: {}", decision.mechanism)
    } else {
        "advisory: nothing outside the agent holds this rule".to_owned()
    };
    lines.push(format!("      tier {} · {held}", decision.tier.number()));
    for (index, help) in decision.help.iter().enumerate() {
        lines.push(format!(
            "  {} {}",
            if index == 0 { "help:" } else { "     " },
            shown(help)
        ));
    }
    lines.join("\n")
}
