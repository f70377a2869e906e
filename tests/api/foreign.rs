//! A run that is not the caller's answers like one that does not exist, wherever it is named; and `stop-all` ends what its
//! caller started there.
use crate::daemon::{Daemon, Token};
use crate::http::Answer;
use serde_json::{Value, json};

const OWN: &str = "mine-a";
const FOREIGN: &str = "other-b";
const NOBODY: &str = "nobody-c";

/// A daemon with a living run of the token's prefix and one of another.
fn stage() -> (Daemon, Token) {
    let daemon = Daemon::start(&[]);
    for name in [OWN, FOREIGN] {
        let wish = json!({
            "name": name, "argv": ["sleep", "600"], "workspace": daemon.workspace(), "mode": "copy",
            "tags": { "of": name },
        });
        let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{made:?}");
        daemon.until(name, &["running"]);
    }
    let token = daemon.token(json!({ "role": "approver", "prefix": "mine-" }));
    (daemon, token)
}

/// Status and text with the name taken out: what two answers have in common.
fn told(answer: &Answer, name: &str) -> (u16, String) {
    let text = String::from_utf8_lossy(&answer.body).replace(name, "NAME");
    (answer.status, text)
}

/// Every operation of the document that names a run in its address, with a body that its handler takes.
fn operations(daemon: &Daemon) -> Vec<(String, String, Option<Value>)> {
    let document = daemon.own("GET", "/api/v1/openapi.json", None).json();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/api/v1/runs/{id}") && !path.starts_with("/api/v1/agents/{id}") {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            let body = match path.rsplit('/').next().unwrap() {
                _ if method == "get" || method == "delete" => None,
                "grants" => Some(json!({ "path": "/nowhere/at/all", "access": "read-only" })),
                "rules" => Some(json!({ "verb": "deny", "target": "example.com" })),
                "say" => Some(json!({ "text": "hello" })),
                "rollback" => Some(json!({ "to": "base" })),
                _ => Some(json!({})),
            };
            all.push((method.to_uppercase(), path.clone(), body));
        }
    }
    // What ends or removes a run comes last: the controls before it need one that lives.
    all.sort_by_key(|(method, path, _)| {
        (method == "DELETE" && path.ends_with("{id}")) || path.ends_with("/stop") || path.ends_with("/kill")
    });
    assert!(all.len() > 25, "only {} operations", all.len());
    all
}

#[test]
fn a_foreign_run_answers_every_operation_like_one_that_does_not_exist() {
    let (daemon, token) = stage();
    for (method, path, body) in operations(&daemon) {
        let call = |name: &str| {
            let mut at = path.replace("{id}", name);
            at.push_str(match at.rsplit('/').next().unwrap() {
                "content" => "?path=hello.txt",
                "grants" if method == "DELETE" => "?path=/nowhere/at/all",
                _ => "",
            });
            match at.rsplit('/').next().unwrap() {
                "attach" | "exec" => match daemon.websocket(&token, &at) {
                    Ok(_) => (101, String::new()),
                    Err(answer) => told(&answer, name),
                },
                _ => told(&daemon.with(&token, &method, &at, body.as_ref()), name),
            }
        };
        let (nobody, foreign, own) = (call(NOBODY), call(FOREIGN), call(OWN));
        assert_eq!(nobody.0, 404, "{method} {path}: {nobody:?}");
        assert_eq!(foreign, nobody, "{method} {path}");
        assert!(
            !own.1.contains("BST-RUN-001"),
            "{method} {path}: the control is not there: {own:?}"
        );
    }
    assert_eq!(
        daemon.until(FOREIGN, &["running"])["state"],
        "running",
        "it lives on"
    );
}

