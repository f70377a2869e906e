//! `bastle acp` with an editor of our own: every line it is sent is checked with the protocol's schema. The agent is a
//! script that speaks Claude's stream of lines, or the protocol itself.
use crate::kept::verb;
use crate::support::{Lab, Limit, bastle, eventually, for_each_identity};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Does what a prompt says: writes a file, asks for permission, or works until it is interrupted.
pub(crate) const AGENT: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
done='{"type":"result","subtype":"success","result":"done"}'
says() { echo '{"type":"assistant","message":{"id":"'$1'","content":[{"type":"text","text":"'$1'"}]}}'; }
while read -r line; do
  case "$line" in
    *'"subtype":"interrupt"'*) echo '{"type":"result","subtype":"error_during_execution"}' ;;
    *WRITE*) echo hello > made.txt; says wrote; echo "$done" ;;
    *ASK*) echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm x"}}}'
      read -r answer; case "$answer" in *'"behavior":"allow"'*) says allowed ;; *) says denied ;; esac; echo "$done" ;;
    *WAIT*) echo partly > partly.txt; says working ;;
  esac
done
"#;
/// Speaks the protocol and asks for files and terminals of the editor.
const CURIOUS: &str = r#"
read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
for method in fs/read_text_file fs/write_text_file terminal/create; do
  echo '{"jsonrpc":"2.0","id":7,"method":"'$method'","params":{"sessionId":"s","path":"/etc/shadow","content":"x","command":"id"}}'
  read -r answer
  case "$answer" in *-32601*) word=refused ;; *) word=served ;; esac
  echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'$word'"}}}}'
done
echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'
read -r line
"#;

struct Editor<'a> {
    lab: &'a Lab,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    next: u64,
    session: Value,
    /// Everything that came.
    seen: Vec<Value>,
}

