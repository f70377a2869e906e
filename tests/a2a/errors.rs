//! What is refused, by its number, its status and its reason, on both bindings.
use crate::daemon::Token;
use crate::world::{World, message};
use serde_json::{Value, json};

fn reason(value: &Value) -> &str {
    let info = value
        .pointer("/error/details/0")
        .or(value.pointer("/error/data/0"));
    let info = info.unwrap_or_else(|| panic!("no details: {value}"));
    assert_eq!(
        info["@type"], "type.googleapis.com/google.rpc.ErrorInfo",
        "{value}"
    );
    assert_eq!(info["domain"], "a2a-protocol.org");
    info["reason"].as_str().unwrap()
}

#[test]
fn another_version_or_none_is_refused_on_both_bindings_and_a_patch_number_does_not_count() {
    let world = World::usual();
    let bearer = format!("Bearer {}", world.token.0);
    let own = ("authorization", bearer.as_str());
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "ListTasks", "params": {} }).to_string();
    for version in [
        None,
        Some(""),
        Some("0.3"),
        Some("2.0"),
        Some("1.1"),
        Some("banana"),
    ] {
        let mut headers = vec![own];
        headers.extend(version.map(|version| ("a2a-version", version)));
        let rest = world.net("GET", "/a2a/tasks", &headers, b"");
        assert_eq!(
            (rest.status, reason(&rest.json())),
            (400, "VERSION_NOT_SUPPORTED"),
            "{version:?}"
        );
        headers.push(("content-type", "application/json"));
        let rpc = world.net("POST", "/a2a/jsonrpc", &headers, call.as_bytes());
        assert_eq!(
            (rpc.status, &rpc.json()["error"]["code"]),
            (200, &json!(-32009)),
            "{version:?}"
        );
        assert_eq!(rpc.json()["id"], 7);
    }
    for version in ["1.0", "1.0.1"] {
        let rest = world.net("GET", "/a2a/tasks", &[own, ("a2a-version", version)], b"");
        assert_eq!(rest.status, 200, "{version}");
    }
    assert_eq!(
        world.net("GET", "/a2a/tasks?A2A-Version=1.0", &[own], b"").status,
        200
    );
}

#[test]
fn what_is_no_call_is_refused_with_the_number_that_json_rpc_gives_it() {
    let world = World::usual();
    let bearer = format!("Bearer {}", world.token.0);
    let ask = |media: &str, body: &str| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("a2a-version", "1.0"),
            ("content-type", media),
        ];
        world.net("POST", "/a2a/jsonrpc/", &headers, body.as_bytes())
    };
    let json = "application/json";
    for (body, code, id) in [
        ("{", -32700, Value::Null),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2}", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (
            "{\"jsonrpc\":\"2.0\",\"method\":\"ListTasks\"}",
            -32600,
            Value::Null,
        ),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ListTasks\"}",
            -32600,
            json!(1),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"message/send\"}",
            -32601,
            json!("x"),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":[]}",
            -32602,
            json!(1),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":{}}",
            -32602,
            json!(1),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\"}",
            -32602,
            json!(1),
        ),
    ] {
        let answer = ask(json, body);
        let value = answer.json();
        assert_eq!(
            (&value["error"]["code"], &value["id"]),
            (&json!(code), &id),
            "{body}"
        );
        assert!(answer.head.contains("content-type: application/json"));
    }
    let other = ask("text/plain", "not json");
    assert_eq!(other.json()["error"]["code"], -32005, "{other:?}");
    let large = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}",
        "x".repeat(2_000_000)
    );
    let answer = ask(json, &large);
    assert_eq!((answer.status, reason(&answer.json())), (413, "TOO_LARGE"));
}

/// One call over both bindings, and how it is refused.
struct Row {
    method: &'static str,
    params: Value,
    verb: &'static str,
    path: String,
    body: Option<Value>,
    code: i64,
    status: u16,
    word: &'static str,
}

