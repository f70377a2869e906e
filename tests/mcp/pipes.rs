//! `bastle mcp` itself: three revisions, nothing but messages on its output, and a word of help where no daemon is.
use crate::client::{Pipes, meta, text};
use crate::daemon::Daemon;
use serde_json::{Value, json};

fn initialize(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } })
}

#[test]
fn each_revision_is_agreed_upon_and_an_unknown_one_is_told_what_is_served() {
    let daemon = Daemon::start(&[]);
    for (asked, agreed) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
    ] {
        let mut pipes = Pipes::open(&daemon);
        let id = pipes.send("initialize", initialize(asked));
        let welcome = pipes.answer(id);
        assert_eq!(welcome["result"]["protocolVersion"], agreed);
        let resources = &welcome["result"]["capabilities"]["resources"];
        assert!(
            resources.is_object() && resources.get("subscribe").is_none(),
            "what these revisions cannot have is not promised: {welcome}"
        );
        pipes.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        let id = pipes.send("tools/list", json!({}));
        let listed = pipes.answer(id);
        assert!(
            listed["result"]["tools"].as_array().unwrap().len() > 15,
            "{listed}"
        );
        let id = pipes.send("ping", json!({}));
        assert_eq!(pipes.answer(id)["result"], json!({}));
        assert_eq!(pipes.end(), Some(0));
    }
    let mut pipes = Pipes::open(&daemon);
    let found = pipes.ask("server/discover", json!({}));
    assert_eq!(
        found["result"]["supportedVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18"])
    );
    let mut other = meta(json!({}));
    other["io.modelcontextprotocol/protocolVersion"] = json!("1999-01-01");
    let refused = pipes.ask("tools/list", json!({ "_meta": other }));
    assert_eq!(refused["error"]["code"], -32022);
    let id = pipes.send("tools/list", json!({}));
    assert_eq!(
        pipes.answer(id)["error"]["code"],
        -32602,
        "neither a session nor a word about itself"
    );
}

#[test]
fn what_is_no_message_is_answered_with_an_error_and_the_next_one_is_served() {
    let daemon = Daemon::start(&[]);
    let mut pipes = Pipes::open(&daemon);
    let long = format!("\"{}\"", "x".repeat(5 << 20));
    for (bad, code) in [
        ("{", -32700),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}",
            -32700,
        ),
        ("[]", -32600),
        ("{\"id\":1,\"method\":\"ping\"}", -32600),
        (long.as_str(), -32600),
    ] {
        pipes.write(bad);
        let answer = pipes.hear();
        assert_eq!(
            answer["error"]["code"],
            code,
            "{} {answer}",
            &bad[..bad.len().min(60)]
        );
    }
    assert!(pipes.ask("server/discover", json!({}))["result"].is_object());
    let missing = pipes.ask("tools/call", json!({ "name": "rm_rf", "arguments": {} }));
    assert_eq!(missing["error"]["code"], -32602);
    for (name, arguments, why) in [
        ("get_worker", json!({}), "worker: missing"),
        ("get_worker", json!({ "worker": 5 }), "worker: text"),
        ("get_worker", json!({ "worker": "a", "x": 1 }), "no such argument"),
        ("wait", json!({ "workers": ["a"], "timeout_s": 601 }), "timeout_s"),
        ("get_worker", json!({ "worker": "../tokens" }), "BST-RUN"),
    ] {
        let result = pipes.tool(name, arguments);
        assert_eq!(result["isError"], true);
        assert!(text(&result).contains(why), "{why}: {}", text(&result));
    }
}

#[test]
fn a_request_that_is_cancelled_is_not_answered_and_nothing_waits_for_it() {
    let daemon = Daemon::start(&[]);
    let run = daemon.spawn("sleep 600");
    let mut pipes = Pipes::open(&daemon);
    let mut about = meta(json!({}));
    about["progressToken"] = json!(1);
    let wait = json!({ "name": "wait", "arguments": { "workers": [run], "timeout_s": 600 }, "_meta": about });
    let id = pipes.send("tools/call", wait);
    assert_eq!(pipes.hear()["method"], "notifications/progress");
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    pipes.write(&cancelled.to_string());
    // Ended at once: a request under way would be waited for.
    let began = std::time::Instant::now();
    assert!(pipes.ask("server/discover", json!({}))["result"].is_object());
    assert_eq!(pipes.end(), Some(0));
    assert!(
        pipes.told.iter().all(|message| message["id"] != id),
        "after {:?}",
        began.elapsed()
    );
    assert_eq!(
        daemon
            .own("POST", &format!("/api/v1/runs/{run}/kill"), Some(&json!({})))
            .status,
        200
    );
}

#[test]
fn without_a_daemon_every_tool_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    let mut pipes = Pipes::start(dir.path(), &[]);
    assert!(pipes.ask("tools/list", json!({}))["result"]["tools"].is_array());
    let result = pipes.tool("list_workers", json!({}));
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("bastle daemon start"), "{}", text(&result));
    assert_eq!(pipes.end(), Some(0));
}