impl<'a> Editor<'a> {
    fn start(lab: &'a Lab, driver: &str, agent: &str) -> Self {
        lab.project("agent.sh", agent);
        let mut command = lab.command(bastle());
        command
            .args(["acp", "--workspace", "copy", "--driver", driver])
            .args(["--", "sh", "agent.sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("bastle starts");
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self {
            lab,
            input: child.stdin.take(),
            child,
            lines,
            next: 0,
            session: Value::Null,
            seen: Vec::new(),
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("is open");
        input
            .write_all(bytes)
            .and_then(|()| input.flush())
            .expect("is read");
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.raw(format!("{line}\n").as_bytes());
        id
    }

    /// Waits for a line that fits.
    fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Ok(line) = self.lines.recv_timeout(Limit::HANG.0) else {
                panic!("{what} does not come: {:#?}", self.seen);
            };
            self.seen.push(line.clone());
            if fits(&line) {
                return line;
            }
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.until(&format!("the answer to {id}"), |line| {
            line["id"] == id && line.get("method").is_none()
        })
    }

    fn open(&mut self) {
        let hello = self.ask("initialize", json!({ "protocolVersion": 1 }));
        assert_eq!(self.answer(hello)["result"]["protocolVersion"], 1);
        let cwd = self.lab.workspace().display().to_string();
        let new = self.ask("session/new", json!({ "cwd": cwd, "mcpServers": [] }));
        let session = self.answer(new)["result"]["sessionId"].clone();
        assert_eq!(
            session,
            self.run(),
            "a session is named by its run: no two have one id"
        );
        self.session = session;
    }

    fn prompt(&mut self, words: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": words }]);
        self.ask(
            "session/prompt",
            json!({ "sessionId": self.session, "prompt": prompt }),
        )
    }

    fn text(&self) -> String {
        let of = |line: &Value| Some(line["params"]["update"]["content"]["text"].as_str()?.to_owned());
        self.seen.iter().filter_map(of).collect()
    }

    /// The run that was started for it.
    fn run(&self) -> String {
        let runs = self.lab.home().join(".local/state/bastle/runs");
        let newest = std::fs::read_dir(runs).expect("is there").flatten();
        let newest = newest.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok());
        newest.expect("a run").file_name().to_string_lossy().into_owned()
    }

    fn state(&self, run: &str) -> Value {
        let file = self
            .lab
            .home()
            .join(format!(".local/state/bastle/runs/{run}/run.json"));
        serde_json::from_str(&std::fs::read_to_string(file).unwrap_or_default()).unwrap_or(Value::Null)
    }

    /// Every line follows the schema.
    fn checked(&self) {
        let text = include_str!("../../crates/unprivileged/agents/tests/specs/acp-v1.schema.json");
        let mut schema: Value = serde_json::from_str(text).unwrap();
        let sides = schema["anyOf"].as_array().unwrap().clone();
        assert_eq!(
            (&sides[0]["title"], &sides[2]["title"]),
            (&json!("Agent"), &json!("ProtocolLevel"))
        );
        schema["anyOf"] = json!([sides[0], sides[2]]);
        let schema = jsonschema::validator_for(&schema).unwrap();
        for line in &self.seen {
            assert!(schema.is_valid(line), "{line}");
        }
    }

    /// The editor goes; its exit code and what it printed on its errors.
    fn leave(&mut self) -> (i32, String) {
        self.input = None;
        let mut code = None;
        eventually(Limit::HANG, || {
            code = self.child.try_wait().expect("own child");
            code.is_some()
        });
        let mut errors = String::new();
        let mut stream = self.child.stderr.take().expect("is piped");
        stream.read_to_string(&mut errors).expect("is text");
        while let Ok(line) = self.lines.recv_timeout(Limit::HANG.0) {
            self.seen.push(line);
        }
        (code.and_then(|code| code.code()).unwrap_or(-1), errors)
    }
}

impl Drop for Editor<'_> {
    fn drop(&mut self) {
        // It ends its run when it is gone.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn an_editor_works_with_a_fenced_agent_and_its_work_is_kept_outside_the_project() {
    for_each_identity(|lab| {
        let mut editor = Editor::start(lab, "claude", AGENT);
        editor.open();
        let first = editor.prompt("WRITE it");
        assert_eq!(editor.answer(first)["result"]["stopReason"], "end_turn");
        let second = editor.prompt("ASK me");
        let asked = editor.until("a question", |line| {
            line["method"] == "session/request_permission"
        });
        assert!(asked["params"].to_string().contains("rm x"), "{asked}");
        let yes = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": { "outcome": "selected", "optionId": "once" } } });
        editor.raw(format!("{yes}\n").as_bytes());
        assert_eq!(editor.answer(second)["result"]["stopReason"], "end_turn");
        assert!(
            editor.text().contains("wrote") && editor.text().contains("allowed"),
            "{}",
            editor.text()
        );
        assert!(
            !lab.workspace().join("made.txt").exists(),
            "the project is not touched"
        );
        let run = editor.run();
        let close = editor.ask("session/close", json!({ "sessionId": editor.session }));
        editor.answer(close);
        assert!(
            editor.text().contains(&format!("bastle apply {run}")),
            "{}",
            editor.text()
        );
        let (code, errors) = editor.leave();
        assert_eq!(code, 0, "{errors}");
        assert!(errors.contains(&format!("bastle diff {run}")), "{errors}");
        editor.checked();
        let ended = eventually(Limit::HANG, || editor.state(&run)["state"] == "completed");
        assert!(ended, "{}", editor.state(&run));
        let diff = verb(lab, &["diff", &run]);
        assert!(diff.stdout.contains("made.txt"), "{diff:?}");
        let audit = verb(lab, &["audit", "show", &run]).stdout;
        assert!(audit.contains("p_1") && audit.contains("rm x"), "{audit}");
    });
}

#[test]
fn a_question_answered_elsewhere_is_taken_back_from_the_editor_and_its_late_yes_counts_nothing() {
    for_each_identity(|lab| {
        let mut editor = Editor::start(lab, "claude", AGENT);
        editor.open();
        let prompt = editor.prompt("ASK me");
        let asked = editor.until("a question", |line| {
            line["method"] == "session/request_permission"
        });
        let run = editor.run();
        let denied = verb(lab, &["deny", &run, "p_1"]);
        assert_eq!(denied.code, 0, "{denied:?}");
        let cancel = editor.until("the end of the question", |line| {
            line["method"] == "$/cancel_request"
        });
        assert_eq!(cancel["params"]["requestId"], asked["id"]);
        let yes = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": { "outcome": "selected", "optionId": "once" } } });
        editor.raw(format!("{yes}\n").as_bytes());
        editor.answer(prompt);
        assert!(
            editor.text().contains("denied") && !editor.text().contains("allowed"),
            "{}",
            editor.text()
        );
        editor.checked();
    });
}

#[test]
fn cancelling_interrupts_the_turn_and_an_editor_that_dies_takes_the_agent_with_it_but_not_its_work() {
    for_each_identity(|lab| {
        let mut editor = Editor::start(lab, "claude", AGENT);
        editor.open();
        let working = |line: &Value| line.to_string().contains("working");
        let prompt = editor.prompt("WAIT");
        editor.until("work", working);
        let params = json!({ "sessionId": editor.session });
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
        editor.raw(format!("{cancel}\n").as_bytes());
        assert_eq!(editor.answer(prompt)["result"]["stopReason"], "cancelled");
        editor.prompt("WAIT again");
        editor.until("work", working);
        editor.checked();
        let run = editor.run();
        assert_eq!(editor.state(&run)["state"], "running");
        editor.child.kill().expect("own child");
        let ended = eventually(Limit::HANG, || editor.state(&run)["state"] == "cancelled");
        assert!(ended, "{}", editor.state(&run));
        let diff = verb(lab, &["diff", &run]);
        assert!(diff.stdout.contains("partly.txt"), "{diff:?}");
    });
}

#[test]
fn bad_input_of_an_editor_is_answered_with_the_protocols_errors_and_starts_nothing() {
    for_each_identity(|lab| {
        let mut editor = Editor::start(lab, "claude", AGENT);
        let code = |editor: &mut Editor<'_>, method: &str, params: Value| {
            let id = editor.ask(method, params);
            editor.answer(id)["error"]["code"].clone()
        };
        assert_eq!(
            code(&mut editor, "initialize", json!({ "protocolVersion": "1" })),
            -32602
        );
        let other = editor.ask("initialize", json!({ "protocolVersion": 65535 }));
        assert_eq!(
            editor.answer(other)["result"]["protocolVersion"],
            1,
            "ours is told"
        );
        assert_eq!(
            code(
                &mut editor,
                "session/prompt",
                json!({ "sessionId": "bastle", "prompt": [] })
            ),
            -32602
        );
        assert_eq!(
            code(&mut editor, "session/close", json!({ "sessionId": "bastle" })),
            -32602
        );
        assert_eq!(
            code(&mut editor, "fs/read_text_file", json!({ "path": "/etc/passwd" })),
            -32601
        );
        for cwd in ["", "relative", "/tmp/../etc"] {
            let params = json!({ "cwd": cwd, "mcpServers": [] });
            assert_eq!(code(&mut editor, "session/new", params), -32602, "{cwd}");
        }
        let nowhere = json!({ "cwd": "/nonexistent/project", "mcpServers": [] });
        assert_eq!(code(&mut editor, "session/new", nowhere), -32603);
        editor.raw(b"this is no message\n");
        editor.until("an error", |line| line["error"]["code"] == -32700);
        editor.raw(&[vec![b'x'; 5_000_000], vec![b'\n']].concat());
        editor.until("an error", |line| line["error"]["code"] == -32700);
        let runs = lab.home().join(".local/state/bastle/runs");
        let started = std::fs::read_dir(runs).map_or(0, |runs| runs.flatten().count());
        assert_eq!(started, 0, "nothing was started");
        editor.open();
        let cwd = lab.workspace().display().to_string();
        assert_eq!(
            code(
                &mut editor,
                "session/new",
                json!({ "cwd": cwd, "mcpServers": [] })
            ),
            -32603
        );
        let (one, two) = (editor.prompt("WAIT"), editor.prompt("WRITE it"));
        assert_eq!(
            editor.answer(one)["result"]["stopReason"],
            "end_turn",
            "the second is said to the working agent"
        );
        let both = editor.seen.iter().any(|line| line["id"] == two);
        assert!(both || editor.answer(two)["result"]["stopReason"] == "end_turn");
        editor.checked();
        let (code, errors) = editor.leave();
        assert_eq!(code, 0, "{errors}");
    });
}

#[test]
fn files_and_terminals_that_an_agent_asks_for_are_never_asked_of_the_editor() {
    for_each_identity(|lab| {
        let mut editor = Editor::start(lab, "acp", CURIOUS);
        editor.open();
        let prompt = editor.prompt("go");
        editor.answer(prompt);
        assert_eq!(editor.text().matches("refused").count(), 3, "{}", editor.text());
        let asked = editor.seen.iter().filter(|line| {
            let method = line["method"].as_str().unwrap_or_default();
            method.starts_with("fs/") || method.starts_with("terminal/")
        });
        assert_eq!(asked.count(), 0);
        editor.checked();
    });
}
