//! Listings: presets, and commands that are stopped.
use super::Common;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table};
use bastle_policy::{BlockedList, Outcome, blocked_list, danger_matrix, danger_matrix_page};
use serde_json::json;

/// What each preset is for.
pub(in crate::commands) fn purpose(name: &str) -> &'static str {
    match name {
        "default" => "the system's programs readable, the workspace writable, nothing else of the host",
        "dev" => "default, and toolchains in the home directory readable",
        "read-only" => "default, but nothing of the workspace can be written",
        "safe-unrestricted" => "default with limits; only commands that go outward or cannot be undone ask",
        "claude" => "what Claude Code needs, on top of default",
        "codex" => "what Codex needs, on top of default",
        "opencode" => "what opencode needs, on top of default",
        "gemini" => "what Gemini CLI needs, on top of default",
        "aider" => "what aider needs, on top of default",
        _ => "",
    }
}

/// Lists the presets.
pub(super) fn presets(format: Format, cx: &Context) -> Ended {
    let mut table = Table::new(&["PRESET", "VERSION", "PURPOSE"]);
    let mut all = Vec::new();
    for name in bastle_policy::names() {
        let layer = bastle_policy::preset(name)?;
        let version = layer
            .name
            .split_once('@')
            .map(|(_, version)| version)
            .unwrap_or_default();
        all.push(json!({ "name": name, "version": version, "purpose": purpose(name) }));
        table.row([
            (name, Paint::Bold),
            (version, Paint::Plain),
            (purpose(name), Paint::Plain),
        ]);
    }
    match format {
        Format::Json => cx.print_json(&json!({ "schema": "bastle.policy-presets/v1", "presets": all }))?,
        Format::Human => cx.print(&table.render(cx.out))?,
    }
    Ok(0)
}

/// Lists what is denied or asked about, as the evaluator decides it.
pub(super) fn blocked(common: &Common, cx: &Context) -> Ended {
    let effective = common.source.load()?.effective;
    let BlockedList { rules, tier3 } = blocked_list(&effective);
    if common.json {
        cx.print_json(
            &json!({ "schema": "bastle.policy-blocked-commands/v1", "rules": rules, "tier3": tier3 }),
        )?;
        return Ok(0);
    }
    let mut table = Table::new(&["LIST", "RULE", "DECISION", "FOR EXAMPLE", "ORIGIN"]);
    for entry in &rules {
        table.row([
            (entry.section.as_str(), Paint::Plain),
            (&entry.rule, Paint::Bold),
            (entry.outcome.name(), paint(entry.outcome)),
            (&entry.example, Paint::Plain),
            (
                &entry.origin.as_ref().map(ToString::to_string).unwrap_or_default(),
                Paint::Dim,
            ),
        ]);
    }
    let mut text = if table.is_empty() {
        "no rule of this policy denies or asks about a command\n".to_owned()
    } else {
        table.render(cx.out)
    };
    let mut tiers = Table::new(&["KIND", "TIER 3", "DECISION", "WHY"]);
    for entry in &tier3 {
        tiers.row([
            (entry.section.as_str(), Paint::Plain),
            (&entry.rule, Paint::Bold),
            (entry.outcome.name(), paint(entry.outcome)),
            (&entry.why, Paint::Plain),
        ]);
    }
    text.push_str(&format!(
        "\n{}\ncommand and tool rules act at launch and for driven agents; inside an agent that is not driven they are \
         advisory, and the fence holds without them\n",
        tiers.render(cx.out)
    ));
    cx.print(&text)?;
    Ok(0)
}

fn paint(outcome: Outcome) -> Paint {
    match outcome {
        Outcome::Deny => Paint::Bad,
        Outcome::Ask => Paint::Warn,
        Outcome::Allow => Paint::Plain,
    }
}

/// How the matrix is printed.
pub(super) enum MatrixForm {
    Table,
    Json,
    /// The page of the documentation.
    Markdown,
}

/// Prints the whole matrix.
pub(super) fn matrix(form: MatrixForm, cx: &Context) -> Ended {
    match form {
        MatrixForm::Json => {
            cx.print_json(&json!({ "schema": "bastle.policy-danger-matrix/v1", "rows": danger_matrix() }))?;
            return Ok(0);
        }
        MatrixForm::Markdown => {
            cx.print(&danger_matrix_page())?;
            return Ok(0);
        }
        MatrixForm::Table => {}
    }
    let mut table = Table::new(&["TIER", "KIND", "NAME", "WHY"]);
    for row in danger_matrix() {
        table.row([
            (row.tier.number().to_string().as_str(), Paint::Plain),
            (row.kind, Paint::Plain),
            (row.name, Paint::Bold),
            (row.why, Paint::Plain),
        ]);
    }
    cx.print(&table.render(cx.out))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_is_for() {
        for name in bastle_policy::names() {
            assert!(!purpose(name).is_empty(), "{name}");
        }
    }
}
