//! A daemon with the agent protocol, and callers that hold every body it sends to the protocol's schema.
use crate::daemon::{Daemon, Token};
use crate::forms::{Binding, is_answer, is_event};
use crate::http::{Answer, HANG, request, tcp};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The extension that says how a worker is started.
pub(crate) const SPAWN: &str = "https://bastle.dev/a2a/spawn/v1";

/// A daemon and an operator of it.
pub(crate) struct World {
    pub(crate) daemon: Daemon,
    pub(crate) token: Token,
    pub(crate) config: tempfile::TempDir,
}

/// A message of somebody.
pub(crate) fn message(text: &str) -> Value {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    json!({ "messageId": format!("m-{count}"), "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A message that starts a shell script.
pub(crate) fn starting(script: &str, also: &Value) -> Value {
    let mut wish = json!({ "argv": ["sh", "-c", script] });
    for (name, value) in also.as_object().unwrap() {
        wish[name] = value.clone();
    }
    let mut message = message("do it");
    message["metadata"] = json!({ SPAWN: wish });
    message
}

impl World {
    pub(crate) fn new(settings: Value) -> Self {
        let config = tempfile::tempdir().unwrap();
        let file = config.path().join("serve.json");
        let roots = json!({ "roots": [std::env::temp_dir()] });
        let whole = json!({ "requests_per_second": 1000, "a2a": settings, "ceiling": roots });
        std::fs::write(&file, whole.to_string()).unwrap();
        let daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
        let token = daemon.role("approver");
        Self {
            daemon,
            token,
            config,
        }
    }

    /// The usual one; a message that names no project is about the daemon's own.
    pub(crate) fn usual() -> Self {
        Self::new(json!({}))
    }

    /// A message that starts a script on the daemon's own project.
    pub(crate) fn starting(&self, script: &str, also: &Value) -> Value {
        let mut message = starting(script, also);
        message["metadata"][SPAWN]["workspace"] = json!(self.daemon.workspace());
        message
    }

    /// Sends a request as it is; its answer is held to the protocol.
    pub(crate) fn net(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let answer = self.daemon.net(method, path, headers, body);
        is_answer(method, path, body, &answer);
        answer
    }

    /// Sends a request with a token and the version.
    pub(crate) fn rest_as(&self, token: &Token, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {}", token.0);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut headers = vec![("authorization", bearer.as_str()), ("a2a-version", "1.0")];
        if !body.is_empty() {
            headers.push(("content-type", "application/a2a+json"));
        }
        self.net(method, path, &headers, body.as_bytes())
    }

    /// The same as the operator.
    pub(crate) fn rest(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.rest_as(&self.token, method, path, body)
    }

    /// A call of JSON-RPC at an address, as somebody; the whole answer.
    pub(crate) fn rpc_as(&self, token: &Token, at: &str, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": "c1", "method": method, "params": params });
        let bearer = format!("Bearer {}", token.0);
        let headers = [
            ("authorization", bearer.as_str()),
            ("a2a-version", "1.0"),
            ("content-type", "application/json"),
        ];
        let answer = self.net(
            "POST",
            &format!("{at}/jsonrpc"),
            &headers,
            call.to_string().as_bytes(),
        );
        let value = answer.json();
        if value.get("error").is_none() {
            assert_eq!(value["id"], "c1", "{value}");
            assert_eq!(answer.status, 200);
        }
        value
    }

    /// A call at the door that succeeds.
    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        let value = self.rpc_as(&self.token, "/a2a", method, params);
        assert!(value.get("error").is_none(), "{method}: {value}");
        value["result"].clone()
    }

    /// A call at the door that is refused; its number.
    pub(crate) fn refused(&self, method: &str, params: &Value) -> i64 {
        let value = self.rpc_as(&self.token, "/a2a", method, params);
        let error = &value["error"];
        assert!(error["message"].is_string(), "{method}: {value}");
        assert!(error["data"][0]["@type"].is_string(), "{value}");
        error["code"].as_i64().unwrap()
    }

    /// Starts a script at the door and does not wait; the task's id.
    pub(crate) fn start(&self, script: &str, also: &Value) -> String {
        let params = json!({
            "message": self.starting(script, also), "configuration": { "returnImmediately": true },
        });
        let task = self.call("SendMessage", &params)["task"].clone();
        task["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a task is in a state; the task.
    pub(crate) fn until(&self, task: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let came = crate::support::eventually(crate::support::Limit::HANG, || {
            last = self.call("GetTask", &json!({ "id": task }));
            last["status"]["state"] == state
        });
        assert!(came, "{task} does not come to {state}: {last:#}");
        last
    }

    /// Opens a stream of events.
    pub(crate) fn stream(&self, token: &Token, method: &str, path: &str, body: Option<&Value>) -> Events {
        let mut stream = tcp(self.daemon.address);
        let host = self.daemon.address.to_string();
        let bearer = format!("Bearer {}", token.0);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut headers = vec![
            ("host", host.as_str()),
            ("authorization", bearer.as_str()),
            ("a2a-version", "1.0"),
        ];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        stream
            .write_all(&request(method, path, &headers, body.as_bytes()))
            .unwrap();
        Events::open(stream, Binding::of(path))
    }
}

/// Server-sent events, one at a time.
pub(crate) struct Events {
    stream: TcpStream,
    binding: Binding,
    /// As it came, behind the head.
    raw: Vec<u8>,
    /// Without the marks of chunks.
    plain: Vec<u8>,
    pub(crate) head: String,
    whole: bool,
}

impl Events {
    fn open(stream: TcpStream, binding: Binding) -> Self {
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut events = Self {
            stream,
            binding,
            raw: Vec::new(),
            plain: Vec::new(),
            head: String::new(),
            whole: false,
        };
        while events.head.is_empty() {
            assert!(events.more(), "no head: {}", String::from_utf8_lossy(&events.raw));
            if let Some(end) = events.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                events.head = String::from_utf8_lossy(&events.raw[..end]).to_ascii_lowercase();
                events.raw.drain(..end + 4);
            }
        }
        events
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 16384];
        let count = self.stream.read(&mut buffer).expect("a stream that goes on");
        self.raw.extend_from_slice(&buffer[..count]);
        count > 0
    }

    fn unchunk(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
            if size == 0 {
                self.whole = true;
                return;
            }
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.plain.extend_from_slice(&self.raw[end + 2..end + 2 + size]);
            self.raw.drain(..end + 2 + size + 2);
        }
    }

    /// The data of the next event, held to the form of the protocol; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.plain.windows(2).position(|two| two == b"\n\n") {
                let event = String::from_utf8(self.plain[..end].to_vec()).unwrap();
                self.plain.drain(..end + 2);
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(data) = data {
                    let value = serde_json::from_str(data).unwrap();
                    is_event(self.binding, &value);
                    return Some(value);
                }
                continue;
            }
            if self.whole {
                return None;
            }
            assert!(self.more(), "it ended in the middle");
            self.unchunk();
        }
    }

    /// Everything to the end.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }
}
