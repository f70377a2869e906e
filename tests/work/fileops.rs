//! What is recorded of files: every change with its digests, every reading that can be seen, and no more than that.
use crate::support::{Background, Identity, Lab, Limit, Output, for_each_identity};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn files(output: &Output) -> BTreeMap<String, Value> {
    let events = output.events("file");
    events
        .into_iter()
        .map(|event| (event["path"].as_str().expect("a path").to_owned(), event.clone()))
        .collect()
}

fn told(output: &Output) -> Value {
    let told = output.events("files");
    assert_eq!(told.len(), 1, "{output:?}");
    told[0].clone()
}

fn digest(bytes: &[u8]) -> Value {
    Value::from(blake3::hash(bytes).to_hex().to_string())
}

/// Makes the workspace a repository with one commit.
fn repository(lab: &Lab) {
    for words in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "commit",
            "-q",
            "-m",
            "one",
        ],
    ] {
        let mut git: Command = lab.command(Path::new("git"));
        let done = git.args(words).output().expect("git runs");
        assert!(done.status.success(), "{done:?}");
    }
}

const EDITS: &str = "printf new > made.txt; printf changed > edit.txt; rm gone.txt; \
    printf x > \"$(printf 'odd\\033[2J\\nname')\"; printf y > \"$(printf 'raw\\377')\"; ln -s /etc/shadow link; mkfifo pipe";

fn plant(lab: &Lab) {
    for name in ["keep.txt", "edit.txt", "gone.txt"] {
        lab.project(name, "old");
    }
}

fn check_edits(lab: &Lab, output: &Output) -> BTreeMap<String, Value> {
    let (files, root) = (files(output), lab.workspace().display().to_string());
    let change = |name: &str| files[&format!("{root}/{name}")]["change"].clone();
    assert_eq!(change("made.txt")["sort"], "created", "{output:?}");
    assert_eq!(change("made.txt")["after"]["digest"], digest(b"new"));
    assert_eq!(change("edit.txt")["sort"], "changed");
    assert_eq!(change("edit.txt")["before"]["size"], 3);
    assert_eq!(change("edit.txt")["after"]["size"], 7);
    assert_eq!(change("edit.txt")["after"]["digest"], digest(b"changed"));
    assert_eq!(change("gone.txt")["sort"], "deleted");
    assert_eq!(change("odd\u{1b}[2J\nname")["sort"], "created");
    assert_eq!(change("raw\\xff")["sort"], "created");
    assert!(
        files[&format!("{root}/raw\\xff")]["raw"]
            .as_str()
            .expect("bytes")
            .ends_with("726177ff")
    );
    assert_eq!(change("link")["after"]["kind"], "symlink");
    assert_eq!(change("pipe")["after"]["kind"], "fifo");
    let keep = files.get(&format!("{root}/keep.txt"));
    assert!(keep.is_none_or(|keep| keep["change"].is_null()), "{keep:?}");
    files
}

#[test]
fn no_change_in_place_goes_unrecorded_whatever_its_name() {
    for_each_identity(|lab| {
        plant(lab);
        let output = lab.fence().flags(["--workspace", "in-place"]).sh(EDITS);
        check_edits(lab, &output);
        assert_eq!(told(&output)["changes"]["by"], "listing");
        assert_eq!(told(&output)["created"], 5, "{output:?}");
    });
}

#[test]
fn no_change_of_a_copy_goes_unrecorded_and_both_digests_are_told() {
    for_each_identity(|lab| {
        plant(lab);
        repository(lab);
        let output = lab.fence().flags(["--workspace", "copy"]).sh(EDITS);
        let files = check_edits(lab, &output);
        assert_eq!(told(&output)["changes"]["by"], "contents");
        let root = lab.workspace().display().to_string();
        let before = |name: &str| files[&format!("{root}/{name}")]["change"]["before"]["digest"].clone();
        assert_eq!(
            (before("edit.txt"), before("gone.txt")),
            (digest(b"old"), digest(b"old"))
        );
        // The project itself is as it was.
        assert_eq!(
            std::fs::read_to_string(lab.workspace().join("edit.txt")).expect("still there"),
            "old"
        );
    });
}

