//! A program is no person: it answers nothing unless somebody said so, and never what it asked for itself.
use crate::client::{Pipes, Web, text};
use crate::daemon::{Daemon, Token};
use crate::http::Answer;
use crate::support::{Limit, eventually};
use crate::tools::{ASKS, asked, keep};
use serde_json::{Value, json};

/// What starts a worker that is about to ask.
fn worker(daemon: &Daemon, name: &str) -> Value {
    json!({
        "profile": "script", "prompt": "go", "workspace": daemon.workspace(), "mode": "copy", "name": name,
        "open_input": true,
    })
}

/// The open question of a worker that somebody started.
fn question(daemon: &Daemon, name: &str) -> Value {
    let mut found = Value::Null;
    let there = eventually(Limit::HANG, || {
        let path = format!("/api/v1/approvals?state=open&run={name}");
        found = daemon.own("GET", &path, None).json()["items"][0].clone();
        found.is_object()
    });
    assert!(there, "{name} asks nothing");
    found
}

fn state(daemon: &Daemon, question: &Value) -> Value {
    daemon
        .own("GET", &format!("/api/v1/approvals/{}", question["id"]), None)
        .json()
}

fn yes(question: &Value) -> Value {
    json!({ "approval": question["id"], "hash": question["hash"] })
}

fn approve(daemon: &Daemon, token: &Token, question: &Value) -> Answer {
    let path = format!("/api/v1/approvals/{}/approve", question["id"]);
    daemon.with(token, "POST", &path, Some(&json!({ "hash": question["hash"] })))
}

#[test]
fn the_pipes_of_the_owner_are_a_program_that_answers_no_question() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let of_person = asked(&daemon, "of-person");
    let mut pipes = Pipes::open(&daemon);
    let made = pipes.tool("spawn_worker", worker(&daemon, "of-program"));
    assert_eq!(made["isError"], false, "{}", text(&made));
    let of_program = question(&daemon, "of-program");
    for (tool, arguments) in [
        ("approve", yes(&of_person)),
        ("approve", yes(&of_program)),
        ("deny", yes(&of_person)),
        ("apply", json!({ "worker": "of-program" })),
    ] {
        let result = pipes.tool(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(
            text(&result).contains("needs the role approver"),
            "{}",
            text(&result)
        );
    }
    assert_eq!(state(&daemon, &of_person)["state"], "open");
    let run = daemon.own("GET", "/api/v1/runs/of-program", None).json();
    assert_eq!(run["caller"], "agent:mcp", "{run}");
    // The person answers both, and the record says that it was a person.
    for one in [&of_person, &of_program] {
        let path = format!("/api/v1/approvals/{}/approve", one["id"]);
        let body = json!({ "hash": one["hash"] });
        assert_eq!(daemon.own("POST", &path, Some(&body)).status, 200);
        let record = state(&daemon, one);
        assert_eq!(record["approver_kind"], "local-person", "{record}");
        assert!(
            record["approver"].as_str().unwrap().starts_with("uid:"),
            "{record}"
        );
    }
}

#[test]
fn over_the_socket_the_address_of_the_protocol_is_no_way_around() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let of_person = asked(&daemon, "of-person");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "approve", "arguments": yes(&of_person), "_meta": crate::client::meta(json!({})) } });
    let headers = [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", crate::client::MODERN),
        ("mcp-method", "tools/call"),
        ("mcp-name", "approve"),
    ];
    let request = crate::http::request("POST", "/mcp", &headers, body.to_string().as_bytes());
    let answer = crate::http::exchange(&mut crate::http::unix(&daemon.socket), &request);
    let said = crate::client::messages(&answer).pop().unwrap();
    assert_eq!(said["result"]["isError"], true, "{said}");
    assert_eq!(state(&daemon, &of_person)["state"], "open");
    // Who declares more than it has gets no more, and a declaration that is none is refused.
    let operator = daemon.role("operator");
    let bearer = format!("Bearer {}", operator.0);
    for (said, role) in [("mcp; role=admin", "operator"), ("mcp; role=viewer", "viewer")] {
        let headers = [("authorization", bearer.as_str()), ("bastle-principal", said)];
        let known = daemon.net("GET", "/api/v1/whoami", &headers, b"").json();
        assert_eq!(
            (&known["role"], &known["kind"]),
            (&json!(role), &json!("program")),
            "{known}"
        );
    }
    let headers = [("authorization", bearer.as_str()), ("bastle-principal", "owner!")];
    assert_eq!(daemon.net("GET", "/api/v1/whoami", &headers, b"").status, 400);
}

