//! Limits that stop to hold while a run lives: somebody changes a file of its cgroup, or moves the run out of it.
use crate::host::{all_gone, groups, marker};
use crate::live::Live;
use crate::support::{Fence, Lab, for_each_identity, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The file that holds the process limit of a run; `None` where no cgroup does.
fn pids_max(run: &str) -> Option<PathBuf> {
    let files = groups(run).into_iter().map(|group| group.join("pids.max"));
    files.into_iter().find(|file| file.exists())
}

/// Starts a run with a limit, lets somebody take it away, and gives what was recorded of that.
fn lose(lab: &Lab, test: &str, take: impl Fn(&Path)) -> Option<(String, Value)> {
    let fence: Fence<'_> = lab.fence().flags(["--pids", "50"]);
    let mark = marker();
    let mut live = Live::sh(&fence, &format!("echo GO; exec sleep 600 # {mark}"));
    live.expect("GO");
    let Some(file) = pids_max(fence.name()) else {
        drop(live);
        skip(test, "no cgroup can be used here");
        return None;
    };
    take(&file);
    let ended = live.wait();
    let stderr = ended.stderr.join("\n");
    assert_eq!(ended.code, 125, "{stderr}");
    assert!(stderr.contains("error[BST-LIM-011]"), "{stderr}");
    assert!(all_gone(&mark, fence.name()));
    let audit = fence.audit();
    let end = audit.iter().find(|event| event["type"] == "ended");
    let end = end.unwrap_or_else(|| panic!("no end: {audit:?}"));
    assert_eq!(end["reason"], "limit lost");
    let lost = audit.iter().find(|event| event["type"] == "limit-lost");
    let lost = lost.unwrap_or_else(|| panic!("not on record: {audit:?}"));
    Some((stderr, lost.clone()))
}

#[test]
fn a_limit_that_somebody_raises_meanwhile_ends_the_run_and_is_told() {
    let test = "a_limit_that_somebody_raises_meanwhile_ends_the_run_and_is_told";
    for_each_identity(|lab| {
        let raised = lose(lab, test, |file| {
            std::fs::write(file, "max").expect("can be raised")
        });
        let Some((stderr, event)) = raised else { return };
        assert!(stderr.contains("was set to 50 and is now max"), "{stderr}");
        assert_eq!(event["limit"], "pids");
        assert_eq!(event["value"], 50);
        assert_eq!(event["sign"]["sign"], "changed");
    });
}

#[test]
fn a_run_that_is_moved_out_of_its_group_is_ended_and_told() {
    let test = "a_run_that_is_moved_out_of_its_group_is_ended_and_told";
    for_each_identity(|lab| {
        let moved = lose(lab, test, |file| {
            let group = file.parent().expect("is in a group");
            let members = std::fs::read_to_string(group.join("cgroup.procs")).expect("can be read");
            let above = group.parent().expect("is below another").join("cgroup.procs");
            for member in members.lines() {
                std::fs::write(&above, member).expect("can be moved");
            }
        });
        let Some((_, event)) = moved else { return };
        assert_eq!(event["sign"]["sign"], "moved");
    });
}
