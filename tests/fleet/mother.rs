//! The process that keepers are copies of: it is not seen in them, not needed by them, and not missed.
use crate::daemon::Daemon;
use crate::killed::{place, printed};
use crate::support::{Limit, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};

/// The mother of a daemon's keepers, if it has one.
fn mother(daemon: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).ok()?;
    tasks
        .flatten()
        .flat_map(|task| {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children: Vec<u32> = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect();
            children
        })
        .find(|pid| words(*pid).get(1).is_some_and(|word| word == "__bear"))
}

fn words(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.trim_end_matches('\0')
        .split('\0')
        .map(str::to_owned)
        .collect()
}

/// A number behind the name in `stat`: the parent is the second, the group the third, the session the fourth.
fn stat(pid: u32, at: usize) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = text.rsplit_once(") ").unwrap();
    rest.split_whitespace().nth(at - 1).unwrap().parse().unwrap()
}

/// KiB of one kind in all mappings of the program's own file.
fn own_pages(pid: u32, kind: &str) -> u64 {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let mut ours = false;
    let mut sum = 0;
    for line in std::fs::read_to_string(format!("/proc/{pid}/smaps"))
        .unwrap()
        .lines()
    {
        match line.strip_prefix(kind) {
            Some(rest) if ours => {
                let number = rest.trim_start_matches(':').split_whitespace().next().unwrap();
                sum += number.parse::<u64>().unwrap();
            }
            _ if line.contains('-') && line.contains(" r") => {
                ours = line.ends_with(&program.display().to_string());
            }
            _ => {}
        }
    }
    sum
}

fn keeper(root: &Path, run: &str) -> u32 {
    let path = root.join("state/bastle/runs").join(run).join("run.json");
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["keeper"].as_u64().unwrap().try_into().unwrap()
}

/// Starts a run that waits; gives its name and its keeper.
fn waiting(daemon: &Daemon) -> (String, u32) {
    let run = daemon.spawn("echo begun; exec sleep 1000");
    daemon.until(&run, &["running"]);
    let keeper = keeper(&daemon.root, &run);
    (run, keeper)
}

#[test]
fn a_keeper_is_as_if_it_had_been_started_by_itself_and_shares_what_nobody_writes() {
    let (root, dir) = place();
    let hidden = [
        ("NOTIFY_SOCKET", "/nowhere"),
        ("BASTLE_TOKEN_FILE", "/nowhere/token"),
    ];
    let daemon = Daemon::start_with(root.clone(), Some(dir), &[], &hidden);
    let (run, one) = waiting(&daemon);
    let (_, other) = waiting(&daemon);
    let mother = mother(daemon.pid()).expect("the daemon has a mother of keepers");
    let state = root.join("state/bastle").display().to_string();
    assert_eq!(words(one)[1..], ["__keep".to_owned(), state, run]);
    for keeper in [one, other] {
        let place = (stat(keeper, 2), stat(keeper, 3), stat(keeper, 4));
        assert_eq!(place, (daemon.pid(), keeper, keeper), "parent, group, session");
        assert_eq!(
            std::fs::read_link(format!("/proc/{keeper}/cwd")).unwrap(),
            PathBuf::from("/")
        );
    }
    for process in [one, mother] {
        let variables = std::fs::read(format!("/proc/{process}/environ")).unwrap();
        let has = |name: &str| variables.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(has("XDG_STATE_HOME=") && !has("NOTIFY_SOCKET") && !has("TOKEN_FILE"));
    }
    let open = std::fs::read_dir(format!("/proc/{mother}/fd")).unwrap().count();
    assert_eq!(open, 4, "three streams and a line");
    let (shared, alone) = (own_pages(one, "Shared_Dirty"), own_pages(one, "Private_Dirty"));
    assert!(shared > 4 * alone, "{shared} KiB shared, {alone} KiB of its own");
}

#[test]
fn a_mother_that_is_killed_takes_no_run_along_and_the_next_run_has_another_one() {
    let daemon = Daemon::start(&[]);
    let (run, first) = waiting(&daemon);
    let before = mother(daemon.pid()).expect("the daemon has a mother of keepers");
    kill_process(Pid::from_raw(before.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    let (_, second) = waiting(&daemon);
    let after = mother(daemon.pid()).expect("another one");
    assert_ne!(before, after);
    for keeper in [first, second] {
        assert_eq!(words(keeper)[1], "__keep");
    }
    assert!(
        !Path::new(&format!("/proc/{before}")).exists(),
        "nothing is left of her"
    );
    daemon.until(&run, &["running"]);
    assert_eq!(printed(&daemon.root, &run).matches("begun").count(), 1);
}

#[test]
fn a_mother_ends_with_her_daemon_and_her_runs_go_on() {
    let (root, dir) = place();
    let daemon = Daemon::start_in(root.clone(), None, &[]);
    let (run, keeper) = waiting(&daemon);
    let mother = mother(daemon.pid()).expect("the daemon has a mother of keepers");
    daemon.signal(Signal::KILL);
    drop(daemon);
    let gone = || words(mother).get(1).is_none_or(|word| word != "__bear");
    assert!(eventually(Limit::HANG, gone), "she is still there");
    assert_eq!(words(keeper)[1], "__keep");
    let next = Daemon::start_in(root, Some(dir), &[]);
    next.until(&run, &["running"]);
    let stopped = next.own("POST", &format!("/api/v1/runs/{run}/kill"), None);
    assert!(stopped.status < 300, "{stopped:?}");
    next.until(&run, &["cancelled"]);
}
