//! Bad input over HTTP: refused with the number and the status of the protocol, and the daemon goes on.
use crate::client::{MODERN, Web, messages, meta};
use crate::daemon::Daemon;
use crate::http::{Stream, request, tcp};
use crate::support::{Limit, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn list() -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": { "_meta": meta(json!({})) } })
        .to_string()
        .into_bytes()
}

#[test]
fn nobody_without_a_token_and_no_foreign_page_reaches_a_tool() {
    let daemon = Daemon::start(&[]);
    let host = daemon.address.to_string();
    let usual = [
        ("content-type", "application/json"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/list"),
    ];
    let bare = daemon.net("POST", "/mcp", &usual, &list());
    assert_eq!(bare.status, 401);
    assert!(bare.head.contains("www-authenticate: bearer"), "{}", bare.head);
    let wrong = [&usual[..], &[("authorization", "Bearer bst_wrong")]].concat();
    assert_eq!(daemon.net("POST", "/mcp", &wrong, &list()).status, 401);

    let web = Web::new(&daemon, json!({ "role": "admin" }));
    let bearer = format!("Bearer {}", web.token.0);
    let with = [&usual[..], &[("authorization", bearer.as_str())]].concat();
    for origin in ["http://evil.example", "null", "http://localhost.evil.tld"] {
        let headers = [&with[..], &[("origin", origin)]].concat();
        assert_eq!(
            daemon.net("POST", "/mcp", &headers, &list()).status,
            403,
            "{origin}"
        );
    }
    let foreign = [&[("host", "evil.example")], &with[..]].concat();
    let answer = crate::http::exchange(
        &mut tcp(daemon.address),
        &request("POST", "/mcp", &foreign, &list()),
    );
    assert_eq!(answer.status, 403);
    let own = format!("http://{host}");
    let headers = [&with[..], &[("origin", own.as_str())]].concat();
    assert_eq!(
        daemon.net("POST", "/mcp", &headers, &list()).status,
        200,
        "the control"
    );
    assert_eq!(daemon.net("GET", "/mcp", &with, b"").status, 405);
}

#[test]
fn headers_that_are_missing_or_say_another_thing_are_refused() {
    let daemon = Daemon::start(&[]);
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let (version, method) = (("mcp-protocol-version", MODERN), ("mcp-method", "tools/list"));
    for (headers, code) in [
        (&[][..], -32020),
        (&[method], -32020),
        (&[version], -32020),
        (&[version, ("mcp-method", "tools/call")], -32020),
        (&[version, ("mcp-method", "TOOLS/LIST")], -32020),
        (&[("mcp-protocol-version", "1999-01-01"), method], -32020),
        (&[version, method, version], -32020),
    ] {
        let answer = web.post(headers, &list());
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["error"]["code"]),
            (400, &json!(code)),
            "{headers:?} {error}"
        );
        assert_eq!(error["id"], 7);
    }
    assert_eq!(web.post(&[version, method], &list()).status, 200, "the control");

    let mut other = meta(json!({}));
    other["io.modelcontextprotocol/protocolVersion"] = json!("1999-01-01");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": other } });
    let answer = web.post(
        &[("mcp-protocol-version", "1999-01-01"), method],
        body.to_string().as_bytes(),
    );
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!(-32022))
    );
    let unknown = web.send("no/such", json!({}));
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (404, &json!(-32601))
    );
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "list_workers", "arguments": {}, "_meta": meta(json!({})) } });
    let call = call.to_string();
    for (name, status) in [
        ("get_worker", 400),
        ("list_workers", 200),
        ("=?base64?bGlzdF93b3JrZXJz?=", 200),
    ] {
        let headers = [version, ("mcp-method", "tools/call"), ("mcp-name", name)];
        assert_eq!(web.post(&headers, call.as_bytes()).status, status, "{name}");
    }
}

#[test]
fn bodies_that_are_no_message_are_refused_whatever_their_size() {
    let daemon = Daemon::start(&[]);
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for bad in [
        "",
        "{",
        "[]",
        "null",
        "{\"jsonrpc\":\"2.0\"}",
        deep.as_str(),
        "{\"a\":1,\"a\":2}",
    ] {
        let answer = web.post(&[], bad.as_bytes());
        assert_eq!(answer.status, 400, "{}", &bad[..bad.len().min(40)]);
        assert!(answer.json()["error"]["code"].is_i64());
    }
    let huge = vec![b' '; 5 << 20];
    assert_eq!(web.post(&[], &huge).status, 413);
    let bearer = format!("Bearer {}", web.token.0);
    let headers = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    assert_eq!(daemon.net("POST", "/mcp", &headers, &list()).status, 415);
    assert_eq!(web.send("tools/list", json!({})).status, 200, "it goes on");
}

