//! Two runs that live never write the same place, whether the daemon started them or a person at a terminal.
use crate::daemon::Daemon;
use crate::support::{Background, Limit, bastle, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::Builder::new()
        .prefix("bastle-writers-")
        .tempdir()
        .unwrap();
    let root = dir.path().to_path_buf();
    for name in [
        "home",
        "state/bastle/daemon",
        "run",
        "ws/one",
        "ws/two",
        "elsewhere",
    ] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    (dir, root)
}

/// At a terminal, without the daemon.
fn at_a_terminal(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bastle());
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root.join("home"))
        .env("XDG_STATE_HOME", root.join("state"))
        .env("XDG_RUNTIME_DIR", root.join("run"))
        .stdin(Stdio::null())
        .current_dir(root.join("ws"))
        .args(["run", "--net", "none"])
        .args(words);
    command
}

fn told(root: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = at_a_terminal(root, words).output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code(), said)
}

/// A run at a terminal that writes until `go` is there.
fn lives(root: &Path, name: &str) -> Background {
    let begun = root.join("ws/begun");
    let script = "touch begun; while ! test -e go; do sleep 0.02; done; rm begun";
    let words = ["--name", name, "--", "sh", "-c", script];
    let living = Background::start(&mut at_a_terminal(root, &words));
    assert!(eventually(Limit::HANG, || begun.exists()));
    living
}

fn wish(daemon: &Daemon, more: &Value) -> Value {
    let mut wish =
        json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "in-place", "net": "none" });
    for (key, value) in more.as_object().unwrap() {
        wish[key] = value.clone();
    }
    wish
}

#[test]
fn of_two_runs_at_terminals_the_second_is_refused_the_place_that_the_first_writes() {
    let (_dir, root) = root();
    let mut first = lives(&root, "first");
    let (code, said) = told(&root, &["--", "true"]);
    assert_eq!(code, Some(125), "{said}");
    for word in ["BST-RUN-003", "first", "--workspace copy", "--share-workspace"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let elsewhere = root.join("elsewhere");
    let other = ["--workspace-dir", elsewhere.to_str().unwrap(), "--", "true"];
    for (words, why) in [
        (
            &["--workspace", "copy", "--", "true"][..],
            "a copy is nobody else's",
        ),
        (&["--sandbox", "read-only", "--", "true"], "it writes nothing"),
        (&["--share-workspace", "--", "true"], "a person said so"),
        (&["--dry-run-policy", "--", "true"], "it starts nothing"),
        (&other, "another project"),
    ] {
        let (code, said) = told(&root, words);
        assert_eq!(code, Some(0), "{why}: {said}");
    }
    // A grant for writing outside the project is a place too.
    let grant = format!("{}/ws", root.display());
    let words = [&["--rw", &grant][..], &other].concat();
    let (code, said) = told(&root, &words);
    assert_eq!(code, Some(125), "{said}");
    std::fs::write(root.join("ws/go"), "").unwrap();
    assert_eq!(first.end(Limit::HANG), Some(0));
    let (code, said) = told(&root, &["--", "true"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_a_killed_run_wrote_is_free_at_once() {
    let (_dir, root) = root();
    let first = lives(&root, "first");
    first.signal(rustix::process::Signal::KILL);
    assert!(eventually(Limit::HANG, || told(&root, &["--", "true"]).0 == Some(0)));
}

#[test]
fn a_run_of_the_daemon_waits_for_one_at_a_terminal_or_is_refused_as_it_asks() {
    let (dir, root) = root();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let mut first = lives(&root, "first");
    let refused = daemon.own("POST", "/api/v1/runs", Some(&wish(&daemon, &json!({}))));
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!(refused.status, 409, "{text}");
    assert!(text.contains("BST-RUN-003") && text.contains("first"), "{text}");
    let queued = json!({ "runs": [wish(&daemon, &json!({}))], "on_conflict": "queue" });
    let made = daemon.own("POST", "/api/v1/runs", Some(&queued));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    // Control: one that writes elsewhere is not held up, and comes after it.
    let elsewhere = wish(&daemon, &json!({ "mode": "copy" }));
    let made = daemon.own("POST", "/api/v1/runs", Some(&elsewhere));
    let other = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    daemon.until(&other, &["completed"]);
    let state = || daemon.own("GET", &format!("/api/v1/runs/{run}"), None).json()["state"].clone();
    assert_eq!(state(), "queued");
    std::fs::write(root.join("ws/go"), "").unwrap();
    assert_eq!(first.end(Limit::HANG), Some(0));
    daemon.until(&run, &["completed"]);
}

#[test]
fn a_run_at_a_terminal_is_refused_what_a_run_of_the_daemon_writes_and_scopes_make_room() {
    let (dir, root) = root();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let script = "touch one/begun; while ! test -e go; do sleep 0.02; done";
    let scope = format!("{}/one", daemon.workspace());
    let narrow = wish(
        &daemon,
        &json!({ "argv": ["sh", "-c", script], "scopes": [scope] }),
    );
    let made = daemon.own("POST", "/api/v1/runs", Some(&narrow));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    assert!(eventually(Limit::HANG, || root.join("ws/one/begun").exists()));
    let (code, said) = told(&root, &["--", "true"]);
    assert!(code == Some(125) && said.contains(&run), "{said}");
    // Beside it in the same project, as far as their scopes go.
    let scope = format!("{}/two", daemon.workspace());
    let beside = wish(
        &daemon,
        &json!({ "argv": ["touch", "two/file"], "scopes": [scope] }),
    );
    let made = daemon.own("POST", "/api/v1/runs", Some(&beside));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let other = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    daemon.until(&other, &["completed"]);
    assert!(root.join("ws/two/file").exists());
    std::fs::write(root.join("ws/go"), "").unwrap();
    daemon.until(&run, &["completed"]);
    let (code, said) = told(&root, &["--", "true"]);
    assert_eq!(code, Some(0), "{said}");
}
