//! Tier 3 acts, and what is listed as blocked is what the evaluator stops.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_policy::{
    BlockedEntry, LaunchApproval, LaunchRequest, LayerKind, Outcome, Permit, Tier, Verdict, blocked_list,
    danger_matrix, decide_launch, permit, preamble,
};
use common::{answer, ask, layer, merged, with_default};
use proptest::prelude::*;

fn presets() -> Vec<(&'static str, bastle_policy::Effective)> {
    let one = |name: &&'static str| {
        let layers = bastle_policy::default_layers(name).unwrap();
        (*name, merged(&layers))
    };
    bastle_policy::names().iter().map(one).collect()
}

#[test]
fn every_row_of_tier_3_asks_or_is_denied_in_every_preset() {
    for (preset, policy) in presets() {
        let list = blocked_list(&policy);
        let rows: Vec<_> = danger_matrix()
            .iter()
            .filter(|row| row.tier == Tier::Stops)
            .collect();
        for row in &rows {
            let listed = list
                .tier3
                .iter()
                .find(|entry| entry.section == row.kind && entry.rule == row.name);
            // A preset with an allow list of its own answers by that list.
            let open = preset_reaches(&policy, row.kind);
            assert!(listed.is_some() || open, "{preset}: {} {}", row.kind, row.name);
        }
        assert!(list.tier3.len() > 60, "{preset}: {}", list.tier3.len());
    }
}

fn preset_reaches(policy: &bastle_policy::Effective, kind: &str) -> bool {
    kind == "net" && policy.net.mode == bastle_policy::NetMode::Open
}

#[test]
fn nothing_that_is_listed_as_blocked_is_allowed_when_asked() {
    for (preset, policy) in presets() {
        let list = blocked_list(&policy);
        for BlockedEntry { example, outcome, .. } in list.rules.iter().chain(&list.tier3) {
            let said = answer(&policy, example);
            assert_ne!(said, Outcome::Allow, "{preset}: {example}");
            assert_eq!(said, *outcome, "{preset}: {example}");
        }
    }
}

#[test]
fn a_command_of_tier_3_asks_however_it_is_spelled_and_its_neighbours_do_not() {
    let policy = merged(&with_default(&[]));
    for line in [
        "docker ps",
        "docker",
        "/usr/bin/docker ps",
        "d'o'cker ps",
        "ls && docker ps",
        "sh -c 'docker ps'",
        "env X=1 docker ps",
        "ssh host",
        "npm publish",
        "kubectl get pods",
        "sudo id",
        "mount /dev/sda /mnt",
        "timeout 5 ssh host",
        "git push origin main",
    ] {
        let said = ask(&policy, &format!("exec {line}"));
        assert_eq!(said.outcome, Outcome::Ask, "{line}: {said:?}");
        assert_eq!(said.tier, Tier::Stops, "{line}");
    }
    for line in [
        "ls",
        "cat docker.txt",
        "npm test",
        "cargo test",
        "git status",
        "echo ssh-agent",
        "dockerfmt x",
    ] {
        assert_eq!(answer(&policy, &format!("exec {line}")), Outcome::Allow, "{line}");
    }
    for tool in [
        "WebSearch",
        "websearch",
        "mcp__x__delete_y",
        "mcp__x__publish_y",
        "Bash(docker ps)",
    ] {
        assert_eq!(answer(&policy, &format!("tool {tool}")), Outcome::Ask, "{tool}");
    }
    for tool in ["Read", "Bash(cargo test)", "mcp__x__get_y", "WebFetch"] {
        assert_eq!(answer(&policy, &format!("tool {tool}")), Outcome::Allow, "{tool}");
    }
}

#[test]
fn only_the_operator_answers_for_tier_3() {
    let user = r#"{"version": 1, "exec": {"allow": ["docker ps"]}, "tools": {"allow": ["WebSearch", "Bash(ssh build *)"]}}"#;
    let policy = merged(&with_default(&[(LayerKind::User, user)]));
    assert_eq!(answer(&policy, "exec docker ps"), Outcome::Allow);
    assert_ne!(answer(&policy, "exec docker rm x"), Outcome::Allow);
    assert_eq!(answer(&policy, "tool WebSearch"), Outcome::Allow);
    let project = r#"{"version": 1, "exec": {"allow": ["docker ps"]}, "tools": {"allow": ["WebSearch"]}, "git": {"push": "allow"}}"#;
    let policy = merged(&with_default(&[(LayerKind::Project, project)]));
    for question in ["exec docker ps", "tool WebSearch", "exec git push"] {
        assert_ne!(answer(&policy, question), Outcome::Allow, "{question}");
    }
    let user = r#"{"version": 1, "git": {"push": "allow"}}"#;
    let policy = merged(&with_default(&[(LayerKind::User, user)]));
    assert_eq!(answer(&policy, "exec git push origin x"), Outcome::Allow);
    assert_eq!(answer(&policy, "exec docker ps"), Outcome::Ask);
}

