//! What is unusual about a run is seen while it lives, wherever runs are looked at; and what a daemon keeps goes in time.
use crate::daemon::Daemon;
use crate::outward::receive;
use crate::support::{Limit, bastle, eventually};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

const RULES: &str = r#"{"version": 1, "rules": [
    {"id": "few-files", "when": "file-burst", "threshold": 128, "windowSeconds": 3600, "severity": "high", "action": "alert"},
    {"id": "few-denials", "when": "denial-burst", "threshold": 3, "windowSeconds": 3600, "severity": "low", "action": "note"}]}"#;

/// Changes 200 names, then waits to be let go.
const BURST: &str =
    "for i in $(seq 200); do : > f$i; done; echo burst; while ! [ -e go ]; do sleep 0.1; done";

fn root() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::Builder::new()
        .prefix("bastle-unusual-")
        .tempdir()
        .unwrap();
    let root = dir.path().to_path_buf();
    for name in ["home", "state/bastle/daemon", "run", "ws/sub"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("ws/hello.txt"), "hello\n").unwrap();
    (dir, root)
}

fn verb(root: &Path, words: &[&str]) -> std::process::Output {
    command(root, words).output().unwrap()
}

fn command(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(bastle());
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root.join("home"))
        .env("XDG_STATE_HOME", root.join("state"))
        .env("XDG_RUNTIME_DIR", root.join("run"))
        .stdin(std::process::Stdio::null())
        .current_dir(root.join("ws"))
        .args(words);
    command
}

#[test]
fn a_burst_of_changes_is_told_while_the_run_lives() {
    let (dir, root) = root();
    std::fs::write(root.join("state/bastle/daemon/anomalies.json"), RULES).unwrap();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let usual = daemon.spawn("sleep 1000");
    let burst = daemon.spawn(BURST);
    let of = |run: &str| daemon.own("GET", &format!("/api/v1/runs/{run}"), None).json();
    assert!(
        eventually(Limit::HANG, || of(&burst)["file"]["findings"]["worst"] == "high"),
        "{}",
        of(&burst)
    );
    assert_eq!(
        of(&burst)["state"],
        "running",
        "an alert does not pause, and the run is not over"
    );
    assert!(of(&usual)["file"]["findings"].is_null(), "control");
}

#[test]
fn a_run_in_the_foreground_without_a_daemon_tells_alerts_and_keeps_notes() {
    let (_dir, root) = root();
    std::fs::write(root.join("state/bastle/daemon/anomalies.json"), RULES).unwrap();
    let script =
        "for i in $(seq 200); do : > f$i; done; for i in $(seq 5); do touch /usr/x$i 2>/dev/null; done; true";
    let output = verb(
        &root,
        &["run", "--json", "--workspace", "copy", "--", "sh", "-c", script],
    );
    let receipt: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules: Vec<&str> = receipt["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["rule"].as_str())
        .collect();
    assert!(
        rules.contains(&"few-files") && rules.contains(&"few-denials"),
        "{receipt}"
    );
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("unusual (high)"), "an alert is shown: {shown}");
    assert!(!shown.contains("few-denials"), "a note is not: {shown}");
    let quiet = verb(&root, &["run", "--json", "--workspace", "copy", "--", "true"]);
    let receipt: Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(receipt["findings"], json!([]), "control");
}

/// Everything that a webhook is told, in order.
fn receiver(settings: &mut Vec<Value>, dir: &Path, kinds: Option<&[&str]>) -> mpsc::Receiver<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = dir.join("secret");
    std::fs::write(&secret, "0123456789abcdef0123\n").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let mut hook = json!({ "url": url, "secret_file": secret });
    if let Some(kinds) = kinds {
        hook["kinds"] = json!(kinds);
    }
    settings.push(hook);
    let (sender, told) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let (_, body) = receive(&listener, "HTTP/1.1 204 OK\r\nconnection: close\r\n\r\n");
            let event = serde_json::from_slice(&body).unwrap_or(Value::Null);
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    told
}

/// Rules of the findings of a run that a webhook is told of, up to this one.
fn rules_up_to(told: &mpsc::Receiver<Value>, last: &str) -> Vec<String> {
    let mut rules = Vec::new();
    while rules.last().is_none_or(|rule| rule != last) {
        let event = told
            .recv_timeout(Limit::HANG.0)
            .unwrap_or_else(|_| panic!("only {rules:?} came"));
        if event["type"] == "dev.bastle.run.anomaly.v1" {
            assert_eq!(event["subject"], "at-terminal", "{event}");
            rules.push(event["data"]["rule"].as_str().unwrap().to_owned());
        }
    }
    rules
}

/// A run in the foreground, ended with the test.
struct Foreground(std::process::Child);

