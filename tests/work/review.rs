//! Review and return: what comes back, in which form, and how it goes again.
use super::support::{Ended, Identity, Lab, Limit, bastle, for_each_identity, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// A repository with one commit, as the identity's own.
pub(super) fn repository(lab: &Lab) {
    lab.project("src/main.c", "int main(void) {\n\treturn 0;\n}\n");
    lab.project("README", "one\ntwo\nthree\nfour\nfive\n");
    lab.project(".gitignore", "out/\n");
    git(lab, &["init", "-q"]);
    git(lab, &["add", "-A"]);
    git(lab, &["commit", "-qm", "first"]);
}

/// The user's own git in the project, with nothing switched off.
pub(super) fn git_anywhere(lab: &Lab, directory: &Path, words: &[&str]) -> Ended {
    let mut command = lab.command(Path::new("git"));
    command.current_dir(directory);
    let identity = [
        "user.name=Ada",
        "user.email=ada@example.org",
        "init.defaultBranch=main",
    ];
    command.args(identity.iter().flat_map(|setting| ["-c", setting]));
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

pub(super) fn git(lab: &Lab, words: &[&str]) -> String {
    let ended = git_anywhere(lab, &lab.workspace(), words);
    assert_eq!(ended.code, 0, "git {words:?}: {ended:?}");
    ended.stdout
}

/// A verb in the project.
pub(super) fn verb<S: AsRef<OsStr>>(lab: &Lab, words: impl IntoIterator<Item = S>) -> Ended {
    let mut command = lab.command(bastle());
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

/// The same, for words without blanks.
pub(super) fn say(lab: &Lab, line: &str) -> Ended {
    verb(lab, line.split(' '))
}

/// The same, which must end with this code.
#[track_caller]
pub(super) fn says(lab: &Lab, line: &str, code: i32) -> Ended {
    let ended = say(lab, line);
    assert_eq!(ended.code, code, "bastle {line}: {ended:#?}");
    ended
}

/// The JSON of a verb, which must fit its schema.
#[track_caller]
pub(super) fn json(lab: &Lab, line: &str, code: i32) -> Value {
    let ended = says(lab, &format!("{line} --json"), code);
    let value: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let name = value["schema"].as_str().expect("has a schema");
    let name = name.trim_start_matches("bastle.").trim_end_matches("/v1");
    let folder = format!("{}/crates/unprivileged/cli/schemas", env!("CARGO_MANIFEST_DIR"));
    let schema = std::fs::read_to_string(format!("{folder}/{name}.schema.json")).expect("a schema");
    let schema: Value = serde_json::from_str(&schema).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?} in {value:#}");
    value
}

/// A run in a copy; gives its name.
#[track_caller]
pub(super) fn work(lab: &Lab, script: &str) -> String {
    let fence = lab.fence().flags(["--workspace", "copy"]);
    let name = fence.name().to_owned();
    let output = fence.sh(script);
    assert_eq!(output.ended.code, 0, "{output:?}");
    name
}

/// Where the files of a run lie.
pub(super) fn tree(lab: &Lab, run: &str) -> PathBuf {
    lab.home().join(".local/state/bastle/work").join(run).join("tree")
}

/// Leaves a file in a run's copy that the fence would have kept the agent from making: other fences may not.
pub(super) fn leave(lab: &Lab, run: &str, path: &[u8], bytes: &[u8]) -> PathBuf {
    let full = tree(lab, run).join(OsStr::from_bytes(path));
    let mut missing: Vec<&Path> = full.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
    while let Some(directory) = missing.pop() {
        std::fs::create_dir(directory).expect("can be made");
        lab.hand_over(directory);
    }
    std::fs::write(&full, bytes).expect("can be written");
    lab.hand_over(&full);
    full
}

/// Leaves a link.
pub(super) fn leave_link(lab: &Lab, run: &str, path: &str, target: &str) {
    let full = tree(lab, run).join(path);
    std::os::unix::fs::symlink(target, &full).expect("can be made");
    let owner = tree(lab, run).symlink_metadata().expect("is there");
    lchown(&full, Some(owner.uid()), Some(owner.gid())).expect("own file");
}

/// Everything below a directory: kind, permissions, bytes.
pub(super) fn everything(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("can be listed") {
            let path = entry.expect("can be listed").path();
            let meta = path.symlink_metadata().expect("is there");
            let bytes = if meta.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                let target = std::fs::read_link(&path).expect("is a link");
                target.as_os_str().as_bytes().to_vec()
            } else if meta.is_file() {
                std::fs::read(&path).expect("can be read")
            } else {
                Vec::new()
            };
            found.insert(path, (meta.permissions().mode(), bytes));
        }
    }
    found
}

/// The same without git's own bookkeeping, which git itself rewrites on the mere asking for a status.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = everything(root);
    all.retain(|path, _| !path.starts_with(root.join(".git")));
    all
}