fn rows(ended: &str, late: &Value) -> Vec<Row> {
    let unknown =
        json!({ "messageId": "u", "role": "ROLE_USER", "parts": [{ "url": "https://a.example/" }] });
    let at = |rest: &str| format!("/a2a/tasks/{ended}{rest}");
    let row = |(method, params): (&'static str, Value),
               (verb, path): (&'static str, String),
               (code, status): (i64, u16),
               word| Row {
        body: (verb == "POST" && method != "CancelTask" && method != "SubscribeToTask")
            .then(|| params.clone()),
        method,
        params,
        verb,
        path,
        code,
        status,
        word,
    };
    let send = || ("POST", "/a2a/message:send".to_owned());
    vec![
        row(
            ("GetTask", json!({ "id": "none" })),
            ("GET", "/a2a/tasks/none".to_owned()),
            (-32001, 404),
            "TASK_NOT_FOUND",
        ),
        row(
            ("CancelTask", json!({ "id": ended })),
            ("POST", at(":cancel")),
            (-32002, 400),
            "TASK_NOT_CANCELABLE",
        ),
        row(
            (
                "CreateTaskPushNotificationConfig",
                json!({ "taskId": ended, "url": "https://a.example/" }),
            ),
            ("POST", at("/pushNotificationConfigs")),
            (-32003, 400),
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        row(
            ("SubscribeToTask", json!({ "id": ended })),
            ("POST", at(":subscribe")),
            (-32004, 400),
            "UNSUPPORTED_OPERATION",
        ),
        row(
            ("SendMessage", json!({ "message": late })),
            send(),
            (-32004, 400),
            "UNSUPPORTED_OPERATION",
        ),
        row(
            ("SendMessage", json!({ "message": unknown })),
            send(),
            (-32005, 400),
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
    ]
}

#[test]
fn every_error_of_the_protocol_has_its_number_its_status_and_its_reason() {
    let world = World::usual();
    let ended = world.call(
        "SendMessage",
        &json!({ "message": world.starting("true", &json!({})) }),
    );
    let ended = ended["task"]["id"].as_str().unwrap().to_owned();
    let mut late = message("more");
    late["taskId"] = json!(ended);
    for row in rows(&ended, &late) {
        let Row {
            method,
            params,
            verb,
            path,
            body,
            code,
            status,
            word,
        } = row;
        let rpc = world.rpc_as(&world.token, "/a2a", method, &params);
        assert_eq!(
            (rpc["error"]["code"].as_i64(), reason(&rpc)),
            (Some(code), word),
            "{method}: {rpc}"
        );
        let rest = world.rest(verb, &path, body.as_ref());
        let value = rest.json();
        assert_eq!((rest.status, reason(&value)), (status, word), "{path}: {value}");
        assert_eq!(value["error"]["code"], status);
        assert!(value["error"]["status"].is_string() && value["error"]["message"].is_string());
    }
    let field = world.rpc_as(&world.token, "/a2a", "ListTasks", &json!({ "pageSize": 0 }));
    let violation = &field["error"]["data"][1];
    assert_eq!(
        violation["@type"], "type.googleapis.com/google.rpc.BadRequest",
        "{field}"
    );
    assert_eq!(violation["fieldViolations"][0]["field"], "pageSize");
}

#[test]
fn an_answer_is_of_the_media_type_of_its_question() {
    let world = World::usual();
    let bearer = format!("Bearer {}", world.token.0);
    let own = [("authorization", bearer.as_str()), ("a2a-version", "1.0")];
    let body = json!({ "message": message("x") }).to_string();
    for (media, answered) in [
        ("application/json", "application/json"),
        ("application/a2a+json; charset=utf-8", "application/a2a+json"),
    ] {
        let headers = [&own[..], &[("content-type", media)]].concat();
        let answer = world.net("POST", "/a2a/message:send", &headers, body.as_bytes());
        assert!(
            answer.head.contains(&format!("content-type: {answered}")),
            "{}",
            answer.head
        );
    }
    let headers = [&own[..], &[("content-type", "text/html")]].concat();
    let other = world.net("POST", "/a2a/message:send", &headers, body.as_bytes());
    assert_eq!(
        (other.status, reason(&other.json())),
        (400, "CONTENT_TYPE_NOT_SUPPORTED")
    );
    let plain = world.net(
        "GET",
        "/a2a/tasks",
        &[&own[..], &[("accept", "application/json")]].concat(),
        b"",
    );
    assert!(
        plain.head.contains("content-type: application/json"),
        "{}",
        plain.head
    );
    let named = [
        &own[..],
        &[(
            "a2a-extensions",
            "https://a.example/x, https://bastle.dev/a2a/approval/v1",
        )],
    ]
    .concat();
    let told = world.net("GET", "/a2a/tasks", &named, b"");
    assert!(
        told.head
            .contains("a2a-extensions: https://bastle.dev/a2a/approval/v1"),
        "{}",
        told.head
    );
}

#[test]
fn nobody_is_served_without_a_token_from_another_page_or_below_the_role() {
    let world = World::usual();
    let task = world.start("while :; do sleep 1; done", &json!({}));
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks" }).to_string();
    let at = format!("/a2a/tasks/{task}");
    let json = ("content-type", "application/json");
    let version = ("a2a-version", "1.0");
    for (method, path, body) in [
        ("GET", "/a2a/tasks".to_owned(), ""),
        ("GET", at.clone(), ""),
        ("POST", format!("{at}:cancel"), ""),
        ("POST", format!("{at}:subscribe"), ""),
        ("POST", "/a2a/message:send".to_owned(), "{}"),
        ("POST", "/a2a/message:stream".to_owned(), "{}"),
        ("POST", "/a2a/jsonrpc".to_owned(), call.as_str()),
        ("GET", format!("{at}/pushNotificationConfigs"), ""),
        ("GET", "/a2a/extendedAgentCard".to_owned(), ""),
        ("GET", format!("/a2a/workers/{task}/stream"), ""),
        ("GET", format!("/a2a/workers/{task}/files"), ""),
    ] {
        for headers in [
            vec![version, json],
            vec![version, json, ("authorization", "Bearer bst_wrong")],
        ] {
            let answer = world.net(method, &path, &headers, body.as_bytes());
            assert_eq!(answer.status, 401, "{method} {path}");
            assert!(
                answer.head.contains("www-authenticate: bearer"),
                "{}",
                answer.head
            );
            // The plain addresses tell which address was asked, as the caller wrote it.
            let told = String::from_utf8_lossy(&answer.body).contains(&task);
            assert!(!told || path.starts_with("/a2a/workers/"), "{path}");
        }
    }
    // Refused before it is looked at what is spoken.
    let page = world.daemon.net(
        "GET",
        "/a2a/tasks",
        &[version, ("origin", "https://evil.example")],
        b"",
    );
    assert_eq!(page.status, 403);
    let viewer = world.daemon.role("viewer");
    let operator = world.daemon.role("operator");
    let denied = |token: &Token, method: &str, path: &str, body: Option<&Value>| {
        let answer = world.rest_as(token, method, path, body);
        assert_eq!(
            (answer.status, reason(&answer.json())),
            (403, "PERMISSION_DENIED"),
            "{path}"
        );
    };
    denied(&viewer, "POST", &format!("{at}:cancel"), None);
    let start = json!({ "message": world.starting("true", &json!({})) });
    denied(&viewer, "POST", "/a2a/message:send", Some(&start));
    let mut words = message("x");
    words["taskId"] = json!(task);
    denied(
        &viewer,
        "POST",
        "/a2a/message:send",
        Some(&json!({ "message": words })),
    );
    words["parts"] = json!([{ "data": { "approval": 1, "verdict": "approve", "hash": "x" } }]);
    denied(
        &operator,
        "POST",
        "/a2a/message:send",
        Some(&json!({ "message": words })),
    );
    assert_eq!(
        world.call("GetTask", &json!({ "id": task }))["id"],
        task.as_str(),
        "and nothing happened to it"
    );
}
