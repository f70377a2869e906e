//! `bastle doctor` on this host: it tries a real fence and tells what it found.
#![allow(clippy::expect_used, clippy::panic, unreachable_pub)] // Helpers of tests fail by panicking.

#[path = "cli_doctor/containers.rs"]
mod containers;
#[path = "cli_doctor/refusals.rs"]
mod refusals;
#[path = "support/mod.rs"]
mod support;

use serde_json::Value;
use support::{Ended, Lab, Limit, for_each_identity, run};

fn doctor(lab: &Lab, words: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = lab.command(support::bastle());
    command.arg("doctor").args(words).envs(env.iter().copied());
    run(&mut command, b"", Limit::HANG)
}

fn check<'v>(found: &'v Value, name: &str) -> &'v Value {
    let checks = found["checks"].as_array().expect("a list");
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no check {name}: {found}"))
}

#[test]
fn a_host_with_a_fence_is_told_so_with_the_proof() {
    for_each_identity(|lab| {
        let ended = doctor(lab, &["--json"], &[]);
        let found: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        assert_eq!(
            (ended.code, found["schema"].as_str(), found["native"].as_bool()),
            (0, Some("bastle.doctor/v1"), Some(true)),
            "{found}"
        );
        follows("doctor", &found);
        assert_eq!(check(&found, "fence")["state"], "ok");
        assert_eq!(
            (found["cause"].as_str(), found["fixes"].as_array().map(Vec::len)),
            (None, Some(0)),
            "{found}"
        );
        // Where files share no extents, what a copy costs is said with what avoids it: an overlay only where one works.
        let copies = check(&found, "copies");
        let told = copies["fix"].as_array().is_some_and(|fixes| fixes.len() == 1);
        assert_eq!(copies["state"] == "info", told, "{copies}");
        assert!(
            found["statement"]["probes"]
                .as_array()
                .is_some_and(|probes| probes.len() > 20)
        );
        assert!(found["score"]["tenths"].is_u64());
        for check in found["checks"].as_array().expect("a list") {
            assert!(
                check["fact"].as_str().is_some_and(|fact| !fact.is_empty()),
                "{check}"
            );
            assert!(check["state"] != "problem", "{check}");
            let bad = check["state"] == "warning";
            assert!(
                !bad || !check["fix"].as_array().expect("a list").is_empty(),
                "a warning without a fix: {check}"
            );
        }
        let human = doctor(lab, &[], &[]);
        assert_eq!(human.code, 0);
        assert!(
            human.stdout.contains("native fence proven") && human.stdout.contains("Result: 0 problems"),
            "{}",
            human.stdout
        );
        assert!(
            !lab.home().join(".local/state/bastle/audit").exists(),
            "looking leaves no record"
        );
    });
}

#[test]
fn a_host_without_a_fence_fails_and_says_why() {
    for_each_identity(|lab| {
        let ended = doctor(lab, &["--json"], &[("AGENT_IN_SANDBOX", "1")]);
        let found: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        assert_eq!((ended.code, found["native"].as_bool()), (1, Some(false)));
        follows("doctor", &found);
        let fence = check(&found, "fence");
        assert!(
            fence["state"] == "problem"
                && fence["fact"]
                    .as_str()
                    .is_some_and(|fact| fact.contains("BST-FENCE-006")),
            "{fence}"
        );
        assert_eq!(found["cause"], "already-fenced", "{found}");
        let human = doctor(lab, &[], &[("AGENT_IN_SANDBOX", "1")]);
        assert!(
            human.code == 1 && human.stdout.contains("does NOT work"),
            "{human:?}"
        );
    });
}

#[test]
fn an_agent_on_the_path_is_found_with_the_preset_that_shows_it_inside() {
    for_each_identity(|lab| {
        let agent = lab.plant(&lab.outside().join("bin/claude"), "#!/bin/sh\n");
        std::os::unix::fs::chown(&agent, None, None).expect("own file");
        std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("own file");
        let path = format!("{}:/usr/bin:/bin", agent.parent().expect("has one").display());
        let found: Value = serde_json::from_str(&doctor(lab, &["--json"], &[("PATH", &path)]).stdout)
            .expect("one JSON object");
        let agent_check = check(&found, "agent");
        let fact = agent_check["fact"].as_str().expect("a fact");
        let shown = format!("claude {} (preset claude@", agent.display());
        assert!(
            agent_check["state"] == "ok" && fact.starts_with(&shown),
            "{agent_check}"
        );
    });
}

#[test]
fn a_broken_policy_and_a_state_directory_that_cannot_be_written_are_problems() {
    for_each_identity(|lab| {
        lab.project("agent-permissions.json", "{");
        let found: Value =
            serde_json::from_str(&doctor(lab, &["--json"], &[("XDG_STATE_HOME", "/proc/none")]).stdout)
                .expect("one JSON object");
        assert_eq!(check(&found, "policy")["state"], "problem");
        assert_eq!(check(&found, "state")["state"], "problem");
    });
}

/// Fails unless `value` follows the schema of that name.
fn follows(name: &str, value: &Value) {
    let path = format!(
        "{}/crates/unprivileged/cli/schemas/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).expect("the schema is there");
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
