//! What the agent committed and its files do not show: named, reviewed, brought back, kept, and never removed unasked.
use super::review::{git, git_anywhere, json, repository, says, work};
use super::support::{Lab, for_each_identity};
use serde_json::Value;
use std::process::Command;

/// A branch, a tag, two stashes, a detached commit in a work tree of its own; the files end as they began.
const LEFT: &str = "set -e
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
    home=$(git symbolic-ref --short HEAD)
    git checkout -qb feature; echo 'int one;' > src/one.c; git add -A; git commit -qm one
    echo 'int two;' > src/two.c; printf 'a\\0b' > src/logo.png; git add -A; git commit -qm two
    printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; git add -A; git commit -qm three
    git checkout -q --detach; echo 'int tagged;' > src/tagged.c; git add -A; git commit -qm tagged; git tag v1
    git checkout -q $home
    echo first >> src/main.c; git stash -q; echo second >> src/main.c; echo 'int u;' > src/untracked.c; git stash -qu
    git branch same-place
    test -z \"$(git status --porcelain)\"
";

fn names(value: &Value) -> Vec<(String, Option<u64>)> {
    let refs = value["refs"].as_array().expect("a list");
    refs.iter()
        .map(|one| {
            let name = one["name"].as_str().expect("a name").to_owned();
            (name, one["commits"].as_u64())
        })
        .collect()
}

fn every_left() -> Vec<(String, Option<u64>)> {
    [("feature", 3), ("stash@{0}", 3), ("stash@{1}", 2), ("tags/v1", 4)]
        .map(|(name, count)| (name.to_owned(), Some(count)))
        .to_vec()
}

#[test]
fn commits_that_the_files_do_not_show_are_named_and_not_removed() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, LEFT);
        let value = json(lab, &format!("diff {run}"), 0);
        assert_eq!(value["changes"], Value::Array(Vec::new()), "{value:#}");
        assert_eq!(names(&value), every_left(), "{value:#}");
        let shown = says(lab, &format!("diff {run}"), 0);
        let line = format!("take: bastle apply {run} --branch feature --from-branch feature");
        assert!(
            shown
                .stderr
                .contains("! feature (3 commits) is not in these files"),
            "{shown:?}"
        );
        assert!(shown.stderr.contains(&line), "{shown:?}");

        // Everything of the files is elsewhere, and still it stays.
        json(lab, &format!("apply {run}"), 0);
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(refused.stderr.contains("BST-WS-005"), "{refused:?}");
        assert!(refused.stderr.contains("feature (3 commits)"), "{refused:?}");
        let value = json(lab, "prune --older-than 0s", 0);
        assert_eq!(value["kept"][0]["run"], run.as_str(), "{value:#}");

        // Commits on the checked-out branch come back as files.
        let plain = work(
            lab,
            "echo 'int x;' > src/x.c; git add -A; git -c user.name=A -c user.email=a@b commit -qm x",
        );
        assert_eq!(names(&json(lab, &format!("diff {plain}"), 0)), [], "control");
        json(lab, &format!("apply {plain}"), 0);
        json(lab, &format!("rm {plain}"), 0);
    });
}

