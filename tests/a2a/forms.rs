//! Every body that the daemon sends, held to the protocol: answers and refusals of both bindings, cards, events.
use crate::http::Answer;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

/// The protocol's schema as strict as the protocol: names as JSON spells them, and exactly one of what is one of several.
fn schema(form: &str) -> Value {
    let mut schema: Value = serde_json::from_str(include_str!("schema/a2a-v1.json")).unwrap();
    assert!(schema["$defs"][form].is_object(), "{form} is no form");
    for one in schema["$defs"].as_object_mut().unwrap().values_mut() {
        // A reader takes the other spelling too; we do not write it.
        if let Some(also) = one.get_mut("patternProperties").and_then(Value::as_object_mut) {
            also.retain(|name, _| !name.starts_with("^("));
        }
    }
    for (name, kinds) in [
        ("Part", &["text", "raw", "url", "data"][..]),
        (
            "StreamResponse",
            &["task", "message", "statusUpdate", "artifactUpdate"],
        ),
        ("SendMessageResponse", &["task", "message"]),
    ] {
        let one: Vec<Value> = kinds.iter().map(|kind| json!({ "required": [kind] })).collect();
        schema["$defs"][name]["oneOf"] = Value::Array(one);
    }
    schema["$ref"] = json!(format!("#/$defs/{form}"));
    schema
}

/// What is wrong with a value as a form of the protocol.
fn wrong(form: &str, value: &Value) -> Vec<String> {
    static KNOWN: OnceLock<Mutex<HashMap<String, jsonschema::Validator>>> = OnceLock::new();
    let mut known = KNOWN
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let validator = known
        .entry(form.to_owned())
        .or_insert_with(|| jsonschema::validator_for(&schema(form)).unwrap());
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Holds a value to a form of the protocol.
pub(crate) fn holds(form: &str, value: &Value) {
    let wrong = wrong(form, value);
    assert!(wrong.is_empty(), "{form}: {wrong:?}\n{value:#}");
}

/// The form that a method answers with.
fn of_method(method: &str) -> &'static str {
    match method {
        "SendMessage" => "SendMessageResponse",
        "GetTask" | "CancelTask" => "Task",
        "ListTasks" => "ListTasksResponse",
        "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig" => "TaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs" => "ListTaskPushNotificationConfigsResponse",
        "GetExtendedAgentCard" => "AgentCard",
        "DeleteTaskPushNotificationConfig" => "Struct",
        other => panic!("{other} is not answered at once"),
    }
}

/// The form that an address answers with; none where it is not the protocol's.
fn of_address(method: &str, path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    if path.ends_with("/agent-card.json") || path.ends_with("/extendedAgentCard") {
        return Some("AgentCard");
    }
    let ours = ["/files", "/files/content", "/stream", "/jwks.json"];
    if ours.iter().any(|end| path.ends_with(end)) {
        return None;
    }
    let mut parts = path.rsplit('/');
    let (last, before) = (parts.next().unwrap(), parts.next().unwrap_or_default());
    Some(match (method, before, last) {
        ("POST", _, "message:send") => "SendMessageResponse",
        // Answered at once only where it is refused.
        ("POST", _, "message:stream") => "StreamResponse",
        ("GET", _, "tasks") => "ListTasksResponse",
        ("GET" | "POST", "tasks", _) => "Task",
        ("GET", _, "pushNotificationConfigs") => "ListTaskPushNotificationConfigsResponse",
        ("POST", _, "pushNotificationConfigs") | ("GET", "pushNotificationConfigs", _) => {
            "TaskPushNotificationConfig"
        }
        ("DELETE", "pushNotificationConfigs", _) => "Struct",
        other => panic!("{other:?} is no address of the protocol"),
    })
}

/// The details of a refusal: what kind of error it is comes first, all have a type.
fn details(value: &Value, whole: &Value) {
    let all = value.as_array().unwrap_or_else(|| panic!("no details: {whole}"));
    for one in all {
        let sort = one["@type"].as_str().unwrap_or_default();
        assert!(sort.starts_with("type.googleapis.com/google.rpc."), "{whole}");
    }
    let first = &all[0];
    assert_eq!(
        first["@type"], "type.googleapis.com/google.rpc.ErrorInfo",
        "{whole}"
    );
    assert_eq!(first["domain"], "a2a-protocol.org", "{whole}");
    let reason = first["reason"].as_str().unwrap_or_default();
    let loud = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    assert!(!reason.is_empty() && reason.bytes().all(loud), "{whole}");
    let texts = first["metadata"]
        .as_object()
        .is_some_and(|about| about.values().all(Value::is_string));
    assert!(texts, "metadata are texts: {whole}");
}