#[test]
fn a_launch_of_tier_3_needs_a_person_and_a_denied_one_stays_denied() {
    let policy = merged(&with_default(&[(
        LayerKind::User,
        r#"{"version": 1, "exec": {"deny": ["sudo"]}}"#,
    )]));
    let verdict = |argv: &[&str], approval| {
        let request = LaunchRequest {
            approval,
            ..common::launch::request(argv)
        };
        match decide_launch(&policy, request) {
            Verdict::Granted(_) => "granted",
            Verdict::NeedsApproval(_) => "asks",
            Verdict::Denied(_) => "denied",
        }
    };
    assert_eq!(verdict(&["docker", "ps"], LaunchApproval::None), "asks");
    assert_eq!(verdict(&["docker", "ps"], LaunchApproval::Person), "granted");
    assert_eq!(verdict(&["sudo", "id"], LaunchApproval::Person), "denied");
    assert_eq!(verdict(&["cargo", "test"], LaunchApproval::None), "granted");
}

#[test]
fn a_driven_agents_tool_of_tier_3_goes_to_a_person() {
    let policy = merged(&with_default(&[]));
    for used in ["WebSearch", "mcp__github__merge_pull_request", "Bash(docker ps)"] {
        assert_eq!(permit(&policy, used), Permit::Ask, "{used}");
    }
}

#[test]
fn the_agent_is_told_what_asks_first() {
    let policy = merged(&with_default(&[]));
    let text = preamble(&policy, &bastle_policy::PreambleFacts::default());
    let line = text
        .lines()
        .find(|line| line.starts_with("- commands that ask first:"))
        .unwrap();
    assert!(line.contains("git push *") && line.contains("more"), "{line}");
    let line = text
        .lines()
        .find(|line| line.starts_with("- tools that ask first:"))
        .unwrap();
    assert!(line.contains("WebSearch"), "{line}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever rules an operator and a project state, the list and the evaluator agree.
    #[test]
    fn the_list_and_the_evaluator_agree_under_any_rules(
        user in rules(), project in rules(), push in prop_oneof![Just("allow"), Just("ask"), Just("deny")],
    ) {
        let user = user.replacen('{', &format!("{{\"git\": {{\"push\": \"{push}\"}},"), 1);
        let mut layers = with_default(&[]);
        layers.push(layer(LayerKind::User, &user));
        layers.push(layer(LayerKind::Project, &project));
        let policy = merged(&layers);
        let list = blocked_list(&policy);
        for entry in list.rules.iter().chain(&list.tier3) {
            prop_assert_eq!(answer(&policy, &entry.example), entry.outcome, "{}", entry.example);
            prop_assert_ne!(entry.outcome, Outcome::Allow, "{}", entry.example);
        }
    }
}

fn rules() -> impl Strategy<Value = String> {
    let commands = prop::sample::subsequence(
        vec!["docker *", "ssh *", "ls", "git push *", "cargo test *", "sudo"],
        0..4,
    );
    let tools = prop::sample::subsequence(vec!["WebSearch", "Read", "mcp__x__*", "Bash(docker *)"], 0..3);
    let list = |items: &[&str]| serde_json::to_string(items).unwrap();
    (commands.clone(), commands, tools, any::<bool>()).prop_map(move |(ask, deny, tools, allow)| {
        let allow = if allow {
            format!(", \"allow\": {}", list(&["ls", "docker ps"]))
        } else {
            String::new()
        };
        format!(
            "{{\"version\": 1, \"exec\": {{\"ask\": {}, \"deny\": {}{allow}}}, \"tools\": {{\"ask\": {}}}}}",
            list(&ask),
            list(&deny),
            list(&tools)
        )
    })
}
