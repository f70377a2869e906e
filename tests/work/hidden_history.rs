//! Hidden names in the history: nothing of them is inside with `--hide-history`, and without it they are counted and told.
use crate::support::{Lab, Limit, bastle, for_each_identity, run};
use std::path::PathBuf;

const MODES: [&str; 3] = ["copy", "overlay", "worktree"];

fn git(lab: &Lab, arguments: &[&str]) -> String {
    crate::support::git(lab, &lab.workspace(), arguments)
}

/// Two contents of `.env`, one of them only in the past, a stash and a tag, all packed; and ordinary files.
fn repository(lab: &Lab) -> PathBuf {
    git(lab, &["init", "-q"]);
    for (name, email) in [("user.name", "Ada"), ("user.email", "ada@example.org")] {
        git(lab, &["config", name, email]);
    }
    lab.project("README", "read me\n");
    lab.project(".env", "TOKEN=canary-first\n");
    git(lab, &["add", "-f", "README", ".env"]);
    git(lab, &["commit", "-qm", "first"]);
    git(lab, &["tag", "old"]);
    lab.project(".env", "TOKEN=canary-second\n");
    lab.project("src/main.c", "int main(void) { return 0; }\n");
    git(lab, &["add", "-f", ".env", "src"]);
    git(lab, &["commit", "-qm", "second"]);
    git(lab, &["gc", "-q"]);
    lab.workspace()
}

/// Looks for the canary in everything that git can find.
const SEARCH: &str = "for id in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do git cat-file -p $id; done \
    2>/dev/null | grep -ao 'canary-[a-z]*' | sort -u; git show HEAD:.env 2>/dev/null; git show old:.env 2>/dev/null; \
    grep -rao 'canary-[a-z]*' . 2>/dev/null; test -s .git/objects/info/alternates && echo ALTERNATES; true";

#[test]
fn with_hidden_history_no_object_of_a_hidden_name_is_inside_in_any_mode() {
    for_each_identity(|lab| {
        repository(lab);
        for mode in MODES {
            let output = lab
                .fence()
                .flags(["--workspace", mode, "--hide-history"])
                .sh(SEARCH);
            assert_eq!((output.ended.code, output.said()), (0, ""), "{mode}: {output:?}");
            let full = lab.fence().flags(["--workspace", mode]).sh(SEARCH);
            assert!(
                full.said().contains("canary-first") && full.said().contains("canary-second"),
                "control, {mode}: {full:?}"
            );
            assert!(
                full.ended
                    .stderr
                    .contains("HIDDEN NAMES IN THE HISTORY: 2 contents of .env"),
                "{mode}: {full:?}"
            );
        }
    });
}