fn only(value: &Value, names: &[&str]) {
    let members = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    assert!(
        members.keys().all(|name| names.contains(&name.as_str())),
        "{value}"
    );
}

/// An answer of JSON-RPC, or a refusal.
pub(crate) fn is_rpc(method: &str, value: &Value) {
    assert_eq!(value["jsonrpc"], "2.0", "{value}");
    match value.get("error") {
        None => {
            only(value, &["jsonrpc", "id", "result"]);
            holds(of_method(method), &value["result"]);
        }
        Some(error) => {
            only(value, &["jsonrpc", "id", "error"]);
            only(error, &["code", "message", "data"]);
            assert!(
                error["code"].as_i64().is_some_and(|code| code <= -32000),
                "{value}"
            );
            assert!(error["message"].as_str().is_some_and(|why| !why.is_empty()));
            details(&error["data"], value);
        }
    }
}

/// An answer over HTTP at any address of the protocol.
pub(crate) fn is_answer(method: &str, path: &str, asked: &[u8], answer: &Answer) {
    if path.trim_end_matches('/').ends_with("/jsonrpc") {
        let asked: Value = serde_json::from_slice(asked).unwrap_or_default();
        is_rpc(asked["method"].as_str().unwrap_or_default(), &answer.json());
        return;
    }
    // Refusals of cards and files are those of the API.
    let Some(form) = of_address(method, path) else {
        return;
    };
    match answer.status {
        304 => assert!(answer.body.is_empty()),
        200 => holds(form, &answer.json()),
        _ if path.contains("agent-card.json") => {}
        status => {
            let value = answer.json();
            only(&value, &["error"]);
            let error = &value["error"];
            only(error, &["code", "status", "message", "details"]);
            assert_eq!(error["code"], json!(status), "{value}");
            assert!(
                error["status"].is_string() && error["message"].is_string(),
                "{value}"
            );
            details(&error["details"], &value);
        }
    }
}

/// How events are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Rest,
    Rpc,
    /// Not the protocol's: what a worker prints.
    Plain,
}

impl Binding {
    pub(crate) fn of(path: &str) -> Self {
        match path {
            path if path.trim_end_matches('/').ends_with("/jsonrpc") => Self::Rpc,
            path if path.split('?').next().unwrap().ends_with("/stream") => Self::Plain,
            _ => Self::Rest,
        }
    }
}

/// One event of a stream.
pub(crate) fn is_event(binding: Binding, value: &Value) {
    match binding {
        Binding::Plain => {}
        Binding::Rest => holds("StreamResponse", value),
        Binding::Rpc => {
            only(value, &["jsonrpc", "id", "result"]);
            assert_eq!(value["jsonrpc"], "2.0", "{value}");
            holds("StreamResponse", &value["result"]);
        }
    }
}

#[test]
fn a_body_that_is_not_the_protocols_is_found_out() {
    let good = json!({ "taskId": "t", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } });
    assert!(wrong("StreamResponse", &json!({ "statusUpdate": good })).is_empty());
    for (form, bad) in [
        ("StreamResponse", json!({})),
        ("StreamResponse", json!({ "status_update": good })),
        ("StreamResponse", json!({ "statusUpdate": good, "kind": "x" })),
        (
            "StreamResponse",
            json!({ "statusUpdate": good, "task": { "id": "t", "status": good["status"] } }),
        ),
        ("Task", json!({ "id": "t" })),
        ("Task", json!({ "id": "t", "status": { "state": "working" } })),
        ("Part", json!({ "text": "a", "data": 1 })),
        ("Part", json!({ "mediaType": "text/plain" })),
        ("Part", json!({ "text": "a", "media_type": "text/plain" })),
        ("AgentCard", json!({ "name": "a" })),
    ] {
        assert!(!wrong(form, &bad).is_empty(), "{form}: {bad}");
    }
}
