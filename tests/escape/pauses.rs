//! Going on while paused. A cgroup freezes for certain; where the run has none, its processes are stopped by signals, and what
//! signals cannot hold must be told.
use super::resources::cgroups;
use crate::support::{Fence, Lab, Limit, bastle, for_each_identity, pass, run, skip, text, wait_for};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

fn verb(lab: &Lab, words: &[&str]) -> String {
    let mut command = lab.command(bastle());
    command.args(words);
    let ended = run(&mut command, b"", Limit::HANG);
    assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    ended.stdout
}

/// How often the run's pause was noted not to hold.
fn notes(fence: &Fence<'_>) -> usize {
    let audit = fence.audit();
    audit.iter().filter(|event| event["topic"] == "pause").count()
}

/// Waits until `count` no longer changes, and holds that it stays so; what it is then.
fn settles(count: impl Fn() -> u64) -> u64 {
    let mut last = u64::MAX;
    // As long as hundreds of rounds of the agent take.
    wait_for("standing still", || {
        pass(Duration::from_millis(250));
        let now = count();
        std::mem::replace(&mut last, now) == now
    });
    pass(Duration::from_millis(500));
    assert_eq!(count(), last, "it went on");
    last
}

/// Counts the names that begin with `stem`.
fn names(root: &Path, stem: &str) -> u64 {
    let listing = std::fs::read_dir(root).expect("can be listed");
    let of_stem = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(stem));
    listing
        .flatten()
        .filter(|entry| of_stem(&entry.file_name()))
        .count() as u64
}

#[test]
fn a_pause_without_a_cgroup_stops_processes_that_continue_each_other() {
    let without = Cell::new(false);
    for_each_identity(|lab| {
        let root = lab.workspace();
        let script = "for i in 1 2 3; do (while ! test -e go; do kill -CONT -1; echo >> ticks-$i; done) & done 2>/dev/null; \
            touch ready; wait; echo over";
        let fence = lab.fence().flags(["--workspace", "in-place"]);
        let mut living = fence.sh_beside(script);
        let size = |i: u32| std::fs::metadata(root.join(format!("ticks-{i}"))).map_or(0, |meta| meta.len());
        let ticks = || -> u64 { (1..=3).map(size).sum() };
        wait_for("the agent", || root.join("ready").exists() && ticks() > 100);
        let by_signals = cgroups(fence.name()).is_empty();
        without.set(without.get() || by_signals);
        verb(lab, &["pause", fence.name()]);
        let last = settles(ticks);
        let listed = verb(lab, &["ps"]);
        assert_eq!(
            listed.contains("paused by signals (no cgroup)"),
            by_signals,
            "{listed}"
        );
        assert!(listed.contains("paused"), "{listed}");
        verb(lab, &["resume", fence.name()]);
        wait_for("going on", || ticks() > last);
        lab.project("go", "");
        assert_eq!(living.end(Limit::HANG), Some(0), "control: it ends by itself");
    });
    if !without.get() {
        let name = "a_pause_without_a_cgroup_stops_processes_that_continue_each_other";
        skip(name, "every run of this host has a cgroup");
    }
}

#[test]
fn a_process_that_a_timer_continues_is_told_of_and_makes_no_name_while_it_is_paused() {
    let without = Cell::new(false);
    for_each_identity(|lab| {
        let root = lab.workspace();
        let fence = lab.fence().flags(["--workspace", "in-place"]);
        let attacker = lab.attacker();
        let mut command = fence.command([text(&attacker), "self-continuing", "step"]);
        let mut living = crate::support::Background::start(&mut command);
        let made = || names(&root, "step-");
        wait_for("the agent", || made() > 10);
        let by_signals = cgroups(fence.name()).is_empty();
        without.set(without.get() || by_signals);
        verb(lab, &["pause", fence.name()]);
        if by_signals {
            wait_for("the note that it does not hold", || notes(&fence) > 0);
            wait_for("the state that says so", || {
                verb(lab, &["ps"]).contains("pause does not hold (no cgroup)")
            });
        }
        let before = settles(made);
        if !by_signals {
            assert_eq!(notes(&fence), 0, "a cgroup holds it");
            let listed = verb(lab, &["ps"]);
            assert!(!listed.contains("no cgroup"), "{listed}");
        }
        verb(lab, &["resume", fence.name()]);
        wait_for("going on", || made() > before);
        let listed = verb(lab, &["ps"]);
        assert!(!listed.contains("pause"), "control: resumed, {listed}");
        lab.project("go", "");
        assert_eq!(living.end(Limit::HANG), Some(0), "control: it ends by itself");
    });
    if !without.get() {
        let name = "a_process_that_a_timer_continues_is_told_of_and_makes_no_name_while_it_is_paused";
        skip(name, "every run of this host has a cgroup");
    }
}