#[test]
fn work_in_a_copy_without_history_comes_back_as_files_and_as_a_branch() {
    for_each_identity(|lab| {
        let root = repository(lab);
        for mode in MODES {
            let fence = lab.fence().flags(["--workspace", mode, "--hide-history"]);
            let name = fence.name().to_owned();
            let output = fence.sh("set -e; test -z \"$(git status --porcelain)\"; test \"$(git rev-list --count HEAD)\" = 1
                echo 'int two;' > src/two.c; git add -A; git commit -qm inside; git fsck --full --strict >/dev/null 2>&1; echo done");
            assert_eq!(output.said(), "done", "{mode}: {output:?}");
            let ask = |words: &[&str]| {
                let mut command = lab.command(bastle());
                command.args(words);
                run(&mut command, b"", Limit::HANG)
            };
            let diff = ask(&["diff", &name, "--name-only"]);
            assert_eq!(diff.stdout.trim(), "src/two.c", "{mode}: {diff:?}");
            let branch = format!("work-{mode}");
            let applied = ask(&["apply", &name, "--branch", &branch, "-m", "two"]);
            assert_eq!(applied.code, 0, "{mode}: {applied:?}");
            assert_eq!(git(lab, &["show", &format!("{branch}:src/two.c")]), "int two;");
            assert_eq!(
                git(lab, &["show", &format!("{branch}:.env")]),
                "TOKEN=canary-second"
            );
            assert_eq!(
                git(lab, &["rev-parse", &format!("{branch}~1")]),
                git(lab, &["rev-parse", "HEAD"])
            );
        }
        assert!(root.join(".env").exists());
    });
}

#[test]
fn another_name_of_a_hidden_file_shows_it_in_no_mode() {
    for_each_identity(|lab| {
        let root = repository(lab);
        lab.project("plain", "plain\n");
        std::fs::hard_link(root.join(".env"), root.join("notes.txt")).expect("can be linked");
        std::fs::hard_link(root.join("plain"), root.join("plain-too")).expect("can be linked");
        for mode in ["in-place", "copy", "overlay", "worktree"] {
            let output = lab
                .fence()
                .flags(["--workspace", mode])
                .sh("cat notes.txt 2>/dev/null; cat plain plain-too 2>/dev/null; true");
            let expected = if mode == "worktree" { "" } else { "plain\nplain" };
            assert_eq!(output.said(), expected, "{mode}: {output:?}");
        }
    });
}

#[test]
fn hidden_history_is_refused_where_it_cannot_be_held_and_the_plan_says_how_it_is() {
    for_each_identity(|lab| {
        repository(lab);
        let flags = ["--workspace", "in-place", "--hide-history"];
        let refused = lab.fence().flags(flags).run(["true"]);
        assert!(
            refused.ended.code != 0 && refused.ended.stderr.contains("the history cannot be hidden"),
            "{refused:?}"
        );
        for (mode, flag, line) in [
            ("copy", Some("--hide-history"), "history: hidden"),
            ("copy", None, "history: full"),
            ("in-place", None, "history: full"),
        ] {
            let flags = ["--workspace", mode, "--dry-run-policy"].into_iter().chain(flag);
            let shown = lab.fence().flags(flags).run(["true"]);
            assert!(
                shown.ended.stdout.contains(line)
                    && shown.ended.stdout.contains("hard links of hidden files"),
                "{mode}: {shown:?}"
            );
        }
    });
}

#[test]
fn other_repositories_and_bundles_in_the_project_are_left_out_with_the_history_and_told_without() {
    for_each_identity(|lab| {
        let root = repository(lab);
        let beside = |directory: &str, arguments: &[&str]| {
            crate::support::git(lab, &root.join(directory), arguments);
        };
        lab.project("sub/.env", "TOKEN=canary-nested\n");
        lab.project("sub/file", "nested\n");
        beside("sub", &["init", "-q"]);
        beside("sub", &["add", "-f", ".env", "file"]);
        let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
        beside("sub", &[&author[..], &["commit", "-qm", "nested"]].concat());
        git(lab, &["clone", "-q", "--bare", "sub", "store.git"]);
        git(lab, &["bundle", "create", "-q", "all.bundle", "--all"]);
        git(lab, &["bundle", "create", "-q", "notes.txt", "--all"]);
        let script = "git -C sub show HEAD:.env 2>/dev/null; git -C store.git show HEAD:.env 2>/dev/null; \
            for b in all.bundle notes.txt; do git clone -q --bare $b /tmp/$b 2>/dev/null && \
            git -C /tmp/$b show HEAD:.env; done; cat sub/file";
        for mode in ["copy", "overlay"] {
            let output = lab
                .fence()
                .flags(["--workspace", mode, "--hide-history"])
                .sh(script);
            assert_eq!(output.said(), "nested", "{mode}: {output:?}");
            let stderr = &output.ended.stderr;
            assert!(
                stderr.contains("left out, because each has a history of its own: all.bundle, notes.txt, store.git and 1 more"),
                "{mode}: {output:?}"
            );
            let full = lab.fence().flags(["--workspace", mode]).sh(script);
            assert!(full.said().contains("canary-nested"), "control, {mode}: {full:?}");
            assert!(
                full.ended
                    .stderr
                    .contains("OTHER REPOSITORIES IN THE PROJECT: all.bundle, store.git, sub/.git"),
                "{mode}: {full:?}"
            );
        }
    });
}

#[test]
fn in_place_the_history_is_searched_and_told_too() {
    for_each_identity(|lab| {
        repository(lab);
        lab.project("sub/file", "nested\n");
        crate::support::git(lab, &lab.workspace().join("sub"), &["init", "-q"]);
        let output = lab.fence().flags(["--workspace", "in-place"]).sh("true");
        let stderr = &output.ended.stderr;
        assert!(
            stderr.contains("HIDDEN NAMES IN THE HISTORY: 2 contents of .env")
                && stderr.contains("OTHER REPOSITORIES IN THE PROJECT: sub/.git")
                && stderr.contains("--workspace copy --hide-history"),
            "{output:?}"
        );
    });
}

#[test]
fn contents_that_git_keeps_without_a_name_are_told_and_stay_out_with_the_history() {
    for_each_identity(|lab| {
        repository(lab);
        let said = |mode: &str| lab.fence().flags(["--workspace", mode]).sh("true").ended.stderr;
        let counted = "GIT OBJECTS WITHOUT A NAME";
        assert!(
            !said("copy").contains(counted),
            "control: every content has a name"
        );
        lab.project(".env", "TOKEN=canary-third\n");
        git(lab, &["add", "-f", ".env"]);
        git(lab, &["reset", "-q"]);
        for mode in ["copy", "overlay", "worktree", "in-place"] {
            let stderr = said(mode);
            // A start does not wait for a search that takes long, and says that it did not.
            let unsearched = "git objects could not be searched in time";
            assert!(
                stderr.contains(&format!("{counted}: 1 content that")) || stderr.contains(unsearched),
                "{mode}: {stderr}"
            );
        }
        let full = lab.fence().flags(["--workspace", "copy"]).sh(SEARCH);
        assert!(full.said().contains("canary-third"), "control: {full:?}");
        let output = lab
            .fence()
            .flags(["--workspace", "copy", "--hide-history"])
            .sh(SEARCH);
        assert_eq!((output.ended.code, output.said()), (0, ""), "{output:?}");
    });
}
