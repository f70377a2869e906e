//! An editor on one side, a scripted agent on the other: every line to the editor is checked with the protocol's schema.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use bastle_agents::{Answer, DriverKind, Editor, Flow, Session, driver};
use serde_json::{Value, json};

struct Desk {
    editor: Editor,
    schema: jsonschema::Validator,
}

impl Desk {
    fn new() -> Self {
        let text = include_str!("specs/acp-v1.schema.json");
        let mut schema: Value = serde_json::from_str(text).unwrap();
        // What an agent may send: the first of the sides that the document describes.
        let agent = schema["anyOf"][0].clone();
        assert_eq!(agent["title"], "Agent");
        schema["anyOf"] = json!([agent]);
        let session = Session {
            cwd: "/w".into(),
            model: None,
        };
        let (editor, first) = Editor::new(driver(DriverKind::Claude), &session);
        assert!(!first.is_empty());
        Self {
            editor,
            schema: jsonschema::validator_for(&schema).unwrap(),
        }
    }

    fn checked(&self, flow: Flow) -> (Vec<Value>, String, Vec<(String, Answer)>) {
        let lines: Vec<Value> = String::from_utf8(flow.editor)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for line in &lines {
            let wrong: Vec<_> = self
                .schema
                .iter_errors(line)
                .map(|error| error.to_string())
                .collect();
            assert!(wrong.is_empty(), "{line}: {wrong:?}");
        }
        (lines, String::from_utf8(flow.agent).unwrap(), flow.answers)
    }

    fn editor(&mut self, message: Value) -> (Vec<Value>, String, Vec<(String, Answer)>) {
        let flow = self.editor.from_editor(format!("{message}\n").as_bytes());
        self.checked(flow)
    }

    fn agent(&mut self, message: Value) -> (Vec<Value>, String, Vec<(String, Answer)>) {
        let flow = self.editor.from_agent(format!("{message}\n").as_bytes());
        self.checked(flow)
    }

    fn open(&mut self) {
        let hello =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
        assert_eq!(self.editor(hello).0[0]["result"]["protocolVersion"], 1);
        let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } });
        assert_eq!(self.editor(new).0[0]["result"]["sessionId"], "bastle");
    }

    fn prompt(&mut self, id: u32, words: &str) -> (Vec<Value>, String, Vec<(String, Answer)>) {
        self.editor(json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt",
            "params": { "sessionId": "bastle", "prompt": [{ "type": "text", "text": words }] } }))
    }
}

#[test]
fn a_turn_goes_through_with_its_tools_and_the_prompt_is_answered_at_its_end() {
    let mut desk = Desk::new();
    desk.open();
    let (lines, agent, _) = desk.prompt(2, "fix it");
    assert!(lines.is_empty() && agent.contains("fix it"), "{agent}");
    let (lines, ..) = desk.agent(json!({ "type": "assistant", "message": { "id": "m", "content": [
        { "type": "text", "text": "I look" }, { "type": "tool_use", "id": "t", "name": "Bash", "input": { "command": "ls" } } ] } }));
    let kinds: Vec<_> = lines
        .iter()
        .map(|line| line["params"]["update"]["sessionUpdate"].clone())
        .collect();
    assert_eq!(kinds, ["agent_message_chunk", "tool_call"]);
    let (lines, ..) = desk.agent(
        json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "tool_use_id": "t" }] } }),
    );
    assert_eq!(lines[0]["params"]["update"]["status"], "completed");
    let (lines, ..) = desk.agent(json!({ "type": "result", "subtype": "success", "result": "done" }));
    assert_eq!(
        lines,
        [json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } })]
    );
}

#[test]
fn a_permission_of_the_agent_is_denied_unless_the_person_at_the_editor_allows_it() {
    for (outcome, behaviour) in [
        (json!({ "outcome": "selected", "optionId": "once" }), "allow"),
        (json!({ "outcome": "selected", "optionId": "no" }), "deny"),
        (json!({ "outcome": "cancelled" }), "deny"),
        (
            json!({ "outcome": "selected", "optionId": "something else" }),
            "deny",
        ),
    ] {
        let mut desk = Desk::new();
        desk.open();
        desk.prompt(2, "go");
        let (lines, agent, _) = desk
            .agent(json!({ "type": "control_request", "request_id": "u", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "rm x" } } }));
        assert!(agent.is_empty(), "nothing is answered for the person");
        assert_eq!(lines[0]["method"], "session/request_permission");
        let asked = lines[0]["id"].clone();
        let reply = json!({ "jsonrpc": "2.0", "id": asked, "result": { "outcome": outcome } });
        let (_, agent, _) = desk.editor(reply.clone());
        assert!(
            agent.contains(&format!("\"behavior\":\"{behaviour}\"")),
            "{agent}"
        );
        let (_, agent, _) = desk.editor(reply);
        assert!(agent.is_empty(), "an answer counts once");
    }
}

#[test]
fn a_question_of_the_fence_is_put_to_the_editor_and_its_answer_comes_back_by_name() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.editor.ask("d_1", "POST example.com", &json!({})),
        None,
        "nobody is there yet"
    );
    desk.open();
    let bytes = desk
        .editor
        .ask("d_1", "POST example.com", &json!({ "host": "example.com" }))
        .unwrap();
    let (lines, ..) = desk.checked(Flow {
        editor: bytes,
        ..Flow::default()
    });
    let reply = json!({ "jsonrpc": "2.0", "id": lines[0]["id"], "result": { "outcome": { "outcome": "selected", "optionId": "session" } } });
    assert_eq!(desk.editor(reply).2, [("d_1".to_owned(), Answer::Session)]);
}

#[test]
fn another_project_a_second_session_and_files_of_the_host_are_refused() {
    let mut desk = Desk::new();
    for cwd in ["/", "/etc", "/w-evil", "/w/../etc", ""] {
        let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": cwd, "mcpServers": [] } });
        assert_eq!(desk.editor(new).0[0]["error"]["code"], -32602, "{cwd}");
    }
    let (lines, agent, _) = desk.prompt(2, "without a session");
    assert!(agent.is_empty() && lines[0]["error"]["code"] == -32602);
    desk.open();
    let new = json!({ "jsonrpc": "2.0", "id": 3, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } });
    assert_eq!(desk.editor(new).0[0]["error"]["code"], -32603);
    let load = json!({ "jsonrpc": "2.0", "id": 4, "method": "session/load", "params": {} });
    assert_eq!(desk.editor(load).0[0]["error"]["code"], -32601);
}

#[test]
fn cancelling_interrupts_the_agent_and_a_lost_agent_answers_what_waits() {
    let mut desk = Desk::new();
    desk.open();
    desk.prompt(2, "go");
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "bastle" } });
    assert!(desk.editor(cancel).1.contains("interrupt"));
    let (lines, ..) = desk.agent(json!({ "type": "result", "subtype": "error_during_execution" }));
    assert_eq!(lines[0]["result"]["stopReason"], "cancelled");
    desk.prompt(3, "again");
    let gone = desk.editor.agent_gone();
    let (lines, ..) = desk.checked(Flow {
        editor: gone,
        ..Flow::default()
    });
    assert_eq!(
        (lines[0]["id"].clone(), lines[0]["error"]["code"].clone()),
        (json!(3), json!(-32603))
    );
}
