//! Agents that choose their ids to confuse: whatever they send, an answer is for the input that was shown, and no id of theirs
//! is one of ours.
#![allow(clippy::panic, clippy::unwrap_used)]

use bastle_agents::{Answer, DriverKind, Editor, Said, Session, driver};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

/// An id of few, so that they meet: numbers, the same as texts, and names of ours.
fn id() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u64..3).prop_map(|n| json!(n)),
        (0_u64..3).prop_map(|n| json!(n.to_string())),
        Just(json!("bastle-1")),
        Just(json!("question-1")),
        Just(json!("p_1")),
        Just(json!("budget")),
    ]
}

fn request(kind: DriverKind, id: &Value, command: &str) -> Vec<u8> {
    line(&match kind {
        DriverKind::Claude => {
            json!({ "type": "control_request", "request_id": id, "request": { "subtype": "can_use_tool",
                "tool_name": "Bash", "title": "bastle asks", "input": { "command": command } } })
        }
        DriverKind::Codex => json!({ "id": id, "method": "item/commandExecution/requestApproval",
            "params": { "command": command, "reason": "bastle asks" } }),
        DriverKind::Plain | DriverKind::Acp | DriverKind::Opencode => {
            json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {
                "options": [{ "optionId": "y", "kind": "allow_once" }],
                "toolCall": { "title": "bastle asks", "kind": "execute", "rawInput": { "command": command } } } })
        }
    })
}

/// The id in an answer of ours on the wire.
fn answered(kind: DriverKind, bytes: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(bytes).unwrap();
    match kind {
        DriverKind::Claude => value["response"]["request_id"].clone(),
        _ => value["id"].clone(),
    }
}

#[test]
fn an_answer_to_one_request_is_never_given_to_another_of_the_same_id() {
    let mut acp = driver(DriverKind::Acp);
    let asks = |id: Value, command: &str| {
        line(
            &json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": { "sessionId": "s", "options": [{ "optionId": "y", "kind": "allow_once" }],
                "toolCall": { "title": "nothing", "kind": "execute", "rawInput": { "command": command } } } }),
        )
    };
    let heard = acp.take(&asks(json!(5), "ls"));
    let [Said::Permission(asked)] = heard.said.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!(asked.title, "execute: command \"ls\"");
    assert_eq!(asked.words.as_deref(), Some("nothing"), "quoted, not the title");
    for id in [json!(5), json!("5")] {
        let heard = acp.take(&asks(id, "rm -rf /"));
        assert!(heard.said.is_empty(), "{heard:?}");
        assert!(String::from_utf8(heard.reply).unwrap().contains("waits already"));
    }
    let yes = acp.answer_permission("5", &Answer::Once).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&yes).unwrap()["id"], json!(5));
}

#[derive(Clone, Debug)]
enum Step {
    Asks(Value, u8),
    Answers(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (id(), any::<u8>()).prop_map(|(id, n)| Step::Asks(id, n)),
        1 => any::<u8>().prop_map(Step::Answers),
    ]
}

proptest! {
    #[test]
    fn an_answer_is_for_exactly_what_was_shown(steps in proptest::collection::vec(step(), 1..40)) {
        for kind in [DriverKind::Claude, DriverKind::Codex, DriverKind::Acp] {
            let mut agent = driver(kind);
            agent.start(&Session::default());
            // Name of the request, as it was shown: its id on the wire and its command.
            let mut shown: BTreeMap<String, (Value, String)> = BTreeMap::new();
            for step in &steps {
                match step {
                    Step::Asks(id, n) => {
                        let command = format!("do {n}");
                        for said in agent.take(&request(kind, id, &command)).said {
                            let Said::Permission(asked) = said else { continue };
                            prop_assert_eq!(asked.input["command"].as_str(), Some(command.as_str()));
                            prop_assert!(!asked.title.contains("bastle asks"), "{}", asked.title);
                            let before = shown.insert(asked.id, (id.clone(), command.clone()));
                            prop_assert!(before.is_none(), "two requests of one name wait");
                        }
                    }
                    Step::Answers(n) => {
                        let Some(name) = shown.keys().nth(usize::from(*n) % shown.len().max(1)).cloned() else {
                            continue;
                        };
                        let (wire, command) = shown.remove(&name).unwrap();
                        let bytes = agent.answer_permission(&name, &Answer::Once).unwrap();
                        prop_assert_eq!(answered(kind, &bytes), wire);
                        if kind == DriverKind::Claude {
                            let value: Value = serde_json::from_slice(&bytes).unwrap();
                            let given = &value["response"]["response"]["updatedInput"]["command"];
                            prop_assert_eq!(given.as_str(), Some(command.as_str()));
                        }
                        prop_assert!(agent.answer_permission(&name, &Answer::Once).is_err(), "answered twice");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tool_call_of_an_agent_never_has_the_name_of_a_question(ids in proptest::collection::vec(id(), 1..20)) {
        let session = Session { cwd: "/w".to_owned(), model: None };
        let (mut editor, _) = Editor::new(driver(DriverKind::Acp), &session);
        let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } });
        editor.from_editor(&line(&new));
        let question = editor.ask("q_1", "reach api.example", &Value::Null).unwrap();
        let question: Value = serde_json::from_slice(&question).unwrap();
        let name = question["params"]["toolCall"]["toolCallId"].clone();
        for id in &ids {
            for id in [id, &name, &question["id"]] {
                let update = json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "update": {
                    "sessionUpdate": "tool_call_update", "toolCallId": id, "title": "harmless", "status": "completed" } } });
                let flow = editor.from_agent(&line(&update));
                for told in flow.editor.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let told: Value = serde_json::from_slice(told).unwrap();
                    prop_assert_ne!(&told["params"]["update"]["toolCallId"], &name, "{}", told);
                }
            }
        }
        // The control: the person's answer reaches the question.
        let yes = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": { "outcome": "selected", "optionId": "once" } } });
        let flow = editor.from_editor(&line(&yes));
        prop_assert_eq!(flow.answers, vec![("q_1".to_owned(), Answer::Once)]);
    }
}
