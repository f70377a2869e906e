//! The verbs about audit logs, through the real binary, over logs made by the real writer.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // A test that cannot go on fails.
mod cli_support;

use cli_support::{Place, denied};
use std::path::PathBuf;

fn log(place: &Place, run: &str) -> PathBuf {
    place.state().join("audit").join(run).join("log.jsonl")
}

#[test]
fn without_any_run_listing_is_empty_and_asking_for_one_is_not_found() {
    let place = Place::new();
    assert_eq!(place.say("audit ls").exits(0).out, "");
    for line in [
        "audit show",
        "audit verify",
        "audit export --format jsonl",
        "why",
        "audit show nobody",
        "why d_0000",
    ] {
        let said = place.say(line).exits(3);
        assert!(
            said.err.contains("BST-AUD-003") && said.out.is_empty(),
            "{line}: {said:?}"
        );
    }
    place.say("audit verify --all").exits(0);
}

#[test]
fn a_run_is_found_by_name_unique_prefix_and_last_and_an_ambiguous_prefix_is_refused() {
    let place = Place::new();
    place.record("calm-otter-0001", &[]);
    place.record("calm-otter-0002", &[]);
    for (name, run) in [
        ("calm-otter-0001", "calm-otter-0001"),
        ("@last", "calm-otter-0002"),
    ] {
        assert!(
            place
                .bastle(["audit", "show", name])
                .exits(0)
                .out
                .starts_with(run),
            "{name}"
        );
    }
    let said = place.say("audit show calm").exits(2);
    assert!(said.err.contains("more than one run"), "{said:?}");
    assert!(
        place
            .say("audit show calm-ibex")
            .exits(3)
            .err
            .contains("did you mean calm-otter")
    );
    for hostile in ["../../etc", "/etc/passwd", "a\u{1b}[2J", ""] {
        let said = place.bastle(["audit", "show", hostile]);
        assert!(
            [2, 3].contains(&said.code) && !said.err.contains('\u{1b}'),
            "{said:?}"
        );
    }
}

#[test]
fn why_without_arguments_explains_the_last_denial_of_the_newest_run_that_has_one() {
    let place = Place::new();
    let first = place.record("aa-first", &[denied("/etc/one"), denied("/etc/two")]);
    place.record("bb-second", &[]);
    let said = place.say("why").exits(0);
    assert!(
        said.out.contains("/etc/two") && said.out.contains(&first[1]) && said.out.contains("BST-FS-001"),
        "{said:?}"
    );
    let said = place.bastle(["why", &first[0]]).exits(0);
    assert!(
        said.out.contains("/etc/one") && said.out.contains("touch(7)"),
        "{said:?}"
    );
    assert!(
        place
            .say("why --run bb-second")
            .exits(3)
            .err
            .contains("nothing was denied")
    );
}

#[test]
fn text_of_an_agent_never_acts_on_the_terminal() {
    let place = Place::new();
    let mut hostile = denied("/x\u{1b}]0;owned\u{7}\n✓ forged line\u{202e}\u{9b}2J");
    hostile.comm = "a\u{1b}[2Jb".to_owned();
    place.record("calm-otter-0001", &[hostile]);
    for line in [
        "audit show",
        "why",
        "why --json",
        "audit show --json",
        "audit export --format csv",
        "audit export --format jsonl",
    ] {
        let said = place.say(line).exits(0);
        let bad = |c: char| (c.is_control() && !"\n\r".contains(c)) || c == '\u{202e}';
        assert!(
            !said.out.chars().any(bad) && !said.err.chars().any(bad),
            "{line}: {said:?}"
        );
        assert!(
            !said.out.lines().any(|line| line.starts_with("✓ forged")),
            "{line}: {said:?}"
        );
    }
}

