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

/// Whether the agent said this. The first message holds the agent's whole script.
fn agent_said(task: &Value, words: &str) -> bool {
    let history = task["history"].as_array().into_iter().flatten();
    history
        .filter(|message| message["role"] == "ROLE_AGENT")
        .any(|message| message.to_string().contains(words))
}

#[test]
fn a_message_to_a_working_task_reaches_its_agent_and_the_answer_does_not_wait_for_it() {
    let world = World::usual();
    let script = format!("{BEGIN}read -r more; printf '%s\\n' \"$more\" > more.txt\n{END}");
    let task = world.start(&script, &driven());
    let working = |task: &str| world.until(task, "TASK_STATE_WORKING");
    working(&task);
    let heard = crate::support::eventually(crate::support::Limit::HANG, || {
        agent_said(&working(&task), "I look")
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
fn a_message_that_is_sent_twice_reaches_the_agent_once_and_its_id_is_not_taken_for_another() {
    let world = World::usual();
    let script = format!("{BEGIN}while read -r more; do printf '%s\\n' \"$more\" >> more.txt; done\n");
    let mut also = driven();
    also["open_input"] = json!(true);
    let task = world.start(&script, &also);
    world.until(&task, "TASK_STATE_WORKING");
    let heard = crate::support::eventually(crate::support::Limit::HANG, || {
        agent_said(&world.call("GetTask", &json!({ "id": task })), "I look")
    });
    assert!(heard);
    let at_once = json!({ "returnImmediately": true });
    let mut first = to(&task, "rather this");
    for _ in 0..2 {
        world.call(
            "SendMessage",
            &json!({ "message": first, "configuration": at_once }),
        );
    }
    first["parts"][0]["text"] = json!("something else");
    let reused = json!({ "message": first, "configuration": at_once });
    assert_eq!(world.refused("SendMessage", &reused), -32602);
    let last = json!({ "message": to(&task, "and that"), "configuration": at_once });
    let task = world.call("SendMessage", &last)["task"].clone();
    let words: Vec<&str> = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["parts"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        ["do it", "I look", "rather this", "and that"],
        "in the order in which it was said"
    );
}

#[test]
fn the_output_of_a_driven_agent_is_what_it_said_and_no_frame_of_its_protocol() {
    let world = World::usual();
    let more = r#"
echo '{"type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"and see"}]}}'
"#;
    let sent = json!({ "message": world.starting(&format!("{BEGIN}{more}{END}"), &driven()) });
    let task = world.call("SendMessage", &sent)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    let all = task["artifacts"].as_array().unwrap();
    let output = all.iter().find(|one| one["artifactId"] == "output").unwrap();
    let text = output["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("I look") && text.contains("and see"), "{text}");
    assert!(
        !text.contains("\"type\"") && !text.contains("control_response"),
        "{text}"
    );
    let id = task["id"].as_str().unwrap();
    let logs = |view: &str| {
        let path = format!("/api/v1/runs/{id}/logs{view}");
        world.daemon.own("GET", &path, None).json()["records"].to_string()
    };
    assert!(logs("").contains("control_response"), "the frames stay readable");
    assert!(
        !logs("?view=agent").contains("control_response"),
        "{}",
        logs("?view=agent")
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
        // As a client of protocol buffers sends it back: every field that was shown, and its number as a double.
        let mut data = question.clone();
        data["approval"] = json!(question["approval"].as_f64().unwrap());
        data["verdict"] = json!("approve");
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
    for bad in [json!({ "approval": 4711 }), json!({ "verdict": "sure" })] {
        assert_eq!(world.refused("SendMessage", &answer(bad)), -32602);
    }
    // The right answer, said to another task.
    let other = world.start("while :; do sleep 1; done", &json!({}));
    world.until(&other, "TASK_STATE_WORKING");
    let mut elsewhere = answer(json!({}));
    elsewhere["message"]["taskId"] = json!(other);
    assert_eq!(world.refused("SendMessage", &elsewhere), -32602);
    world.call("CancelTask", &json!({ "id": other }));
    let still = world.call("GetTask", &json!({ "id": task }));
    assert_eq!(still["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{still:#}");
    // Whoever started the task is a program, and never says yes to what it asks; a second one says it.
    let own = world.rpc_as(&world.token, "/a2a", "SendMessage", &answer(json!({})));
    assert!(
        own["error"]["message"].to_string().contains("may not approve"),
        "{own}"
    );
    let still = world.call("GetTask", &json!({ "id": task }));
    assert_eq!(still["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{still:#}");
    let second = world.daemon.role("approver");
    let done = world.rpc_as(&second, "/a2a", "SendMessage", &answer(json!({})))["result"]["task"].clone();
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
    assert_eq!(approvals["items"][0]["approver_kind"], "program", "{approvals}");
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
