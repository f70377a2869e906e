//! Status answers are the result of a trial run, and say so: a daemon that can start nothing does not call itself ready.
use crate::daemon::Daemon;
use crate::support::{Limit, bastle, eventually};
use serde_json::{Value, json};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

/// A spawner of root's own, ended with the test.
struct Spawner(Child);

impl Spawner {
    fn start(root: &std::path::Path) -> Self {
        let ceiling = root.join("ceiling.json");
        let text = r#"{"version": 1, "max_workers": 20, "callers": [
            {"uid": 0, "roots": ["/"], "max_workers": 10, "rate": {"per_second": 1000, "burst": 1000}}]}"#;
        std::fs::write(&ceiling, text).unwrap();
        let told = root.join("notify.sock");
        let notify = UnixDatagram::bind(&told).unwrap();
        notify.set_read_timeout(Some(Limit::HANG.0)).unwrap();
        let child = Command::new(bastle())
            .env_clear()
            .env("NOTIFY_SOCKET", &told)
            .arg("spawner")
            .arg("--socket")
            .arg(root.join("spawner.sock"))
            .arg("--ceiling")
            .arg(ceiling)
            .arg("--state")
            .arg(root.join("spawner-state"))
            .args(["--warm", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let spawner = Self(child);
        let mut word = [0; 64];
        let length = notify.recv(&mut word).expect("the spawner is ready");
        assert_eq!(&word[..length], b"READY=1");
        spawner
    }

    fn kill(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.kill();
    }
}

fn with_spawner(start: impl FnOnce(&std::path::Path)) -> Daemon {
    let dir = tempfile::Builder::new()
        .prefix("bastle-truth-")
        .tempdir()
        .unwrap();
    let root = dir.path().to_path_buf();
    for name in ["home", "state", "run", "ws"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    start(&root);
    let socket = root.join("spawner.sock").display().to_string();
    Daemon::start_with(root, Some(dir), &[], &[("BASTLE_SPAWNER", &socket)])
}

fn get(daemon: &Daemon, path: &str) -> (u16, Value) {
    let answer = daemon.own("GET", path, None);
    (answer.status, answer.json())
}

/// What the three answers say: ready, enforced, connected.
fn said(daemon: &Daemon) -> (u16, bool, bool) {
    let contained = get(daemon, "/api/v1/agents/containment-status").1;
    let status = get(daemon, "/api/v1/agents/status").1;
    for answer in [&contained, &status] {
        assert!(answer["age_ms"].is_u64(), "{answer}");
        assert!(
            answer["probed_at"]
                .as_str()
                .is_some_and(|at| at.starts_with("20")),
            "{answer}"
        );
    }
    assert_eq!(
        contained["enforced"] == true,
        contained["problem"].is_null(),
        "{contained}"
    );
    (
        daemon.net("GET", "/readyz", &[], b"").status,
        contained["enforced"] == true,
        status["connected"] == true,
    )
}

#[test]
fn a_daemon_whose_spawner_cannot_be_reached_says_so_in_every_status() {
    let broken = with_spawner(|_| {});
    assert_eq!(said(&broken), (503, false, false));
    let contained = get(&broken, "/api/v1/agents/containment-status").1;
    assert_eq!(contained["provider"], "none");
    assert_eq!(contained["verdict"], "not-enforced");
    assert!(
        contained["problem"]
            .as_str()
            .unwrap()
            .starts_with("BST-SPAWN-009"),
        "{contained}"
    );
    assert_eq!(contained["guarantees"], json!([]));
    // The control: the same daemon with the spawner of its own.
    let well = Daemon::start(&[]);
    assert_eq!(said(&well), (200, true, true));
    let contained = get(&well, "/api/v1/agents/containment-status").1;
    assert_eq!(contained["provider"], "native");
    let guarantees = contained["guarantees"].as_array().unwrap();
    assert!(guarantees.len() > 15, "{contained}");
    assert!(
        guarantees
            .iter()
            .all(|one| one["verdict"] == "held" && one["probes"].as_u64() > Some(0)),
        "{contained}"
    );
}

#[test]
fn a_daemon_that_loses_its_spawner_says_so_at_once() {
    let mut spawner = None;
    let daemon = with_spawner(|root| spawner = Some(Spawner::start(root)));
    assert_eq!(said(&daemon), (200, true, true));
    spawner.take().unwrap().kill();
    let metrics = || {
        let metrics = daemon.own("GET", "/metrics", None);
        String::from_utf8_lossy(&metrics.body).into_owned()
    };
    // Its processes end a moment later, and with the last of them the socket is nobody's.
    let told = || metrics().contains("bastle_containment_enforced 0");
    assert!(eventually(Limit::HANG, told), "{}", metrics());
    assert_eq!(said(&daemon), (503, false, false));
}

#[test]
fn many_questions_at_once_make_one_trial() {
    let daemon = Daemon::start(&[]);
    let ages: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..24)
            .map(|_| scope.spawn(|| get(&daemon, "/api/v1/agents/containment-status").1))
            .collect();
        let told = asked.into_iter().map(|one| one.join().unwrap());
        told.map(|told| told["probed_at"].as_str().unwrap().to_owned())
            .collect()
    });
    assert!(ages.windows(2).all(|two| two[0] == two[1]), "{ages:?}");
}

#[test]
fn what_is_listed_as_blocked_is_not_allowed_when_asked() {
    let daemon = Daemon::start(&[]);
    let document = json!({ "document": { "version": 1, "name": "narrow", "command": ["true"],
        "policy": { "version": 1, "exec": { "deny": ["make *"] } } } });
    let put = daemon.own("PUT", "/api/v1/profiles/narrow", Some(&document));
    assert_eq!(put.status, 200, "{put:?}");
    let list = get(&daemon, "/api/v1/blocked-commands").1;
    for name in [
        "docker *",
        "ssh *",
        "npm publish *",
        "kubectl *",
        "WebSearch",
        "mcp__*__delete_*",
    ] {
        let entry = list["tier3"]
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["rule"] == name);
        let entry = entry.unwrap_or_else(|| panic!("{name}: {list}"));
        let (kind, target) = entry["example"].as_str().unwrap().split_once(' ').unwrap();
        let asked = json!({ "kind": kind, "target": target });
        let said = daemon.own("POST", "/api/v1/policies/can-i", Some(&asked)).json();
        assert_eq!(said["outcome"], entry["outcome"], "{name}: {said}");
        assert_ne!(said["outcome"], "allow", "{name}");
    }
    let rules = |path: &str| get(&daemon, path).1["rules"].to_string();
    assert!(!rules("/api/v1/agents/blocked-commands").contains("make *"));
    assert!(rules("/api/v1/agents/blocked-commands?profile=narrow").contains("make *"));
    assert_eq!(get(&daemon, "/api/v1/blocked-commands?profile=nobody").0, 404);
    let ask = |more: Value| {
        let mut asked = json!({ "kind": "exec", "target": "make all" });
        for (key, value) in more.as_object().unwrap() {
            asked[key] = value.clone();
        }
        daemon.own("POST", "/api/v1/policies/can-i", Some(&asked))
    };
    assert_eq!(ask(json!({ "profile": "narrow" })).json()["outcome"], "deny");
    assert_ne!(
        ask(json!({})).json()["outcome"],
        "deny",
        "control: the usual policy"
    );
    assert_eq!(ask(json!({ "profile": "nobody" })).status, 404);
    assert_eq!(ask(json!({ "profile": "narrow", "policy": {} })).status, 400);
}
