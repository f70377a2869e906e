//! Driven agents through the daemon: a profile or a request says how they are spoken to; what they ask becomes approvals.
//! The agent is a script that speaks Claude's stream of lines; what it was told is read from its errors.
use crate::daemon::Daemon;
use crate::support::{Limit, bastle, eventually};
use serde_json::{Value, json};
use std::process::Command;

/// Takes the greeting and the prompt; tells what it was asked.
const BEGIN: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt; printf '%s\n' "$prompt" >&2
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"I look"}]}}'
"#;
const ASK: &str = r#"
echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf x"}}}'
read -r answer; printf '%s\n' "$answer" >&2
"#;
const DONE: &str = "echo '{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"done\"}'\n";
/// Takes what else is said until its input ends.
const LISTEN: &str = r#"
while read -r more; do printf 'more: %s\n' "$more" >&2; echo '{"type":"result","subtype":"success"}'; done
echo closed >&2
"#;

impl Daemon {
    /// Keeps a profile of this name whose agent is driven as Claude and is this script.
    fn keep_profile(&self, name: &str, script: &str) {
        let document = json!({
            "version": 1, "name": name, "agent": "script", "driver": "claude",
            "command": ["sh", "-c", "echo alone; cat >&2"], "driven": ["sh", "-c", script],
        });
        let path = format!("/api/v1/profiles/{name}");
        let put = self.own("PUT", &path, Some(&json!({ "document": document })));
        assert!(put.status < 300, "{}", String::from_utf8_lossy(&put.body));
    }

    /// Asks for a run of that profile.
    fn ask_for(&self, more: Value) -> crate::http::Answer {
        let mut wish = json!({ "profile": "script", "workspace": self.workspace(), "mode": "copy" });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        self.own("POST", "/api/v1/runs", Some(&wish))
    }

    fn started(&self, more: Value) -> String {
        let made = self.ask_for(more);
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json()["runs"][0]["name"].as_str().unwrap().to_owned()
    }

    /// What a run printed on one of its streams.
    fn printed(&self, run: &str, stream: &str) -> String {
        let logs = self.own("GET", &format!("/api/v1/runs/{run}/logs"), None).json();
        let records = logs["records"].as_array().cloned().unwrap_or_default();
        let of = records.iter().filter(|record| record["stream"] == stream);
        of.map(|record| record["text"].as_str().unwrap_or_default())
            .collect()
    }

    fn tell(&self, run: &str, verb: &str, body: &Value) -> crate::http::Answer {
        self.own("POST", &format!("/api/v1/runs/{run}/{verb}"), Some(body))
    }

