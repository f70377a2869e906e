//! A person is asked before a worker gets its yes, where the client can ask one; and nobody can carry that yes elsewhere.
use crate::client::{Web, messages, meta, text};
use crate::daemon::Daemon;
use crate::http::{Stream, request, tcp};
use crate::refusals::session_of;
use crate::tools::{ASKS, asked, keep};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn approve(web: &Web<'_>, question: &Value, more: &[(&str, Value)]) -> Value {
    let mut params = json!({
        "name": "approve", "arguments": { "approval": question["id"], "hash": question["hash"] },
        "_meta": meta(json!({ "elicitation": {} })),
    });
    for (name, value) in more {
        params[*name] = value.clone();
    }
    messages(&web.send("tools/call", params)).pop().unwrap()
}

fn state(daemon: &Daemon, question: &Value) -> Value {
    let path = format!("/api/v1/approvals/{}", question["id"]);
    daemon.own("GET", &path, None).json()["state"].clone()
}

#[test]
fn a_yes_needs_the_person_and_holds_for_nothing_else() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let (one, two) = (asked(&daemon, "one"), asked(&daemon, "two"));
    let web = Web::new(&daemon, json!({ "role": "approver" }));
    let other = Web::new(&daemon, json!({ "role": "approver" }));
    let begun = approve(&web, &one, &[]);
    assert_eq!(begun["result"]["resultType"], "input_required", "{begun}");
    let form = &begun["result"]["inputRequests"]["decision"];
    assert_eq!(form["method"], "elicitation/create");
    assert!(
        form["params"]["message"].as_str().unwrap().contains("rm -rf x"),
        "{form}"
    );
    let sealed = begun["result"]["requestState"].clone();
    let yes = json!({ "decision": { "action": "accept", "content": { "approve": true } } });
    let given = [("inputResponses", yes.clone()), ("requestState", sealed.clone())];

    // Answers nobody was shown the question for, and a state that is somebody's or something's else.
    let made_up = approve(&web, &one, &[("inputResponses", yes.clone())]);
    assert_eq!(made_up["result"]["resultType"], "input_required", "{made_up}");
    let bent = json!(format!("{}x", sealed.as_str().unwrap()));
    for refused in [
        approve(&web, &one, &[("inputResponses", yes), ("requestState", bent)]),
        approve(&other, &one, &given),
        approve(&web, &two, &given),
    ] {
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let declined = json!({ "decision": { "action": "decline" } });
    let answer = approve(
        &web,
        &one,
        &[("inputResponses", declined), ("requestState", sealed)],
    );
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(state(&daemon, &one), "open", "nothing was decided");

    let done = approve(&web, &one, &given);
    assert_eq!(done["result"]["structuredContent"]["state"], "approved", "{done}");
    let begun = approve(&web, &two, &[]);
    let no = json!({ "decision": { "action": "accept", "content": { "approve": false } } });
    let sealed = begun["result"]["requestState"].clone();
    let done = approve(&web, &two, &[("inputResponses", no), ("requestState", sealed)]);
    assert_eq!(done["result"]["structuredContent"]["state"], "denied", "{done}");

    let mut stale = one.clone();
    stale["hash"] = json!("0".repeat(64));
    let answer = approve(&web, &stale, &[]);
    assert!(text(&answer["result"]).contains("another request"), "{answer}");
}

#[test]
fn in_a_session_the_person_is_asked_on_the_stream_and_only_the_same_caller_answers() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let question = asked(&daemon, "one");
    let web = Web::new(&daemon, json!({ "role": "approver" }));
    let other = Web::new(&daemon, json!({ "role": "approver" }));
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "t", "version": "1" } } });
    let session = session_of(&web, begin.to_string().as_bytes());
    let bearer = format!("Bearer {}", web.token.0);
    let host = daemon.address.to_string();
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "approve", "arguments": { "approval": question["id"], "hash": question["hash"] } } })
    .to_string();
    let headers = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let mut stream: Box<dyn Stream> = Box::new(tcp(daemon.address));
    stream
        .write_all(&request("POST", "/mcp", &headers, body.as_bytes()))
        .unwrap();
    let mut all = String::new();
    let wish: Value = loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{all}");
        all.push_str(&String::from_utf8_lossy(&part[..count]));
        if let Some(data) = all.lines().find_map(|line| line.strip_prefix("data: "))
            && let Ok(wish) = serde_json::from_str(data)
        {
            break wish;
        }
    };
    assert_eq!(wish["method"], "elicitation/create", "{wish}");
    let answer = json!({ "jsonrpc": "2.0", "id": wish["id"],
        "result": { "action": "accept", "content": { "approve": true } } })
    .to_string();
    let headers = [
        ("mcp-session-id", session.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    assert_eq!(
        other.post(&headers, answer.as_bytes()).status,
        400,
        "somebody else's answer"
    );
    assert_eq!(state(&daemon, &question), "open");
    assert_eq!(web.post(&headers, answer.as_bytes()).status, 202);
    stream.read_to_string(&mut all).unwrap();
    assert!(all.contains("approved"), "{all}");
    assert_eq!(state(&daemon, &question), "approved");
}