#[test]
fn a_run_cannot_be_named_in_a_body_that_cannot_be_named_in_an_address() {
    let (daemon, token) = stage();
    let wish = |more: Value| {
        let mut wish = json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy" });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        json!({ "prefix": "mine-x", "runs": [wish] })
    };
    for (named, of) in [
        ("from", |name: &str| json!({ "from": name })),
        ("from", |name: &str| json!({ "from": format!("{name}@0") })),
        ("from", |name: &str| json!({ "from": format!("{name}@base") })),
        ("parent", |name: &str| json!({ "parent": name })),
    ] as [(&str, fn(&str) -> Value); 4]
    {
        let call = |name: &str| daemon.with(&token, "POST", "/api/v1/runs", Some(&wish(of(name))));
        let (nobody, foreign, own) = (call(NOBODY), call(FOREIGN), call(OWN));
        assert_eq!(nobody.status, 404, "{named}: {nobody:?}");
        assert_eq!(told(&foreign, FOREIGN), told(&nobody, NOBODY), "{named}");
        if !of(OWN).to_string().contains("@base") {
            assert_eq!(own.status, 201, "{named}: the control: {own:?}");
        }
        // The same through the tools.
        let call = |name: &str| {
            let mut arguments = wish(of(name))["runs"][0].clone();
            arguments["name"] = json!(format!("mine-t-{}", name.len()));
            let answer = tool(&daemon, &token, "spawn_worker", &arguments);
            assert_eq!(answer["result"]["isError"], true, "{named} {name}: {answer}");
            answer["result"]["content"][0]["text"]
                .to_string()
                .replace(name, "NAME")
        };
        assert_eq!(call(FOREIGN), call(NOBODY), "{named}");
    }
    let preamble = |name: &str| {
        let body = json!({ "workspace": daemon.workspace(), "argv": ["true"], "parent": name });
        daemon.with(&token, "POST", "/api/v1/preamble", Some(&body))
    };
    assert_eq!(told(&preamble(FOREIGN), FOREIGN), told(&preamble(NOBODY), NOBODY));
    assert_eq!(preamble(NOBODY).status, 404);
}

pub(crate) fn tool(daemon: &Daemon, token: &Token, name: &str, arguments: &Value) -> Value {
    const MODERN: &str = "2026-07-28";
    let bearer = format!("Bearer {}", token.0);
    let params = json!({ "name": name, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    }});
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/call"),
        ("mcp-name", name),
    ];
    let answer = daemon.net("POST", "/mcp", &headers, call.to_string().as_bytes());
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let line = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    serde_json::from_str(line.unwrap_or(&text)).unwrap()
}

#[test]
fn lists_and_filters_that_name_a_foreign_run_are_as_empty_as_for_none() {
    let (daemon, token) = stage();
    for filter in [
        "/api/v1/runs?parent=",
        "/api/v1/runs?prefix=",
        "/api/v1/runs?tag=of%3D",
        "/api/v1/approvals?run=",
    ] {
        let call = |name: &str| {
            told(
                &daemon.with(&token, "GET", &format!("{filter}{name}"), None),
                name,
            )
        };
        assert_eq!(call(FOREIGN), call(NOBODY), "{filter}");
    }
    let own = daemon
        .with(&token, "GET", &format!("/api/v1/runs?tag=of%3D{OWN}"), None)
        .json();
    assert_eq!(own["items"][0]["name"], OWN, "the control");
    let events = |name: &str| match daemon.websocket(&token, &format!("/api/v1/ws?run={name}")) {
        Ok(_) => (101, String::new()),
        Err(answer) => told(&answer, name),
    };
    assert_eq!(events(FOREIGN), events(NOBODY));
    assert_eq!(events(OWN).0, 101, "the control");
    for id in ["999999", "1"] {
        let answer = daemon.with(&token, "GET", &format!("/api/v1/approvals/{id}"), None);
        assert_eq!(answer.status, 404, "{answer:?}");
    }
}

