//! Every tool once, against a real daemon and fenced runs; every answer has the form that was announced.
use crate::client::{Pipes, Web, meta, text};
use crate::daemon::Daemon;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A driven agent that speaks Claude's stream of lines: asks once, then takes what it is told.
pub(crate) const ASKS: &str = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
echo '{"type":"control_request","request_id":"u1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf x"}}}'
read -r answer; printf 'answer: %s\n' "$answer" >&2
echo '{"type":"result","subtype":"success","result":"done"}'
while read -r more; do printf 'more: %s\n' "$more" >&2; echo '{"type":"result","subtype":"success"}'; done
"#;

/// Keeps a profile of a driven script.
pub(crate) fn keep(daemon: &Daemon, script: &str) {
    let document = json!({
        "version": 1, "name": "script", "agent": "script", "driver": "claude",
        "command": ["sh", "-c", "cat"], "driven": ["sh", "-c", script],
    });
    let put = daemon.own(
        "PUT",
        "/api/v1/profiles/script",
        Some(&json!({ "document": document })),
    );
    assert!(put.status < 300, "{}", String::from_utf8_lossy(&put.body));
}

/// A worker of that profile which is about to ask, and its question.
pub(crate) fn asked(daemon: &Daemon, name: &str) -> Value {
    let wish = json!({
        "profile": "script", "prompt": "go", "workspace": daemon.workspace(), "mode": "copy", "name": name,
        "open_input": true,
    });
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let mut found = Value::Null;
    let there = crate::support::eventually(crate::support::Limit::HANG, || {
        let all = daemon
            .own("GET", &format!("/api/v1/approvals?state=open&run={name}"), None)
            .json();
        found = all["items"][0].clone();
        found.is_object()
    });
    let run = || daemon.own("GET", &format!("/api/v1/runs/{name}"), None).json();
    assert!(there, "{name} asks nothing: {}", run());
    found
}

/// A client that holds every answer to its announced form, and remembers which tools it used.
struct Checked {
    pipes: Pipes,
    forms: BTreeMap<String, Value>,
    used: BTreeMap<String, u32>,
}

impl Checked {
    fn call(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.pipes.tool(name, arguments);
        assert_eq!(result["isError"], false, "{name}: {}", text(&result));
        let value = &result["structuredContent"];
        let checker = jsonschema::validator_for(&self.forms[name]).unwrap();
        assert!(
            checker.is_valid(value),
            "{name}: {value} is not {}",
            self.forms[name]
        );
        assert_eq!(
            serde_json::from_str::<Value>(&text(&result)).unwrap(),
            *value,
            "{name}"
        );
        *self.used.entry(name.to_owned()).or_default() += 1;
        value.clone()
    }
}

/// The pipes, with the form of every answer; every tool has hints and a form of what it takes.
fn checked(daemon: &Daemon) -> Checked {
    let mut pipes = Pipes::with_role(daemon, "approver");
    let listed = pipes.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    let forms = tools
        .iter()
        .map(|tool| {
            (
                tool["name"].as_str().unwrap().to_owned(),
                tool["outputSchema"].clone(),
            )
        })
        .collect();
    for tool in &tools {
        let hints = &tool["annotations"];
        for hint in [
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        ] {
            assert!(hints[hint].is_boolean(), "{tool}");
        }
        jsonschema::validator_for(&tool["inputSchema"]).unwrap();
    }
    Checked {
        pipes,
        forms,
        used: BTreeMap::new(),
    }
}

