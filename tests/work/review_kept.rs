//! Kept and let go: snapshots, rollback, forks, archives, removal. No work is lost unless somebody names it.
use super::review::{EDIT, everything, files, json, leave, leave_link, paths, repository, says, tree, work};
use super::support::{Lab, for_each_identity};
use std::path::PathBuf;
use std::process::Command;

fn names(lab: &Lab, line: &str) -> String {
    says(lab, line, 0).stdout
}

#[test]
fn a_rollback_brings_a_state_back_and_loses_none() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let host = everything(&lab.workspace());
        let edited = files(&tree(lab, &run));
        let value = json(lab, &format!("snapshot {run} works"), 0);
        let works = value["snapshot"]["number"].as_u64().expect("a number");
        leave(lab, &run, b"src/later.c", b"later\n");
        std::fs::remove_file(tree(lab, &run).join("README")).expect("is there");
        let later = files(&tree(lab, &run));

        let value = json(lab, "rollback works", 0);
        assert_eq!(value["to"]["number"].as_u64(), Some(works));
        assert_eq!(files(&tree(lab, &run)), edited);
        let before = value["before"]["number"].as_u64().expect("a number");
        json(lab, &format!("rollback {run} {before}"), 0);
        assert_eq!(files(&tree(lab, &run)), later, "what was rolled back is lost");
        json(lab, &format!("rollback {run} base"), 0);
        assert_eq!(names(lab, "diff --name-only"), "");

        let value = json(lab, "snapshots", 0);
        let listed = value["snapshots"].as_array().expect("a list");
        assert!(listed.iter().any(|one| one["name"] == "works"), "{value:#}");
        assert_eq!(listed[0]["reason"], "base");
        assert!(names(lab, "snapshots").contains("works"));
        let span = format!("diff {run} --from base --to works --name-only");
        assert_eq!(names(lab, &span), "README\nsrc/new.c\n");
        says(lab, &format!("rollback {run} 4000"), 3);
        says(lab, &format!("rollback {run} nosuch"), 3);
        says(lab, &format!("rollback {run} ../x"), 2);
        says(lab, &format!("snapshot {run} -x"), 2);
        assert_eq!(everything(&lab.workspace()), host, "the project was written");
    });
}

#[test]
fn a_fork_goes_its_own_way_and_both_can_be_applied() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, "echo a > src/a.c\n");
        json(lab, &format!("snapshot {run} first"), 0);
        leave(lab, &run, b"src/b.c", b"b\n");
        let value = json(lab, &format!("fork {run}@first --name fork-1"), 0);
        assert_eq!(value["run"], "fork-1");
        assert_eq!(names(lab, "diff fork-1 --name-only"), "src/a.c\n");
        let value = json(lab, &format!("fork {run}"), 0);
        let second = value["run"].as_str().expect("a name").to_owned();
        assert_eq!(
            names(lab, &format!("diff {second} --name-only")),
            "src/a.c\nsrc/b.c\n"
        );
        says(lab, &format!("fork {run} --name fork-1"), 1);
        says(lab, &format!("fork {run}@nosuch"), 3);
        says(lab, &format!("fork {run} --name ../up"), 2);

        leave(lab, "fork-1", b"src/c.c", b"c\n");
        assert!(
            !tree(lab, &run).join("src/c.c").exists(),
            "a fork shares its files"
        );
        json(lab, "apply fork-1", 0);
        assert_eq!(
            paths(&json(lab, &format!("apply {run}"), 0)["paths"]),
            ["src/b.c"]
        );
        // The copy that a fork came from can go.
        json(lab, &format!("rm {run}"), 0);
        assert_eq!(names(lab, "diff fork-1 --name-only"), "src/a.c\nsrc/c.c\n");
    });
}

fn digest(text: &str) -> String {
    let word = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split([' ', ',', '\n'])
        .find(word)
        .expect("the refusal names the digest")
        .to_owned()
}

