//! What a run may write, over every way of making the tree: contents, names, modes, times and attributes are refused
//! outside of it by the mount, also where a directory above the project is granted for writing.
use crate::support::{Fence, Identity, Lab, bastle, git, identities, run, skip, text};
use std::path::{Path, PathBuf};

const MODES: [&str; 4] = ["copy", "overlay", "worktree", "in-place"];

/// Changes below a directory that has `file`, `spare` and `gone`; every one must be refused or work by itself.
fn changes(root: &Path, below: &str) -> Vec<Vec<String>> {
    let at = |name: &str| text(&root.join(below).join(name)).to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    vec![
        words(&["overwrite", &at("file"), "changed"]),
        words(&["write", &at("new"), "made"]),
        words(&["mkdir", &at("directory")]),
        words(&["symlink", "file", &at("link")]),
        words(&["rename", &at("spare"), &at("moved")]),
        words(&["unlink", &at("gone")]),
        words(&["chmod", &at("file"), "0600"]),
        words(&["fchmodat2", &at("file"), "0640"]),
        words(&["set-times", &at("file"), "1000000"]),
        words(&["set-attribute", &at("file"), "user.note", "x"]),
        words(&["set-times", &at(""), "1000000"]),
        words(&["chmod", &at(""), "0700"]),
    ]
}

fn tried(fence: Fence<'_>, changes: &[Vec<String>]) -> Vec<String> {
    let words: Vec<Vec<&str>> = changes
        .iter()
        .map(|change| change.iter().map(String::as_str).collect())
        .collect();
    let attacks: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
    fence.attack(&attacks).0
}

/// A repository with a directory that may be written in some tests, and one that never may.
fn project(lab: &Lab) -> PathBuf {
    let root = lab.workspace();
    for directory in ["", "sub/", "other/"] {
        for name in ["file", "spare", "gone", "notes.txt"] {
            lab.project(&format!("{directory}{name}"), "as it was\n");
        }
    }
    git(lab, &root, &["init", "-q"]);
    git(lab, &root, &["config", "user.name", "Ada"]);
    git(lab, &root, &["config", "user.email", "ada@example.org"]);
    git(lab, &root, &["add", "-A"]);
    git(lab, &root, &["commit", "-qm", "first"]);
    root
}

/// Below `/tmp`, which every sandbox may write as its own, and where nothing above the project may be written.
fn for_each_place(test: &str, each: impl Fn(&Lab)) {
    for identity in identities() {
        let beside = match identity {
            Identity::Root | Identity::Ordinary(_) => Some(PathBuf::from("/srv")),
            Identity::Current => std::env::home_dir().filter(|home| !home.starts_with("/tmp")),
        };
        if beside.is_none() {
            skip(test, "no directory outside /tmp may be written");
        }
        for place in [Some(PathBuf::from("/tmp")), beside].into_iter().flatten() {
            eprintln!("--- as {identity} below {}", place.display());
            each(&Lab::below(&place, identity));
        }
    }
}

/// Refused by the mount in every place, or by Landlock, the guard of names or the mount alike where it is a content.
fn assert_refused(found: &[String], changes: &[Vec<String>], about: &str) {
    for (outcome, change) in found.iter().zip(changes) {
        assert_eq!(outcome, "EROFS", "{about}: {change:?}");
    }
}

#[test]
fn no_mode_lets_a_read_only_run_change_a_file_its_mode_its_times_or_its_attributes() {
    let name = "no_mode_lets_a_read_only_run_change_a_file_its_mode_its_times_or_its_attributes";
    for_each_place(name, |lab| {
        let root = project(lab);
        for mode in MODES {
            for below in ["", "sub"] {
                let changes = changes(&root, below);
                let fence = lab.fence().flags(["--workspace", mode, "--sandbox", "read-only"]);
                assert_refused(&tried(fence, &changes), &changes, &format!("{mode} {below}"));
            }
        }
        assert_eq!(git(lab, &root, &["status", "--porcelain"]), "");
    });
}