pub(super) fn paths(value: &Value) -> Vec<&str> {
    let listed = value.as_array().expect("a list");
    listed
        .iter()
        .map(|one| one["shown"].as_str().expect("a name"))
        .collect()
}

pub(super) const EDIT: &str = "echo new > src/new.c\nprintf 'one\\nTWO\\nthree\\nfour\\nfive\\n' > README\nmkdir -p out\necho built > out/a.o\n";

#[test]
fn a_project_of_somebody_else_stays_theirs_when_root_applies() {
    for_each_identity(|lab| {
        repository(lab);
        let workspace = lab.workspace();
        // Only root can have the project of somebody else.
        let root = matches!(lab.identity, Identity::Root);
        let owner = if root { 60_002 } else { lab.identity.uid() };
        if root {
            for path in everything(&workspace).keys().chain([&workspace]) {
                lchown(path, Some(owner), Some(owner)).expect("root may");
            }
        }
        let run = work(
            lab,
            "echo more >> README; mkdir new; echo a > new/a.txt; ln -s a.txt new/link.txt",
        );
        says(lab, &format!("apply {run}"), 0);
        for name in ["README", "new", "new/a.txt", "new/link.txt"] {
            let meta = workspace.join(name).symlink_metadata().expect("was applied");
            assert_eq!(meta.uid(), owner, "{name}");
        }
        says(lab, &format!("apply {run} --undo"), 0);
        let meta = workspace.join("README").symlink_metadata().expect("is back");
        assert_eq!(meta.uid(), owner, "after the undo");
    });
}

#[test]
fn changes_come_back_only_when_applied_and_go_again_when_taken_back() {
    for_each_identity(|lab| {
        repository(lab);
        let before = everything(&lab.workspace());
        says(lab, "diff --exit-code", 3);
        let run = work(lab, EDIT);
        assert_eq!(
            everything(&lab.workspace()),
            before,
            "the run wrote to the project"
        );

        let shown = says(lab, "diff --exit-code", 1);
        for expected in [
            "== M README  +1 -1\n",
            "\n-two\n+TWO\n",
            "== A src/new.c  +1 -0\n",
        ] {
            assert!(shown.stdout.contains(expected), "{expected:?} in {shown:#?}");
        }
        assert_eq!(says(lab, "diff --name-only", 0).stdout, "README\nsrc/new.c\n");
        assert_eq!(says(lab, "diff @last src --name-only", 0).stdout, "src/new.c\n");
        assert_eq!(
            says(lab, "diff @last --ignored --name-only", 0).stdout,
            "README\nout/a.o\nsrc/new.c\n"
        );
        let value = json(lab, "diff", 0);
        assert_eq!(paths(&value["changes"]), ["README", "src/new.c"]);
        assert_eq!(value["run"], run.as_str());
        assert!(value["ignored"].as_u64() >= Some(1), "{value:#}");
        json(lab, "apply --dry-run", 0);
        assert_eq!(
            everything(&lab.workspace()),
            before,
            "looking wrote to the project"
        );

        let value = json(lab, "apply", 0);
        assert_eq!(paths(&value["paths"]), ["README", "src/new.c"]);
        assert_eq!(value["left_out"][0]["reason"], "ignored");
        let mut expected = before.clone();
        let root = lab.workspace();
        expected.get_mut(&root.join("README")).expect("there").1 = b"one\nTWO\nthree\nfour\nfive\n".to_vec();
        let after = everything(&root);
        let new = after.get(&root.join("src/new.c")).expect("applied").clone();
        assert_eq!(new.1, b"new\n");
        expected.insert(root.join("src/new.c"), new);
        assert_eq!(after, expected);
        let owner = root.join("src/new.c").metadata().expect("applied").uid();
        assert_eq!(
            owner,
            lab.identity.uid(),
            "what is applied belongs to the invoker"
        );
        assert_eq!(paths(&json(lab, "apply", 0)["already"]), ["README", "src/new.c"]);

        assert_eq!(
            paths(&json(lab, "apply --undo", 0)["paths"]),
            ["README", "src/new.c"]
        );
        assert_eq!(everything(&root), before);
        says(lab, "apply --undo", 1);
    });
}