#[test]
fn work_that_is_nowhere_else_goes_only_when_its_digest_is_named() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let refused = says(lab, &format!("rm {run}"), 1);
        assert!(refused.stderr.contains("BST-WS-005"), "{refused:?}");
        let old = digest(&refused.stderr);
        let value = json(lab, "prune --older-than 0s", 0);
        assert_eq!(value["kept"][0]["run"], run.as_str(), "{value:#}");
        leave(lab, &run, b"src/more.c", b"more\n");
        // The digest is of a state that is no more.
        says(lab, &format!("rm {run} --discard {old}"), 1);
        says(lab, &format!("rm {run} --discard 1234"), 2);
        assert!(tree(lab, &run).join("src/more.c").exists());

        // Elsewhere: it may go. Taken back: it may not.
        json(lab, &format!("apply {run}"), 0);
        json(lab, &format!("apply {run} --undo"), 0);
        let refused = says(lab, &format!("rm {run}"), 1);
        json(lab, &format!("rm {run} --discard {}", digest(&refused.stderr)), 0);
        assert!(!tree(lab, &run).exists());
        says(lab, &format!("diff {run}"), 3);
    });
}

#[test]
fn prune_takes_what_is_elsewhere_and_old_and_prints_every_path() {
    for_each_identity(|lab| {
        repository(lab);
        let applied = work(lab, EDIT);
        json(lab, &format!("apply {applied}"), 0);
        let unchanged = work(lab, "true\n");
        let kept = work(lab, "echo x > src/x.c\n");
        assert_eq!(
            json(lab, "prune", 0)["runs"].as_array().map(Vec::len),
            Some(0),
            "they are young"
        );

        let before = everything(&lab.home().join(".local/state/bastle/work"));
        let value = json(lab, "prune --dry-run --older-than 0s", 0);
        let mut runs: Vec<&str> = value["runs"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|run| run.as_str())
            .collect();
        runs.sort_unstable();
        let mut expected = [applied.as_str(), unchanged.as_str()];
        expected.sort_unstable();
        assert_eq!(runs, expected);
        for run in [&applied, &unchanged, &kept] {
            assert!(tree(lab, run).exists(), "a dry run removed {run}");
        }
        let said = says(lab, "prune --older-than 0s", 0);
        let gone: Vec<PathBuf> = said.stdout.lines().map(PathBuf::from).collect();
        let after = everything(&lab.home().join(".local/state/bastle/work"));
        for path in before.keys().filter(|path| !after.contains_key(*path)) {
            assert!(gone.contains(path), "{} went unsaid", path.display());
        }
        assert!(
            gone.iter().all(|path| !path.exists()),
            "said to be gone, and there: {gone:?}"
        );
        assert!(
            tree(lab, &kept).exists() && !tree(lab, &applied).exists() && !tree(lab, &unchanged).exists()
        );
        says(lab, "prune --older-than tomorrow", 2);
    });
}

#[test]
fn an_archive_holds_nothing_that_leads_out_and_replaces_nothing() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        leave_link(lab, &run, "leak", "/etc/passwd");
        leave(lab, &run, b"sub/.git/config", b"[core]\n\tfsmonitor = evil\n");
        let file = lab.outside().join("work.tar");
        let line = format!("export {run} {}", file.display());
        let value = json(lab, &line, 0);
        assert_eq!(paths(&value["left_out"]), ["leak", "sub/.git", "sub/.git/config"]);
        assert_eq!(value["whole"], false);
        says(lab, &format!("rm {run}"), 1);
        says(lab, &line, 2);
        let listed = Command::new("tar")
            .arg("tf")
            .arg(&file)
            .output()
            .expect("tar runs");
        let listed = String::from_utf8(listed.stdout).expect("UTF-8");
        assert!(
            listed.contains("src/new.c\n") && !listed.contains("leak") && !listed.contains(".git/"),
            "{listed}"
        );

        std::fs::remove_file(tree(lab, &run).join("leak")).expect("is there");
        std::fs::remove_dir_all(tree(lab, &run).join("sub")).expect("is there");
        assert_eq!(json(lab, &format!("{line} --force"), 0)["whole"], true);
        let left: Vec<_> = std::fs::read_dir(lab.outside()).expect("can be listed").collect();
        assert_eq!(left.len(), 1, "something is left beside the archive: {left:?}");
        json(lab, &format!("rm {run}"), 0);
    });
}
