//! Applies that were interrupted: ended at the start of any verb, or in the way that a person chooses.
//!
//! An interruption after the last exchange of names is made by hand here: the last record of the journal is taken back.
//! Kills at every system call are in the crash checker.
use super::review::{EDIT, files, json, paths, repository, says, verb, work};
use super::support::{Lab, for_each_identity};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// A project before and after an apply of its run.
struct Applied {
    run: String,
    old: Tree,
    new: Tree,
}

fn applied(lab: &Lab) -> Applied {
    repository(lab);
    let run = work(
        lab,
        &format!("{EDIT}rm src/main.c\nmkdir src/main.c\necho x > src/main.c/x.c\n"),
    );
    let old = files(&lab.workspace());
    json(lab, &format!("apply {run}"), 0);
    let new = files(&lab.workspace());
    assert_ne!(old, new);
    Applied { run, old, new }
}

/// The state of a kill after the last change of the tree and before the last record.
fn interrupt(lab: &Lab, run: &str) {
    interrupt_at(lab, run, r#"{"state":"committing"}"#);
}

/// The state of a kill after that record.
pub(crate) fn interrupt_at(lab: &Lab, run: &str, record: &str) {
    let state = lab.home().join(".local/state/bastle");
    let journal = last_journal(lab, run);
    lab.plant(&journal.join("state.json"), record);
    let project = lab.workspace();
    let name = blake3::hash(project.as_os_str().as_bytes()).to_hex();
    let markers = state.join("applying");
    assert!(markers.is_dir(), "an apply sets a marker");
    lab.plant(&markers.join(name.as_str()), project.to_str().expect("UTF-8"));
}

fn last_journal(lab: &Lab, run: &str) -> PathBuf {
    let journals = lab
        .home()
        .join(".local/state/bastle/work")
        .join(run)
        .join("applied");
    let listed = std::fs::read_dir(journals).expect("there are journals");
    let last = listed.map(|entry| entry.expect("can be listed").path()).max();
    last.expect("there is a journal")
}

pub(crate) fn markers(lab: &Lab) -> usize {
    let markers = lab.home().join(".local/state/bastle/applying");
    std::fs::read_dir(markers).expect("is there").count()
}

#[test]
fn an_interrupted_apply_is_ended_and_told_at_the_start_of_any_verb() {
    for_each_identity(|lab| {
        let Applied { run, new, .. } = applied(lab);
        assert_eq!(markers(lab), 0);
        let verbs = [
            "ls".to_owned(),
            "ps".to_owned(),
            "why path README".to_owned(),
            "policy show".to_owned(),
            format!("diff {run} --stat"),
            format!("snapshots {run}"),
            format!("export {run} -"),
            "prune --dry-run".to_owned(),
            "audit ls".to_owned(),
        ];
        for line in &verbs {
            interrupt(lab, &run);
            let ended = verb(lab, line.split(' '));
            assert!(
                ended.stderr.contains(&format!(
                    "{run}: an interrupted change of the project was finished"
                )),
                "{line}: {ended:#?}"
            );
            assert_eq!(files(&lab.workspace()), new, "{line}");
            assert_eq!(markers(lab), 0, "{line}");
            // Told once.
            assert!(
                !verb(lab, line.split(' ')).stderr.contains("interrupted"),
                "{line}"
            );
        }
        interrupt(lab, &run);
        let output = lab
            .fence()
            .flags(["--workspace", "copy"])
            .sh("cat src/main.c/x.c");
        assert_eq!(
            (output.ended.code, output.ended.stdout.as_str()),
            (0, "x\n"),
            "{output:?}"
        );
        assert!(output.ended.stderr.contains("was finished"), "{output:?}");
    });
}

#[test]
fn a_person_chooses_the_direction_and_edits_of_theirs_stay() {
    for_each_identity(|lab| {
        let Applied { run, old, new } = applied(lab);
        interrupt(lab, &run);
        let answer = json(lab, &format!("recover {run} --forward"), 0);
        assert_eq!(answer["ended"][0]["outcome"], "finished");
        assert_eq!(files(&lab.workspace()), new);
        json(lab, &format!("recover {run}"), 0);

        interrupt(lab, &run);
        let answer = json(lab, &format!("recover {run} --back"), 0);
        assert_eq!(answer["ended"][0]["outcome"], "undone");
        assert_eq!(files(&lab.workspace()), old);

        // The work is still there; and what a person wrote after the interruption is not covered by what was before.
        json(lab, &format!("apply {run}"), 0);
        interrupt(lab, &run);
        lab.project("README", "mine\n");
        lab.project("src/main.c/mine.c", "mine too\n");
        let answer = json(lab, &format!("recover {run} --back"), 0);
        let kept = paths(&answer["ended"][0]["kept"]);
        assert_eq!(kept, ["src/main.c", "README"]);
        let now = |path: &str| std::fs::read_to_string(lab.workspace().join(path)).expect("is there");
        assert_eq!(now("README"), "mine\n");
        assert_eq!(now("src/main.c/mine.c"), "mine too\n");

        // What was there before is had from the journal, as the message of any verb says.
        let into = lab.outside().join("saved");
        let into = into.to_str().expect("UTF-8");
        let answer = json(lab, &format!("recover {run} --extract {into}"), 0);
        let written: Vec<&str> = answer["extracted"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one.as_str().expect("a path"))
            .collect();
        let saved = |end: &str| {
            let found = written.iter().find(|path| path.ends_with(end));
            std::fs::read_to_string(found.unwrap_or_else(|| panic!("{end} in {written:?}")))
                .expect("is written")
        };
        assert_eq!(saved("/README"), "one\ntwo\nthree\nfour\nfive\n");
        assert_eq!(saved("/src/main.c"), "int main(void) {\n\treturn 0;\n}\n");
        // Nothing is replaced by it.
        says(lab, &format!("recover {run} --extract {into}"), 1);
    });
}

#[test]
fn where_it_cannot_be_ended_verbs_about_the_project_stop_and_say_the_ways_out() {
    for_each_identity(|lab| {
        let Applied { run, .. } = applied(lab);
        interrupt(lab, &run);
        let journal = last_journal(lab, &run).join("journal.json");
        let whole = std::fs::read_to_string(&journal).expect("is there");
        lab.plant(&journal, &whole[..whole.len() / 2]);
        let before = files(&lab.workspace());
        for line in [
            format!("diff {run}"),
            format!("apply {run}"),
            format!("snapshots {run}"),
        ] {
            let ended = says(lab, &line, 1);
            for way in ["--abandon", "--extract DIR"] {
                assert!(
                    ended.stderr.contains(&format!("bastle recover {run} {way}")),
                    "{line}: {ended:#?}"
                );
            }
        }
        assert_eq!(markers(lab), 1);
        assert_eq!(files(&lab.workspace()), before);
        // A run on such a tree would begin with half a project.
        let output = lab.fence().flags(["--workspace", "copy"]).sh("true");
        assert_ne!(output.ended.code, 0, "{output:?}");
        // The positive control.
        lab.plant(&journal, &whole);
        says(lab, &format!("diff {run}"), 0);
        assert_eq!(markers(lab), 0);
    });
}

#[test]
fn a_damaged_journal_stops_no_other_removal_and_can_be_left_behind() {
    for_each_identity(|lab| {
        let Applied { run, .. } = applied(lab);
        let other = work(lab, "true");
        interrupt(lab, &run);
        let folder = last_journal(lab, &run);
        lab.plant(&folder.join("state.json"), "torn");
        let before = files(&lab.workspace());

        let removed = says(lab, &format!("rm {other}"), 0);
        assert!(removed.stderr.contains("state.json"), "{removed:?}");
        // Of the run itself the journal is work that is nowhere else.
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(
            refused
                .stderr
                .contains(&format!("bastle recover {run} --extract")),
            "{refused:?}"
        );
        let stopped = says(lab, &format!("diff {run}"), 1);
        for part in ["state.json", "slots"] {
            let file = folder.join(part).display().to_string();
            assert!(stopped.stderr.contains(&file), "{file}: {stopped:?}");
        }

        let into = lab.outside().join("saved");
        let into = into.to_str().expect("UTF-8");
        let answer = json(lab, &format!("recover {run} --extract {into}"), 0);
        let written = answer["extracted"].as_array().expect("a list");
        let old_readme = |path: &serde_json::Value| {
            let path = path.as_str().expect("a path");
            std::fs::read_to_string(path).is_ok_and(|text| text == "one\ntwo\nthree\nfour\nfive\n")
        };
        assert!(written.iter().any(old_readme), "{written:?}");

        let answer = json(lab, &format!("recover {run} --abandon"), 0);
        assert_eq!(answer["ended"][0]["outcome"], "set-aside");
        assert_eq!(files(&lab.workspace()), before);
        assert_eq!(markers(lab), 0);
        says(lab, &format!("diff {run}"), 0);
        // Still kept, and still named.
        says(lab, &format!("rm {run}"), 1);
    });
}

#[test]
fn an_interrupted_change_is_found_without_its_marker() {
    for_each_identity(|lab| {
        let Applied { run, new, .. } = applied(lab);
        for line in [format!("recover {run}"), format!("diff {run} --stat")] {
            interrupt(lab, &run);
            let markers = lab.home().join(".local/state/bastle/applying");
            for marker in std::fs::read_dir(markers).expect("is there") {
                std::fs::remove_file(marker.expect("can be listed").path()).expect("own file");
            }
            let ended = says(lab, &line, 0);
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(told.contains("was finished"), "{line}: {ended:?}");
            assert_eq!(files(&lab.workspace()), new, "{line}");
        }
    });
}