    /// The verb of the command line, against this daemon.
    fn verb(&self, words: &[&str]) -> (i32, String) {
        let said = Command::new(bastle())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.root.join("home"))
            .env("XDG_STATE_HOME", self.root.join("elsewhere"))
            .args(["--host", &format!("unix://{}", self.socket.display())])
            .args(words)
            .output()
            .unwrap();
        let text = [said.stdout, said.stderr].concat();
        (
            said.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

#[test]
fn a_profile_says_how_its_agent_is_driven_and_one_prompt_is_one_turn() {
    let daemon = Daemon::start(&[]);
    daemon.keep_profile("script", &format!("{BEGIN}{DONE}{LISTEN}"));
    let run = daemon.started(json!({ "prompt": "fix the test" }));
    let ended = daemon.until(&run, &["completed", "failed"]);
    assert_eq!(
        (&ended["state"], &ended["code"]),
        (&json!("completed"), &json!(0))
    );
    let told = daemon.printed(&run, "errors");
    assert!(told.contains("fix the test"), "{told}");
    assert!(
        told.contains("END OF BASTLE PREAMBLE"),
        "the preamble goes before it: {told}"
    );
    assert!(told.contains("closed"), "its input ends with the turn: {told}");
    let (code, said) = daemon.verb(&["say", &run, "more"]);
    assert_ne!(code, 0, "{said}");
    // A request can have the agent without its protocol.
    let alone = daemon.started(json!({ "prompt": "fix the test", "driver": "none" }));
    daemon.until(&alone, &["completed"]);
    assert!(daemon.printed(&alone, "output").contains("alone"));
}

#[test]
fn what_cannot_be_driven_is_refused_before_anything_starts() {
    let daemon = Daemon::start(&[]);
    daemon.keep_profile("script", DONE);
    for (wish, why) in [
        (json!({ "prompt": "x", "driver": "telepathy" }), "no driver"),
        (json!({ "prompt": "x", "driver": "codex" }), "driven as"),
        (json!({ "driver": "claude" }), "needs a prompt"),
        (
            json!({ "prompt": "x", "driver": "claude", "tty": { "rows": 9, "cols": 9 } }),
            "terminal",
        ),
    ] {
        let answer = daemon.ask_for(wish.clone());
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!((400..500).contains(&answer.status), "{wish}: {body}");
        assert!(body.contains(why), "{wish}: {body}");
    }
    let lone = json!({ "version": 1, "name": "lone", "driven": ["x"] });
    let put = daemon.own("PUT", "/api/v1/profiles/lone", Some(&json!({ "document": lone })));
    assert!(
        (400..500).contains(&put.status),
        "a command to be driven needs a driver"
    );
    let runs = daemon.own("GET", "/api/v1/runs", None).json();
    assert_eq!(runs["items"].as_array().map(Vec::len), Some(0), "{runs}");
}

#[test]
fn an_agent_that_is_kept_open_waits_for_what_it_is_told_until_it_is_stopped() {
    let daemon = Daemon::start(&[]);
    daemon.keep_profile("script", &format!("{BEGIN}{DONE}{LISTEN}"));
    let run = daemon.started(json!({ "prompt": "first", "open_input": true }));
    let idle = daemon.until(&run, &["needs-input", "completed", "failed"]);
    assert_eq!(idle["state"], "needs-input", "{idle}");
    assert!(
        idle["reason"].as_str().unwrap_or_default().starts_with("idle"),
        "{idle}"
    );
    assert!(!daemon.printed(&run, "errors").contains("closed"));
    let (code, said) = daemon.verb(&["say", &run, "second thing"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("asked"), "{said}");
    let heard = || daemon.printed(&run, "errors").contains("second thing");
    assert!(
        eventually(Limit::HANG, heard),
        "{}",
        daemon.printed(&run, "errors")
    );
    daemon.until(&run, &["needs-input"]);
    let refused = daemon.tell(&run, "interrupt", &json!({}));
    assert_eq!(refused.status, 409, "nothing works");
    assert_eq!(daemon.tell(&run, "stop", &json!({ "grace_ms": 0 })).status, 200);
    assert_eq!(
        daemon.until(&run, &["cancelled", "completed"])["state"],
        "cancelled"
    );
}

#[test]
fn a_permission_the_agent_asks_for_is_an_approval_and_the_first_answer_counts() {
    let daemon = Daemon::start(&[]);
    daemon.keep_profile("script", &format!("{BEGIN}{ASK}{DONE}{LISTEN}"));
    let run = daemon.started(json!({ "prompt": "go" }));
    let mut open = Value::Null;
    let asked = eventually(Limit::HANG, || {
        open = daemon.own("GET", "/api/v1/approvals", None).json();
        open["items"].as_array().is_some_and(|items| !items.is_empty())
    });
    assert!(asked, "{open}");
    assert!(
        open.to_string().contains("rm -rf x"),
        "what exactly is shown: {open}"
    );
    assert!(!daemon.printed(&run, "errors").contains("behavior"));
    let (code, listed) = daemon.verb(&["approvals", "ls"]);
    assert_eq!(code, 0, "{listed}");
    assert!(listed.contains("rm -rf x") && listed.contains(&run), "{listed}");
    let id = open["items"][0]["id"].to_string();
    let (code, said) = daemon.verb(&["approvals", "deny", &id]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = daemon.verb(&["approvals", "approve", &id]);
    assert_ne!(code, 0, "the second answer is none: {said}");
    daemon.until(&run, &["completed"]);
    let told = daemon.printed(&run, "errors");
    assert!(
        told.contains(r#""behavior":"deny""#) && !told.contains(r#""behavior":"allow""#),
        "{told}"
    );
}

#[test]
fn a_turn_that_fails_fails_the_run_and_an_agent_that_will_not_go_is_ended_with_its_work_counted() {
    let daemon = Daemon::start(&[]);
    let failed = r#"echo '{"type":"result","subtype":"error_during_execution","is_error":true}'"#;
    daemon.keep_profile("script", &format!("{BEGIN}{failed}\n{LISTEN}"));
    let run = daemon.started(json!({ "prompt": "go" }));
    let ended = daemon.until(&run, &["completed", "failed"]);
    assert_eq!((&ended["state"], &ended["code"]), (&json!("failed"), &json!(1)));
    // This one does not take the end of its input for the end.
    daemon.keep_profile("script", &format!("{BEGIN}{DONE}exec sleep 1000\n"));
    let run = daemon.started(json!({ "prompt": "go" }));
    let ended = daemon.until(&run, &["completed", "failed", "cancelled"]);
    assert_eq!(
        (&ended["state"], &ended["code"]),
        (&json!("completed"), &json!(0)),
        "{ended}"
    );
}

/// Asks about one tool, and tells the answer under a name.
fn asks(name: &str, tool: &str, input: &Value) -> String {
    let request = json!({ "type": "control_request", "request_id": name,
        "request": { "subtype": "can_use_tool", "tool_name": tool, "input": input } });
    format!("echo '{request}'\nread -r answer; printf '{name}: %s\\n' \"$answer\" >&2\n")
}

#[test]
fn rules_about_tools_answer_the_agent_before_a_person_is_asked() {
    let daemon = Daemon::start(&[]);
    let script = [
        BEGIN.to_owned(),
        asks("listed", "Bash", &json!({ "command": "cargo test -q" })),
        asks("banned", "WebFetch", &json!({ "url": "https://example.com/" })),
        asks(
            "chained",
            "Bash",
            &json!({ "command": "cargo test -q; rm -rf x" }),
        ),
        asks("again", "Bash", &json!({ "command": "cargo test -q; rm -rf x" })),
        DONE.to_owned(),
    ];
    std::fs::write(daemon.root.join("ws/agent.sh"), script.concat()).unwrap();
    let document = json!({
        "version": 1, "name": "script", "agent": "script", "driver": "claude", "command": ["true"],
        "driven": ["sh", "agent.sh"],
        "tools": { "allow": ["Bash(cargo test *)"], "deny": ["WebFetch"] },
    });
    let put = daemon.own(
        "PUT",
        "/api/v1/profiles/script",
        Some(&json!({ "document": document })),
    );
    assert!(put.status < 300, "{}", String::from_utf8_lossy(&put.body));
    let run = daemon.started(json!({ "prompt": "go" }));
    let open = || daemon.own("GET", "/api/v1/approvals", None).json()["items"].clone();
    let asked = eventually(Limit::HANG, || {
        open().as_array().is_some_and(|items| !items.is_empty())
    });
    assert!(asked, "{}", daemon.printed(&run, "errors"));
    let open = open();
    assert_eq!(open.as_array().map(Vec::len), Some(1), "{open}");
    assert!(
        open[0].to_string().contains("rm -rf x"),
        "what is not listed is asked: {open}"
    );
    // What it wrote beside its protocol is another stream: the question may be there before it.
    let mut told = String::new();
    eventually(Limit::HANG, || {
        told = daemon.printed(&run, "errors");
        told.lines().any(|line| line.starts_with("banned"))
    });
    let line = |name: &str| {
        told.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(line("listed").contains(r#""behavior":"allow""#), "{told}");
    assert!(line("banned").contains(r#""behavior":"deny""#), "{told}");
    let id = open[0]["id"].to_string();
    let (code, said) = daemon.verb(&["approvals", "approve", &id, "--scope", "session"]);
    assert_eq!(code, 0, "{said}");
    daemon.until(&run, &["completed"]);
    let told = daemon.printed(&run, "errors");
    let line = |name: &str| {
        told.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(line("chained").contains(r#""behavior":"allow""#), "{told}");
    assert!(
        line("again").contains(r#""behavior":"allow""#),
        "the same holds for the rest of the run: {told}"
    );
    let events = daemon.own("GET", &format!("/api/v1/runs/{run}/events"), None);
    let text = String::from_utf8_lossy(&events.body).into_owned();
    assert!(
        text.contains("run.permit.v1") && text.contains("cargo test") && text.contains("WebFetch"),
        "both are told: {text}"
    );
}
