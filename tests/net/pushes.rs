//! git over HTTP: what is pushed where is read on the wire, and only the granted branches of the granted repository move.
use crate::support::{Fence, Lab, Limit, Output, for_each_identity};
use crate::world::{Scripts, codes, decisions, host, world};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));

/// A workspace that is a clone of the lab's project under a name of its own.
pub(crate) fn fence<'a>(lab: &'a Lab, name: &str, git: &Value) -> Fence<'a> {
    let url = format!("https://{name}:{}/git/project.git", world().tls);
    let workspace = lab.workspace();
    let mut clone = Command::new("git");
    clone
        .args(["clone", "-q"])
        .arg(world().file("git/project.git"))
        .arg(workspace.join("clone"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*");
    assert!(
        clone.status().expect("git runs").success(),
        "the lab's repository can be cloned"
    );
    let mut remote = Command::new("git");
    remote
        .arg("-C")
        .arg(workspace.join("clone"))
        .args(["remote", "set-url", "origin", &url]);
    assert!(remote.status().expect("git runs").success());
    let mut own = Command::new("chown");
    own.arg("-R")
        .arg(lab.identity.uid().to_string())
        .arg(workspace.join("clone"));
    assert!(own.status().expect("chown runs").success());
    let net = json!({ "allow": [format!("GET,POST {name}:{{tls}}/git/**")] });
    let policy = world().policy(lab, &world().document(&net, &json!({ "git": git })));
    // An author of its own: the same commit in the same second would be on the server already, and not be sent.
    let author = format!("GIT_AUTHOR_NAME={name}");
    let committer = format!("GIT_COMMITTER_NAME={name}");
    world()
        .under(lab, &policy)
        .cwd(&workspace.join("clone"))
        // The clone itself: a copy has no remotes.
        .flags(["--workspace", "in-place"])
        .within(SLOW)
        .flags(["--env", &author, "--env", "GIT_AUTHOR_EMAIL=a@lab.test"])
        .flags(["--env", &committer, "--env", "GIT_COMMITTER_EMAIL=a@lab.test"])
}

/// What a reference of the server's repository is.
pub(crate) fn reference(repository: &str, name: &str) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(world().file("git").join(repository))
        .args(["-c", "safe.directory=*", "rev-parse", "--verify", "-q", name])
        .output()
        .expect("git runs");
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The statuses of the pushes of a script, one per line.
pub(crate) fn pushed(output: &Output) -> Vec<&str> {
    output
        .said()
        .lines()
        .filter(|line| line.starts_with("status "))
        .collect()
}

pub(crate) const COMMIT: &str = "echo change >> file; git commit -q -a -m change\n";

#[test]
fn a_fetch_and_a_push_to_a_granted_branch_work() {
    for_each_identity(|lab| {
        let name = host("git");
        let branch = format!("agent/{}", name.split('.').next().expect("a label"));
        let output = fence(lab, &name, &json!({ "push": "allow", "branches": ["agent/*"] })).shell(&format!(
            "git fetch -q origin && echo fetched\n{COMMIT}git push -q origin HEAD:refs/heads/{branch}; echo status $?\n\
             {COMMIT}git push -q origin HEAD:refs/heads/{branch}; echo status $?"
        ));
        assert!(output.said().contains("fetched"), "{output:?}");
        assert_eq!(
            pushed(&output),
            ["status 0", "status 0"],
            "create, then fast-forward: {output:?}"
        );
        assert!(reference("project.git", &format!("refs/heads/{branch}")).is_some());
        let pushes: Vec<_> = output
            .events("net")
            .into_iter()
            .filter(|e| e["method"] == "push")
            .collect();
        assert!(!pushes.is_empty(), "a push is recorded as one: {output:?}");
    });
}

#[test]
fn a_push_to_main_a_tag_or_a_foreign_branch_is_denied_and_git_says_why() {
    for_each_identity(|lab| {
        let name = host("git");
        let before = reference("project.git", "refs/heads/main");
        let label = name.split('.').next().expect("a label").to_owned();
        let output = fence(lab, &name, &json!({ "push": "allow", "branches": ["agent/*"] })).shell(&format!(
            "{COMMIT}git push -q origin HEAD:main; echo status $?\n\
             git push -q origin HEAD:refs/heads/other-{label}; echo status $?\n\
             git push -q origin HEAD:refs/tags/{label}; echo status $?\n\
             git push -q origin HEAD:refs/heads/agent/../{label}; echo status $?\n\
             git push -q origin HEAD:refs/notes/agent/{label}; echo status $?\n\
             git push -q origin :main; echo status $?\n\
             git push -q origin HEAD:refs/heads/agent/{label} HEAD:refs/heads/main; echo status $?\n\
             git push -q origin HEAD:refs/heads/agent/{label}-control; echo status $?"
        ));
        let statuses = pushed(&output);
        assert_eq!(statuses.len(), 8, "{output:?}");
        assert!(
            statuses[..7].iter().all(|status| *status != "status 0"),
            "{output:?}"
        );
        assert_eq!(statuses[7], "status 0", "control: {output:?}");
        assert_eq!(reference("project.git", "refs/heads/main"), before, "main moved");
        for gone in [
            format!("refs/heads/other-{label}"),
            format!("refs/tags/{label}"),
            format!("refs/heads/{label}"),
        ] {
            assert_eq!(reference("project.git", &gone), None, "{gone} came into being");
        }
        assert!(
            output.ended.stderr.contains("d_"),
            "git shows the denial's id: {output:?}"
        );
        assert!(
            codes(&output, &name).contains(&"BST-NET-010".to_owned()),
            "{output:?}"
        );
    });
}

#[test]
fn a_push_by_force_or_a_deletion_is_denied() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = format!("agent/{}", name.split('.').next().expect("a label"));
        let output = fence(
            lab,
            &name,
            &json!({ "push": "allow", "forcePush": "deny", "branches": ["agent/*"] }),
        )
        .shell(&format!(
            "{COMMIT}git push -q origin HEAD:refs/heads/{label}; echo status $?; git rev-parse HEAD\n\
             git reset -q --hard HEAD~1; echo other > file; git commit -q -a -m other\n\
             git push -q --force origin HEAD:refs/heads/{label}; echo status $?\n\
             git push -q origin +HEAD:refs/heads/{label}; echo status $?\n\
             git push -q origin :refs/heads/{label}; echo status $?"
        ));
        let statuses = pushed(&output);
        assert_eq!(statuses[0], "status 0", "control: {output:?}");
        assert!(
            statuses[1..].iter().all(|status| *status != "status 0"),
            "{output:?}"
        );
        let first = output.said().lines().nth(1).expect("the commit").to_owned();
        assert_eq!(
            reference("project.git", &format!("refs/heads/{label}")),
            Some(first),
            "{output:?}"
        );
    });
}

