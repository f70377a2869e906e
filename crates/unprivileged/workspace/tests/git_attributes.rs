//! Line ends and encodings: what bastle commits is what `git add` would commit, and what it checks out is what git would.
// Helpers of tests stop the test that called them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bastle_workspace::audit_delta::{Scope, delta};
use bastle_workspace::git::{
    BranchName, CommitRequest, Contents, HostGit, HostRepo, Identity, commit_to_branch,
};
use bastle_workspace::manifest::Kind;
use bastle_workspace::meta::WorkMode;
use bastle_workspace::path::TreePath;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use support::modes::make;
use support::{Ground, write};

const NAMES: [&str; 6] = ["a.txt", "b.bin", "c.c", "sub/a.txt", "sub/deep/d", "e"];
const PATTERNS: [&str; 5] = ["*", "*.txt", "sub/*", "e", "*.bin"];
const ATTRIBUTES: [&str; 12] = [
    "text",
    "-text",
    "text=auto",
    "!text",
    "eol=crlf",
    "eol=lf",
    "text eol=crlf",
    "text=auto eol=crlf",
    "binary",
    "filter=evil",
    "working-tree-encoding=UTF-16LE",
    "working-tree-encoding=UTF-8 ident",
];
/// Each of an even length, so that any of them may be taken for UTF-16.
const CONTENTS: [&[u8]; 9] = [
    b"one\ntwo\n",
    b"one\r\ntwo\r\n",
    b"one\r\ntwo\nx\n",
    b"one\rtwo\r",
    b"a\0b\r\nc\n",
    b"",
    b"no newline",
    b"\r\n$Id$\n",
    b"o\0\r\0\n\0",
];

fn git(dir: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap()
}

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = git(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = NAMES.iter().copied().chain([".gitattributes"]);
    names
        .filter_map(|name| Some((name.to_owned(), fs::read(root.join(name)).ok()?)))
        .collect()
}

#[derive(Clone, Debug)]
struct Case {
    rules: Vec<(usize, usize)>,
    own: Vec<(usize, usize)>,
    autocrlf: usize,
    eol: usize,
    first: Vec<usize>,
    second: Vec<usize>,
}

fn lines(rules: &[(usize, usize)]) -> String {
    let line = |(pattern, attribute): &(usize, usize)| {
        format!("{} {}\n", PATTERNS[*pattern], ATTRIBUTES[*attribute])
    };
    // The file itself stays readable, whatever `*` says.
    let own = ".gitattributes -text !eol !working-tree-encoding !ident\n".to_owned();
    rules.iter().map(line).chain([own]).collect()
}

/// A project whose repository defines a filter that must never run.
fn project(case: &Case) -> Ground {
    let ground = Ground::new();
    let source = ground.source();
    fs::remove_dir_all(&source).unwrap();
    fs::create_dir(&source).unwrap();
    done(&source, &["init", "-q", "-b", "main"]);
    // Some files are in the index with line ends that the attributes would not let in.
    for (name, content) in NAMES.iter().zip(&case.first) {
        write(&source, name, CONTENTS[*content]);
    }
    done(&source, &["-c", "core.autocrlf=false", "add", "-A"]);
    done(&source, &["commit", "-q", "-m", "first"]);
    for (key, words, at) in [
        ("core.autocrlf", ["", "true", "input", "false"], case.autocrlf),
        ("core.eol", ["", "lf", "crlf", "native"], case.eol),
    ] {
        if !words[at].is_empty() {
            done(&source, &["config", key, words[at]]);
        }
    }
    write(&source, ".git/info/attributes", lines(&case.own).as_bytes());
    ground
}

/// Commits the agent's work with bastle and with `git add`; the trees must be one.
fn commits_as_git_does(case: &Case) {
    let ground = project(case);
    let source = ground.source();
    let space = make(&ground.place, &source, WorkMode::Copy, "one").unwrap();
    for root in [space.tree(), source.clone()] {
        write(&root, ".gitattributes", lines(&case.rules).as_bytes());
        for (number, (name, content)) in NAMES.iter().zip(&case.second).enumerate() {
            // Never what was there: git looks at the content of changed files only.
            let salt = [b"#\0".repeat(number + 1), b"\n\0".to_vec()].concat();
            let salt = if CONTENTS[*content].contains(&0) {
                salt
            } else {
                salt.into_iter()
                    .filter(|byte| *byte != 0)
                    .chain([b'#'; 1])
                    .collect()
            };
            let mut bytes = [CONTENTS[*content], &salt].concat();
            bytes.extend(std::iter::repeat_n(b'#', bytes.len() % 2));
            write(&root, name, &bytes);
        }
    }
    let base = space.base().unwrap();
    let (_, now) = space.current().unwrap();
    let work: Vec<(TreePath, Option<Kind>)> = delta(&base, &now, Scope::Work)
        .into_iter()
        .filter(|change| change.after != Some(Kind::Dir))
        .map(|change| (change.path, change.after))
        .collect();
    let repo = HostRepo::open(&source).unwrap().unwrap();
    let scratch = ground.root.path().join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let request = CommitRequest {
        repo: &repo,
        parent: repo.head.commit(),
        branch: &BranchName::new("agent/one").unwrap(),
        message: "work",
        identity: &Identity {
            name: "T".to_owned(),
            email: "t@example.org".to_owned(),
        },
        seconds: 1_700_000_000,
        files: &work,
        contents: Contents::AsInTree(&base),
        scratch: &scratch,
    };
    let made = commit_to_branch(&HostGit::find().unwrap(), &request, &space);
    let added = git(&source, &["add", "-A"]);
    assert_eq!(made.is_ok(), added.status.success(), "{made:?} {added:?}");
    if made.is_ok() {
        let bastle = done(&source, &["ls-tree", "-r", "agent/one"]);
        let tree = done(&source, &["write-tree"]);
        assert_eq!(bastle, done(&source, &["ls-tree", "-r", &tree]));
    }
}

/// Checks the commit out with bastle and with git; the bytes must be the same.
fn checks_out_as_git_does(case: &Case) {
    let ground = project(case);
    let source = ground.source();
    write(&source, ".gitattributes", lines(&case.rules).as_bytes());
    done(&source, &["add", ".gitattributes"]);
    done(&source, &["commit", "-q", "-m", "attributes"]);
    let space = make(&ground.place, &source, WorkMode::Worktree, "one").unwrap();
    let other = ground.root.path().join("checkout");
    let made = git(
        &source,
        &["worktree", "add", "-q", "--detach", other.to_str().unwrap()],
    );
    assert!(made.status.success(), "{made:?}");
    assert_eq!(files(&space.tree()), files(&other), "{case:?}");
}

fn case() -> impl Strategy<Value = Case> {
    let rule = || (0..PATTERNS.len(), 0..ATTRIBUTES.len());
    let contents = || proptest::collection::vec(0..CONTENTS.len(), NAMES.len());
    (
        proptest::collection::vec(rule(), 0..4),
        proptest::collection::vec(rule(), 0..2),
        0..4_usize,
        0..4_usize,
        contents(),
        contents(),
    )
        .prop_map(|(rules, own, autocrlf, eol, first, second)| Case {
            rules,
            own,
            autocrlf,
            eol,
            first,
            second,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_commit_of_any_files_and_attributes_is_the_one_that_git_add_would_make(case in case()) {
        commits_as_git_does(&case);
    }

    #[test]
    fn a_checkout_of_any_files_and_attributes_is_the_one_that_git_would_make(case in case()) {
        checks_out_as_git_does(&case);
    }
}
