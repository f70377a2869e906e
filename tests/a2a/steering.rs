//! Driven workers: spoken to while they work, asked again when they wait, and allowed only what somebody answered.
use crate::world::{World, message};
use serde_json::{Value, json};

/// An agent that speaks Claude's stream of lines: takes the greeting and the prompt, says a word.
const BEGIN: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"I look"}]}}'
"#;
const ASK: &str = r#"
echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf x"}}}'
read -r answer; printf '%s\n' "$answer" > answer.txt
"#;
const END: &str = r#"
echo '{"type":"result","subtype":"success","result":"done"}'
"#;

fn driven() -> Value {
    json!({ "driver": "claude" })
}

fn to(task: &str, text: &str) -> Value {
    let mut message = message(text);
    message["taskId"] = json!(task);
    message
}

fn said(task: &Value) -> String {
    task["history"].to_string()
}

#[test]
fn a_message_to_a_working_task_reaches_its_agent_and_the_answer_does_not_wait_for_it() {
    let world = World::usual();
    let script = format!("{BEGIN}read -r more; printf '%s\\n' \"$more\" > more.txt\n{END}");
    let task = world.start(&script, &driven());
    let working = |task: &str| world.until(task, "TASK_STATE_WORKING");
    working(&task);
    let heard = crate::support::eventually(crate::support::Limit::HANG, || {
        said(&working(&task)).contains("I look")
    });
    assert!(heard, "what the agent says is in the history");
    let params =
        json!({ "message": to(&task, "rather this"), "configuration": { "returnImmediately": true } });
    let steered = world.call("SendMessage", &params)["task"].clone();
    assert_eq!(steered["id"], task.as_str());
    assert!(said(&steered).contains("rather this"), "{steered:#}");
    let ended = world.until(&task, "TASK_STATE_COMPLETED");
    let diff = ended["artifacts"].to_string();
    assert!(diff.contains("rather this"), "it reached the agent: {diff}");
    let audit = world
        .daemon
        .own("GET", &format!("/api/v1/runs/{task}/audit"), None)
        .json();
    assert!(
        audit.to_string().contains("a person spoke to the agent"),
        "and it is on record"
    );
}

#[test]
fn a_question_of_the_agent_needs_input_and_only_the_answer_to_exactly_it_lets_it_go_on() {
    let world = World::usual();
    let script = format!("{BEGIN}{ASK}{END}");
    // Sent without haste: it comes back when somebody has to answer.
    let asked = world.call(
        "SendMessage",
        &json!({ "message": world.starting(&script, &driven()) }),
    )["task"]
        .clone();
    let task = asked["id"].as_str().unwrap().to_owned();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked:#}");
    let parts = asked["status"]["message"]["parts"].as_array().unwrap();
    let question = parts.iter().find_map(|part| part.get("data")).unwrap().clone();
    assert!(
        parts[0]["text"].as_str().unwrap().contains("rm -rf x"),
        "{parts:?}"
    );
    let answer = |also: Value| {
        let mut data =
            json!({ "approval": question["approval"], "verdict": "approve", "hash": question["hash"] });
        for (name, value) in also.as_object().unwrap() {
            data[name] = value.clone();
        }
        let mut message = to(&task, "x");
        message["parts"] = json!([{ "data": data }]);
        json!({ "message": message })
    };
    assert_eq!(
        world.refused("SendMessage", &answer(json!({ "hash": "0".repeat(64) }))),
        -32004,
        "another request"
    );
    assert_eq!(
        world.refused("SendMessage", &answer(json!({ "approval": 4711 }))),
        -32602
    );
    assert_eq!(
        world.refused("SendMessage", &answer(json!({ "verdict": "sure" }))),
        -32602
    );
    // The right answer, said to another task.
    let other = world.start("while :; do sleep 1; done", &json!({}));
    world.until(&other, "TASK_STATE_WORKING");
    let mut elsewhere = answer(json!({}));
    elsewhere["message"]["taskId"] = json!(other);
    assert_eq!(world.refused("SendMessage", &elsewhere), -32602);
    world.call("CancelTask", &json!({ "id": other }));
    let still = world.call("GetTask", &json!({ "id": task }));
    assert_eq!(still["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{still:#}");
    let done = world.call("SendMessage", &answer(json!({})))["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done:#}");
    assert!(done["artifacts"].to_string().contains("allow"), "{done:#}");
    let history = |most: u64| {
        let asked = json!({ "id": task, "historyLength": most });
        let task = world.call("GetTask", &asked);
        task["history"].as_array().cloned().unwrap_or_default()
    };
    let whole = history(100);
    assert!(whole.len() >= 2, "{whole:#?}");
    assert_eq!(history(1), whole[whole.len() - 1..], "the newest, and no more");
    let approvals = world
        .daemon
        .own("GET", "/api/v1/approvals?state=approved", None)
        .json();
    let by = approvals["items"][0]["approver"].as_str().unwrap().to_owned();
    assert!(
        by.starts_with("token:"),
        "the caller answered, nobody else: {approvals}"
    );
    assert_eq!(
        world.refused("SendMessage", &answer(json!({}))),
        -32004,
        "an answer is used once"
    );
}

#[test]
fn a_kept_open_worker_asks_for_input_when_its_turn_ended_and_takes_the_next_message() {
    let world = World::usual();
    let script = format!("{BEGIN}{END}read -r next\nprintf '%s\\n' \"$next\" > next.txt\n{END}read -r over");
    let mut also = driven();
    also["open_input"] = json!(true);
    let task = world.call(
        "SendMessage",
        &json!({ "message": world.starting(&script, &also) }),
    )["task"]
        .clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task:#}");
    let id = task["id"].as_str().unwrap().to_owned();
    let next = world.call("SendMessage", &json!({ "message": to(&id, "and now that") }))["task"].clone();
    assert_eq!(
        next["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "the turn ended: {next:#}"
    );
    let file = format!("/a2a/workers/{id}/files/content?path=next.txt");
    let read = world.rest("GET", &file, None);
    assert!(
        String::from_utf8_lossy(&read.body).contains("and now that"),
        "{read:?}"
    );
    assert_eq!(
        world.call("CancelTask", &json!({ "id": id }))["status"]["state"],
        "TASK_STATE_CANCELED"
    );
}

#[test]
fn cancelling_really_stops_the_worker_and_a_plain_command_cannot_be_steered() {
    let world = World::usual();
    let task = world.start("trap '' TERM INT HUP; while :; do sleep 0.2; done", &json!({}));
    world.until(&task, "TASK_STATE_WORKING");
    assert_eq!(
        world.refused("SendMessage", &json!({ "message": to(&task, "hello") })),
        -32004
    );
    let canceled = world.rest(
        "POST",
        &format!("/a2a/tasks/{task}:cancel"),
        Some(&json!({ "metadata": {} })),
    );
    assert_eq!(canceled.status, 200, "{canceled:?}");
    assert_eq!(
        canceled.json()["status"]["state"],
        "TASK_STATE_CANCELED",
        "{canceled:?}"
    );
    let run = world
        .daemon
        .own("GET", &format!("/api/v1/runs/{task}"), None)
        .json();
    assert_eq!(run["state"], "cancelled", "{run}");
    assert_eq!(world.refused("CancelTask", &json!({ "id": task })), -32002);
}