/// What one worker made is seen, read and taken.
fn makes(all: &mut Checked, daemon: &Daemon) {
    let ws = daemon.workspace();
    let script = "echo working; echo new > made.txt; mkdir d; echo deep > d/e.txt";
    let wish = json!({ "workspace": ws, "mode": "copy", "name": "maker", "argv": ["sh", "-c", script], "key": "k1" });
    assert_eq!(all.call("spawn_worker", wish.clone())["worker"], "maker");
    assert_eq!(
        all.call("spawn_worker", wish)["repeated"],
        true,
        "the same key, the same worker"
    );
    let over = all.call("wait", json!({ "workers": ["maker"], "timeout_s": 60 }));
    assert_eq!(
        (&over["why"], &over["workers"][0]["state"]),
        (&json!("ended"), &json!("completed"))
    );
    assert_eq!(all.call("get_worker", json!({ "worker": "maker" }))["code"], 0);
    let profiles = all.call("list_profiles", json!({}));
    assert!(
        profiles["profiles"].to_string().contains("\"claude\""),
        "{profiles}"
    );
    let listed = all.call("list_workers", json!({ "state": "completed" }));
    assert_eq!(listed["workers"][0]["name"], "maker");
    assert_eq!(
        all.call("read_output", json!({ "worker": "maker" }))["text"],
        "working\n"
    );
    let names = all.call("list_files", json!({ "worker": "maker", "path": "d" }));
    assert_eq!(names["items"][0]["name"], "e.txt");
    let part = json!({ "worker": "maker", "path": "d/e.txt", "offset": 1, "length": 2 });
    assert_eq!(all.call("read_file", part)["content"], "ee");
    let raw = all.call(
        "read_file",
        json!({ "worker": "maker", "path": "d/e.txt", "encoding": "base64" }),
    );
    assert_eq!((&raw["content"], &raw["size"]), (&json!("ZGVlcAo="), &json!(5)));
    let changes = all.call("diff", json!({ "worker": "maker" }));
    assert_eq!(changes["changes"].as_array().map(Vec::len), Some(2), "{changes}");
    let dry = all.call("apply", json!({ "worker": "maker", "dry_run": true }));
    assert_eq!(dry["paths"], json!(["d", "d/e.txt", "made.txt"]));
    assert!(!daemon.root.join("ws/made.txt").exists(), "dry means dry");
    // A program brings over the work of others alone.
    let refused = all.pipes.tool("apply", json!({ "worker": "maker" }));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(
        text(&refused).contains("bastle apply maker"),
        "it says how: {}",
        text(&refused)
    );
    assert!(!daemon.root.join("ws/made.txt").exists());
    let theirs = daemon.spawn("echo theirs > theirs.txt");
    daemon.until(&theirs, &["completed"]);
    all.call("apply", json!({ "worker": theirs }));
    assert_eq!(
        std::fs::read_to_string(daemon.root.join("ws/theirs.txt")).unwrap(),
        "theirs\n"
    );
}

/// Several at once, ended and waited for.
fn batches(all: &mut Checked, daemon: &Daemon) {
    let ws = daemon.workspace();
    let sleeper =
        |name: &str| json!({ "workspace": ws, "mode": "copy", "name": name, "argv": ["sleep", "600"] });
    let batch = json!({ "runs": [sleeper("s-one"), sleeper("s-two")] });
    assert_eq!(
        all.call("spawn_batch", batch)["workers"].as_array().map(Vec::len),
        Some(2)
    );
    for name in ["s-one", "s-two"] {
        all.call("terminate_worker", json!({ "worker": name, "grace_ms": 0 }));
    }
    let over = all.call(
        "wait",
        json!({ "workers": ["s-one", "s-two"], "until": "all", "timeout_s": 60 }),
    );
    assert_eq!(over["why"], "ended", "{over}");
}

/// Questions, words to agents, and what the policy would say.
fn talks(all: &mut Checked, daemon: &Daemon) {
    let ws = daemon.workspace();
    let question = asked(daemon, "first");
    let listed = all.call("list_approvals", json!({ "state": "open" }));
    assert_eq!(listed["items"][0]["hash"], question["hash"]);
    let waited = all.call("wait", json!({ "workers": ["first"], "timeout_s": 60 }));
    assert_eq!(waited["why"], "question", "{waited}");
    let yes = json!({ "approval": question["id"], "hash": question["hash"] });
    assert_eq!(all.call("approve", yes)["state"], "approved");
    for (tool, words) in [("send_message", "one"), ("steer_worker", "two")] {
        let said = all.call(tool, json!({ "worker": "first", "text": words }));
        assert!(
            ["asked", "steered"].contains(&said["how"].as_str().unwrap()),
            "{said}"
        );
    }
    asked(daemon, "third");
    all.call("interrupt_worker", json!({ "worker": "third" }));
    let second = asked(daemon, "second");
    let no = json!({ "approval": second["id"], "hash": second["hash"], "message": "not today" });
    assert_eq!(all.call("deny", no)["state"], "denied");
    let may = all.call(
        "can_i",
        json!({ "kind": "read", "target": "/etc/shadow", "workspace": ws }),
    );
    assert_eq!(may["outcome"], "deny", "{may}");
}

#[test]
fn every_tool_does_its_one_operation_and_answers_in_the_form_it_announced() {
    let daemon = Daemon::start(&[]);
    keep(&daemon, ASKS);
    let mut all = checked(&daemon);
    makes(&mut all, &daemon);
    batches(&mut all, &daemon);
    talks(&mut all, &daemon);
    let never: Vec<&String> = all
        .forms
        .keys()
        .filter(|name| !all.used.contains_key(*name))
        .collect();
    assert!(never.is_empty(), "not tried: {never:?}");
    assert_eq!(all.pipes.end(), Some(0));
}

