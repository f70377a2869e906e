//! `bastle demo` on this host: everything blocked, nothing left behind, as root and as an ordinary user.
#![allow(clippy::expect_used, clippy::panic, unreachable_pub)] // Helpers of tests fail by panicking.

#[path = "support/mod.rs"]
mod support;

use serde_json::Value;
use support::{Lab, Limit, for_each_identity, run};

fn demo(lab: &Lab, words: &[&str]) -> support::Ended {
    let place = lab.outside();
    let mut command = lab.command(support::bastle());
    command
        .arg("demo")
        .args(words)
        .env("TMPDIR", &place)
        .env("BASTLE_PRESET", "no-such-preset");
    run(&mut command, b"", Limit::HANG)
}

#[test]
fn every_attack_of_the_demo_is_blocked_and_nothing_is_left_behind() {
    for_each_identity(|lab| {
        let ended = demo(lab, &[]);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        assert!(
            ended.stdout.contains("8 of 8 attacks blocked, honest work done"),
            "{}",
            ended.stdout
        );
        assert!(ended.stdout.contains("capability") || ended.stdout.contains("Capability statement"));
        assert!(!ended.stdout.contains('\x1b'), "no colour in a pipe");
        assert!(!ended.stdout.contains("canary"), "a secret is shown");
        let wide: Vec<&str> = ended
            .stdout
            .lines()
            .filter(|line| {
                line.chars().count() > 80 && !line.contains(lab.outside().to_str().expect("UTF-8"))
            })
            .collect();
        assert!(wide.is_empty(), "wider than 80 columns: {wide:?}");
        assert_eq!(
            lab.outside().read_dir().expect("is there").count(),
            0,
            "something stays behind"
        );
        assert!(
            !lab.home().join(".local").exists(),
            "the demo keeps no record among the person's own"
        );
    });
}

#[test]
fn the_demo_tells_programs_the_same() {
    for_each_identity(|lab| {
        let ended = demo(lab, &["--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        assert_eq!(
            (ended.code, found["schema"].as_str(), found["ok"].as_bool()),
            (0, Some("bastle.demo/v1"), Some(true))
        );
        follows("demo", &found);
        let attacks = found["attacks"].as_array().expect("a list");
        assert_eq!(attacks.len(), 8);
        for attack in attacks {
            assert!(
                attack["blocked"] == true
                    && attack["intact"] == true
                    && attack["exit"] != 0
                    && attack["exit"] != 125,
                "{attack}"
            );
        }
        assert_eq!(found["audit"]["logs"], 9);
    });
}

#[test]
fn a_demo_that_cannot_run_does_not_claim_that_attacks_were_blocked() {
    for_each_identity(|lab| {
        let mut command = lab.command(support::bastle());
        command
            .arg("demo")
            .env("TMPDIR", lab.outside())
            .env("AGENT_IN_SANDBOX", "1");
        let ended = run(&mut command, b"", Limit::HANG);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(!ended.stdout.contains("blocked:"), "{}", ended.stdout);
        assert!(ended.stderr.contains("BST-FENCE-006"), "{}", ended.stderr);
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
