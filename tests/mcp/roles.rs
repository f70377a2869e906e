//! No tool gives a token more than the REST interface does.
use crate::client::{Web, text};
use crate::daemon::Daemon;
use crate::tools::{ASKS, asked, keep};
use serde_json::{Value, json};

fn denied(result: &Value) {
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(result).contains("BST-API-"), "{}", text(result));
    assert!(text(result).contains("does not allow"), "{}", text(result));
}

#[test]
fn a_token_is_refused_by_tools_what_it_is_refused_by_requests_and_nothing_changes() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let question = asked(&daemon, "asker");
    // The state follows the question a moment later.
    daemon.until("asker", &["needs-input"]);
    let before = daemon.everything();
    let viewer = Web::new(&daemon, json!({ "role": "viewer" }));
    let wish = json!({ "workspace": daemon.workspace(), "argv": ["true"] });
    let answer = json!({ "approval": question["id"], "hash": question["hash"] });
    for (tool, arguments) in [
        ("spawn_worker", wish.clone()),
        ("spawn_batch", json!({ "runs": [wish] })),
        ("terminate_worker", json!({ "worker": "asker" })),
        ("send_message", json!({ "worker": "asker", "text": "x" })),
        ("steer_worker", json!({ "worker": "asker", "text": "x" })),
        ("interrupt_worker", json!({ "worker": "asker" })),
        ("apply", json!({ "worker": "asker" })),
        ("approve", answer.clone()),
        ("deny", answer.clone()),
    ] {
        denied(&viewer.tool(tool, arguments));
    }
    // The control: what a viewer may.
    assert_eq!(
        viewer.tool("get_worker", json!({ "worker": "asker" }))["isError"],
        false
    );
    let operator = Web::new(&daemon, json!({ "role": "operator" }));
    for (tool, arguments) in [
        ("approve", answer.clone()),
        ("deny", answer),
        ("apply", json!({ "worker": "asker" })),
    ] {
        denied(&operator.tool(tool, arguments));
    }
    let strip = |mut all: Value| {
        all["tokens"] = Value::Null;
        all
    };
    assert_eq!(strip(daemon.everything()), strip(before));
    assert_eq!(
        operator.tool("terminate_worker", json!({ "worker": "asker", "grace_ms": 0 }))["isError"],
        false
    );
}

#[test]
fn a_worker_of_another_prefix_does_not_exist() {
    let daemon = Daemon::start(&[]);
    for name in ["mine-a", "other-b"] {
        let wish = json!({ "workspace": daemon.workspace(), "mode": "copy", "name": name, "argv": ["true"] });
        assert_eq!(daemon.own("POST", "/api/v1/runs", Some(&wish)).status, 201);
        daemon.until(name, &["completed"]);
    }
    let held = Web::new(&daemon, json!({ "role": "operator", "prefix": "mine-" }));
    let seen = held.tool("list_workers", json!({}));
    let names: Vec<&Value> = seen["structuredContent"]["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| &worker["name"])
        .collect();
    assert_eq!(names, [&json!("mine-a")]);
    for (tool, more) in [
        ("get_worker", json!({})),
        ("read_output", json!({})),
        ("diff", json!({})),
        ("list_files", json!({})),
        ("read_file", json!({ "path": "hello.txt" })),
        ("terminate_worker", json!({})),
        ("send_message", json!({ "text": "x" })),
    ] {
        let call = |worker: &str| {
            let mut arguments = more.clone();
            arguments["worker"] = json!(worker);
            let result = held.tool(tool, arguments);
            assert_eq!(result["isError"], true, "{tool}");
            text(&result).replace(worker, "NAME")
        };
        assert_eq!(
            call("othe"),
            call("nobody-c"),
            "{tool}: nor by a beginning of its name"
        );
        assert_eq!(call("other-x"), call("nobody-c"), "{tool}: nor by a name near it");
        assert_eq!(
            call("other-b"),
            call("nobody-c"),
            "{tool}: the same words as for one that is not there"
        );
    }
    let waited = held.tool("wait", json!({ "workers": ["other-b"], "timeout_s": 5 }));
    assert_eq!(waited["isError"], true);
    for uri in ["worker://other-b", "worker://nobody-c"] {
        assert_eq!(
            held.ask("resources/read", json!({ "uri": uri }))["error"]["code"],
            -32602
        );
    }
    assert!(held.ask("resources/read", json!({ "uri": "worker://mine-a" }))["result"].is_object());
}

#[test]
fn a_token_that_was_revoked_is_nobody_also_in_a_session() {
    let daemon = Daemon::start(&[]);
    let web = Web::new(&daemon, json!({ "role": "viewer", "note": "soon gone" }));
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let opened = web.post(&[], begin.to_string().as_bytes());
    assert_eq!(opened.status, 200);
    let all = daemon.own("GET", "/api/v1/tokens", None).json();
    let found = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["note"] == "soon gone")
        .unwrap();
    let gone = daemon.own(
        "DELETE",
        &format!("/api/v1/tokens/{}", found["id"].as_str().unwrap()),
        None,
    );
    assert!(gone.status < 300, "{gone:?}");
    assert_eq!(web.send("tools/list", json!({})).status, 401);
}
