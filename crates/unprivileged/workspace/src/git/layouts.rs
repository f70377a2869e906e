//! Repositories in every layout that a project can have, for the tests: each maker gives the project's directory.
use crate::testing::{repository, user_git, write};
use std::path::{Path, PathBuf};

/// Makes a project below a directory.
type Maker = fn(&Path) -> PathBuf;

/// Each layout with its name.
pub(super) const ALL: [(&str, Maker); 7] = [
    ("worktree", |root| {
        repository(&root.join("r"));
        user_git(&root.join("r"), &["worktree", "add", "-q", "../w", "-b", "side"]);
        // A worktree of a worktree is one more worktree of the same repository.
        user_git(
            &root.join("w"),
            &["worktree", "add", "-q", "../w2", "-b", "side2"],
        );
        root.join("w2")
    }),
    ("submodule", |root| {
        repository(&root.join("lib"));
        repository(&root.join("r"));
        user_git(
            &root.join("r"),
            &[
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "add",
                "-q",
                "../lib",
                "sub",
            ],
        );
        root.join("r/sub")
    }),
    ("shallow", |root| {
        repository(&root.join("r"));
        user_git(
            &root.join("r"),
            &["commit", "-q", "--allow-empty", "-m", "second"],
        );
        user_git(
            root,
            &[
                "clone",
                "-q",
                "--depth",
                "1",
                &format!("file://{}/r", root.display()),
                "s",
            ],
        );
        root.join("s")
    }),
    ("detached", |root| {
        repository(&root.join("r"));
        user_git(&root.join("r"), &["checkout", "-q", "--detach"]);
        root.join("r")
    }),
    ("unborn", |root| {
        user_git(root, &["init", "-q", "r"]);
        write(&root.join("r"), "f", b"f\n");
        root.join("r")
    }),
    ("sha256", |root| {
        user_git(root, &["init", "-q", "--object-format=sha256", "r"]);
        write(&root.join("r"), "f", b"f\n");
        user_git(&root.join("r"), &["add", "f"]);
        user_git(&root.join("r"), &["commit", "-qm", "x"]);
        root.join("r")
    }),
    ("borrowed", |root| {
        repository(&root.join("r"));
        user_git(root, &["clone", "-q", "--shared", "r", "s"]);
        root.join("s")
    }),
];
