//! Paths that only git has otherwise than before: the files of the work tree are as they were.
use super::*;
use crate::testing::{repository, user_git, write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WORKFLOW: &str = ".github/workflows/x.yml";

fn project() -> (tempfile::TempDir, PathBuf) {
    let stage = tempfile::tempdir().unwrap();
    let root = stage.path().join("project");
    repository(&root);
    (stage, root)
}

fn moved(root: &Path, before: &RepoState) -> BTreeMap<String, Vec<String>> {
    let scratch = tempfile::tempdir().unwrap();
    let git = HostGit::find().unwrap();
    let moved = before
        .moved(&git, root, scratch.path(), Duration::from_secs(60))
        .unwrap();
    assert_eq!(moved.unclear, Vec::<String>::new());
    let told = moved.paths.into_iter().map(|(path, places)| {
        let path = String::from_utf8(path).unwrap();
        (path, places.into_iter().collect())
    });
    told.collect()
}

/// Puts a content under a name into the index, which makes no file.
fn stage(root: &Path) {
    write(root, "evil", b"on: push\n");
    let id = user_git(root, &["hash-object", "-w", "evil"]);
    std::fs::remove_file(root.join("evil")).unwrap();
    let info = format!("100644,{},{WORKFLOW}", id.trim());
    user_git(root, &["update-index", "--add", "--cacheinfo", &info]);
}

#[test]
fn a_staged_name_a_commit_and_a_moved_branch_are_told() {
    let (_stage, root) = project();
    let before = RepoState::read(&root).unwrap().unwrap();
    assert_eq!(moved(&root, &before), BTreeMap::new(), "the control");
    write(&root, "a.txt", b"other\n");
    user_git(&root, &["status"]);
    assert_eq!(
        moved(&root, &before),
        BTreeMap::new(),
        "a file is no matter of git's"
    );
    stage(&root);
    let index = vec!["index".to_owned()];
    assert_eq!(moved(&root, &before).get(WORKFLOW), Some(&index));
    user_git(&root, &["commit", "-qm", "evil"]);
    let all = moved(&root, &before);
    assert_eq!(all[WORKFLOW], ["HEAD", "index", "refs/heads/main"], "{all:?}");
    // The branch goes back, and another one keeps the commit.
    user_git(&root, &["branch", "other"]);
    user_git(&root, &["reset", "-q", "--soft", "HEAD~1"]);
    user_git(&root, &["rm", "-q", "--cached", WORKFLOW]);
    user_git(&root, &["pack-refs", "--all"]);
    assert_eq!(moved(&root, &before)[WORKFLOW], ["refs/heads/other"]);
}

#[test]
fn a_branch_that_goes_to_an_older_commit_is_told() {
    let (_stage, root) = project();
    write(&root, WORKFLOW, b"on: pull_request\n");
    user_git(&root, &["add", "-A"]);
    user_git(&root, &["commit", "-qm", "safe"]);
    let before = RepoState::read(&root).unwrap().unwrap();
    user_git(&root, &["update-ref", "refs/heads/main", "HEAD~1"]);
    assert_eq!(moved(&root, &before)[WORKFLOW], ["HEAD", "refs/heads/main"]);
}

#[test]
fn a_stash_and_another_worktree_are_told() {
    let (_stage, root) = project();
    user_git(&root, &["worktree", "add", "-q", "--detach", "../other"]);
    let before = RepoState::read(&root).unwrap().unwrap();
    stage(&root);
    user_git(&root, &["stash", "-q"]);
    assert_eq!(moved(&root, &before)[WORKFLOW], ["refs/stash"]);
    let other = root.with_file_name("other");
    stage(&other);
    user_git(&other, &["commit", "-qm", "evil"]);
    let all = moved(&root, &before);
    assert_eq!(all[WORKFLOW], ["index", "refs/stash", "worktrees/other/HEAD"]);
}

#[test]
fn a_repository_without_a_commit_is_compared_with_nothing() {
    let stage_directory = tempfile::tempdir().unwrap();
    let root = stage_directory.path().join("project");
    std::fs::create_dir(&root).unwrap();
    user_git(&root, &["init", "-q"]);
    let before = RepoState::read(&root).unwrap().unwrap();
    stage(&root);
    assert_eq!(moved(&root, &before)[WORKFLOW], ["index"]);
    user_git(&root, &["commit", "-qm", "evil"]);
    assert_eq!(
        moved(&root, &before)[WORKFLOW],
        ["HEAD", "index", "refs/heads/main"]
    );
}