#[test]
fn a_session_belongs_to_its_caller_and_ends_when_it_is_ended() {
    let daemon = Daemon::start(&[]);
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let other = Web::new(&daemon, json!({ "role": "admin" }));
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let opened = web.post(&[], begin.to_string().as_bytes());
    assert_eq!(opened.json()["result"]["protocolVersion"], "2025-06-18");
    let raw = opened
        .head
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap()
        .to_owned();
    assert!(raw.len() >= 32, "{raw}");
    // The head was read in small letters: the session is asked for as it was given by another look at the bytes.
    let session = session_of(&web, begin.to_string().as_bytes());
    let ask = |who: &Web<'_>, session: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }).to_string();
        let headers = [
            ("mcp-session-id", session),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        who.post(&headers, body.as_bytes())
    };
    assert_eq!(ask(&web, &session).status, 200);
    assert_eq!(ask(&other, &session).status, 404, "somebody else's session");
    assert_eq!(ask(&web, "made-up").status, 404);
    let bearer = format!("Bearer {}", web.token.0);
    let headers = [
        ("authorization", bearer.as_str()),
        ("mcp-session-id", session.as_str()),
    ];
    assert_eq!(daemon.net("DELETE", "/mcp", &headers, b"").status, 200);
    assert_eq!(ask(&web, &session).status, 404, "it is over");
}

/// Opens a session and gives its name exactly as it came.
pub(crate) fn session_of(web: &Web<'_>, begin: &[u8]) -> String {
    let bearer = format!("Bearer {}", web.token.0);
    let host = web.daemon.address.to_string();
    let headers = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let mut stream = tcp(web.daemon.address);
    stream
        .write_all(&request("POST", "/mcp", &headers, begin))
        .unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let line = all
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:"));
    line.unwrap().split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn clients_that_go_away_leave_nothing_behind() {
    let daemon = Daemon::start(&[]);
    let run = daemon.spawn("sleep 600");
    daemon.until(&run, &["running"]);
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let bearer = format!("Bearer {}", web.token.0);
    let host = daemon.address.to_string();
    let mut about = meta(json!({}));
    about["progressToken"] = json!(1);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "wait", "arguments": { "workers": [run], "timeout_s": 600 }, "_meta": about } })
    .to_string();
    let headers = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/call"),
        ("mcp-name", "wait"),
    ];
    // As many as one caller may have under way.
    let mut open: Vec<Box<dyn Stream>> = Vec::new();
    for _ in 0..32 {
        let mut stream: Box<dyn Stream> = Box::new(tcp(daemon.address));
        stream
            .write_all(&request("POST", "/mcp", &headers, body.as_bytes()))
            .unwrap();
        let mut begun = Vec::new();
        while !begun.windows(8).any(|eight| eight == b"progress") {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&begun));
            begun.extend_from_slice(&part[..count]);
        }
        open.push(stream);
    }
    let full = web.send("tools/list", json!({}));
    assert_eq!(full.status, 429, "{}", String::from_utf8_lossy(&full.body));
    drop(open);
    let served = eventually(Limit::HANG, || web.send("tools/list", json!({})).status == 200);
    assert!(served, "what they asked for is still under way");
    assert_eq!(
        daemon
            .own("POST", &format!("/api/v1/runs/{run}/kill"), Some(&json!({})))
            .status,
        200
    );
}

#[test]
fn every_message_of_a_stream_is_one_of_the_request_that_opened_it() {
    let daemon = Daemon::start(&[]);
    let run = daemon.spawn("sleep 1");
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let mut about = meta(json!({}));
    about["progressToken"] = json!("mine");
    let wait = json!({ "name": "wait", "arguments": { "workers": [run], "timeout_s": 60 }, "_meta": about });
    let all = messages(&web.send("tools/call", wait));
    let (last, before) = all.split_last().unwrap();
    assert_eq!(last["result"]["structuredContent"]["why"], "ended", "{last}");
    assert!(!before.is_empty(), "no progress");
    let steps: Vec<u64> = before
        .iter()
        .map(|one| one["params"]["progress"].as_u64().unwrap())
        .collect();
    assert!(steps.is_sorted(), "{steps:?}");
    assert!(
        before
            .iter()
            .all(|one: &Value| one["params"]["progressToken"] == "mine")
    );
}
