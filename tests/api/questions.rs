//! What a question of a run asks, in words, is told to whoever may answer it or act inside the run, on every channel alike.
use crate::daemon::{Daemon, Token};
use crate::http::{Word, request, tcp};
use crate::support::{Limit, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};

/// What the question quotes.
const HUSH: &str = "hush-secret";
/// Asks once, and waits for the answer. Its command line, which more may read, does not have the words whole.
const ASKS: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
printf '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"%s -rf hush-%s"}}}\n' rm secret
read -r answer
echo '{"type":"result","subtype":"success","result":"done"}'
while read -r more; do echo '{"type":"result","subtype":"success"}'; done
"#;

/// An admin's run that reads more than an operator's, and waits for an answer; the number of its question.
fn asking(daemon: &Daemon) -> u64 {
    let data = daemon.root.join("home/data");
    std::fs::create_dir_all(&data).unwrap();
    let document = json!({
        "version": 1, "name": "script", "agent": "script", "driver": "claude",
        "command": ["sh", "-c", "cat"], "driven": ["sh", "-c", ASKS],
    });
    let put = daemon.own(
        "PUT",
        "/api/v1/profiles/script",
        Some(&json!({ "document": document })),
    );
    assert!(put.status < 300, "{}", String::from_utf8_lossy(&put.body));
    let wish = json!({
        "profile": "script", "prompt": "go", "workspace": daemon.workspace(), "mode": "copy", "name": "asks",
        "open_input": true, "policy": { "version": 1, "fs": { "read": [data] } },
    });
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    daemon.until("asks", &["needs-input"]);
    let mut number = None;
    eventually(Limit::HANG, || {
        let all = daemon
            .own("GET", "/api/v1/approvals?state=open&run=asks", None)
            .json();
        number = all["items"][0]["id"].as_u64();
        number.is_some()
    });
    number.expect("it asks")
}

