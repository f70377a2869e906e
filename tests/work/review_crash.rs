//! Review while others work, and after a kill: the project is old or new, the work is always there.
use super::review::{EDIT, everything, files, json, leave, paths, repository, says, tree, verb, work};
use super::support::{Background, Lab, Limit, bastle, eventually, for_each_identity};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Moments at which the apply is killed: from before its first step to after its last.
const STEPS: u32 = 16;

type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn start(lab: &Lab, words: &[&str]) -> Background {
    Background::start(lab.command(bastle()).args(words))
}

#[test]
fn an_apply_killed_at_any_moment_leaves_the_project_old_or_new() {
    for_each_identity(|lab| {
        repository(lab);
        for number in 0..40 {
            lab.project(&format!("many/{number}.txt"), "old\n");
        }
        let run = work(
            lab,
            "for f in many/*; do echo new > $f; done\nmkdir more\nfor n in $(seq 10); do echo $n > more/$n; done\n",
        );
        let old = files(&lab.workspace());
        let began = Instant::now();
        json(lab, "apply", 0);
        let took = began.elapsed();
        let new = files(&lab.workspace());
        json(lab, "apply --undo", 0);
        assert_eq!(files(&lab.workspace()), old);
        assert_ne!(old, new);
        let (mut olds, mut news, mut killed) = (0, 0, 0);
        for step in 0..STEPS {
            let delay = took * step * 3 / (2 * STEPS);
            let mut applying = start(lab, &["apply", &run]);
            applying.end(Limit(delay));
            if applying.is_alive() {
                applying.signal(Signal::KILL);
                killed += 1;
            }
            drop(applying);
            // Any verb repairs.
            says(lab, &format!("snapshots {run}"), 0);
            let now: Tree = files(&lab.workspace());
            if now == new {
                news += 1;
                json(lab, "apply --undo", 0);
                assert_eq!(files(&lab.workspace()), old, "taken back after {delay:?}");
            } else {
                let differs: Vec<_> = now
                    .keys()
                    .filter(|path| now.get(*path) != old.get(*path))
                    .take(5)
                    .collect();
                assert!(now == old, "after {delay:?} neither old nor new: {differs:?}");
                olds += 1;
            }
        }
        eprintln!("killed {killed} times; {olds} times old, {news} times new");
        assert!(killed > 0 && olds > 0, "no kill came in time");
        // The work is still there.
        json(lab, "apply", 0);
        assert_eq!(files(&lab.workspace()), new);
    });
}

#[test]
fn two_applies_at_once_do_not_mix() {
    for_each_identity(|lab| {
        repository(lab);
        for number in 0..12 {
            lab.project(&format!("many/{number}.txt"), "a\nb\nc\nd\ne\n");
        }
        let first = work(lab, "for f in many/*; do sed -i s/a/A/ $f; done\n");
        let second = work(lab, "for f in many/*; do sed -i s/e/E/ $f; done\n");
        let third = work(lab, "for f in many/*; do sed -i s/e/3/ $f; done\n");
        let mut both = [start(lab, &["apply", &first]), start(lab, &["apply", &second])];
        for one in &mut both {
            assert_eq!(one.end(Limit::HANG), Some(0));
        }
        let file = |number: usize| lab.workspace().join(format!("many/{number}.txt"));
        for number in 0..12 {
            assert_eq!(
                std::fs::read_to_string(file(number)).expect("there"),
                "A\nb\nc\nd\nE\n"
            );
        }
        // One that does not fit writes nothing, however often it is tried at once.
        let before = everything(&lab.workspace());
        let mut crowd: Vec<Background> = (0..4).map(|_| start(lab, &["apply", &third])).collect();
        for one in &mut crowd {
            assert_eq!(one.end(Limit::HANG), Some(1));
        }
        assert_eq!(everything(&lab.workspace()), before);
    });
}

