//! What a repository still holds of a hidden name: each place where git keeps a content that no branch has.
use super::*;
use crate::testing::{repository, user_git, write};
use bastle_contract::{NameList, NamePattern};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// How many contents are found by a hidden name, and how many without any name.
fn counted(project: &Path) -> (usize, usize) {
    let scratch = tempfile::tempdir().unwrap();
    let git = HostGit::find().unwrap();
    let hidden = NameList {
        built_in: bastle_contract::BuiltInNames::None,
        always: vec![NamePattern::try_from("**/.env".to_owned()).unwrap()],
        ..NameList::default()
    };
    let named = hidden_history(&git, project, &hidden, scratch.path(), LIMIT).unwrap();
    let unnamed = unreachable_contents(&git, project, scratch.path(), LIMIT).unwrap();
    (named.blobs, unnamed.blobs)
}

fn project() -> (tempfile::TempDir, PathBuf) {
    let stage = tempfile::tempdir().unwrap();
    let root = stage.path().join("project");
    repository(&root);
    assert_eq!(counted(&root), (0, 0), "the control");
    (stage, root)
}

fn forget_moves(root: &Path) {
    user_git(
        root,
        &[
            "reflog",
            "expire",
            "--expire=now",
            "--expire-unreachable=now",
            "--all",
        ],
    );
}

#[test]
fn a_stash_of_everything_is_searched_and_a_dropped_one_is_counted() {
    let (_stage, root) = project();
    write(&root, ".env", b"TOKEN=1\n");
    user_git(&root, &["stash", "-a", "-q"]);
    assert_eq!(counted(&root), (1, 0));
    write(&root, ".env", b"TOKEN=2\n");
    user_git(&root, &["stash", "-a", "-q"]);
    assert_eq!(counted(&root), (2, 0), "the older stash is in a reflog only");
    user_git(&root, &["stash", "drop", "-q"]);
    assert_eq!(counted(&root), (1, 1));
    user_git(&root, &["pack-refs", "--all"]);
    assert_eq!(counted(&root), (1, 1));
}

#[test]
fn what_was_added_and_reset_is_counted() {
    let (_stage, root) = project();
    write(&root, ".env", b"TOKEN=1\n");
    user_git(&root, &["add", "-f", ".env"]);
    assert_eq!(counted(&root), (1, 0));
    user_git(&root, &["reset", "-q"]);
    assert_eq!(counted(&root), (0, 1));
    user_git(&root, &["gc", "-q", "--prune=never"]);
    assert_eq!(counted(&root), (0, 1), "in a pack");
    user_git(&root, &["gc", "-q", "--prune=now"]);
    assert_eq!(counted(&root), (0, 0));
}

#[test]
fn an_amended_commit_is_searched_and_counted_once_nothing_names_it() {
    let (_stage, root) = project();
    write(&root, ".env", b"TOKEN=1\n");
    user_git(&root, &["add", "-f", ".env"]);
    user_git(&root, &["commit", "-qm", "with"]);
    user_git(&root, &["rm", "-q", "--cached", ".env"]);
    user_git(
        &root,
        &["commit", "-q", "--amend", "--allow-empty", "-m", "without"],
    );
    assert_eq!(counted(&root), (1, 0));
    forget_moves(&root);
    std::fs::remove_file(root.join(".git/ORIG_HEAD")).unwrap_or_default();
    assert_eq!(counted(&root), (0, 1));
    // A name in any space, loose or packed, is searched.
    let lost = user_git(&root, &["fsck", "--unreachable", "--no-reflogs"]);
    let commit = lost
        .lines()
        .find_map(|line| line.strip_prefix("unreachable commit "));
    user_git(&root, &["update-ref", "refs/private/kept", commit.unwrap()]);
    assert_eq!(counted(&root), (1, 0));
    user_git(&root, &["pack-refs", "--all"]);
    assert_eq!(counted(&root), (1, 0));
}

#[test]
fn other_worktrees_are_searched() {
    let (_stage, root) = project();
    user_git(&root, &["worktree", "add", "-q", "--detach", "../other"]);
    let other = root.with_file_name("other");
    write(&other, ".env", b"TOKEN=1\n");
    user_git(&other, &["add", "-f", ".env"]);
    assert_eq!(counted(&root), (1, 0), "its index");
    user_git(&other, &["commit", "-qm", "with"]);
    user_git(&other, &["rm", "-q", ".env"]);
    forget_moves(&root);
    assert_eq!(counted(&root), (1, 0), "its head");
    write(&root, ".env", b"TOKEN=2\n");
    user_git(&root, &["add", "-f", ".env"]);
    assert_eq!(counted(&other), (2, 0), "the index of the first one");
}

#[test]
fn a_link_that_becomes_a_file_is_another_content() {
    let (_stage, root) = project();
    std::os::unix::fs::symlink("a.txt", root.join(".env")).unwrap();
    user_git(&root, &["add", "-f", ".env"]);
    user_git(&root, &["commit", "-qm", "link"]);
    std::fs::remove_file(root.join(".env")).unwrap();
    write(&root, ".env", b"TOKEN=1\n");
    user_git(&root, &["add", "-f", ".env"]);
    user_git(&root, &["commit", "-qm", "file"]);
    assert_eq!(counted(&root), (2, 0));
}

#[test]
fn objects_that_housekeeping_removed_stop_no_search() {
    let (_stage, root) = project();
    write(&root, ".env", b"TOKEN=1\n");
    user_git(&root, &["add", "-f", ".env"]);
    user_git(&root, &["commit", "-qm", "with"]);
    let log = root.join(".git/logs/HEAD");
    let mut text = std::fs::read_to_string(&log).unwrap();
    text.push_str(&format!(
        "{} {} Ada <a@b> 1 +0000\tgone\n",
        "1".repeat(40),
        "2".repeat(40)
    ));
    std::fs::write(&log, text).unwrap();
    assert_eq!(counted(&root), (1, 0));
}
