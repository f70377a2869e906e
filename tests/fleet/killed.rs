//! A daemon that dies without a word, and the next one.
use crate::daemon::Daemon;
use crate::support::{Limit, bastle, eventually};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A place for several daemons, one after the other.
pub(crate) fn place() -> (PathBuf, tempfile::TempDir) {
    let dir = tempfile::Builder::new()
        .prefix("bastle-fleet-")
        .tempdir()
        .unwrap();
    let root = dir.path().to_path_buf();
    for name in ["home", "state", "run", "ws"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    std::fs::write(root.join("ws/hello.txt"), "hello\n").unwrap();
    (root, dir)
}

/// Kills it.
fn kill(daemon: Daemon) {
    daemon.signal(Signal::KILL);
    drop(daemon);
}

fn run_file(root: &Path, run: &str) -> Value {
    let path = root.join("state/bastle/runs").join(run).join("run.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Everything a run printed, with the heads of its records.
pub(crate) fn printed(root: &Path, run: &str) -> String {
    let path = root.join("state/bastle/runs").join(run).join("output");
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn names(report: &Value) -> Vec<String> {
    let runs = report["runs"].as_array().expect("runs");
    runs.iter()
        .map(|run| run["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn runs_outlive_a_daemon_that_is_killed_and_the_next_one_finds_and_ends_them() {
    let (root, dir) = place();
    let first = Daemon::start_in(root.clone(), None, &[]);
    let one = json!({
        "argv": ["sh", "-c", "echo begun; read word"], "workspace": first.workspace(), "mode": "copy", "open_input": true,
    });
    let wish = json!({"key": "k", "tags": {"task": "wait"}, "runs": [one, one]});
    let made = first.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let runs = names(&made.json());
    for run in &runs {
        first.until(run, &["running"]);
        assert!(eventually(Limit::HANG, || printed(&root, run).contains("begun")));
    }
    let keepers: Vec<u64> = runs
        .iter()
        .map(|run| run_file(&root, run)["keeper"].as_u64().unwrap())
        .collect();
    kill(first);
    for keeper in &keepers {
        assert!(
            Path::new(&format!("/proc/{keeper}")).exists(),
            "a keeper went with the daemon"
        );
    }
    let second = Daemon::start_in(root.clone(), Some(dir), &[]);
    // The same request gets the same answer, and starts nothing.
    let again = second.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(again.status, 200, "{}", String::from_utf8_lossy(&again.body));
    assert_eq!(names(&again.json()), runs);
    for (run, keeper) in runs.iter().zip(&keepers) {
        second.until(run, &["running"]);
        assert_eq!(run_file(&root, run)["keeper"].as_u64(), Some(*keeper));
        assert_eq!(printed(&root, run).matches("begun").count(), 1);
    }
    let stopped = second.own("POST", "/api/v1/stop", Some(&json!({"tag": "task=wait"})));
    assert_eq!(stopped.status, 200, "{}", String::from_utf8_lossy(&stopped.body));
    for (run, keeper) in runs.iter().zip(&keepers) {
        second.until(run, &["cancelled"]);
        let gone = || !Path::new(&format!("/proc/{keeper}")).exists();
        assert!(
            eventually(Limit::HANG, gone),
            "the keeper of {run} is still there"
        );
    }
}

#[test]
fn a_daemon_that_is_killed_again_and_again_while_it_starts_runs_starts_each_once() {
    let (root, dir) = place();
    let mut count = 0;
    let mut all = BTreeMap::new();
    for round in 0..6 {
        let daemon = Daemon::start_in(root.clone(), None, &[]);
        let one = json!({"argv": ["echo", "begun"], "workspace": daemon.workspace(), "mode": "copy"});
        let wish = json!({"key": format!("round-{round}"), "runs": [one, one, one]});
        let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        for run in names(&made.json()) {
            all.insert(run, wish.clone());
        }
        // At the earliest when it has answered, and later each time: it never hears of some ends.
        if round % 2 == 1 {
            let first = names(&made.json())[0].clone();
            daemon.until(&first, &["building", "running", "completed"]);
        }
        kill(daemon);
        count += 1;
    }
    let last = Daemon::start_in(root.clone(), Some(dir), &[]);
    for run in all.keys() {
        last.until(run, &["completed"]);
        assert_eq!(printed(&root, run).matches("begun").count(), 1, "{run}");
    }
    let listed = last.own("GET", "/api/v1/runs?limit=1000", None).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), all.len());
    eprintln!("{count} kills, {} runs", all.len());
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_told_who_has_it() {
    let (root, dir) = place();
    let first = Daemon::start_in(root.clone(), Some(dir), &[]);
    let second = Command::new(bastle())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root.join("home"))
        .env("XDG_STATE_HOME", root.join("state"))
        .env("XDG_RUNTIME_DIR", root.join("run"))
        .args(["serve", "--listen", "127.0.0.1:0", "--socket"])
        .arg(root.join("run/other.sock"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success(), "{words}");
    assert!(
        words.contains("BST-STA-002") && words.contains(&first.pid().to_string()),
        "{words}"
    );
    assert_eq!(first.own("GET", "/api/v1/runs", None).status, 200);
}

#[test]
fn a_copy_of_a_dead_daemons_socket_keeps_no_other_from_serving() {
    let (root, dir) = place();
    let first = Daemon::start_in(root.clone(), None, &[]);
    // What a copy of it holds that was about to become a keeper: the socket it listens on.
    let pid = Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap();
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let copies: Vec<OwnedFd> = (3..64)
        .filter_map(|fd| rustix::process::pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok())
        .filter(|fd| rustix::net::sockopt::socket_acceptconn(fd).unwrap_or(false))
        .filter(|fd| rustix::net::sockopt::socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX))
        .collect();
    assert_eq!(copies.len(), 1, "one local socket");
    kill(first);
    assert!(
        UnixStream::connect(root.join("run/bastle.sock")).is_ok(),
        "the copy listens"
    );
    let second = Daemon::start_in(root, Some(dir), &[]);
    assert_eq!(second.own("GET", "/api/v1/runs", None).status, 200);
    drop(copies);
}