#[test]
fn a_branch_that_the_agent_left_becomes_one_of_the_project_as_far_as_the_gate_lets_it() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, LEFT);
        // Hooks, filters and settings of the agent's repository are not read.
        let listed = says(lab, &format!("diff {run} --from-branch feature --name-only"), 0).stdout;
        assert_eq!(listed, "run.sh\nsrc/logo.png\nsrc/one.c\nsrc/two.c\n");
        let value = json(lab, &format!("apply {run} --branch got --from-branch feature"), 0);
        assert_eq!(value["left_out"][0]["shown"], "run.sh", "{value:#}");
        let files = git(lab, &["ls-tree", "-r", "--name-only", "got"]);
        assert_eq!(
            files,
            ".gitignore\nREADME\nsrc/logo.png\nsrc/main.c\nsrc/one.c\nsrc/two.c\n"
        );
        assert_eq!(git(lab, &["show", "got:src/two.c"]), "int two;\n");
        assert_eq!(git(lab, &["rev-list", "--count", "got"]), "2\n");
        // What was held is nowhere else yet.
        assert_eq!(names(&json(lab, &format!("diff {run}"), 0)), every_left());
        let hash = value["approval"].as_str().expect("a hash").to_owned();
        let line = format!("apply {run} --branch whole --from-branch feature --approve {hash}");
        json(lab, &line, 0);
        assert!(git(lab, &["ls-tree", "whole", "run.sh"]).starts_with("100755"));
        let left = names(&json(lab, &format!("diff {run}"), 0));
        assert_eq!(
            left,
            every_left()[1..],
            "what is a branch of the project counts as left"
        );
        json(
            lab,
            &format!("apply {run} --branch tag --from-branch tags/v1 --approve {hash}"),
            0,
        );
        says(
            lab,
            &format!("apply {run} --branch stashed --from-branch stash@{{1}}"),
            0,
        );
        assert!(git(lab, &["show", "stashed:src/main.c"]).ends_with("first\n"));
        says(
            lab,
            &format!("apply {run} --branch stashed2 --from-branch stash@{{0}}"),
            0,
        );
        assert_eq!(git(lab, &["show", "stashed2:src/untracked.c"]), "int u;\n");
        says(lab, &format!("apply {run} --branch x --from-branch nosuch"), 3);
        says(lab, &format!("apply {run} --from-branch feature"), 2);
        json(lab, &format!("apply {run}"), 0);
        json(lab, &format!("rm {run}"), 0);
    });
}

#[test]
fn an_archive_has_the_commits_that_the_files_do_not_show_as_patches() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, LEFT);
        let archive = lab.home().join("work.tar");
        let value = json(lab, &format!("export {run} {}", archive.display()), 0);
        assert_eq!(value["whole"], true, "{value:#}");
        let patches: Vec<&str> = value["patches"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["shown"].as_str())
            .collect();
        assert_eq!(patches.len(), 4, "{value:#}");
        let unpacked = lab.home().join("unpacked");
        std::fs::create_dir(&unpacked).expect("can be made");
        let tar = Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&unpacked)
            .status();
        assert!(tar.is_ok_and(|status| status.success()));
        let patch = unpacked.join(patches[0]);
        let patch = patch.to_str().expect("UTF-8");
        let applied = git_anywhere(lab, &lab.workspace(), &["apply", "--index", patch]);
        assert_eq!(applied.code, 0, "{applied:?}");
        let tree = git(lab, &["write-tree"]);
        json(
            lab,
            &format!(
                "apply {run} --branch all --from-branch feature --approve {}",
                all(lab, &run)
            ),
            0,
        );
        assert_eq!(
            tree,
            git(lab, &["rev-parse", "all^{tree}"]),
            "the patch is not the branch"
        );
        // The archive is the other place.
        json(lab, &format!("rm {run}"), 0);
    });
}

/// The hash that approves all of the branch.
fn all(lab: &Lab, run: &str) -> String {
    let value = json(
        lab,
        &format!("apply {run} --branch no --from-branch feature --dry-run"),
        0,
    );
    value["approval"].as_str().expect("a hash").to_owned()
}

#[test]
fn what_only_the_index_of_a_stash_has_is_still_work() {
    for_each_identity(|lab| {
        repository(lab);
        let git = "git -c user.name=A -c user.email=a@example.org";
        let script = format!("echo staged > README; {git} add README; echo later > README; {git} stash -q\n");
        let run = work(lab, &script);
        says(
            lab,
            &format!("apply {run} --branch kept --from-branch stash@{{0}}"),
            0,
        );
        let archive = lab.home().join("stash.tar");
        let value = json(lab, &format!("export {run} {}", archive.display()), 0);
        assert_eq!(value["whole"], false, "{value:#}");
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(
            refused.stderr.contains("the git stash has 1 entry"),
            "{refused:?}"
        );
    });
}