#[test]
fn a_push_to_another_repository_of_the_same_host_is_denied() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = format!("agent/{}", name.split('.').next().expect("a label"));
        let git = json!({ "push": "allow", "branches": ["agent/*"], "remotes": ["origin"] });
        let output = fence(lab, &name, &git).shell(&format!(
            "{COMMIT}git push -q https://{name}:{{tls}}/git/foreign.git HEAD:refs/heads/{label}; echo status $?\n\
             git -c remote.origin.pushurl=https://{name}:{{tls}}/git/foreign.git push -q origin HEAD:refs/heads/{label}; echo status $?\n\
             git push -q https://{name}:{{tls}}/git/project.git HEAD:refs/heads/{label}; echo status $?"
        ));
        let statuses = pushed(&output);
        assert!(
            statuses[..2].iter().all(|status| *status != "status 0"),
            "{output:?}"
        );
        assert_eq!(statuses[2], "status 0", "control: {output:?}");
        assert_eq!(reference("foreign.git", &format!("refs/heads/{label}")), None);
    });
}

#[test]
fn without_anybody_to_ask_a_push_is_denied_by_default() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = name.split('.').next().expect("a label").to_owned();
        let output = fence(lab, &name, &json!({})).shell(&format!(
            "git fetch -q origin && echo fetched\n{COMMIT}git push -q origin HEAD:refs/heads/{label}; echo status $?"
        ));
        assert!(output.said().contains("fetched"), "control: {output:?}");
        assert_ne!(pushed(&output), ["status 0"], "{output:?}");
        assert_eq!(reference("project.git", &format!("refs/heads/{label}")), None);
        assert!(!decisions(&output, &name, "denied").is_empty(), "{output:?}");
    });
}

#[test]
fn a_branch_moves_forward_to_a_commit_of_an_earlier_push_unasked_and_never_back() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = format!("agent/{}", name.split('.').next().expect("a label"));
        let output = fence(
            lab,
            &name,
            &json!({ "push": "allow", "forcePush": "deny", "branches": ["agent/*"] }),
        )
        .shell(&format!(
            "{COMMIT}git push -q origin HEAD:refs/heads/{label}-b; echo status $?\n\
             {COMMIT}git push -q origin HEAD:refs/heads/{label}-a; echo status $?\n\
             git push -q origin HEAD:refs/heads/{label}-b; echo status $?\n\
             git push -q origin +HEAD~1:refs/heads/{label}-b; echo status $?; git rev-parse HEAD"
        ));
        let statuses = pushed(&output);
        assert_eq!(
            statuses[..3],
            ["status 0"; 3],
            "the third brings no commit of its own: {output:?}"
        );
        assert_ne!(statuses[3], "status 0", "{output:?}");
        let head = output.said().lines().last().expect("the commit").to_owned();
        assert_eq!(
            reference("project.git", &format!("refs/heads/{label}-b")),
            Some(head),
            "{output:?}"
        );
    });
}
