//! Two clients: one on pipes, one over HTTP, in the revision without sessions and in the older ones.
use crate::daemon::{Daemon, Token};
use crate::http::Answer;
use crate::support::{Limit, bastle};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

pub(crate) const MODERN: &str = "2026-07-28";

/// What a modern request says about itself.
pub(crate) fn meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

/// `bastle mcp`, and what it says. Ended with the test.
pub(crate) struct Pipes {
    child: Child,
    input: Option<ChildStdin>,
    said: mpsc::Receiver<String>,
    next: u64,
    /// Notifications that came before answers.
    pub(crate) told: Vec<Value>,
}

impl Pipes {
    /// Starts one that talks to this daemon over its socket, as the owner who says nothing more.
    pub(crate) fn open(daemon: &Daemon) -> Self {
        let socket = format!("unix://{}", daemon.socket.display());
        Self::start(&daemon.root, &["--host", &socket])
    }

    /// The same with a role that the person chose.
    pub(crate) fn with_role(daemon: &Daemon, role: &str) -> Self {
        let socket = format!("unix://{}", daemon.socket.display());
        Self::start_with(&daemon.root, &["--host", &socket], &["--role", role])
    }

    /// Starts one with these words before the verb.
    pub(crate) fn start(root: &Path, words: &[&str]) -> Self {
        Self::start_with(root, words, &[])
    }

    fn start_with(root: &Path, words: &[&str], flags: &[&str]) -> Self {
        let mut child = Command::new(bastle())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", root.join("home"))
            .env("XDG_STATE_HOME", root.join("elsewhere"))
            .env("XDG_RUNTIME_DIR", root.join("nowhere"))
            .args(words)
            .arg("mcp")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bastle starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Whoever listens may have heard enough.
                drop(sender.send(line));
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            said,
            next: 0,
            told: Vec::new(),
        }
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// The next line, which is a message or nothing is.
    pub(crate) fn hear(&mut self) -> Value {
        let line = self.said.recv_timeout(Limit::HANG.0).expect("it says something");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Sends a request and gives its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write(&message.to_string());
        self.next
    }

    /// Waits for the answer to this request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
            self.told.push(message);
        }
    }

    /// A modern request and its answer.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if params.get("_meta").is_none() {
            params["_meta"] = meta(json!({}));
        }
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Uses a tool; its result, which may be a refusal.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{name}: {answer}");
        answer["result"].clone()
    }

    /// Closes the input and waits; the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        drop(self.input.take());
        let mut code = None;
        crate::support::eventually(Limit::HANG, || {
            code = self
                .child
                .try_wait()
                .expect("own child")
                .and_then(|status| status.code());
            code.is_some()
        });
        code
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The messages of an answer over HTTP, whole or as a stream.
pub(crate) fn messages(answer: &Answer) -> Vec<Value> {
    if !answer.head.contains("text/event-stream") {
        return vec![answer.json()];
    }
    String::from_utf8_lossy(&answer.body)
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Somebody with a token, over HTTP.
pub(crate) struct Web<'a> {
    pub(crate) daemon: &'a Daemon,
    pub(crate) token: Token,
}

impl<'a> Web<'a> {
    /// With a token of this kind.
    pub(crate) fn new(daemon: &'a Daemon, wish: Value) -> Self {
        Self {
            daemon,
            token: daemon.token(wish),
        }
    }

    /// Posts bytes with these headers besides the usual ones.
    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let bearer = format!("Bearer {}", self.token.0);
        let usual = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.daemon.net("POST", "/mcp", &[&usual, headers].concat(), body)
    }

    /// A modern request with all its headers.
    pub(crate) fn send(&self, method: &str, mut params: Value) -> Answer {
        if params.get("_meta").is_none() {
            params["_meta"] = meta(json!({}));
        }
        let name = params
            .get("name")
            .or_else(|| params.get("uri"))
            .and_then(Value::as_str)
            .unwrap_or("none")
            .to_owned();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let headers = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", method),
            ("mcp-name", name.as_str()),
        ];
        self.post(&headers, body.as_bytes())
    }

    /// A modern request; its last message.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        messages(&self.send(method, params)).pop().expect("an answer")
    }

    /// Uses a tool; its result, which may be a refusal.
    pub(crate) fn tool(&self, name: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{name}: {answer}");
        answer["result"].clone()
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> String {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
