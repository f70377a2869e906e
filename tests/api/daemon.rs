//! A daemon of its own for each test: a fresh home, a fresh socket, a port that the system chose. Its runs end with it.
use crate::http::{Answer, Socket, Stream, exchange, request, tcp, unix};
use crate::support::{Limit, bastle, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// A daemon that answers.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) root: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

/// Whose token.
pub(crate) struct Token(pub(crate) String);

impl Daemon {
    /// Starts one.
    pub(crate) fn start(words: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("bastle-api-").tempdir().unwrap();
        let root = dir.path().to_path_buf();
        for name in ["home", "state", "run", "ws"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("ws/hello.txt"), "hello\n").unwrap();
        // Projects of whoever is no admin lie below the home directory unless the settings say otherwise.
        std::fs::create_dir_all(root.join("home/.config/bastle")).unwrap();
        let settings = json!({ "ceiling": { "roots": [root] } });
        std::fs::write(root.join("home/.config/bastle/serve.json"), settings.to_string()).unwrap();
        Self::start_in(root, Some(dir), words)
    }

    /// Starts one where another was.
    pub(crate) fn start_in(root: PathBuf, dir: Option<tempfile::TempDir>, words: &[&str]) -> Self {
        Self::start_with(root, dir, words, &[])
    }

    /// The same, with further variables.
    pub(crate) fn start_with(
        root: PathBuf,
        dir: Option<tempfile::TempDir>,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let socket = root.join("run/bastle.sock");
        let mut child = Command::new(bastle())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", root.join("home"))
            .env("XDG_STATE_HOME", root.join("state"))
            .env("XDG_RUNTIME_DIR", root.join("run"))
            .envs(variables.iter().copied())
            .current_dir(&root)
            .args(["serve", "--listen", "127.0.0.1:0", "--socket"])
            .arg(&socket)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bastle starts");
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Whoever listens may have heard enough.
                drop(sender.send(line));
            }
        });
        let mut heard = String::new();
        let address = loop {
            let line = told
                .recv_timeout(Limit::HANG.0)
                .unwrap_or_else(|_| panic!("the daemon does not come up: {heard}"));
            heard.push_str(&line);
            let url = line
                .split("http://")
                .nth(1)
                .or_else(|| line.split("https://").nth(1));
            if let Some(url) = url {
                break url.split_whitespace().next().unwrap().parse().unwrap();
            }
        };
        Self {
            child,
            address,
            socket,
            root,
            _dir: dir,
        }
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its project.
    pub(crate) fn workspace(&self) -> String {
        self.root.join("ws").display().to_string()
    }

    /// Asks over the local socket, as its owner.
    pub(crate) fn own(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        let headers = [("host", "localhost"), ("content-type", "application/json")];
        exchange(
            &mut unix(&self.socket),
            &request(method, path, &headers, body.as_bytes()),
        )
    }

    /// Asks over TCP with these headers besides the host.
    pub(crate) fn net(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let host = self.address.to_string();
        let all = [&[("host", host.as_str())], headers].concat();
        exchange(&mut tcp(self.address), &request(method, path, &all, body))
    }

    /// Asks over TCP with a token.
    pub(crate) fn with(&self, token: &Token, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {}", token.0);
        let body = body.map(Value::to_string).unwrap_or_default();
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        self.net(method, path, &headers, body.as_bytes())
    }

    /// Opens a WebSocket over TCP with a token.
    pub(crate) fn websocket(&self, token: &Token, path: &str) -> Result<Socket, Answer> {
        let bearer = format!("Bearer {}", token.0);
        let host = self.address.to_string();
        let stream: Box<dyn Stream> = Box::new(tcp(self.address));
        Socket::open(stream, path, &[("host", &host), ("authorization", &bearer)])
    }

    /// Makes a token.
    pub(crate) fn token(&self, wish: Value) -> Token {
        let made = self.own("POST", "/api/v1/tokens", Some(&wish));
        assert_eq!(made.status, 201, "{made:?}");
        Token(made.json()["secret"].as_str().expect("a secret").to_owned())
    }

    /// A token of a role.
    pub(crate) fn role(&self, role: &str) -> Token {
        self.token(json!({ "role": role }))
    }

    /// Starts a shell command as a run and gives its name.
    pub(crate) fn spawn(&self, script: &str) -> String {
        let wish = json!({ "argv": ["sh", "-c", script], "workspace": self.workspace(), "mode": "copy" });
        let made = self.own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json()["runs"][0]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    }

    /// Waits until a run is in one of these states.
    pub(crate) fn until(&self, run: &str, states: &[&str]) -> Value {
        let mut last = Value::Null;
        let reached = eventually(Limit::HANG, || {
            last = self.own("GET", &format!("/api/v1/runs/{run}"), None).json();
            states.iter().any(|state| last["state"] == *state)
        });
        assert!(reached, "{run} does not come to {states:?}: {last}");
        last
    }

    /// Everything that a request could have changed.
    pub(crate) fn everything(&self) -> Value {
        let get = |path: &str| self.own("GET", path, None).json();
        json!({
            "runs": get("/api/v1/runs"), "batches": get("/api/v1/batches"), "tokens": get("/api/v1/tokens"),
            "profiles": get("/api/v1/profiles"), "approvals": get("/api/v1/approvals"),
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("own child");
    }

    /// Waits for its end; its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        eventually(Limit::HANG, || {
            code = self
                .child
                .try_wait()
                .expect("own child")
                .and_then(|status| status.code());
            code.is_some()
        });
        code
    }

    /// Ends it without ending its runs.
    pub(crate) fn leave(mut self) -> (PathBuf, Option<tempfile::TempDir>) {
        self.signal(Signal::TERM);
        assert_eq!(self.ended(), Some(0), "it ends in order");
        (self.root.clone(), self._dir.take())
    }

    /// A field of its status in /proc, in its unit.
    pub(crate) fn status(&self, field: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// How many descriptors it has.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let alive = matches!(self.child.try_wait(), Ok(None));
        if alive && self._dir.is_some() && Path::new(&self.socket).exists() {
            let how = json!({ "all": true, "kill": true });
            let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.own("POST", "/api/v1/stop", Some(&how));
                eventually(Limit::HANG, || {
                    self.own("GET", "/api/v1/agents/active", None).json()["count"] == 0
                })
            }));
            drop(stopped);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
