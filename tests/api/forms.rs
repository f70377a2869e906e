//! Real answers held against the OpenAPI document: every body has a type of its own, and no answer contradicts it.
use crate::daemon::Daemon;
use serde_json::{Value, json};

/// Largest integer that every JSON client reads exactly.
const MOST_INTEGER: u64 = (1 << 53) - 1;

struct Checked {
    daemon: Daemon,
    document: Value,
}

impl Checked {
    fn start() -> Self {
        let daemon = Daemon::start(&[]);
        let document = daemon.own("GET", "/api/v1/openapi.json", None).json();
        Self { daemon, document }
    }

    /// The schema of the answer of an operation, with what it refers to.
    fn form(&self, method: &str, path: &str, status: u16) -> Value {
        let answers = &self.document["paths"][path][method.to_ascii_lowercase()]["responses"];
        let content = &answers[status.to_string()]["content"]["application/json"]["schema"];
        let mut form = content.clone();
        assert!(form.is_object(), "{method} {path} has no form: {answers}");
        form["components"] = self.document["components"].clone();
        form
    }

    /// Asks as the owner and holds the answer against the document.
    fn ask(&self, method: &str, path: &str, actual: &str, body: Option<&Value>) -> Value {
        let answer = self.daemon.own(method, actual, body);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status < 300, "{method} {actual}: {text}");
        let form = self.form(method, path, answer.status);
        let value = answer.json();
        let validator = jsonschema::validator_for(&form).unwrap();
        let wrong: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{method} {actual}: {wrong:#?}\n{value:#}");
        exact(&value, actual);
        value
    }
}

/// No number of an answer is one that a client rounds.
fn exact(value: &Value, at: &str) {
    match value {
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
            assert!(size.is_none_or(|size| size <= MOST_INTEGER), "{at}: {number}");
        }
        Value::Array(items) => items.iter().for_each(|item| exact(item, at)),
        Value::Object(members) => members
            .iter()
            .for_each(|(name, member)| exact(member, &format!("{at} {name}"))),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn every_answer_of_a_run_has_the_form_that_the_document_says() {
    let all = Checked::start();
    let run = all
        .daemon
        .spawn("echo out; echo new > made.txt; while [ ! -e stop ]; do sleep 0.05; done");
    let running = all.daemon.until(&run, &["running"]);
    assert_eq!(running["state"], "running");
    let at = |rest: &str| format!("/api/v1/runs/{run}{rest}");
    let of = |rest: &str| format!("/api/v1/runs/{{id}}{rest}");
    let ask = |method: &str, rest: &str, body: Option<&Value>| all.ask(method, &of(rest), &at(rest), body);
    ask("GET", "", None);
    ask("GET", "/status", None);
    ask("GET", "/grants", None);
    let granted = all.daemon.root.join("granted");
    std::fs::create_dir(&granted).unwrap();
    let wish = json!({ "path": granted, "access": "read-only" });
    ask("POST", "/grants", Some(&wish));
    assert_eq!(ask("GET", "/grants", None)["items"].as_array().unwrap().len(), 1);
    ask("GET", "/status", None);
    let gone = format!("/grants?path={}", granted.display());
    all.ask("DELETE", &of("/grants"), &at(&gone), None);
    ask("POST", "/kill", Some(&json!({})));
    all.daemon.until(&run, &["cancelled", "failed", "completed"]);
    ask("GET", "/logs", None);
    ask("GET", "/events", None);
    ask("GET", "/diff", None);
    ask("POST", "/snapshots", Some(&json!({ "name": "mine" })));
    ask("GET", "/snapshots", None);
    ask("POST", "/rollback", Some(&json!({ "to": "base" })));
    ask("POST", "/rollback", Some(&json!({ "to": "mine" })));
    ask("POST", "/apply", Some(&json!({ "dry_run": true })));
    ask("POST", "/apply", Some(&json!({})));
    ask("POST", "/apply", Some(&json!({ "undo": true })));
    ask("GET", "/audit", None);
    ask("GET", "/files", None);
}

#[test]
fn a_branch_without_an_empty_directory_says_so() {
    let all = Checked::start();
    let workspace = all.daemon.workspace();
    let identity = ["-c", "user.name=u", "-c", "user.email=u@host.test"];
    for words in [
        vec!["init", "-q"],
        vec!["commit", "-q", "--allow-empty", "-m", "first"],
    ] {
        let mut git = std::process::Command::new("git");
        let ended = git.args(["-C", &workspace]).args(identity).args(words).status();
        assert!(ended.unwrap().success());
    }
    let script = "mkdir empty; echo new > made.txt";
    let wish =
        json!({ "name": "made", "argv": ["sh", "-c", script], "workspace": workspace, "mode": "copy" });
    assert_eq!(all.daemon.own("POST", "/api/v1/runs", Some(&wish)).status, 201);
    all.daemon.until("made", &["completed"]);
    let body = json!({ "branch": "work" });
    let (path, actual) = ("/api/v1/runs/{id}/apply", "/api/v1/runs/made/apply");
    let applied = all.ask("POST", path, actual, Some(&body));
    assert_eq!(applied["paths"], json!(["made.txt"]));
    let lacking = applied["not_in_branch"].as_array().unwrap();
    assert_eq!(lacking.len(), 1, "{applied:#}");
    assert_eq!(lacking[0]["path"], "empty");
}

#[test]
fn every_answer_about_policies_has_the_form_that_the_document_says() {
    let all = Checked::start();
    let same = |method: &str, path: &str, body: Option<&Value>| all.ask(method, path, path, body);
    same("GET", "/api/v1/presets", None);
    all.ask("GET", "/api/v1/presets/{name}", "/api/v1/presets/default", None);
    same("GET", "/api/v1/blocked-commands", None);
    same("GET", "/api/v1/agents/blocked-commands", None);
    let policy =
        json!({ "policy": { "version": 1, "tests": [{ "can-i": "read /etc/shadow", "expect": "deny" }] } });
    for path in ["/api/v1/policies/effective", "/api/v1/policies/dry-run"] {
        same(
            "POST",
            path,
            Some(&json!({ "workspace": all.daemon.workspace() })),
        );
        // Documents with faults are refused; the form of the answer is what counts here.
        let answer = all.daemon.own("POST", path, Some(&policy));
        assert!(answer.status < 500);
    }
    for target in ["/etc/shadow", "/usr/bin/env"] {
        let asked = json!({ "kind": "read", "target": target, "workspace": all.daemon.workspace() });
        same("POST", "/api/v1/policies/can-i", Some(&asked));
    }
    for path in [
        "/api/v1/whoami",
        "/api/v1/stats",
        "/api/v1/health",
        "/api/v1/profiles",
    ] {
        same("GET", path, None);
    }
}

#[test]
fn no_answer_is_without_a_type_and_every_operation_has_a_name_for_people() {
    let all = Checked::start();
    let schemas = &all.document["components"]["schemas"];
    let mut untyped = Vec::new();
    for (path, methods) in all.document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(!id.is_empty() && !id.contains("Id"), "{method} {path}: {id:?}");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let form = &answer["content"]["application/json"]["schema"];
                let Some(name) = form["$ref"].as_str().and_then(|to| to.rsplit('/').next()) else {
                    continue;
                };
                let schema = &schemas[name];
                let typed = ["properties", "oneOf", "allOf", "enum", "items"]
                    .iter()
                    .any(|word| schema.get(word).is_some());
                if !typed {
                    untyped.push(format!("{method} {path} {status}: {name}"));
                }
            }
        }
    }
    // The document itself is an OpenAPI document, whose form is not ours to say.
    assert_eq!(untyped, ["get /api/v1/openapi.json 200: Anything"]);
    let text = all.document.to_string();
    assert!(!text.contains("registries"), "a network mode that does not exist");
}

