//! What a person does with a run's work is recorded before it happens, in a log of its own.
use super::review::{EDIT, everything, json, repository, says, work};
use super::support::{Lab, for_each_identity};
use serde_json::Value;
use std::path::PathBuf;

fn audit(lab: &Lab) -> PathBuf {
    lab.home().join(".local/state/bastle/audit")
}

/// The logs of what happened afterwards, each with its events.
fn afterwards(lab: &Lab) -> Vec<(String, Vec<Value>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(audit(lab)).expect("is there").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        if !name.starts_with("after-") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path().join("log.jsonl")).expect("a log");
        let event = |line: &str| {
            let value: Value = serde_json::from_str(line).expect("JSON");
            value["unmapped"]["bastle"].clone()
        };
        found.push((name, text.lines().map(event).collect()));
    }
    found
}

fn changes(lab: &Lab, by: &str) -> Vec<Value> {
    let all = afterwards(lab).into_iter().flat_map(|(_, events)| events);
    all.filter(|event| event["type"] == "host-changed" && event["by"] == by)
        .collect()
}

#[test]
fn an_apply_an_undo_and_a_removal_are_recorded_with_what_was_approved() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, &format!("{EDIT}\necho 'all:' > Makefile"));
        let shown = json(lab, &format!("diff {run}"), 0).to_string();
        let held = says(lab, &format!("apply {run} --dry-run"), 0);
        assert!(afterwards(lab).is_empty(), "nothing has happened yet");
        let words: Vec<&str> = held.stderr.split_whitespace().collect();
        let hash = words
            .windows(2)
            .find(|pair| pair[0] == "--approve")
            .map(|pair| pair[1])
            .unwrap_or_else(|| panic!("{held:?} {shown}"));
        says(lab, &format!("apply {run} --approve {hash}"), 0);
        let applied = changes(lab, "apply");
        assert_eq!(applied.len(), 1);
        assert_eq!(applied[0]["run"], run.as_str());
        assert_eq!(applied[0]["approvals"][0], hash);
        let names = applied[0]["names"].to_string();
        assert!(names.contains("Makefile") && names.contains("README"), "{names}");
        says(lab, &format!("apply {run} --undo"), 0);
        assert_eq!(changes(lab, "undo").len(), 1);
        let digest = says(lab, &format!("rm {run}"), 1).stderr;
        let digest = digest
            .split_whitespace()
            .find(|word| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()))
            .unwrap_or_else(|| panic!("{digest}"));
        says(lab, &format!("rm {run} --discard {digest}"), 0);
        let removed = changes(lab, "rm");
        let named = removed.iter().any(|one| one["approvals"][0] == digest);
        assert!(named, "what was thrown away is named: {removed:?}");
        for (log, _) in afterwards(lab) {
            says(lab, &format!("audit verify {log}"), 0);
        }
        let last = says(lab, "audit show @last", 0).stdout;
        assert!(!last.contains("host-changed"), "the last run is still the run");
    });
}

#[test]
fn where_nothing_can_be_recorded_nothing_is_applied() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let aside = audit(lab).with_file_name("aside");
        std::fs::rename(audit(lab), &aside).expect("is there");
        std::fs::write(audit(lab), "no directory").expect("can be written");
        let before = everything(&lab.workspace());
        for line in [format!("apply {run}"), format!("apply {run} --branch agent/work")] {
            let refused = says(lab, &line, 1);
            assert!(refused.stderr.contains("BST-AUD-001"), "{refused:?}");
            assert!(
                everything(&lab.workspace()) == before,
                "{line} changed the project"
            );
        }
        std::fs::remove_file(audit(lab)).expect("is there");
        std::fs::rename(&aside, audit(lab)).expect("is there");
        says(lab, &format!("apply {run}"), 0);
        assert!(
            everything(&lab.workspace()) != before,
            "control: with a record it is applied"
        );
    });
}

#[test]
fn a_run_cannot_take_a_name_that_is_for_such_records() {
    for_each_identity(|lab| {
        let refused = says(lab, "run --name after-calm-otter -- true", 125);
        assert!(refused.stderr.contains("after-"), "{refused:?}");
    });
}
