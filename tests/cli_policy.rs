//! The verbs about policy, through the real binary: good input, bad input, hostile input.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // A test that cannot go on fails.
mod cli_support;

use cli_support::{HOME, Place};
use std::os::unix::fs::PermissionsExt;

#[track_caller]
fn refused(text: impl AsRef<[u8]>) -> cli_support::Said {
    let place = Place::new();
    let file = place.write("bad.json", text);
    let said = place
        .bastle(["policy".as_ref(), "check".as_ref(), file.as_os_str()])
        .exits(1);
    assert!(said.out.contains("bad.json: "), "{said:?}");
    said
}

#[test]
fn every_documented_example_passes_its_own_check() {
    let place = Place::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let layer = if path.ends_with("project.json") {
            "project"
        } else {
            "user"
        };
        let said = place.bastle([
            "policy".as_ref(),
            "check".as_ref(),
            "--as".as_ref(),
            layer.as_ref(),
            path.as_os_str(),
        ]);
        assert_eq!(said.code, 0, "{said:?}");
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_a_caret_under_it() {
    let said = refused("{\n  \"version\": 1,\n  \"fs\": { \"raed\": [\".\"] }\n}\n");
    assert!(said.err.starts_with("error[BST-POL-002]: "), "{}", said.err);
    assert!(said.err.contains("bad.json:3:11\n"), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.contains("\"raed\"") && line.contains('|'))
        .expect("the line is shown");
    assert_eq!(
        lines[at].find("\"raed\""),
        lines[at + 1].find('^'),
        "{}",
        said.err
    );
    assert_eq!(
        lines[at + 1].trim_start_matches([' ', '|']),
        "^^^^^^",
        "{}",
        said.err
    );
    assert!(said.err.contains("read"), "a hint at the right key: {}", said.err);
    assert!(
        said.err.trim_end().ends_with("more: bastle explain BST-POL-002"),
        "{}",
        said.err
    );
}

#[test]
fn a_doubled_key_a_truncated_a_deep_an_oversized_and_a_non_utf8_document_are_refused() {
    for (text, code) in [
        (br#"{"version":1,"version":1}"#.to_vec(), "BST-POL-001"),
        (br#"{"version":1,"fs":{"read":["."#.to_vec(), "BST-POL-001"),
        (
            format!(
                "{{\"version\":1,\"fs\":{}{}}}",
                "[".repeat(5000),
                "]".repeat(5000)
            )
            .into_bytes(),
            "BST-POL-001",
        ),
        (
            format!("{{\"version\":1}}{}", " ".repeat(70_000)).into_bytes(),
            "BST-POL-001",
        ),
        (b"{\"version\":1,\"x\":\"\xff\xfe\"}".to_vec(), "BST-POL-001"),
        (Vec::new(), "BST-POL-001"),
        (br#"{"version":2}"#.to_vec(), "BST-POL-002"),
        (br#"{"version":1,"fs":{"read":["../x"]}}"#.to_vec(), "BST-POL-002"),
        (
            br#"{"version":1,"exec":{"allow":["bash *"]}}"#.to_vec(),
            "BST-POL-006",
        ),
        (
            br#"{"version":1,"extends":["preset:nonesuch"]}"#.to_vec(),
            "BST-POL-005",
        ),
    ] {
        let shown = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
        let said = refused(text);
        assert!(said.err.contains(code), "{shown}: {}", said.err);
    }
}

#[test]
fn escape_sequences_of_a_document_never_reach_the_terminal() {
    let said = refused("{\"version\":1,\"\u{1b}[2J\u{202e}\u{9b}31m\":1}");
    for text in [&said.out, &said.err] {
        assert!(
            !text
                .chars()
                .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{text:?}"
        );
    }
}

#[test]
fn a_missing_an_unreadable_and_a_special_file_are_refused_without_waiting() {
    let place = Place::new();
    let check = |name: &str| place.bastle(["policy", "check", name]).exits(1).err;
    assert!(check("missing.json").contains("BST-POL-004"));
    assert!(check(".").contains("BST-POL-004"));
    assert!(check("/dev/zero").contains("BST-POL-004"));
    let fifo = place.workspace().join("fifo.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    assert!(check("fifo.json").contains("BST-POL-004"));
    let locked = place.write("locked.json", "{\"version\":1}");
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert!(check("locked.json").contains("BST-POL-004"));
    }
    // A project's own file is no exception: bastle does not fall back to a policy without it.
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        place.workspace().join("agent-permissions.json"),
        rustix::fs::Mode::RUSR,
    )
    .unwrap();
    assert!(place.say("policy show").exits(1).err.contains("BST-POL-004"));
    assert!(place.say("can-i read x").exits(2).err.contains("BST-POL-004"));
}

#[test]
fn a_failing_in_file_test_fails_check_and_test_and_names_its_line() {
    let place = Place::new();
    let text =
        "{ \"version\": 1,\n  \"tests\": [\n    { \"can\": \"write /etc/hosts\", \"is\": \"allow\" } ] }";
    place.write("mine.json", text);
    let said = place.say("policy check mine.json").exits(1);
    assert!(
        said.err.contains("BST-POL-003") && said.err.contains("mine.json:3"),
        "{said:?}"
    );
    let said = place.say("policy test mine.json").exits(1);
    assert!(
        said.out.contains("FAILED") && said.out.contains("write /etc/hosts"),
        "{said:?}"
    );
    place.write("good.json", text.replace("allow", "deny"));
    place.say("policy test good.json").exits(0);
}

#[test]
fn can_i_answers_by_exit_code_and_names_rule_mechanism_and_whether_it_is_held() {
    let place = Place::new();
    let said = place.say("can-i write src/main.rs").exits(0);
    assert!(
        said.out.contains("fs.write") && said.out.contains("enforced by mount"),
        "{said:?}"
    );
    assert!(
        place
            .bastle(["can-i", "read", "~/.ssh/id_ed25519"])
            .exits(1)
            .out
            .contains("BST-FS-005")
    );
    assert!(
        place
            .say("can-i write /etc/passwd")
            .exits(1)
            .out
            .contains("BST-FS-001")
    );
    assert!(
        place
            .say("can-i write .git/hooks/pre-commit")
            .exits(10)
            .out
            .contains("enforced by guard")
    );
    assert!(
        place
            .say("can-i exec git push origin main")
            .exits(10)
            .out
            .contains("advisory")
    );
    assert!(
        place
            .say("can-i net GET https://example.com/x")
            .exits(1)
            .out
            .contains("BST-NET-001")
    );
    place.say("can-i write src/main.rs --preset read-only").exits(1);
    place.say("can-i tool Read").exits(0);
}

#[test]
fn a_question_without_an_answer_is_neither_yes_nor_no() {
    let place = Place::new();
    assert!(place.say("can-i fly away").exits(2).out.is_empty());
    place.say("can-i read").exits(2);
    assert!(
        place
            .say("can-i read x --preset nonesuch")
            .exits(2)
            .err
            .contains("BST-POL-005")
    );
    assert!(
        place
            .say("can-i net GET ftp://x")
            .exits(2)
            .err
            .contains("BST-USE-001")
    );
    assert!(
        place
            .say("can-i read x --policy missing.json")
            .exits(2)
            .err
            .contains("BST-POL-004")
    );
}

#[test]
fn a_symlink_in_the_workspace_is_only_as_good_as_the_place_it_leads_to() {
    let place = Place::new();
    std::os::unix::fs::symlink("/etc/shadow", place.workspace().join("innocent.txt")).unwrap();
    std::os::unix::fs::symlink("/root", place.workspace().join("folder")).unwrap();
    let said = place.say("can-i read innocent.txt").exits(1);
    assert!(said.out.contains("it leads to /etc/shadow"), "{said:?}");
    place.say("can-i write folder/new").exits(1);
}

#[test]
fn paths_are_relative_to_the_current_directory_as_everywhere_else() {
    let place = Place::new();
    place.write("sub/file", "");
    std::fs::create_dir(place.workspace().join(".git")).unwrap();
    let mut command = place.command();
    command
        .current_dir(place.workspace().join("sub"))
        .args(["can-i", "read", "../x", "--json"]);
    let said = cli_support::run(&mut command).exits(0);
    let query = said.json()["query"].as_str().unwrap().to_owned();
    assert!(query.ends_with("/project/x"), "{query}");
}

#[test]
fn a_project_file_restricts_and_what_it_asks_for_beyond_is_shown_as_not_granted() {
    let place = Place::new();
    place.write(
        "agent-permissions.json",
        r#"{"version":1,"fs":{"read":["."],"write":["./src","/etc"]}}"#,
    );
    place.say("can-i write src/x").exits(0);
    place.say("can-i write README.md").exits(1);
    place.say("can-i write /etc/x").exits(1);
    let said = place.say("policy show --origin").exits(0);
    assert!(
        said.out.contains("requested, not granted: ") && said.out.contains("agent-permissions.json:1"),
        "{}",
        said.out
    );
    assert!(
        place
            .say("can-i write /etc/x --allow-user-expansion")
            .exits(0)
            .out
            .contains("agent-permissions.json")
    );
}

#[test]
fn show_labels_every_rule_as_enforced_or_not() {
    let place = Place::new();
    let rules = place
        .say("policy show --json --preset safe-unrestricted")
        .exits(0)
        .json()["rules"]
        .clone();
    let rules = rules.as_array().unwrap();
    assert!(rules.len() > 50);
    for rule in rules {
        let (section, held) = (rule["section"].as_str().unwrap(), rule["held"].as_str().unwrap());
        let expected: &[&str] = match section.split('.').next().unwrap() {
            "exec" | "tools" => &["advisory", "partly"],
            _ => &["enforced"],
        };
        assert!(expected.contains(&held), "{rule}");
    }
}

#[test]
fn why_explains_a_path_a_url_and_a_command_with_the_same_evaluator() {
    let place = Place::new();
    let said = place.bastle(["why", "~/.ssh/id_ed25519"]).exits(0);
    assert!(
        said.out.contains(&format!("denied read {HOME}/.ssh/id_ed25519")) && said.out.contains("--unprotect"),
        "{said:?}"
    );
    assert!(
        place
            .say("why https://example.com/")
            .exits(0)
            .out
            .contains("BST-NET-001")
    );
    assert!(
        place
            .bastle(["why", "git push --force"])
            .exits(0)
            .out
            .contains("BST-EXEC-004")
    );
    assert!(place.say("why write ./x").exits(0).out.contains("allowed write"));
}

#[test]
fn presets_files_and_scores_can_be_compared() {
    let place = Place::new();
    let said = place.say("policy diff default read-only --exit-code").exits(1);
    assert!(
        said.out
            .lines()
            .any(|line| line.starts_with("- fs ") && line.ends_with("/project write → read")),
        "{said:?}"
    );
    place.say("policy diff default default --exit-code").exits(0);
    place.write("wide.json", r#"{"version":1,"fs":{"write":["/srv"]}}"#);
    assert!(
        place
            .say("policy diff default wide.json")
            .exits(0)
            .out
            .contains("+ fs /srv")
    );
    assert!(
        place
            .say("policy diff default nonesuch")
            .exits(3)
            .err
            .contains("BST-POL-005")
    );
    let score = |line: &str| {
        place.say(line).exits(0).json()["score"]["tenths"]
            .as_u64()
            .unwrap()
    };
    assert!(score("policy score --json") < score("policy score --json --policy wide.json"));
}

#[test]
fn lint_finds_a_rule_that_does_nothing_and_is_silent_about_a_good_policy() {
    let place = Place::new();
    place.write(
        "odd.json",
        r#"{"version":1,"net":{"allow":["example.com"],"deny":["example.com"]}}"#,
    );
    let said = place.say("policy lint odd.json").exits(1);
    assert!(
        said.out.contains("shadowed") && said.out.contains("odd.json:1"),
        "{said:?}"
    );
    assert!(place.say("policy lint").exits(0).out.is_empty());
}

#[test]
fn blocked_commands_lists_rules_and_the_operations_that_always_stop() {
    let place = Place::new();
    let said = place
        .say("policy blocked-commands --preset safe-unrestricted")
        .exits(0);
    assert!(
        said.out.contains("sudo") && said.out.contains("TIER 3") && said.out.contains("advisory"),
        "{said:?}"
    );
}

#[test]
fn the_schema_accepts_the_examples_and_presets_are_listed() {
    let place = Place::new();
    let schema: serde_json::Value = place.say("policy schema").exits(0).json();
    assert!(jsonschema::meta::is_valid(&schema));
    let said = place.say("policy presets").exits(0);
    for name in ["default", "dev", "read-only", "safe-unrestricted"] {
        assert!(said.out.contains(name), "{said:?}");
    }
}