/// Reads events until the run waits for an answer.
fn events(daemon: &Daemon, token: &Token, path: &str) -> String {
    let over = |text: &str| text.contains(r#""state":"needs-input""#);
    let mut text = String::new();
    if path.contains("/ws") {
        let mut socket = daemon
            .websocket(token, path)
            .unwrap_or_else(|no| panic!("{no:?}"));
        while !over(&text) {
            match socket.next() {
                Word::Text(event) => text.push_str(&event),
                other => panic!("{path}: {other:?} after {text}"),
            }
        }
        return text;
    }
    let (host, bearer) = (daemon.address.to_string(), format!("Bearer {}", token.0));
    let head = [("host", host.as_str()), ("authorization", bearer.as_str())];
    let mut stream = tcp(daemon.address);
    stream.write_all(&request("GET", path, &head, b"")).unwrap();
    let mut buffer = [0; 4096];
    while !over(&text) {
        let count = stream.read(&mut buffer).expect("events come");
        assert!(count > 0, "{path} ended early: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

fn rpc(daemon: &Daemon, token: &Token, (path, headers): (&str, &[(&str, &str)]), body: &Value) -> String {
    let bearer = format!("Bearer {}", token.0);
    let own = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let answer = daemon.net(
        "POST",
        path,
        &[&own, headers].concat(),
        body.to_string().as_bytes(),
    );
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn a2a(daemon: &Daemon, token: &Token, method: &str, params: Value) -> String {
    let call = json!({ "jsonrpc": "2.0", "id": "c", "method": method, "params": params });
    rpc(daemon, token, ("/a2a/jsonrpc", &[("a2a-version", "1.0")]), &call)
}

fn mcp(daemon: &Daemon, token: &Token, tool: &str, arguments: Value) -> String {
    let modern = "2026-07-28";
    let params = json!({ "name": tool, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": modern,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    }});
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", modern),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    rpc(daemon, token, ("/mcp", &headers), &call)
}

/// Everything that a token is told of the run, each with the channel it came by and a part of it that everybody is told.
fn everything(daemon: &Daemon, token: &Token, number: u64) -> Vec<(String, String, &'static str)> {
    let mut all = Vec::new();
    for (path, always) in [
        ("/api/v1/runs".to_owned(), "needs-input"),
        ("/api/v1/runs/asks".to_owned(), "needs-input"),
        ("/api/v1/runs/asks/status".to_owned(), "needs-input"),
        ("/api/v1/agents/active".to_owned(), "needs-input"),
        ("/api/v1/agents/asks".to_owned(), "needs-input"),
        ("/api/v1/approvals".to_owned(), "asked_ms"),
        ("/api/v1/approvals?state=open&run=asks".to_owned(), "asked_ms"),
        (format!("/api/v1/approvals/{number}"), "asked_ms"),
        (
            "/api/v1/runs/asks/events?limit=1000".to_owned(),
            "dev.bastle.run.question.v1",
        ),
    ] {
        let answer = daemon.with(token, "GET", &path, None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        all.push((path, String::from_utf8_lossy(&answer.body).into_owned(), always));
    }
    for path in ["/api/v1/events?since=0", "/api/v1/ws?since=0&run=asks"] {
        all.push((
            path.to_owned(),
            events(daemon, token, path),
            "dev.bastle.run.question.v1",
        ));
    }
    for (method, params) in [
        ("GetTask", json!({ "id": "asks" })),
        ("GetTask", json!({ "id": "asks", "historyLength": 0 })),
        ("ListTasks", json!({})),
    ] {
        all.push((
            method.to_owned(),
            a2a(daemon, token, method, params),
            "TASK_STATE_INPUT_REQUIRED",
        ));
    }
    for (tool, arguments, always) in [
        ("list_approvals", json!({}), "asks"),
        ("get_worker", json!({ "worker": "asks" }), "needs-input"),
        ("list_workers", json!({}), "needs-input"),
        (
            "wait",
            json!({ "workers": ["asks"], "timeout_s": 1 }),
            "needs-input",
        ),
    ] {
        all.push((tool.to_owned(), mcp(daemon, token, tool, arguments), always));
    }
    all
}

#[test]
fn the_words_of_a_question_are_told_to_nobody_who_may_neither_answer_it_nor_act_inside_its_run() {
    let daemon = Daemon::start(&[]);
    let number = asking(&daemon);
    let enough = json!({ "roots": [daemon.root] });
    for token in [
        daemon.role("viewer"),
        // It has the run's authority, and its role acts in no run.
        daemon.token(json!({ "role": "viewer", "ceiling": enough })),
        daemon.token(json!({ "role": "viewer", "prefix": "as" })),
        // Its role acts in runs, and it has less than this one.
        daemon.role("operator"),
        // It has both, and its verbs leave it reading.
        daemon.token(json!({ "role": "operator", "verbs": ["read"], "ceiling": enough })),
    ] {
        for (channel, told, always) in everything(&daemon, &token, number) {
            assert!(!told.contains(HUSH), "{channel} tells the words: {told}");
            assert!(
                !told.contains("rm -rf"),
                "{channel} tells some of the words: {told}"
            );
            assert!(told.contains(always), "{channel} tells that there is one: {told}");
        }
        let one = daemon
            .with(&token, "GET", &format!("/api/v1/approvals/{number}"), None)
            .json();
        assert_eq!((&one["id"], &one["text"]), (&json!(number), &json!("")), "{one}");
        assert!(one["asked_ms"].is_u64() && one["question"].is_string(), "{one}");
    }
    // The controls: whoever answers it, whoever may act inside the run, and an admin.
    for token in [
        daemon.role("approver"),
        daemon.token(json!({ "role": "operator", "ceiling": enough })),
        daemon.role("admin"),
    ] {
        for (channel, told, _) in everything(&daemon, &token, number) {
            assert!(told.contains(HUSH), "{channel} does not tell the words: {told}");
        }
    }
}