#[test]
fn a_run_is_the_one_that_was_named_and_never_a_similar_one() {
    for_each_identity(|lab| {
        repository(lab);
        let first = work(lab, "echo 1 > src/one.c\n");
        let second = work(lab, "echo 2 > src/two.c\n");
        let named = |word: &str| says(lab, &format!("diff {word} --name-only"), 0).stdout;
        let listed = json(lab, "ls --here", 0);
        assert_eq!(
            [&listed["runs"][0]["run"], &listed["runs"][1]["run"]],
            [second.as_str(), first.as_str()]
        );
        assert_eq!(named(&first), "src/one.c\n");
        assert_eq!(named(&second), "src/two.c\n");
        assert_eq!(named("@last"), "src/two.c\n", "the newest one");
        says(lab, "rm nothing-like-it", 3);
        let both = first.rsplit_once('-').expect("ends with a number").0;
        let said = says(lab, &format!("diff {both}"), 2);
        assert!(said.stderr.contains("more than one run"), "{said:?}");
        let said = says(lab, "diff README", 3);
        assert!(said.stderr.contains("paths come after it"), "{said:?}");
        assert!(
            said.stderr.contains(&first) && said.stderr.contains(&second),
            "{said:?}"
        );
        for line in [
            "diff @last ../outside",
            "diff @last /etc/passwd",
            "apply @last --paths ..",
        ] {
            says(lab, line, 2);
        }
        // Elsewhere there is no last run, and a name is still a name.
        let mut elsewhere = lab.command(bastle());
        elsewhere.current_dir(lab.outside()).args(["diff", "--name-only"]);
        let ended = run(&mut elsewhere, b"", Limit::HANG);
        assert_eq!(ended.code, 3, "{ended:?}");
        elsewhere.arg(&first);
        assert_eq!(run(&mut elsewhere, b"", Limit::HANG).stdout, "src/one.c\n");
    });
}

#[test]
fn a_branch_and_a_patch_hold_the_work_and_the_tree_stays_as_it_is() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let before = files(&lab.workspace());
        let value = json(lab, &format!("apply {run} --branch agent/work"), 0);
        assert_eq!(files(&lab.workspace()), before);
        assert_eq!(git(lab, &["status", "--porcelain"]), "");
        assert_eq!(git(lab, &["branch", "--show-current"]), "main\n");
        let changed = git(lab, &["diff", "--name-only", "main", "agent/work"]);
        assert_eq!(changed, "README\nsrc/new.c\n");
        let tip = git(lab, &["rev-parse", "agent/work"]);
        assert_eq!(value["commit"].as_str(), Some(tip.trim_end()));
        assert_eq!(
            git(lab, &["rev-parse", "agent/work^"]),
            git(lab, &["rev-parse", "main"])
        );
        git(lab, &["fsck", "--strict"]);
        says(lab, &format!("apply {run} --branch agent/work"), 1);
        for bad in ["--upload-pack=x", "refs/heads/../x", "a..b", "+a:b"] {
            let ended = verb(lab, ["apply", &run, &format!("--branch={bad}")]);
            assert_eq!(ended.code, 2, "{bad}: {ended:?}");
        }

        let file = lab.outside().join("work.patch");
        let line = format!("apply {run} --patch {}", file.display());
        json(lab, &line, 0);
        says(lab, &line, 2);
        json(lab, &format!("{line} --force"), 0);
        let raw = says(lab, &format!("apply {run} --patch -"), 0);
        assert_eq!(raw.stdout, std::fs::read_to_string(&file).expect("was written"));
        git(lab, &["apply", "--check", file.to_str().expect("UTF-8")]);
        git(lab, &["apply", file.to_str().expect("UTF-8")]);
        assert_eq!(
            std::fs::read(lab.workspace().join("src/new.c")).expect("applied"),
            b"new\n"
        );
    });
}