/// A run that writes, says so, and waits for its end.
fn living(lab: &Lab) -> (Background, String) {
    let fence = lab.fence().flags(["--workspace", "copy"]);
    let name = fence.name().to_owned();
    let script = format!("{EDIT}echo ready\nexec sleep 1000\n");
    let file = lab.plant(&lab.outside().join("script.sh"), &script);
    let fence = fence.flags(["--ro", file.to_str().expect("UTF-8")]);
    let background = Background::start(&mut fence.command(["sh", file.to_str().expect("UTF-8")]));
    assert_eq!(background.line(), "ready");
    (background, name)
}

#[test]
fn a_living_run_is_applied_as_it_is_now_and_neither_rolled_back_nor_removed() {
    for_each_identity(|lab| {
        repository(lab);
        let (mut background, run) = living(lab);
        let now = files(&tree(lab, &run));
        for line in [format!("rollback {run} base"), format!("rm {run}")] {
            let ended = says(lab, &line, 1);
            assert!(ended.stderr.contains("BST-WS-006"), "{ended:?}");
        }
        let digest = "0".repeat(64);
        says(lab, &format!("rm {run} --discard {digest}"), 1);
        assert_eq!(
            json(lab, "prune --older-than 0s", 0)["runs"]
                .as_array()
                .map(Vec::len),
            Some(0)
        );
        assert_eq!(files(&tree(lab, &run)), now, "the living copy was changed");
        assert_eq!(
            says(lab, &format!("diff {run} --name-only"), 0).stdout,
            "README\nsrc/new.c\n"
        );
        json(lab, &format!("snapshot {run} alive"), 0);
        assert_eq!(
            paths(&json(lab, &format!("apply {run}"), 0)["paths"]),
            ["README", "src/new.c"]
        );
        assert!(background.is_alive());
        background.signal(Signal::TERM);
        assert!(background.end(Limit::HANG).is_some());
        // The positive control: dead, both work.
        json(lab, &format!("rollback {run} base"), 0);
        json(lab, &format!("rollback {run} alive"), 0);
        json(lab, &format!("rm {run}"), 0);
    });
}

#[test]
fn the_work_of_a_killed_run_is_still_there() {
    for_each_identity(|lab| {
        repository(lab);
        let (mut background, run) = living(lab);
        background.signal(Signal::KILL);
        assert!(background.end(Limit::HANG).is_some());
        assert!(
            eventually(Limit::HANG, || verb(lab, ["rollback", &run, "0"]).code == 0),
            "still counts as alive"
        );
        let last = json(lab, "snapshots", 0)["snapshots"]
            .as_array()
            .map_or(0, Vec::len)
            - 1;
        json(lab, &format!("rollback {run} {last}"), 0);
        says(lab, &format!("rm {run}"), 1);
        assert_eq!(paths(&json(lab, "apply", 0)["paths"]), ["README", "src/new.c"]);
        json(lab, &format!("rm {run}"), 0);
    });
}

#[test]
fn a_copy_whose_files_change_while_they_are_read_gives_nothing_from_outside_and_no_hang() {
    for_each_identity(|lab| {
        repository(lab);
        lab.plant(&lab.outside().join("secret"), "outside-secret\n");
        let run = work(lab, "true\n");
        leave(lab, &run, b"target.c", b"x\n");
        let swap = format!(
            "cd {}; while :; do ln -sf {}/secret target.c; rm -f target.c; mkfifo target.c; rm -f target.c; echo y > target.c; done",
            tree(lab, &run).display(),
            lab.outside().display()
        );
        let mut command: Command = lab.command(std::path::Path::new("/bin/sh"));
        let swapping = Background::start(command.args(["-c", &swap]));
        for _ in 0..20 {
            let ended = verb(lab, ["diff", &run]);
            assert!(!ended.stdout.contains("outside-secret"), "{ended:?}");
            verb(lab, ["apply", &run]);
            let applied = std::fs::read_to_string(lab.workspace().join("target.c")).unwrap_or_default();
            assert!(!applied.contains("outside-secret"));
            assert!(
                !lab.workspace().join("target.c").is_symlink(),
                "a link out was applied unapproved"
            );
        }
        drop(swapping);
    });
}