#[test]
fn lists_are_newest_first_and_a_page_goes_on_where_the_one_before_ended() {
    let daemon = Daemon::start(&[]);
    let mut names: Vec<String> = Vec::new();
    for name in ["bbb", "zzz", "aaa"] {
        let wish = json!({
            "name": name, "workspace": daemon.workspace(), "mode": "copy", "argv": ["true"],
        });
        assert_eq!(daemon.own("POST", "/api/v1/runs", Some(&wish)).status, 201);
        names.insert(0, name.to_owned());
    }
    let of = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let whole = daemon.own("GET", "/api/v1/runs", None).json();
    assert_eq!(of(&whole), names);
    let first = daemon.own("GET", "/api/v1/runs?limit=2", None).json();
    assert_eq!(of(&first), names[..2]);
    let next = first["next"].as_str().unwrap();
    let rest = daemon
        .own("GET", &format!("/api/v1/runs?limit=2&cursor={next}"), None)
        .json();
    assert_eq!((of(&rest), &rest["next"]), (names[2..].to_vec(), &Value::Null));
    assert_eq!(
        daemon.own("GET", "/api/v1/runs?cursor=no-cursor", None).status,
        400
    );
    let notes = ["first", "second"].map(|note| {
        let wish = json!({ "role": "viewer", "note": note });
        assert_eq!(daemon.own("POST", "/api/v1/tokens", Some(&wish)).status, 201);
        // The list is by the millisecond of their making: the next one is made in another.
        let made = std::time::Instant::now();
        while made.elapsed().as_millis() < 2 {
            std::hint::spin_loop();
        }
        note
    });
    let tokens = daemon.own("GET", "/api/v1/tokens", None).json();
    let listed: Vec<&str> = tokens["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["note"].as_str().unwrap())
        .filter(|note| notes.contains(note))
        .collect();
    assert_eq!(listed, ["second", "first"]);
}