impl Foreground {
    fn start(root: &Path, name: &str, script: &str) -> Self {
        let line = [
            "run",
            "--name",
            name,
            "--workspace",
            "copy",
            "--",
            "sh",
            "-c",
            script,
        ];
        let child = command(root, &line)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn shown(root: &Path, words: &[&str]) -> String {
    let output = verb(root, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_found_in_a_run_in_the_foreground_is_told_wherever_that_of_others_is() {
    let (dir, root) = root();
    std::fs::write(root.join("state/bastle/daemon/anomalies.json"), RULES).unwrap();
    let mut hooks = Vec::new();
    let alerts = receiver(&mut hooks, &root, None);
    let all = receiver(&mut hooks, &root, Some(&["anomaly"]));
    let config = root.join("serve.json");
    std::fs::write(&config, json!({ "webhooks": hooks }).to_string()).unwrap();
    let words = ["--config", config.to_str().unwrap()];
    let daemon = Daemon::start_in(root.clone(), Some(dir), &words);
    let _usual = Foreground::start(&root, "usual", "sleep 1000");
    let script = format!("for i in 1 2 3 4 5; do touch /usr/x$i 2>/dev/null; done; {BURST}");
    let unusual = Foreground::start(&root, "at-terminal", &script);

    // While it lives: first the note, then the alert.
    assert_eq!(rules_up_to(&all, "few-files")[..2], ["few-denials", "few-files"]);
    assert_eq!(
        rules_up_to(&alerts, "few-files"),
        ["few-files"],
        "a note is told only to who names its kind"
    );
    let count = |metrics: &str, severity: &str| -> u64 {
        let name = format!("bastle_anomalies_total{{severity=\"{severity}\"}} ");
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(name.as_str())?.parse().ok())
            .unwrap_or(0)
    };
    let metrics = String::from_utf8_lossy(&daemon.own("GET", "/metrics", None).body).into_owned();
    assert!(
        count(&metrics, "high") >= 1 && count(&metrics, "low") >= 1,
        "{metrics}"
    );
    assert_eq!(count(&metrics, "medium"), 0, "control");
    let events = daemon.own("GET", "/api/v1/runs", None).json();
    assert_eq!(events["items"], json!([]), "it is no run of the daemon: {events}");
    let listed: Value = serde_json::from_str(&shown(&root, &["ps", "--json"])).unwrap();
    let row = |name: &str| {
        listed["runs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["run"] == name)
            .cloned()
    };
    assert_eq!(
        row("at-terminal").unwrap()["findings"]["worst"],
        "high",
        "{listed}"
    );
    assert_eq!(row("usual").unwrap()["findings"]["count"], 0, "control: {listed}");
    let inspected: Value =
        serde_json::from_str(&shown(&root, &["inspect", "--json", "at-terminal"])).unwrap();
    assert_eq!(inspected["status"]["findings"]["worst"], "high", "{inspected}");
    let logs = |root: &Path| shown(root, &["logs", "--events", "--json", "at-terminal"]);
    let told = logs(&root);
    assert!(
        told.contains("few-files") && told.contains("few-denials"),
        "{told}"
    );
    assert_eq!(shown(&root, &["logs", "--events", "usual"]), "", "control");
    let recorded = shown(&root, &["audit", "show", "at-terminal"]);
    assert!(
        recorded.contains("few-files") && recorded.contains("few-denials"),
        "{recorded}"
    );

    // When it ended, and for another daemon: told once, and still there.
    drop(unusual);
    let (root, dir) = daemon.leave();
    assert!(logs(&root).starts_with(&told), "{}", logs(&root));
    let daemon = Daemon::start_in(root.clone(), dir, &words);
    let again = String::from_utf8_lossy(&daemon.own("GET", "/metrics", None).body).into_owned();
    let lines = logs(&root).lines().count() as u64;
    assert_eq!(
        count(&again, "high") + count(&again, "low"),
        lines,
        "each is counted once: {again}"
    );
}

#[test]
fn bytes_that_are_written_are_counted_without_a_limit() {
    let (_dir, root) = root();
    let used = |script: &str| {
        let output = verb(
            &root,
            &["run", "--json", "--workspace", "copy", "--", "sh", "-c", script],
        );
        let receipt: Value = serde_json::from_slice(&output.stdout).unwrap();
        receipt["usage"]["bytes_written"].as_u64().unwrap()
    };
    // A tmpfs is not storage: the kernel counts nothing there.
    let on_tmpfs = rustix::fs::statfs(&root).is_ok_and(|found| found.f_type == 0x0102_1994);
    if !on_tmpfs {
        let written = used("head -c 3000000 /dev/zero > big");
        assert!(written >= 3_000_000, "{written}");
    }
    assert!(used("true") < 1_000_000, "control");
}

#[test]
fn bytes_of_children_that_the_kernel_reaps_are_counted() {
    // With SIGCHLD ignored nobody waits for the children, and no parent is charged with what they used: wait(2).
    const SCRIPT: &str = "import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for n in range(3):
    if os.fork() == 0:
        with open('big%d' % n, 'wb') as file:
            file.write(b'x' * 3000000)
        os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
";
    for mode in ["copy", "in-place"] {
        let (_dir, root) = root();
        std::fs::write(root.join("ws/write.py"), SCRIPT).unwrap();
        let used = |words: &[&str]| {
            let mut line = vec!["run", "--json", "--workspace", mode, "--"];
            line.extend(words);
            let receipt: Value = serde_json::from_slice(&verb(&root, &line).stdout).unwrap();
            receipt["usage"]["bytes_written"].as_u64().unwrap()
        };
        let written = used(&["python3", "write.py"]);
        assert!(written >= 9_000_000, "{mode}: {written}");
        assert!(used(&["true"]) < 1_000_000, "control: {mode}");
        let moved = used(&["mv", "hello.txt", "moved.txt"]);
        assert!(moved < 1_000_000, "control: {mode}: {moved}");
    }
}

#[test]
fn a_run_writes_only_in_its_scopes_and_is_told_so() {
    let (dir, root) = root();
    let daemon = Daemon::start_in(root, Some(dir), &[]);
    // Modes and times are no contents: nothing but the mount holds them.
    let script = "touch sub/a && chmod 600 sub/a && rm sub/a && echo inside
        for change in 'touch outside' 'chmod 600 hello.txt' 'touch -d 2001-01-01 hello.txt' 'chmod 700 .' \
            'mv hello.txt gone.txt' 'mv gone.txt hello.txt' 'rm outside'; do $change 2>/dev/null && echo escaped; done
        cat hello.txt";
    let free = format!("inside\n{}hello\n", "escaped\n".repeat(7));
    let scope = format!("{}/sub", daemon.workspace());
    for (mode, scopes, expected) in [
        ("copy", json!([scope]), "inside\nhello\n"),
        ("overlay", json!([scope]), "inside\nhello\n"),
        ("in-place", json!([scope]), "inside\nhello\n"),
        ("copy", json!([]), free.as_str()),
        ("overlay", json!([]), free.as_str()),
    ] {
        let wish = json!({ "argv": ["sh", "-c", script], "workspace": daemon.workspace(), "mode": mode,
            "scopes": scopes });
        let wish = json!({ "runs": [wish], "on_conflict": "queue" });
        let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
        let over = || daemon.own("GET", &format!("/api/v1/runs/{run}"), None).json()["ended_ms"].is_u64();
        assert!(eventually(Limit::HANG, over));
        let logs = daemon
            .own("GET", &format!("/api/v1/runs/{run}/logs"), None)
            .json();
        let said: String = logs["records"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|record| record["text"].as_str())
            .collect();
        assert_eq!(said, expected, "{mode}: {logs}");
    }
}

#[test]
fn runs_that_ended_go_in_time_and_work_that_was_not_applied_never_does() {
    let (dir, root) = root();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let (done, unapplied) = (daemon.spawn("true"), daemon.spawn("echo new > result.txt"));
    let over =
        |run: &str| daemon.own("GET", &format!("/api/v1/runs/{run}"), None).json()["ended_ms"].is_u64();
    assert!(eventually(Limit::HANG, || over(&done) && over(&unapplied)));
    let (root, dir) = daemon.leave();
    let config = root.join("serve.json");
    std::fs::write(&config, r#"{"retention": {"runs": "1ms"}}"#).unwrap();
    let daemon = Daemon::start_in(root, dir, &["--config", config.to_str().unwrap()]);
    let status = |run: &str| daemon.own("GET", &format!("/api/v1/runs/{run}"), None).status;
    assert!(
        eventually(Limit::HANG, || status(&done) == 404),
        "it goes at the start"
    );
    assert_eq!(status(&unapplied), 200, "its work is nowhere else");
}

#[test]
fn a_request_hides_the_history_of_its_copy_and_is_refused_where_that_cannot_be_held() {
    let (dir, root) = root();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(root.join("ws"))
            .env("HOME", root.join("home"))
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(words);
        assert!(command.status().unwrap().success(), "{words:?}");
    };
    std::fs::write(root.join("ws/.env"), "TOKEN=canary\n").unwrap();
    git(&["init", "-q"]);
    git(&["add", "-f", "."]);
    git(&["commit", "-qm", "first"]);
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    let ask = |more: Value| {
        let mut wish = json!({ "argv": ["sh", "-c", "git show HEAD:.env || echo none; git show HEAD:hello.txt"],
            "workspace": daemon.workspace(), "net": "none" });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        daemon.own("POST", "/api/v1/runs", Some(&wish))
    };
    for (hidden, expected) in [(true, "none\nhello\n"), (false, "TOKEN=canary\nhello\n")] {
        let made = ask(json!({ "hide_history": hidden }));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        let run = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
        daemon.until(&run, &["completed"]);
        let path = format!("/api/v1/runs/{run}/logs");
        let logs = daemon.own("GET", &path, None).json();
        let records = logs["records"].as_array().unwrap();
        let own = records.iter().filter(|record| record["stream"] == "output");
        let said: String = own.filter_map(|record| record["text"].as_str()).collect();
        assert_eq!(said, expected, "{logs}");
    }
    let refused = ask(json!({ "hide_history": true, "mode": "in-place" }));
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(
        (400..500).contains(&refused.status) && text.contains("in place"),
        "{text}"
    );
}
