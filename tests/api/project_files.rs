//! Files that the project brings are read without following links, and no text of a file leaves with a fault.
use crate::daemon::{Daemon, Token};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const POLICY: &str = "agent-permissions.json";
const LOCAL: &str = "agent-permissions.local.json";

/// A project of the daemon's machine.
fn project(daemon: &Daemon, name: &str) -> PathBuf {
    let path = daemon.root.join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

fn spawn(daemon: &Daemon, token: &Token, workspace: &Path) -> crate::http::Answer {
    let wish = json!({ "argv": ["true"], "workspace": workspace, "mode": "copy" });
    daemon.with(token, "POST", "/api/v1/runs", Some(&wish))
}

/// What every operation says that reads the policy of a project: REST, MCP and A2A.
fn said(daemon: &Daemon, token: &Token, workspace: &Path) -> Vec<(&'static str, u16, String)> {
    let bearer = format!("Bearer {}", token.0);
    let arguments = json!({ "argv": ["true"], "workspace": workspace });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    let tool = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "spawn_worker", "arguments": arguments, "_meta": meta } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": { "messageId": format!("m-{}", workspace.display()), "role": "ROLE_USER",
            "parts": [{ "text": "go" }],
            "metadata": { "https://bastle.dev/a2a/spawn/v1": arguments } },
        "configuration": { "returnImmediately": true } } });
    let source = json!({ "workspace": workspace });
    let json_body: &[(&str, &str)] = &[("content-type", "application/json")];
    let mcp: &[(&str, &str)] = &[
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "spawn_worker"),
    ];
    let a2a: &[(&str, &str)] = &[("content-type", "application/json"), ("a2a-version", "1.0")];
    let asked = [
        ("/api/v1/policies/effective", json_body, source.clone()),
        ("/api/v1/policies/dry-run", json_body, source),
        ("/api/v1/runs", json_body, arguments),
        ("/mcp", mcp, tool),
        ("/a2a/jsonrpc", a2a, message),
    ];
    let ask = |(path, headers, body): (&'static str, &[(&str, &str)], Value)| {
        let all = [&[("authorization", bearer.as_str())], headers].concat();
        let answer = daemon.net("POST", path, &all, body.to_string().as_bytes());
        (
            path,
            answer.status,
            String::from_utf8_lossy(&answer.body).into_owned(),
        )
    };
    asked.into_iter().map(ask).collect()
}

#[test]
fn a_link_in_a_project_never_shows_a_file_of_the_daemon_to_an_operator() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let token = daemon.root.join("state/bastle/daemon/admin.token");
    let secret = std::fs::read_to_string(&token).expect("the daemon has an admin token");
    let secret = secret.trim();
    // A directory that holds a policy, reached through a link.
    let beside = project(&daemon, "beside");
    std::fs::write(beside.join(POLICY), secret).unwrap();
    let pid = daemon.pid();
    let targets = [
        ("absolute", token.display().to_string()),
        ("relative", "../state/bastle/daemon/admin.token".to_owned()),
        ("environ", "/proc/self/environ".to_owned()),
        ("environ-by-number", format!("/proc/{pid}/environ")),
        ("directory", beside.display().to_string()),
        ("inside", "./real.json".to_owned()),
        ("dangling", "./nothing".to_owned()),
    ];
    for (name, target) in &targets {
        for file in [POLICY, LOCAL] {
            let workspace = project(&daemon, &format!("{name}-{file}"));
            std::fs::write(workspace.join("real.json"), "{\"version\":1}").unwrap();
            symlink(target, workspace.join(file)).unwrap();
            let answer = spawn(&daemon, &operator, &workspace);
            assert_eq!(answer.code(), "BST-POL-004", "{name}: {answer:?}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                text.contains(file) && text.contains("symbolic link"),
                "{name}: {text}"
            );
            for (path, status, text) in said(&daemon, &operator, &workspace) {
                assert!(status < 500, "{name}: {status} {text}");
                assert!(text.contains("symbolic link"), "{name} at {path}: {text}");
                for part in [secret, &secret[..16], "XDG_STATE_HOME", "HOME="] {
                    assert!(!text.contains(part), "{name} tells {part:?}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_fifo_in_the_place_of_a_project_file_is_refused_at_once() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let workspace = project(&daemon, "fifo");
    mknodat(
        CWD,
        workspace.join(POLICY),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let answer = spawn(&daemon, &operator, &workspace);
    assert_eq!(answer.code(), "BST-POL-004", "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("not a regular file"));
    // A link to one does not make anybody wait either.
    let other = project(&daemon, "link");
    symlink("../fifo/agent-permissions.json", other.join(POLICY)).unwrap();
    assert_eq!(spawn(&daemon, &operator, &other).code(), "BST-POL-004");
}

#[test]
fn a_fault_about_a_project_file_has_its_place_and_no_text_of_it() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let admin = daemon.role("admin");
    for (name, content, place) in [
        ("syntax", "{\"version\": 1,\n  MARK7Q2: 1}", ":2:3"),
        ("key", "{\"version\": 1,\n  \"MARK7Q2\": {}}", ":2:3"),
        (
            "value",
            "{\"version\": 1,\n \"net\": {\"allow\": [\"MARK7Q2//\"]}}",
            ":2:",
        ),
    ] {
        let workspace = project(&daemon, name);
        std::fs::write(workspace.join(POLICY), content).unwrap();
        for token in [&operator, &admin] {
            for (path, status, text) in said(&daemon, token, &workspace) {
                assert!(status < 500, "{name}: {text}");
                assert!(!text.contains("MARK7Q2"), "{name} at {path}: {text}");
                assert!(
                    text.contains(place),
                    "{name} at {path} does not say where: {text}"
                );
            }
            let answer = spawn(&daemon, token, &workspace);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.code().starts_with("BST-POL-"), "{name}: {text}");
            assert!(text.contains(place), "{name} does not say where: {text}");
        }
    }
    // The same file without the mistake is read and narrows the run.
    let workspace = project(&daemon, "control");
    std::fs::write(
        workspace.join(POLICY),
        "{\"version\":1,\"fs\":{\"hide\":[\"marked-tool\"]}}",
    )
    .unwrap();
    let source = json!({ "workspace": workspace });
    let answer = daemon.with(&operator, "POST", "/api/v1/policies/effective", Some(&source));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("marked-tool"));
    assert_eq!(spawn(&daemon, &operator, &workspace).status, 201);
}
