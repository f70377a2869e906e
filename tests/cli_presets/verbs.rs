//! The verbs: presets are listed, shown, kept and begun from; settings of other tools are imported.
use crate::cli_support::{Place, follows_schema};

const FRESH: &str = r#"{
  "version": 1, "extends": ["preset:default"],
  "agent": { "title": "Claude Code", "programs": ["claude"] },
  "net": { "allow": ["new.example"] }
}"#;

#[test]
fn presets_are_listed_and_shown_as_they_are() {
    let place = Place::new();
    let listed = place.say("preset ls").exits(0);
    for name in [
        "default@1",
        "claude@1",
        "codex@1",
        "opencode@1",
        "gemini@1",
        "aider@1",
    ] {
        assert!(listed.out.contains(name), "{listed:?}");
    }
    follows_schema(&place.say("preset ls --json").exits(0).out);
    for name in ["default", "claude", "codex", "opencode", "gemini", "aider"] {
        let shown = place.bastle(["preset", "show", name, "--json"]).exits(0);
        follows_schema(&shown.out);
        assert_eq!(shown.json()["name"], name);
    }
    let plain = place.say("preset show claude@1").exits(0);
    assert!(plain.out.contains("api.anthropic.com"), "{plain:?}");
    assert_ne!(place.say("preset show clade").code, 0);
    assert_ne!(place.say("preset show claude@9").code, 0);
}

#[test]
fn a_preset_is_kept_only_when_it_can_be_used_and_its_version_never_changes() {
    let place = Place::new();
    let file = place.write("claude@2.json", FRESH);
    let file = file.to_str().unwrap();
    let kept = place.path().join("config/bastle/presets/claude@2.json");
    let looked = place
        .bastle(["preset", "update", file, "--dry-run", "--json"])
        .exits(0);
    follows_schema(&looked.out);
    assert!(!kept.exists(), "a look keeps nothing");
    let update = place.bastle(["preset", "update", file]).exits(0);
    assert!(
        update.out.contains("new.example"),
        "what it reaches more is shown: {update:?}"
    );
    assert!(kept.exists());
    let listed = place.say("preset ls --json").exits(0);
    assert!(listed.out.contains("\"kept\""), "{listed:?}");
    assert!(
        place
            .say("preset show claude")
            .exits(0)
            .out
            .contains("new.example")
    );
    // Another text under the same version is refused, and so is what would take the place of the fence.
    place.write("claude@2.json", FRESH.replace("new.example", "other.example"));
    assert_eq!(place.bastle(["preset", "update", file]).code, 1);
    for (name, text) in [
        ("claude@1.json", FRESH.to_owned()),
        ("claude.json", FRESH.to_owned()),
        (
            "default@2.json",
            r#"{ "version": 1, "net": { "allow": ["x.example"] } }"#.to_owned(),
        ),
        ("goose@1.json", FRESH.replace("\"programs\"", "\"progs\"")),
        (
            "goose@2.json",
            FRESH.replace(
                "\"programs\"",
                "\"files\": [{ \"from\": \"~/../etc/shadow\" }], \"programs\"",
            ),
        ),
    ] {
        let file = place.write(name, text);
        let said = place.bastle(["preset", "update", file.to_str().unwrap()]);
        assert_eq!(said.code, 1, "{name}: {said:?}");
    }
    let names: Vec<String> = std::fs::read_dir(kept.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["claude@2.json"]);
}

#[test]
fn a_policy_to_start_from_is_one_that_can_be_used_and_replaces_nothing() {
    let place = Place::new();
    let file = place.workspace().join("mine.json");
    let file = file.to_str().unwrap();
    place
        .bastle(["preset", "init", "claude", "--output", file])
        .exits(0);
    place.bastle(["policy", "check", file]).exits(0);
    assert_eq!(
        place.bastle(["preset", "init", "codex", "--output", file]).code,
        2
    );
    assert!(std::fs::read_to_string(file).unwrap().contains("preset:claude@1"));
}

#[test]
fn settings_of_other_tools_are_imported_with_a_report_of_every_rule() {
    let place = Place::new();
    place.write(
        ".claude/settings.json",
        r#"{ "permissions": { "allow": ["Bash(cargo test *)"], "deny": ["Read(./secrets/**)", "Bash(curl *)"] } }"#,
    );
    place.write(
        ".codex/config.toml",
        "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\n",
    );
    place.write(
        ".codex/rules/default.rules",
        "prefix_rule(pattern=[\"git\", \"push\"], decision=\"forbidden\")\n",
    );
    place.write(
        "opencode.json",
        r#"{ "permission": { "bash": { "*": "ask", "ls *": "allow" } } }"#,
    );
    place.write(
        ".srt-settings.json",
        r#"{ "network": { "allowedDomains": ["a.example"] } }"#,
    );
    for tool in ["claude", "codex", "opencode", "srt"] {
        let said = place
            .bastle(["policy", "import", "--from", tool, ".", "--json"])
            .exits(0);
        follows_schema(&said.out);
        assert!(!said.json()["report"].as_array().unwrap().is_empty(), "{said:?}");
        let file = place.workspace().join(format!("from-{tool}.json"));
        let file = file.to_str().unwrap();
        let written = place
            .bastle(["policy", "import", "--from", tool, ".", "--output", file])
            .exits(0);
        assert!(
            ["kept", "narrowed", "left out"]
                .iter()
                .any(|word| written.err.contains(word)),
            "{written:?}"
        );
        place.bastle(["policy", "check", file]).exits(0);
        assert_eq!(
            place
                .bastle(["policy", "import", "--from", tool, ".", "--output", file])
                .code,
            2,
            "a file that is there is not replaced"
        );
    }
    let claude = place.workspace().join("from-claude.json");
    let asked = |question: [&str; 2]| {
        let mut words = vec![
            "can-i",
            question[0],
            question[1],
            "--policy",
            claude.to_str().unwrap(),
        ];
        words.push("--json");
        place.bastle(words).code
    };
    assert_eq!(asked(["read", "./secrets/key"]), 1);
    assert_eq!(asked(["read", "./src/main.rs"]), 0);
    assert_eq!(place.say("policy import --from nobody").code, 2);
}