#[test]
fn a_project_that_changed_meanwhile_is_merged_or_nothing_at_all_is_written() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        // Another line: both changes fit together.
        lab.project("README", "one\ntwo\nthree\nfour\nFIVE\n");
        let value = json(lab, "apply --dry-run", 0);
        assert_eq!(paths(&value["merged"]), ["README"]);
        json(lab, "apply", 0);
        let merged = std::fs::read_to_string(lab.workspace().join("README")).expect("there");
        assert_eq!(merged, "one\nTWO\nthree\nfour\nFIVE\n");
        json(lab, "apply --undo", 0);
        let back = std::fs::read_to_string(lab.workspace().join("README")).expect("there");
        assert_eq!(back, "one\ntwo\nthree\nfour\nFIVE\n");

        // The same line: nothing is written, not even what would fit.
        lab.project("README", "one\n2\nthree\nfour\nfive\n");
        let before = everything(&lab.workspace());
        let ended = says(lab, &format!("apply {run}"), 1);
        assert!(ended.stderr.contains("BST-WS-011"), "{ended:?}");
        assert!(
            ended.stderr.contains("<<<<<<<") && ended.stderr.contains("TWO"),
            "{ended:?}"
        );
        let value = json(lab, "apply", 1);
        assert_eq!(paths(&value["conflicts"]), ["README"]);
        assert_eq!(paths(&value["paths"]), Vec::<&str>::new());
        assert_eq!(everything(&lab.workspace()), before);
        // Work that conflicts is nowhere else.
        says(lab, &format!("rm {run}"), 1);

        let value = json(lab, "apply --ours", 0);
        assert_eq!(paths(&value["paths"]), ["src/new.c"]);
        json(lab, "apply --undo", 0);
        json(lab, "apply --theirs", 0);
        let theirs = std::fs::read_to_string(lab.workspace().join("README")).expect("there");
        assert_eq!(theirs, "one\nTWO\nthree\nfour\nfive\n");
        // What was written over comes back.
        json(lab, "apply --undo", 0);
        assert_eq!(everything(&lab.workspace()), before);
        // And nothing is taken back over later work.
        json(lab, "apply --theirs", 0);
        lab.project("README", "later\n");
        let ended = says(lab, "apply --undo", 1);
        assert!(ended.stderr.contains("changed since"), "{ended:?}");
        assert_eq!(
            std::fs::read(lab.workspace().join("README")).expect("there"),
            b"later\n"
        );
    });
}

#[test]
fn only_named_paths_are_taken_and_ignored_ones_when_they_are_named() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let before = files(&lab.workspace());
        let value = json(lab, &format!("apply {run} --paths src"), 0);
        assert_eq!(paths(&value["paths"]), ["src/new.c"]);
        // What was not named is still nowhere else.
        says(lab, &format!("rm {run}"), 1);
        json(lab, &format!("apply {run} --undo"), 0);
        assert_eq!(files(&lab.workspace()), before);
        let held = json(lab, &format!("apply {run} --paths out --dry-run"), 0);
        assert_eq!(
            paths(&held["paths"]),
            ["out"],
            "a kind that is on no list is held"
        );
        let hash = held["left_out"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["path"] == "out/a.o")
            .and_then(|one| one["approval"].as_str())
            .unwrap_or_else(|| panic!("{held}"))
            .to_owned();
        let value = json(lab, &format!("apply {run} --paths out --approve {hash}"), 0);
        assert_eq!(paths(&value["paths"]), ["out", "out/a.o"]);
        assert!(!lab.workspace().join("src/new.c").exists());
    });
}

#[test]
fn a_name_that_is_not_utf_8_is_named_like_any_other() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(
            lab,
            "echo new > src/new.c; printf 'text\\n' > \"$(printf 'caf\\351.txt')\"",
        );
        let odd = OsStr::from_bytes(b"caf\xe9.txt");
        for name in [
            odd.to_owned(),
            [OsStr::new("src/.././"), odd].into_iter().collect(),
        ] {
            let name: &OsStr = &name;
            let shown = verb(
                lab,
                [
                    OsStr::new("diff"),
                    OsStr::new(&run),
                    name,
                    OsStr::new("--name-only"),
                ],
            );
            assert_eq!(
                (shown.code, &shown.stdout[..]),
                (0, "caf\\xe9.txt\n"),
                "{shown:?}"
            );
        }
        // Such a name is held; what is left out has the hash that approves it.
        let apply = |approve: &[&str]| {
            let words = ["apply", &run, "--json"]
                .into_iter()
                .chain(approve.iter().copied());
            verb(lab, words.chain(["--paths"]).map(OsStr::new).chain([odd]))
        };
        let held: Value = serde_json::from_str(&apply(&[]).stdout).expect("an answer");
        let listed = held["left_out"].as_array().expect("a list").iter();
        let hash = listed
            .filter_map(|one| one["approval"].as_str())
            .next()
            .expect("is held");
        let applied = apply(&["--approve", hash]);
        assert_eq!(applied.code, 0, "{applied:?}");
        assert_eq!(
            std::fs::read(lab.workspace().join(odd)).expect("applied"),
            b"text\n"
        );
        assert!(
            !lab.workspace().join("src/new.c").exists(),
            "taken although not named"
        );
    });
}