#[test]
fn what_a_project_narrows_writing_to_is_all_that_every_mode_lets_change() {
    let name = "what_a_project_narrows_writing_to_is_all_that_every_mode_lets_change";
    for_each_place(name, |lab| {
        let rules = r#"{"version": 1, "fs": {"write": ["./sub"]}}"#;
        lab.project("agent-permissions.json", rules);
        let root = project(lab);
        // Last in place: it changes the project itself.
        for mode in MODES {
            let fence = || lab.fence().flags(["--workspace", mode]);
            for below in ["", "other"] {
                let changes = changes(&root, below);
                assert_refused(&tried(fence(), &changes), &changes, &format!("{mode} {below}"));
            }
            let changes = changes(&root, "sub");
            let worked = vec!["OK"; changes.len()];
            assert_eq!(tried(fence(), &changes), worked, "{mode}: {changes:?}");
            let across = [
                ["rename", "sub/file", "taken"],
                ["link", "other/file", "sub/linked"],
                ["exchange", "sub/file", "other/file"],
            ];
            let across = across.map(|words| words.map(str::to_owned).to_vec());
            for outcome in tried(fence(), &across) {
                assert!(matches!(outcome.as_str(), "EROFS" | "EXDEV"), "{mode}: {outcome}");
            }
        }
    });
}

#[test]
fn what_is_written_in_a_scope_of_an_overlay_is_found_and_applied() {
    for_each_place(
        "what_is_written_in_a_scope_of_an_overlay_is_found_and_applied",
        |lab| {
            let rules = r#"{"version": 1, "fs": {"write": ["./sub"]}}"#;
            lab.project("agent-permissions.json", rules);
            let root = project(lab);
            let fence = lab.fence().flags(["--workspace", "overlay"]);
            let run_name = fence.name().to_owned();
            let output = fence.sh("echo mine > sub/notes.txt; rm sub/gone; echo not > other/file; exit 0");
            assert_eq!(output.ended.code, 0, "{output:?}");
            let ask = |words: &[&str]| {
                let mut command = lab.command(bastle());
                command.args(words);
                run(&mut command, b"", crate::support::Limit::HANG)
            };
            let diff = ask(&["diff", &run_name, "--name-only"]);
            assert_eq!(diff.stdout, "sub/gone\nsub/notes.txt\n", "{diff:?}");
            let applied = ask(&["apply", &run_name, "--paths", "sub/notes.txt"]);
            assert_eq!(applied.code, 0, "{applied:?}");
            let found = std::fs::read_to_string(root.join("sub/notes.txt")).expect("is there");
            assert_eq!(found, "mine\n");
        },
    );
}

#[test]
fn a_file_that_is_opened_in_a_protected_directory_is_all_of_it_that_any_mode_lets_change() {
    let name = "a_file_that_is_opened_in_a_protected_directory_is_all_of_it_that_any_mode_lets_change";
    for_each_place(name, |lab| {
        for file in [".idea/file", ".idea/opened"] {
            lab.project(file, "as it was\n");
        }
        let root = project(lab);
        let at = |name: &str| text(&root.join(name)).to_owned();
        let changes: Vec<Vec<String>> = [".idea/opened", ".idea/file", ".idea"]
            .iter()
            .map(|name| vec!["chmod".to_owned(), at(name), "0600".to_owned()])
            .chain([vec![
                "overwrite".to_owned(),
                at(".idea/opened"),
                "changed".to_owned(),
            ]])
            .collect();
        for mode in MODES {
            let flags = ["--workspace", mode, "--unprotect", ".idea/opened"];
            let found = tried(lab.fence().flags(flags), &changes);
            assert_eq!(found, ["OK", "EROFS", "EROFS", "OK"], "{mode}");
        }
    });
}
