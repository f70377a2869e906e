//! Profiles: what is read, what is refused, and the command line that comes of one.
#![allow(clippy::unwrap_used, clippy::panic)]
use bastle_contract::{Argv, LimitKind};
use bastle_policy::profile::{How, builtin, builtins, parse};
use bastle_policy::{PROFILE_SCHEMA, Profile, PromptBy};
use proptest::prelude::*;

fn read(text: &str) -> Profile {
    parse("p.json", text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:#?}"))
}

/// Profiles that both the schema and the parser take.
const GOOD: &[&str] = &[
    r#"{"version": 1, "name": "a"}"#,
    r#"{"$schema": "x", "version": 1, "name": "a.b_c-9", "description": "d", "agent": "my-agent"}"#,
    r#"{"version": 1, "name": "a", "command": ["x", "-m", "{model}", "{prompt}"], "model": "m/1:b@c-d.e[1m]"}"#,
    r#"{"version": 1, "name": "a", "command": ["x"], "prompt": "none", "skipPermissions": false}"#,
    r#"{"version": 1, "name": "a", "agent": "claude", "command": ["claude", "-p"], "model": "m", "models": ["n"]}"#,
    r#"{"version": 1, "name": "a", "tools": {"allow": ["Read", "Bash(cargo test *)", "mcp__x__*"], "deny": ["Bash", "*"]}}"#,
    r#"{"version": 1, "name": "a", "timeout": "24h", "maxTurns": 1000, "concurrency": 64}"#,
    r#"{"version": 1, "name": "a", "timeout": "1s", "maxTurns": 1, "concurrency": 1}"#,
    r#"{"version": 1, "name": "a", "preset": "read-only", "policy": {"version": 1, "net": {"allow": ["a.com"]}}}"#,
    r#"{"version": 1, "name": "a", "env": {"A": "b", "_c": ""}}"#,
    r#"{"version": 1, "name": "a", "driver": "acp", "command": ["x", "{prompt}"], "driven": ["x", "acp"]}"#,
    r#"{"version": 1, "name": "a", "driver": "plain"}"#,
];

/// Profiles that both refuse.
const BAD: &[&str] = &[
    "[]",
    "{}",
    r#"{"version": 1}"#,
    r#"{"name": "a"}"#,
    r#"{"version": 2, "name": "a"}"#,
    r#"{"version": 1, "name": "A"}"#,
    r#"{"version": 1, "name": "../x"}"#,
    r#"{"version": 1, "name": ""}"#,
    r#"{"version": 1, "name": "a", "nope": 1}"#,
    r#"{"version": 1, "name": "a", "agent": "a b"}"#,
    r#"{"version": 1, "name": "a", "command": "x"}"#,
    r#"{"version": 1, "name": "a", "command": [""]}"#,
    r#"{"version": 1, "name": "a", "command": ["a\u0000b"]}"#,
    r#"{"version": 1, "name": "a", "prompt": "file"}"#,
    r#"{"version": 1, "name": "a", "skipPermissions": true}"#,
    r#"{"version": 1, "name": "a", "skipPermissions": "false"}"#,
    r#"{"version": 1, "name": "a", "tools": {"allow": ["Bash"]}}"#,
    r#"{"version": 1, "name": "a", "tools": {"allow": ["bash(*)"]}}"#,
    r#"{"version": 1, "name": "a", "tools": {"allow": ["*"]}}"#,
    r#"{"version": 1, "name": "a", "tools": {"allow": ["-x"]}}"#,
    r#"{"version": 1, "name": "a", "tools": {"ask": ["Read"]}}"#,
    r#"{"version": 1, "name": "a", "timeout": 15}"#,
    r#"{"version": 1, "name": "a", "maxTurns": 0}"#,
    r#"{"version": 1, "name": "a", "maxTurns": 1001}"#,
    r#"{"version": 1, "name": "a", "maxTurns": 1.5}"#,
    r#"{"version": 1, "name": "a", "concurrency": 0}"#,
    r#"{"version": 1, "name": "a", "concurrency": 65}"#,
    r#"{"version": 1, "name": "a", "agent": "claude", "command": ["claude"], "model": "--x"}"#,
    r#"{"version": 1, "name": "a", "agent": "claude", "command": ["claude"], "models": "m"}"#,
    r#"{"version": 1, "name": "a", "preset": "../x"}"#,
    r#"{"version": 1, "name": "a", "policy": {}}"#,
    r#"{"version": 1, "name": "a", "env": {"LD_PRELOAD": "x"}}"#,
    r#"{"version": 1, "name": "a", "env": {"A": 1}}"#,
    r#"{"version": 1, "name": "a", "driver": "telepathy", "command": ["x"]}"#,
    r#"{"version": 1, "name": "a", "driver": "acp", "driven": "x"}"#,
];

/// Profiles that only the parser can refuse.
const CONTRADICTORY: &[&str] = &[
    r#"{"version": 1, "name": "a", "timeout": "25h"}"#,
    r#"{"version": 1, "name": "a", "timeout": "999ms"}"#,
    r#"{"version": 1, "name": "a", "command": ["sh", "-c", "x {prompt}"]}"#,
    r#"{"version": 1, "name": "a", "command": ["x", "{prompt}"], "prompt": "stdin"}"#,
    r#"{"version": 1, "name": "a", "command": ["x", "{prompt}", "{prompt}"]}"#,
    r#"{"version": 1, "name": "a", "command": ["x"], "prompt": "argument"}"#,
    r#"{"version": 1, "name": "a", "command": ["{prompt}"]}"#,
    r#"{"version": 1, "name": "a", "command": ["x", "{model}"]}"#,
    r#"{"version": 1, "name": "a", "command": ["x"], "model": "m"}"#,
    r#"{"version": 1, "name": "a", "agent": "shell", "command": ["sh"], "models": ["m"]}"#,
    r#"{"version": 1, "name": "a", "preset": "nope"}"#,
    r#"{"version": 1, "name": "a", "policy": {"version": 1, "nope": 1}}"#,
    r#"{"version": 1, "name": "a", "policy": {"version": 1, "tools": {"allow": ["Read"]}}}"#,
    r#"{"version": 1, "name": "a", "timeout": "1m", "policy": {"version": 1, "limits": {"timeout": "2m"}}}"#,
    r#"{"version": 1, "name": "a", "policy": {"version": 1, "limits": {"timeout": "3d"}}}"#,
    r#"{"version": 1, "name": "a", "maxTurns": 5, "policy": {"version": 1, "budget": {"turns": 9}}}"#,
    r#"{"version": 1, "name": "a", "policy": {"version": 1, "budget": {"turns": 1001}}}"#,
    r#"{"version": 1, "name": "a", "env": {"A": "1"}, "policy": {"version": 1, "env": {"set": {"A": "2"}}}}"#,
    r#"{"version": 1, "name": "a", "agent": "claude", "command": ["claude", "--dangerously-skip-permissions"]}"#,
    r#"{"version": 1, "name": "a", "agent": "codex", "command": ["codex", "exec", "--sandbox", "danger-full-access"]}"#,
    r#"{"version": 1, "name": "a", "agent": "gemini", "command": ["gemini", "--yolo"]}"#,
    r#"{"version": 1, "name": "a", "driven": ["x"]}"#,
    r#"{"version": 1, "name": "a", "driver": "acp", "driven": ["x", "{prompt}"]}"#,
    r#"{"version": 1, "name": "a", "driver": "acp", "command": ["x", "{prompt}"]}"#,
    r#"{"version": 1, "name": "a", "agent": "gemini", "driver": "acp", "driven": ["gemini", "--yolo"]}"#,
];

#[test]
fn the_published_schema_and_the_parser_agree() {
    let schema: serde_json::Value = serde_json::from_str(PROFILE_SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (texts, schema_takes, parser_takes) in [
        (GOOD, true, true),
        (BAD, false, false),
        (CONTRADICTORY, true, false),
    ] {
        for text in texts {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(validator.is_valid(&value), schema_takes, "schema: {text}");
            assert_eq!(
                parse("x", text.as_bytes()).is_ok(),
                parser_takes,
                "parser: {text}"
            );
        }
    }
}

#[test]
fn every_built_in_profile_reads_back_from_what_it_prints_and_obeys_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(PROFILE_SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for name in builtins() {
        let profile = builtin(name).unwrap();
        assert_eq!(profile.name, name);
        let printed = profile.to_json();
        assert!(validator.is_valid(&printed), "{printed}");
        assert_eq!(read(&printed.to_string()), profile);
        assert_eq!((profile.timeout_ms, profile.max_turns), (900_000, 50));
    }
    assert!(builtin("claud").unwrap_err().help[0].contains("claude"));
}

#[test]
fn a_message_points_at_the_key_that_is_wrong() {
    let faults = parse(
        "p.json",
        b"{\n  \"version\": 1, \"name\": \"a\",\n  \"maxTurn\": 5\n}",
    )
    .unwrap_err();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].why.contains("p.json:3:3"), "{}", faults[0].why);
    assert!(faults[0].help[0].contains("maxTurns"));
    let inside = r#"{"version": 1, "name": "a", "policy": {"version": 1,
  "fs": {"raed": []}}}"#;
    let faults = parse("p.json", inside.as_bytes()).unwrap_err();
    assert!(faults[0].why.contains("p.json:2:10"), "{}", faults[0].why);
}

