//! What captains send: messages of MCP, calls of tools, bodies of A2A, and the lines of an editor.
use bastle_agents::{DriverKind, Editor, Session, driver};

/// Lines over pipes to `bastle mcp`.
pub fn mcp_pipes(data: &[u8]) {
    bastle_mcp::fuzzing::fuzz_pipes(data);
}

/// Bodies posted to `/mcp`. The first byte chooses the headers.
pub fn mcp_http(data: &[u8]) {
    bastle_mcp::fuzzing::fuzz_http(data);
}

/// Arguments that a model wrote for a tool.
pub fn mcp_tools(data: &[u8]) {
    bastle_serve::fuzzing::fuzz_tool(data);
}

/// Bodies of the daemon's REST interface, and its settings file. The first byte chooses which.
pub fn rest_bodies(data: &[u8]) {
    bastle_serve::fuzzing::fuzz_rest(data);
}

/// Calls, bodies and addresses of the agent protocol.
pub fn a2a_bodies(data: &[u8]) {
    bastle_serve::fuzzing::fuzz_a2a(data);
}

/// Lines of an editor: what goes back is messages, and what goes to the agent are lines of its protocol.
pub fn editor_lines(data: &[u8]) {
    let session = Session {
        cwd: "/w".to_owned(),
        model: None,
    };
    for kind in [DriverKind::Claude, DriverKind::Acp, DriverKind::Codex] {
        let (mut editor, _) = Editor::new(driver(kind), &session);
        for part in data.chunks(1000) {
            let flow = editor.from_editor(part);
            messages(&flow.editor, Some("2.0"));
            // Every line to the agent is one message: no word of an editor becomes a second one.
            messages(&flow.agent, None);
        }
        messages(&editor.from_editor(b"\n").editor, Some("2.0"));
    }
}

fn messages(lines: &[u8], version: Option<&str>) {
    assert!(
        lines.is_empty() || lines.ends_with(b"\n"),
        "a line without an end"
    );
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value = serde_json::from_slice::<serde_json::Value>(line);
        let value = value.expect("what goes out is JSON");
        assert!(
            version.is_none_or(|version| value["jsonrpc"] == version),
            "no message: {value}"
        );
    }
}
