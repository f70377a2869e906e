//! A run from its start to its removal, through every address that is about it.
use crate::daemon::Daemon;
use serde_json::{Value, json};

#[test]
fn a_run_is_started_watched_reviewed_and_removed_over_http_alone() {
    let daemon = Daemon::start(&[]);
    let admin = daemon.role("admin");
    let get = |path: &str| {
        let answer = daemon.with(&admin, "GET", path, None);
        assert_eq!(
            answer.status,
            200,
            "{path}: {}",
            String::from_utf8_lossy(&answer.body)
        );
        answer.json()
    };
    let run = daemon.spawn(
        "echo out; echo err >&2; echo new > made.txt; mkdir -p sub; ln -s /etc sub/link; cat hello.txt",
    );
    let ended = daemon.until(&run, &["completed", "failed", "refused"]);
    assert_eq!(
        (&ended["state"], &ended["code"]),
        (&json!("completed"), &json!(0)),
        "{ended}"
    );
    let at = |rest: &str| format!("/api/v1/runs/{run}{rest}");
    let logs = get(&at("/logs"));
    let text = |stream: &str| -> String {
        let records = logs["records"].as_array().unwrap().iter();
        records
            .filter(|one| one["stream"] == stream)
            .map(|one| one["text"].as_str().unwrap())
            .collect()
    };
    assert_eq!(
        (text("output").as_str(), text("errors").as_str()),
        ("out\nhello\n", "err\n"),
        "{logs}"
    );
    let errors = get(&at("/logs?stream=errors"));
    assert_eq!(errors["records"].as_array().unwrap().len(), 1);
    let events = get(&at("/events"));
    let kinds: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"dev.bastle.run.state.v1"), "{kinds:?}");
    assert!(kinds.contains(&"dev.bastle.run.ended.v1"), "{kinds:?}");
    let diff = get(&at("/diff"));
    assert!(diff["changes"].to_string().contains("made.txt"), "{diff}");
    assert_eq!(get(&at("/snapshots"))["items"][0]["number"], 0);
    assert_eq!(get(&at("/audit"))["verdict"], "sealed");
    let files = get(&at("/files"));
    assert!(files["items"].to_string().contains("made.txt"), "{files}");
    assert!(
        get(&at("/files?path=sub"))["items"]
            .to_string()
            .contains("symlink")
    );
    traversal(&daemon, &run);
    let content = daemon.with(&admin, "GET", &at("/files/content?path=made.txt"), None);
    assert_eq!((content.status, content.body.as_slice()), (200, &b"new\n"[..]));
    let bearer = format!("Bearer {}", admin.0);
    let part = daemon.net(
        "GET",
        &at("/files/content?path=made.txt"),
        &[("authorization", &bearer), ("range", "bytes=1-2")],
        b"",
    );
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ew"[..]));
    assert!(part.head.contains("content-range: bytes 1-2/4"), "{}", part.head);
    returned(&daemon, &at);
}

/// The work goes back by apply, and is not lost unasked.
fn returned(daemon: &Daemon, at: &dyn Fn(&str) -> String) {
    let dry = daemon.own("POST", &at("/apply"), Some(&json!({ "dry_run": true })));
    assert_eq!(dry.status, 200, "{dry:?}");
    assert!(!daemon.root.join("ws/made.txt").exists());
    let lost = daemon.own("DELETE", &at(""), None);
    assert_eq!(
        (lost.status, lost.code().as_str()),
        (409, "BST-WS-005"),
        "work is not lost unasked"
    );
    let applied = daemon.own("POST", &at("/apply"), Some(&json!({ "paths": ["made.txt"] })));
    assert_eq!(applied.status, 200, "{applied:?}");
    assert_eq!(
        std::fs::read_to_string(daemon.root.join("ws/made.txt")).unwrap(),
        "new\n"
    );
    let undone = daemon.own("POST", &at("/apply"), Some(&json!({ "undo": true })));
    assert_eq!(undone.status, 200, "{undone:?}");
    assert!(!daemon.root.join("ws/made.txt").exists());
}

/// Paths that lead out of the tree, by words or by links.
fn traversal(daemon: &Daemon, run: &str) {
    let viewer = daemon.role("viewer");
    for bad in [
        "..",
        "../..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%252e%252e%252fetc",
        "sub/../../x",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "/workspace-evil",
        "file:///etc/passwd",
        "sub/link",
        "sub/link/passwd",
        "a%00b",
    ] {
        for way in ["files", "files/content"] {
            let path = format!("/api/v1/runs/{run}/{way}?path={bad}");
            let answer = daemon.with(&viewer, "GET", &path, None);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "BST-API-010"),
                "{path}"
            );
        }
    }
    let gone = daemon.with(
        &viewer,
        "GET",
        &format!("/api/v1/runs/{run}/files/content?path=none"),
        None,
    );
    assert_eq!(gone.status, 404);
}