#[test]
fn a_reading_is_seen_with_its_program_as_root_and_said_to_be_unseen_otherwise() {
    for_each_identity(|lab| {
        lab.project("secretive.txt", "text");
        lab.project("untouched.txt", "text");
        lab.project("script.sh", "exit 0");
        let output = lab.fence().sh("cat secretive.txt >/dev/null; sh script.sh");
        assert_eq!(output.ended.code, 0, "{output:?}");
        let (files, told) = (files(&output), told(&output));
        let at = |name: &str| files.get(&lab.workspace().join(name).display().to_string());
        assert_eq!(at("untouched.txt"), None, "{output:?}");
        if lab.identity == Identity::Root {
            let seen = at("secretive.txt").unwrap_or_else(|| panic!("the reading was not seen: {output:?}"));
            assert_eq!(seen["used"]["read"], true);
            assert_eq!(seen["used"]["written"], false);
            assert_eq!(seen["used"]["process"], "cat", "{output:?}");
            assert!(at("script.sh").is_some(), "{output:?}");
            assert_eq!(told["reads"]["by"], "fanotify");
            assert!(
                output.ended.stderr.contains("reads: seen by fanotify"),
                "{output:?}"
            );
        } else {
            assert_eq!(at("secretive.txt"), None);
            assert_eq!(told["reads"]["by"], "nothing");
            assert!(
                output.ended.stderr.contains("reads: not seen (it needs root)"),
                "{output:?}"
            );
        }
    });
}

#[test]
fn five_thousand_files_are_five_thousand_records_and_the_log_stays_good() {
    for_each_identity(|lab| {
        let fence = lab.fence();
        let name = fence.name().to_owned();
        let output = fence.sh("mkdir many; i=0; while [ $i -lt 5000 ]; do : > many/$i; i=$((i+1)); done");
        assert_eq!(output.ended.code, 0, "{output:?}");
        let root = lab.workspace().join("many").display().to_string();
        let made = files(&output);
        let made = made.iter().filter(|(path, event)| {
            path.starts_with(&format!("{root}/")) && event["change"]["sort"] == "created"
        });
        assert_eq!(made.count(), 5000);
        assert_eq!(told(&output)["left_out"], 0);
        let mut verify = lab.command(crate::support::bastle());
        let verified = verify
            .args(["audit", "verify", &name])
            .output()
            .expect("bastle runs");
        assert!(verified.status.success(), "{verified:?}");
        let mut show = lab.command(crate::support::bastle());
        let shown = show
            .args(["audit", "show", &name, "--files", "--json"])
            .output()
            .expect("bastle runs");
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("one object");
        crate::caches::conforms("audit-files", &shown);
        assert!(shown["files"].as_array().expect("a list").len() >= 5001);
    });
}

#[test]
fn a_run_killed_with_bastle_is_told_by_the_next_start() {
    for_each_identity(|lab| {
        plant(lab);
        repository(lab);
        let fence = lab.fence().flags(["--workspace", "copy"]);
        let (name, script) = (
            fence.name().to_owned(),
            "printf new > made.txt; echo ready; sleep 600",
        );
        let mut command = fence.command(["sh", "-c", script]);
        let mut run = Background::start(&mut command);
        assert_eq!(run.line(), "ready");
        run.signal(rustix::process::Signal::KILL);
        assert!(run.end(Limit::HANG).is_some(), "a killed process ends");
        assert!(
            fence.audit().iter().all(|event| event["type"] != "files"),
            "killed before it could tell"
        );
        let next = lab.fence().flags(["--workspace", "copy"]).sh("true");
        assert_eq!(next.ended.code, 0, "{next:?}");
        let events = fence.audit();
        let told = events.iter().find(|event| event["type"] == "files");
        let told = told.unwrap_or_else(|| panic!("nothing was told: {events:?}"));
        assert_eq!(
            (&told["recovered"], &told["created"]),
            (&Value::from(true), &Value::from(1)),
            "{told}"
        );
        let made = lab.workspace().join("made.txt").display().to_string();
        let record = events
            .iter()
            .find(|event| event["type"] == "file" && event["path"] == made.as_str());
        assert_eq!(
            record.expect("a record")["change"]["after"]["digest"],
            digest(b"new")
        );
        let mut verify = lab.command(crate::support::bastle());
        let verified = verify
            .args(["audit", "verify", &name])
            .output()
            .expect("bastle runs");
        assert!(verified.status.success(), "{verified:?}");
    });
}

#[test]
fn an_odd_name_never_reaches_the_terminal_as_it_is() {
    for_each_identity(|lab| {
        plant(lab);
        let fence = lab.fence();
        let name = fence.name().to_owned();
        fence.sh(EDITS);
        let mut show = lab.command(crate::support::bastle());
        let shown = show
            .args(["audit", "show", &name, "--files"])
            .output()
            .expect("bastle runs");
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("odd\\x1b[2J\\nname"), "{text}");
        assert!(
            text.lines()
                .any(|line| line.contains("changed") && line.contains("edit.txt")),
            "{text}"
        );
    });
}
