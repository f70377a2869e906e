//! `--dry-run-policy`: what would run, for people and for programs. Executes nothing, shows no secret.
use super::{PlanLine, Planned};
use crate::diff::diff;
use crate::effective::{Effective, Origin};
use crate::score::score_of;
use crate::text::shown;
use bastle_contract::{LaunchPlan, Waiver};
use serde_json::{Value, json};

/// The plan as text and as JSON (`bastle.plan/v1`).
#[derive(Clone, Debug)]
pub struct Rendered {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
}

/// Renders a plan; `baseline` is the policy of the preset alone, to show what the other layers changed.
#[must_use]
pub fn render_dry_run(effective: &Effective, planned: &Planned, baseline: Option<&Effective>) -> Rendered {
    Rendered {
        text: text(effective, planned, baseline),
        json: document(effective, planned, baseline),
    }
}

fn text(effective: &Effective, planned: &Planned, baseline: Option<&Effective>) -> String {
    let plan = &planned.plan;
    let mut lines = vec![
        effective.headline(),
        format!(
            "plan for {} on {} · policy {} · nothing was executed",
            shown(plan.run.as_str()),
            plan.backend,
            plan.policy
        ),
        String::new(),
        format!(
            "{:<12} {:<44} {:<10} {:<22} {}",
            "SECTION", "RULE", "HELD BY", "PROVEN BY", "ORIGIN"
        ),
    ];
    // A preset names paths of many systems: those of other systems are no news to a person.
    let news = |line: &&PlanLine| !(line.section == "system.read" && line.note.contains("skipped"));
    for line in planned.listing.iter().filter(news) {
        let PlanLine {
            section,
            rule,
            origin,
            mechanism,
            probe,
            note,
        } = line;
        let probe = probe.map_or("-", |probe| probe.name());
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("  ({note})")
        };
        lines.push(shown(&format!(
            "{section:<12} {rule:<44} {:<10} {probe:<22} {origin}{note}",
            mechanism.name()
        )));
    }
    lines.push(String::new());
    for request in &effective.not_granted {
        lines.push(shown(&format!(
            "requested, not granted: {} ({})",
            request.what, request.origin
        )));
    }
    for inactive in &effective.inactive {
        lines.push(shown(&format!(
            "inactive: {} ({}): {}",
            inactive.what, inactive.origin, inactive.reason
        )));
    }
    if let Some(baseline) = baseline {
        for line in diff(baseline, effective) {
            let sign = if line.wider { '+' } else { '-' };
            lines.push(shown(&format!("{sign} {} {}", line.section, line.what)));
        }
    }
    for waiver in &plan.waivers {
        lines.push(match waiver {
            Waiver::Limit(_) => format!("WAIVED: {waiver} is not held"),
            Waiver::Layer(_) if plan.is_without_landlock() => {
                format!("WAIVED: the fence is built without {waiver}")
            }
            Waiver::Layer(_) => format!("{waiver} is enforced: this kernel has it"),
        });
    }
    for kind in &effective.net.budget.waived {
        lines.push(format!(
            "WAIVED: budget.{} counts only what can be counted",
            kind.name()
        ));
    }
    let score = score_of(effective, plan);
    lines.push(format!(
        "score {}.{} {}",
        score.tenths / 10,
        score.tenths % 10,
        score.word
    ));
    lines.push(String::new());
    lines.join("\n")
}

fn place(origin: &Origin) -> Value {
    json!({ "layer": origin.layer.name(), "file": origin.file, "line": origin.line })
}

fn document(effective: &Effective, planned: &Planned, baseline: Option<&Effective>) -> Value {
    let rules: Vec<Value> = planned
        .listing
        .iter()
        .map(|line| {
            json!({
                "section": line.section, "rule": line.rule, "origin": place(&line.origin), "mechanism": line.mechanism,
                "probe": line.probe, "note": line.note,
            })
        })
        .collect();
    let layers: Vec<Value> = effective
        .layers
        .iter()
        .map(|(kind, name)| json!({ "layer": kind.name(), "name": name }))
        .collect();
    json!({
        "schema": "bastle.plan/v1",
        "headline": effective.headline(),
        "layers": layers,
        "mode": effective.mode.value,
        "digest": effective.digest(),
        "rules": rules,
        "notGranted": effective.not_granted,
        "inactive": effective.inactive,
        "summary": effective.summary,
        "diff": baseline.map(|baseline| diff(baseline, effective)),
        "score": score_of(effective, &planned.plan),
        "secrets": effective.secrets.iter().map(|s| json!({ "name": s.value.name, "from": "[redacted]", "origin": place(&s.origin) })).collect::<Vec<_>>(),
        "plan": redacted(&planned.plan),
    })
}

/// Variables named by the policy or the command line may hold anything: only bastle's own values are shown.
const SHOWN: &[&str] = &[
    "PATH",
    "HOME",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "AGENT_IN_SANDBOX",
    "BASTLE_SESSION",
];

fn redacted(plan: &LaunchPlan) -> Value {
    let mut plan = plan.clone();
    for (name, value) in &mut plan.env {
        if !SHOWN.contains(&name.as_str()) {
            *value = "[redacted]".to_owned();
        }
    }
    // A plan is plain data: turning it into JSON cannot fail; were it to, nothing is shown rather than too much.
    serde_json::to_value(&plan).unwrap_or(Value::Null)
}