#[test]
fn the_same_request_under_one_key_is_one_run_and_another_under_it_is_refused() {
    let daemon = Daemon::start(&[]);
    let wish = |script: &str| {
        json!({ "key": "k-1", "runs": [{
            "argv": ["sh", "-c", script], "workspace": daemon.workspace(), "mode": "copy",
        }]})
    };
    let first = daemon.own("POST", "/api/v1/runs", Some(&wish("true")));
    let again = daemon.own("POST", "/api/v1/runs", Some(&wish("true")));
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()["runs"][0]["name"], again.json()["runs"][0]["name"]);
    let other = daemon.own("POST", "/api/v1/runs", Some(&wish("false")));
    assert_eq!((other.status, other.code().as_str()), (409, "BST-RUN-004"));
    let all = daemon.own("GET", "/api/v1/runs", None).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[test]
fn pausing_resuming_and_ending_one_run_leaves_another_alone() {
    let daemon = Daemon::start(&[]);
    let (one, other) = (daemon.spawn("sleep 600"), daemon.spawn("sleep 600"));
    daemon.until(&one, &["running"]);
    daemon.until(&other, &["running"]);
    let say = |verb: &str| daemon.own("POST", &format!("/api/v1/runs/{one}/{verb}"), Some(&json!({})));
    assert_eq!(say("pause").status, 200);
    daemon.until(&one, &["suspended"]);
    assert_eq!(say("resume").status, 200);
    daemon.until(&one, &["running"]);
    assert_eq!(
        daemon.own("DELETE", &format!("/api/v1/runs/{one}"), None).status,
        409,
        "it lives"
    );
    assert_eq!(say("stop").status, 200);
    daemon.until(&one, &["cancelled"]);
    assert_eq!(daemon.until(&other, &["running"])["state"], "running");
    assert_eq!(say("pause").status, 409, "it has ended");
}

#[test]
fn the_nine_addresses_of_the_original_interface_answer_in_its_words() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let wish = json!({
        "prompts": ["one", "two"], "workspace": daemon.workspace(), "command": ["sleep", "600"], "timeout_seconds": 600,
    });
    let made = daemon.with(&operator, "POST", "/api/v1/agents/spawn", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    let agents: Vec<&str> = made["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    let batch = made["batchId"].as_str().unwrap();
    assert_eq!(agents, [format!("agent-{batch}-0"), format!("agent-{batch}-1")]);
    for agent in &agents {
        daemon.until(agent, &["running"]);
    }
    let get = |path: &str| -> Value {
        let answer = daemon.with(&operator, "GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    assert_eq!(get("/api/v1/agents/active")["count"], 2);
    assert_eq!(get(&format!("/api/v1/agents/{}", agents[0]))["state"], "running");
    assert!(
        get("/api/v1/agents/blocked-commands")["tier3"]
            .to_string()
            .contains("git push")
    );
    assert_eq!(get("/api/v1/agents/containment-status")["enforced"], true);
    assert_eq!(get("/api/v1/agents/status")["active"], 2);
    assert_eq!(
        get("/api/v1/agents/ws-url")["url"],
        format!("ws://{}/api/v1/ws", daemon.address)
    );
    let stop = format!("/api/v1/agents/{}/stop", agents[0]);
    assert_eq!(daemon.with(&operator, "POST", &stop, None).status, 200);
    daemon.until(agents[0], &["cancelled"]);
    assert_eq!(
        daemon.until(agents[1], &["running"])["state"],
        "running",
        "only the one that was named"
    );
    assert_eq!(
        daemon
            .with(&operator, "POST", "/api/v1/agents/stop-all", None)
            .status,
        200
    );
    daemon.until(agents[1], &["cancelled"]);
}

#[test]
fn policies_answer_questions_and_start_nothing() {
    let daemon = Daemon::start(&[]);
    let ask = |kind: &str, target: &str| {
        let body = json!({ "kind": kind, "target": target, "workspace": daemon.workspace() });
        daemon.own("POST", "/api/v1/policies/can-i", Some(&body)).json()["outcome"].clone()
    };
    assert_eq!(
        ask("write", &daemon.root.join("ws/a").display().to_string()),
        "allow"
    );
    assert_eq!(ask("write", "/etc/passwd"), "deny");
    assert_eq!(ask("net", "https://example.com/"), "deny");
    let bad = json!({ "policy": { "fs": { "wrote": [] } } });
    let answer = daemon.own("POST", "/api/v1/policies/dry-run", Some(&bad));
    assert_eq!((answer.status, answer.code().as_str()), (422, "BST-POL-002"));
    let good = daemon.own(
        "POST",
        "/api/v1/policies/effective",
        Some(&json!({ "preset": "read-only" })),
    );
    assert_eq!(good.status, 200, "{good:?}");
    assert!(
        daemon
            .own("GET", "/api/v1/presets", None)
            .json()
            .to_string()
            .contains("read-only")
    );
    assert_eq!(daemon.own("GET", "/api/v1/presets/none", None).status, 404);
}