#[test]
fn waiting_tells_how_far_it_is_and_a_resource_that_changes_is_told() {
    let daemon = Daemon::start(&[]);
    let mut pipes = Pipes::open(&daemon);
    let run = daemon.spawn("echo '\u{1b}[31mred\u{202e}'; cat go 2>/dev/null; sleep 600");
    daemon.until(&run, &["running"]);
    let stream = pipes.send(
        "subscriptions/listen",
        json!({ "_meta": meta(json!({})), "notifications": { "resourceSubscriptions": [format!("worker://{run}")] } }),
    );
    let acknowledged = pipes.hear();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");

    let mut about = meta(json!({}));
    about["progressToken"] = json!("p");
    let wait = pipes.send(
        "tools/call",
        json!({ "name": "wait", "arguments": { "workers": [run], "timeout_s": 60 }, "_meta": about }),
    );
    let progress = pipes.hear();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    assert_eq!(progress["params"]["progressToken"], "p");
    let output = pipes.ask(
        "resources/read",
        json!({ "uri": format!("worker://{run}/output") }),
    );
    let shown = output["result"]["contents"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        shown.contains("red") && !shown.contains(['\u{1b}', '\u{202e}']),
        "{shown:?}"
    );
    let printed = pipes.tool("read_output", json!({ "worker": run }));
    assert!(!printed.to_string().contains("u001b"), "{printed}");

    assert_eq!(
        daemon
            .own("POST", &format!("/api/v1/runs/{run}/kill"), Some(&json!({})))
            .status,
        200
    );
    let done = pipes.answer(wait);
    assert_eq!(done["result"]["structuredContent"]["why"], "ended", "{done}");
    let updated = |message: &Value| message["method"] == "notifications/resources/updated";
    let told = |pipes: &Pipes| pipes.told.iter().find(|message| updated(message)).cloned();
    let found = told(&pipes).unwrap_or_else(|| {
        loop {
            let next = pipes.hear();
            if updated(&next) {
                break next;
            }
        }
    });
    assert_eq!(found["params"]["uri"], format!("worker://{run}"));
    assert_eq!(
        found["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        stream
    );
}

#[test]
fn resources_and_prompts_are_listed_and_read() {
    let daemon = Daemon::start(&[]);
    let run = daemon.spawn("echo hi > hi.txt");
    daemon.until(&run, &["completed"]);
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let listed = web.ask("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], format!("worker://{run}"));
    let patterns = web.ask("resources/templates/list", json!({}));
    assert_eq!(
        patterns["result"]["resourceTemplates"].as_array().map(Vec::len),
        Some(3)
    );
    for part in ["", "/output", "/diff"] {
        let read = web.ask(
            "resources/read",
            json!({ "uri": format!("worker://{run}{part}") }),
        );
        assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
    }
    for missing in ["worker://nobody", "worker://../tokens", "file:///etc/passwd"] {
        let read = web.ask("resources/read", json!({ "uri": missing }));
        assert_eq!(read["error"]["code"], -32602, "{missing}: {read}");
    }
    let prompts = web.ask("prompts/list", json!({}));
    assert_eq!(prompts["result"]["prompts"].as_array().map(Vec::len), Some(3));
    let filled = web.ask(
        "prompts/get",
        json!({ "name": "delegate", "arguments": { "task": "mend it", "workspace": "/w" } }),
    );
    assert!(
        filled["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("mend it")
    );
    assert_eq!(
        web.ask("prompts/get", json!({ "name": "delegate" }))["error"]["code"],
        -32602
    );
}

#[test]
fn the_output_of_a_driven_worker_is_what_it_said_and_its_frames_only_when_asked_for() {
    let daemon = Daemon::start(&[]);
    let speaks = r#"
read -r hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"bastle-hello"}}'
read -r prompt
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"all is well"}]}}'
echo '{"type":"result","subtype":"success","result":"done"}'
"#;
    keep(&daemon, speaks);
    let mut pipes = Pipes::open(&daemon);
    let wish = json!({
        "profile": "script", "prompt": "go", "workspace": daemon.workspace(), "mode": "copy", "name": "speaker",
    });
    pipes.tool("spawn_worker", wish);
    pipes.tool("wait", json!({ "workers": ["speaker"], "timeout_s": 60 }));
    let said = pipes.tool("read_output", json!({ "worker": "speaker" }));
    assert_eq!(said["structuredContent"]["text"], "all is well", "{said}");
    let raw = pipes.tool("read_output", json!({ "worker": "speaker", "view": "raw" }));
    assert!(raw.to_string().contains("control_response"), "{raw}");
    let read = pipes.ask("resources/read", json!({ "uri": "worker://speaker/output" }));
    assert_eq!(read["result"]["contents"][0]["text"], "all is well", "{read}");
}