#[test]
fn a_task_of_a2a_that_is_a_foreign_run_is_not_found_whichever_field_names_it() {
    let (daemon, token) = stage();
    let bearer = format!("Bearer {}", token.0);
    let call = |method: &str, params: &Value, name: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": "c", "method": method, "params": params });
        let headers = [
            ("authorization", bearer.as_str()),
            ("a2a-version", "1.0"),
            ("content-type", "application/json"),
        ];
        told(
            &daemon.net("POST", "/a2a/jsonrpc", &headers, call.to_string().as_bytes()),
            name,
        )
    };
    let message = |name: &str| json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }], "taskId": name });
    for (method, of) in [
        ("GetTask", |name: &str, _: &Value| json!({ "id": name })),
        ("CancelTask", |name: &str, _: &Value| json!({ "id": name })),
        ("SubscribeToTask", |name: &str, _: &Value| json!({ "id": name })),
        (
            "SendMessage",
            |_: &str, message: &Value| json!({ "message": message }),
        ),
        (
            "GetTask",
            |name: &str, _: &Value| json!({ "id": OWN, "tenant": name }),
        ),
        (
            "ListTaskPushNotificationConfigs",
            |name: &str, _: &Value| json!({ "taskId": name }),
        ),
    ] as [(&str, fn(&str, &Value) -> Value); 6]
    {
        let ask = |name: &str| call(method, &of(name, &message(name)), name);
        assert_eq!(ask(FOREIGN), ask(NOBODY), "{method}");
        assert!(ask(FOREIGN).1.contains("error"), "{method}");
    }
    assert!(
        !call("GetTask", &json!({ "id": OWN }), OWN).1.contains("error"),
        "the control"
    );
    assert_eq!(
        daemon.until(FOREIGN, &["running"])["state"],
        "running",
        "it lives on"
    );
}

#[test]
fn stop_all_ends_what_its_caller_started_there_and_an_admin_may_say_more() {
    let daemon = Daemon::start(&[]);
    let (one, two) = (daemon.role("operator"), daemon.role("operator"));
    let agents = |token: &Token| {
        let wish = json!({ "prompts": ["x"], "workspace": daemon.workspace(), "command": ["sleep", "600"] });
        let made = daemon.with(token, "POST", "/api/v1/agents/spawn", Some(&wish));
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["agents"][0].as_str().unwrap().to_owned()
    };
    let (first, second) = (agents(&one), agents(&two));
    let wish = json!({ "argv": ["sleep", "600"], "workspace": daemon.workspace(), "mode": "copy" });
    let made = daemon.with(&one, "POST", "/api/v1/runs", Some(&wish));
    let other = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    let admins = daemon.spawn("sleep 600");
    for name in [&first, &second, &other, &admins] {
        daemon.until(name, &["running"]);
    }
    let stop = |token: &Token, how: Value| daemon.with(token, "POST", "/api/v1/agents/stop-all", Some(&how));
    let ended = stop(&one, json!({}));
    assert_eq!(ended.status, 200, "{ended:?}");
    daemon.until(&first, &["cancelled"]);
    for name in [&second, &other, &admins] {
        assert_eq!(
            daemon.until(name, &["running", "cancelled"])["state"],
            "running",
            "{name}"
        );
    }
    for scope in ["agents", "all"] {
        let refused = stop(&one, json!({ "scope": scope }));
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    assert_eq!(stop(&one, json!({ "scope": "everything" })).status, 400);
    let admin = daemon.role("admin");
    assert_eq!(
        stop(&admin, json!({})).json()["runs"],
        json!([]),
        "it started none there"
    );
    assert_eq!(stop(&admin, json!({ "scope": "agents" })).status, 200);
    daemon.until(&second, &["cancelled"]);
    for name in [&other, &admins] {
        assert_eq!(
            daemon.until(name, &["running", "cancelled"])["state"],
            "running",
            "{name}"
        );
    }
    assert_eq!(stop(&admin, json!({ "scope": "all" })).status, 200);
    for name in [&other, &admins] {
        daemon.until(name, &["cancelled"]);
    }
}