#[test]
fn a_profile_larger_than_64_kib_is_refused_unread() {
    let text = format!(
        r#"{{"version": 1, "name": "a", "description": "{}"}}"#,
        "x".repeat(70_000)
    );
    assert!(parse("p", text.as_bytes()).is_err());
}

#[test]
fn a_prompt_that_begins_with_a_dash_never_becomes_a_switch_of_the_agent() {
    let profile = read(r#"{"version": 1, "name": "a", "command": ["x", "{prompt}", "-q"]}"#);
    assert_eq!(profile.prompt, PromptBy::Argument);
    assert!(profile.argv(Some("--yolo")).is_err());
    assert!(profile.argv(None).is_err());
    assert!(profile.argv(Some(&"x".repeat(200_000))).is_err());
    let (argv, input) = profile.argv(Some("do it")).unwrap();
    assert_eq!(argv.as_slice(), ["x", "do it", "-q"]);
    assert_eq!(input, None);
}

#[test]
fn a_prompt_on_standard_input_is_no_part_of_the_command_line() {
    let claude = builtin("claude").unwrap();
    let (argv, input) = claude.argv(Some("--yolo")).unwrap();
    assert_eq!(input.as_deref(), Some("--yolo"));
    assert!(!argv.as_slice().iter().any(|word| word == "--yolo"));
    let words = argv.as_slice();
    let turns = words.iter().position(|word| word == "--max-turns").unwrap();
    assert_eq!(words[turns + 1], "50");
    assert!(words.iter().any(|word| word == "Bash(git status *)"));
    let none = read(r#"{"version": 1, "name": "a", "command": ["x"], "prompt": "none"}"#);
    assert!(none.argv(Some("hello")).is_err());
    assert!(none.argv(None).is_ok());
}

#[test]
fn a_request_cannot_put_its_own_command_under_the_name_of_a_profile_that_has_one() {
    let argv = Argv::try_from(vec!["sh".to_owned()]).unwrap();
    assert!(builtin("claude").unwrap().argv_of(&argv, Some("x")).is_err());
    let default = builtin("default").unwrap();
    assert_eq!(
        default.argv_of(&argv, Some("x")).unwrap(),
        (argv.clone(), Some("x".to_owned()))
    );
    assert_eq!(default.argv_of(&argv, None).unwrap(), (argv, None));
    assert!(default.argv(Some("x")).is_err());
}

#[test]
fn a_model_that_the_profile_does_not_list_is_refused() {
    let text = r#"{"version": 1, "name": "a", "agent": "codex", "command": ["codex", "exec", "--", "-"], "model": "m", "models": ["n"]}"#;
    let profile = read(text);
    assert!(profile.with_model("o").is_err());
    let (argv, _) = profile.with_model("n").unwrap().argv(Some("x")).unwrap();
    assert_eq!(
        argv.as_slice(),
        [
            "codex",
            "exec",
            "--model",
            "n",
            "--sandbox",
            "danger-full-access",
            "--",
            "-"
        ]
    );
    assert!(builtin("default").unwrap().with_model("m").is_err());
}

#[test]
fn its_document_holds_time_turns_tools_and_variables() {
    let text = r#"{"version": 1, "name": "a", "timeout": "2m", "maxTurns": 7, "env": {"A": "b"},
        "tools": {"deny": ["WebSearch"]}, "policy": {"version": 1, "limits": {"pids": 64}}}"#;
    let document = read(text).document();
    let limits: Vec<(LimitKind, u64)> = document.limits.0.iter().map(|(k, at)| (*k, at.value)).collect();
    assert_eq!(limits, [(LimitKind::WallTime, 120_000), (LimitKind::Pids, 64)]);
    assert_eq!(document.budget.turns.unwrap().value, 7);
    assert_eq!(document.tools.deny[0].value, "WebSearch");
    assert_eq!(document.env.set[0].1, "b");
    let only_policy = r#"{"version": 1, "name": "a", "policy": {"version": 1, "limits": {"timeout": "1m"}, "budget": {"turns": 3}}}"#;
    let profile = read(only_policy);
    assert_eq!((profile.timeout_ms, profile.max_turns), (60_000, 3));
}

#[test]
fn a_driven_agent_gets_its_tools_and_no_prompt_on_its_command_line() {
    let claude = builtin("claude").unwrap();
    let words = claude.driven_argv(None).unwrap().as_slice().to_vec();
    for word in [
        "--permission-prompt-tool",
        "--allowedTools",
        "Bash(git status *)",
        "--disallowedTools",
    ] {
        assert!(words.iter().any(|own| own == word), "{word}: {words:?}");
    }
    let given = Argv::try_from(vec!["sh".to_owned()]).unwrap();
    assert!(
        claude.driven_argv(Some(&given)).is_err(),
        "another command under its name"
    );
    assert_eq!(
        builtin("default").unwrap().driven_argv(Some(&given)).unwrap(),
        given
    );
    assert!(
        builtin("aider").unwrap().driven_argv(None).is_err(),
        "its prompt is an argument"
    );
    assert!(
        builtin("opencode").unwrap().driven_env()[0]
            .1
            .contains("\"bash\":\"ask\"")
    );
}

#[test]
fn an_agents_own_sandbox_is_switched_off_by_us_and_that_is_said() {
    let codex = builtin("codex").unwrap();
    let (alone, _) = codex.argv(Some("x")).unwrap();
    assert!(
        alone
            .as_slice()
            .ends_with(&["--sandbox".to_owned(), "danger-full-access".to_owned()]),
        "{alone:?}"
    );
    let driven = codex.driven_argv(None).unwrap();
    assert_eq!(driven.as_slice(), ["codex", "app-server"], "its driver says it");
    for name in ["codex", "claude", "gemini"] {
        let notes = builtin(name).unwrap().notes(How::Driven);
        assert!(
            notes.iter().any(|note| note.contains("switched off")),
            "{name}: {notes:?}"
        );
    }
    let claude = builtin("claude").unwrap().driven_argv(None).unwrap();
    assert!(
        claude.as_slice().iter().any(|word| word.contains("\"sandbox\"")),
        "{claude:?}"
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic_and_what_it_takes_reads_back(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        key in "(name|agent|command|prompt|driver|driven|tools|timeout|maxTurns|model|models|preset|policy|env)",
        value in r#"("[a-z{}*()-]{0,12}"|[0-9]{1,5}|true|\["[a-z{}-]{0,9}"\]|\{"allow": \["[A-Za-z*()]{0,8}"\]\}|\{"version": 1\})"#,
    ) {
        let _outcome = parse("x", &bytes);
        let text = format!(r#"{{"version": 1, "name": "a", "{key}": {value}}}"#);
        if let Ok(profile) = parse("x", text.as_bytes()) {
            prop_assert_eq!(read(&profile.to_json().to_string()), profile);
        }
    }
}