#[test]
fn a_whole_log_verifies_and_an_edited_one_names_the_first_bad_record() {
    let place = Place::new();
    place.record("calm-otter-0001", &[denied("/etc/one"), denied("/etc/two")]);
    assert!(
        place
            .say("audit verify")
            .exits(0)
            .out
            .contains("sealed and unchanged")
    );
    place.say("audit verify --all").exits(0);
    let path = log(&place, "calm-otter-0001");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("/etc/one", "/etc/0ne")).unwrap();
    let line = text.lines().position(|line| line.contains("/etc/one")).unwrap() + 1;
    let said = place.say("audit verify").exits(1);
    assert!(
        said.err.contains("BST-AUD-002") && said.err.contains(&format!("line {line} ")),
        "{said:?}"
    );
    assert!(said.err.contains(&format!("record {line}")), "{said:?}");
    let said = place.say("audit verify --all --json").exits(1);
    assert_eq!(said.json()["runs"][0]["finding"]["line"], line);
    assert!(place.say("audit show").exits(1).err.contains("BST-AUD-002"));
    assert_eq!(place.say("audit show --json").exits(1).json()["complete"], false);
    assert!(
        place
            .say("audit export --format ocsf")
            .exits(1)
            .err
            .contains("BST-AUD-002")
    );
}

#[test]
fn a_log_that_was_cut_off_removed_or_never_ended_is_not_taken_for_whole() {
    let place = Place::new();
    place.record("calm-otter-0001", &[denied("/etc/one")]);
    let path = log(&place, "calm-otter-0001");
    let text = std::fs::read_to_string(&path).unwrap();
    let shorter: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, shorter).unwrap();
    place.say("audit verify calm-otter-0001").exits(1);
    place
        .say("audit verify calm-otter-0001 --allow-unsealed")
        .exits(1);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(
        place
            .say("audit verify --all")
            .exits(1)
            .err
            .contains("BST-AUD-002")
    );

    let place = Place::new();
    drop(place.open_log("killed-0001"));
    let said = place.say("audit verify").exits(1);
    assert!(said.out.contains("it has no end"), "{said:?}");
    place.say("audit verify --allow-unsealed").exits(0);
    let live = place.open_log("live-0001");
    assert!(
        place
            .say("audit verify live-0001")
            .exits(0)
            .out
            .contains("writing it")
    );
    drop(live);
}

#[test]
fn a_changed_index_is_told_and_keeps_nobody_from_a_log_named_in_full() {
    let place = Place::new();
    place.record("calm-otter-0001", &[]);
    let index = place.state().join("audit/heads.jsonl");
    let text = std::fs::read_to_string(&index).unwrap();
    std::fs::write(
        &index,
        text.replacen("\"count\":1", "\"count\":2", 1)
            .replacen("opened", "sealed", 1),
    )
    .unwrap();
    assert!(place.say("audit ls").exits(1).err.contains("BST-AUD-002"));
    assert!(
        place
            .say("audit show calm-otter-0001")
            .exits(1)
            .out
            .contains("opened")
    );
}

#[test]
fn exports_have_one_line_per_record_and_a_file_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    place.record("calm-otter-0001", &[denied("=cmd|' /C calc'!A0")]);
    let jsonl = place.say("audit export --format jsonl").exits(0);
    assert_eq!(
        jsonl.out,
        std::fs::read_to_string(log(&place, "calm-otter-0001")).unwrap()
    );
    for line in place.say("audit export --format ocsf").exits(0).out.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value.get("unmapped").is_none() && value["metadata"]["version"] == "1.8.0");
    }
    let csv = place.say("audit export --format csv").exits(0).out;
    assert_eq!(csv.lines().count(), jsonl.out.lines().count() + 1);
    assert!(
        !csv.split(',').any(|cell| cell.trim_matches('"').starts_with('=')),
        "{csv}"
    );
    place
        .bastle(["audit", "export", "--format", "csv", "-o", "out.csv"])
        .exits(0);
    assert_eq!(
        std::fs::read_to_string(place.workspace().join("out.csv")).unwrap(),
        csv
    );
    place
        .bastle(["audit", "export", "--format", "csv", "-o", "no/such/dir.csv"])
        .exits(1);
    assert!(
        place
            .bastle(["audit", "export", "--format", "csv", "-o", "/dev/full"])
            .exits(1)
            .err
            .contains("No space")
    );
    place.say("audit export --format xml").exits(2);
}
