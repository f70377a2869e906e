//! Listings: presets, and commands that are stopped.
use super::Common;
use crate::context::{Context, Ended, Format};
use crate::render::{Paint, Table};
use bastle_policy::command::{CommandRule, CommandRules, blocked as listed};
use bastle_policy::{Effective, Origin, Sourced, Tier, danger_matrix};
use serde_json::{Value, json};

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

/// One rule that stops a command or a tool.
struct Stop {
    section: String,
    rule: String,
    example: String,
    origin: Origin,
}

/// Lists what is denied or asked about.
pub(super) fn blocked(common: &Common, cx: &Context) -> Ended {
    let effective = common.source.load()?.effective;
    let stops = stops(&effective);
    let matrix = danger_matrix().iter().filter(|row| row.tier == Tier::Stops);
    if common.json {
        let rules: Vec<Value> = stops
            .iter()
            .map(|stop| json!({ "section": stop.section, "rule": stop.rule, "example": stop.example, "origin": stop.origin, "held": "advisory" }))
            .collect();
        let matrix: Vec<Value> = matrix
            .map(|row| json!({ "kind": row.kind, "name": row.name, "why": row.why }))
            .collect();
        cx.print_json(
            &json!({ "schema": "bastle.policy-blocked-commands/v1", "rules": rules, "tier3": matrix }),
        )?;
        return Ok(0);
    }
    let mut table = Table::new(&["LIST", "RULE", "FOR EXAMPLE", "ORIGIN"]);
    for stop in &stops {
        let paint = if stop.section.ends_with("deny") {
            Paint::Bad
        } else {
            Paint::Warn
        };
        table.row([
            (&stop.section, paint),
            (&stop.rule, Paint::Bold),
            (&stop.example, Paint::Plain),
            (&stop.origin.to_string(), Paint::Dim),
        ]);
    }
    let mut text = if table.is_empty() {
        "no rule of this policy denies or asks about a command\n".to_owned()
    } else {
        table.render(cx.out)
    };
    let mut tiers = Table::new(&["KIND", "TIER 3", "WHY"]);
    for row in matrix {
        tiers.row([
            (&row.kind, Paint::Plain),
            (&row.name, Paint::Bold),
            (&row.why, Paint::Plain),
        ]);
    }
    text.push_str(&format!(
        "\ncommand rules are advisory: the fence holds without them\n\n{}",
        tiers.render(cx.out)
    ));
    cx.print(&text)?;
    Ok(0)
}

fn stops(effective: &Effective) -> Vec<Stop> {
    let mut stops = Vec::new();
    for (section, tiers) in [("exec", &effective.exec), ("tools", &effective.tools)] {
        for tier in tiers {
            for (list, rules) in [("deny", &tier.deny), ("ask", &tier.ask)] {
                for rule in rules {
                    let example = if section == "exec" {
                        example(rule)
                    } else {
                        String::new()
                    };
                    stops.push(Stop {
                        section: format!("{section}.{list}"),
                        rule: rule.value.clone(),
                        example,
                        origin: rule.origin.clone(),
                    });
                }
            }
        }
    }
    stops
}

/// A command that the rule stops.
fn example(rule: &Sourced<String>) -> String {
    let deny = CommandRule::parse_restriction(&rule.value).into_iter().collect();
    listed(&CommandRules {
        deny,
        ..CommandRules::default()
    })
    .into_iter()
    .next()
    .map(|blocked| blocked.example)
    .unwrap_or_default()
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