#[test]
fn a_program_that_may_approve_never_approves_for_its_own_workers() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let mut pipes = Pipes::with_role(&daemon, "approver");
    let of_person = asked(&daemon, "of-person");
    let done = pipes.tool("approve", yes(&of_person));
    assert_eq!(done["structuredContent"]["state"], "approved", "{done}");
    let record = state(&daemon, &of_person);
    assert_eq!(
        (&record["approver"], &record["approver_kind"]),
        (&json!("agent:mcp"), &json!("program"))
    );
    let audit = daemon.own("GET", "/api/v1/runs/of-person/audit", None).json();
    assert!(audit.to_string().contains("program agent:mcp"), "{audit}");

    assert_eq!(
        pipes.tool("spawn_worker", worker(&daemon, "own"))["isError"],
        false
    );
    let own = question(&daemon, "own");
    let refused = pipes.tool("approve", yes(&own));
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("may not approve"), "{}", text(&refused));
    assert_eq!(state(&daemon, &own)["state"], "open");
    // A no is no privilege.
    assert_eq!(
        pipes.tool("deny", yes(&own))["structuredContent"]["state"],
        "denied"
    );
}

#[test]
fn no_token_of_a_program_approves_for_runs_that_came_from_it() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let program = daemon.token(json!({ "role": "admin", "kind": "program" }));
    let started = daemon.with(
        &program,
        "POST",
        "/api/v1/runs",
        Some(&worker(&daemon, "by-rest")),
    );
    assert_eq!(started.status, 201, "{started:?}");
    // A token for a person, in the hands of a program that speaks MCP.
    let captain = Web::new(&daemon, json!({ "role": "approver" }));
    let made = captain.tool("spawn_worker", worker(&daemon, "by-tool"));
    assert_eq!(made["isError"], false, "{}", text(&made));
    // One that the program makes for itself.
    let wish = json!({ "role": "approver", "kind": "person" });
    let made = daemon
        .with(&program, "POST", "/api/v1/tokens", Some(&wish))
        .json();
    assert_eq!(
        made["token"]["kind"], "program",
        "a program makes no person: {made}"
    );
    let second = Token(made["secret"].as_str().unwrap().to_owned());

    let by_rest = question(&daemon, "by-rest");
    let by_tool = question(&daemon, "by-tool");
    for (who, token, asked) in [
        ("the program itself", &program, &by_rest),
        ("what the program made", &second, &by_rest),
        ("the same token by another interface", &captain.token, &by_tool),
    ] {
        let answer = approve(&daemon, token, asked);
        assert_eq!(answer.status, 403, "{who}: {answer:?}");
        assert_eq!(state(&daemon, asked)["state"], "open", "{who}");
    }
    // Nor by the operations that come to the same.
    let allow = json!({ "verb": "allow", "target": by_rest["question"] });
    let rules = daemon.with(&program, "POST", "/api/v1/runs/by-rest/rules", Some(&allow));
    assert_eq!(rules.status, 403, "{rules:?}");
    // Taking a rule back may take back a person's refusal.
    let revoke = json!({ "verb": "revoke", "target": "refused.example" });
    let rules = daemon.with(&program, "POST", "/api/v1/runs/by-rest/rules", Some(&revoke));
    assert_eq!(rules.status, 403, "{rules:?}");
    let grant = json!({ "path": daemon.root.join("home"), "access": "read-only" });
    let granted = daemon.with(&program, "POST", "/api/v1/runs/by-rest/grants", Some(&grant));
    assert_eq!(granted.status, 403, "{granted:?}");
    let taken = json!({ "approve": ["0".repeat(64)] });
    let applied = daemon.with(&program, "POST", "/api/v1/runs/by-rest/apply", Some(&taken));
    assert_eq!(applied.status, 403, "{applied:?}");
    assert_eq!(state(&daemon, &by_rest)["state"], "open");

    // Whoever did not start them approves both, and the record tells persons and programs apart.
    let person = daemon.role("approver");
    assert_eq!(approve(&daemon, &person, &by_rest).status, 200);
    assert_eq!(state(&daemon, &by_rest)["approver_kind"], "token-person");
    assert_eq!(approve(&daemon, &program, &by_tool).status, 200);
    assert_eq!(state(&daemon, &by_tool)["approver_kind"], "program");
    let told = daemon.own("GET", "/api/v1/runs/by-tool/events", None);
    let told = String::from_utf8_lossy(&told.body).into_owned();
    assert!(
        told.contains("\"program\"") || told.contains("program token:"),
        "{told}"
    );
    // Rules and grants, too.
    let deny = json!({ "verb": "deny", "target": "refused.example" });
    let rules = daemon.with(&program, "POST", "/api/v1/runs/by-tool/rules", Some(&deny));
    assert_eq!(rules.status, 200, "{rules:?}");
    let shared = daemon.root.join("shared");
    std::fs::create_dir(&shared).unwrap();
    let grant = json!({ "path": shared, "access": "read-only" });
    let granted = daemon.own("POST", "/api/v1/runs/by-tool/grants", Some(&grant));
    assert_eq!(granted.status, 200, "{granted:?}");
    let log = daemon.root.join("state/bastle/audit/by-tool/log.jsonl");
    let log = std::fs::read_to_string(log).unwrap();
    let by = |what: &str| {
        let line = log.lines().find(|line| line.contains(what)).expect(what);
        line.split("\"by\":\"").nth(1).expect(line).to_owned()
    };
    assert!(by("deny refused.example").starts_with("program token:"), "{log}");
    assert!(by("\"granted\"").starts_with("local-person uid:"), "{log}");
}
