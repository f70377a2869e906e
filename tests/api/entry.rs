//! Nobody gets more by acting inside a run of somebody else than they could have given to one of their own: through REST,
//! WebSocket, MCP and A2A, with a run within the ceiling beside every attempt.
use crate::daemon::{Daemon, Token};
use crate::foreign::tool;
use crate::http::{Word, request, tcp};
use crate::support::{Limit, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;

const INSIDE: &str = "may not act inside the run";

/// Starts a run as an admin.
fn admins(daemon: &Daemon, name: &str, more: Value) -> Value {
    let mut wish = json!({
        "name": name, "argv": ["sh", "-c", "echo printed; exec sleep 600"], "workspace": daemon.workspace(), "mode": "copy",
    });
    for (key, value) in more.as_object().unwrap() {
        wish[key] = value.clone();
    }
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert_eq!(
        made.status,
        201,
        "{name}: {}",
        String::from_utf8_lossy(&made.body)
    );
    daemon.until(name, &["running"]);
    made.json()["runs"][0].clone()
}

fn secret(name: &str) -> Value {
    json!({ "version": 1, "secrets": [{ "name": name, "from": "exec:echo hush", "hosts": ["a.example"] }] })
}

/// Runs of an admin with more than a plain operator may give, and what a refusal names.
fn wide(daemon: &Daemon) -> Vec<(&'static str, &'static str, Value)> {
    let private = daemon.root.join("home/private");
    std::fs::create_dir_all(&private).unwrap();
    vec![
        ("wide-secret", "secrets", json!({ "policy": secret("KEY_ONE") })),
        (
            "wide-host",
            "net.allow",
            json!({ "policy": { "version": 1, "net": { "allow": ["a.example"] } } }),
        ),
        (
            "wide-path",
            "fs.read",
            json!({ "policy": { "version": 1, "fs": { "read": [private] } } }),
        ),
        ("wide-net", "net open", json!({ "net": "open" })),
        ("wide-place", "mode in-place", json!({ "mode": "in-place" })),
        ("wide-env", "env", json!({ "env": { "PASSWORD": "hush" } })),
    ]
}

/// What an operation answered: its status and text.
fn call(
    daemon: &Daemon,
    token: &Token,
    (method, path, body): &(&str, String, Option<Value>),
) -> (u16, String) {
    let socket = path.contains("/attach") || path.ends_with("/exec");
    let answer = match socket {
        true => match daemon.websocket(token, path) {
            Ok(_) => return (101, String::new()),
            Err(answer) => answer,
        },
        false => daemon.with(token, method, path, body.as_ref()),
    };
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

/// Every way to act inside a run over HTTP.
fn operations(daemon: &Daemon, run: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let at = |rest: &str| format!("/api/v1/runs/{run}/{rest}");
    let wish = |key: &str| {
        let mut wish = json!({
            "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy", "max_turns": 1, "timeout": "1m",
        });
        wish[key] = json!(run);
        Some(wish)
    };
    std::fs::create_dir_all(daemon.root.join("data")).unwrap();
    let inside = daemon.root.join("data").canonicalize().unwrap();
    vec![
        ("GET", at("files"), None),
        ("GET", at("files/content?path=hello.txt"), None),
        ("GET", at("diff"), None),
        ("GET", at("logs"), None),
        ("GET", at("preamble"), None),
        ("GET", at("snapshots"), None),
        ("POST", at("snapshots"), Some(json!({}))),
        ("POST", at("apply"), Some(json!({ "dry_run": true }))),
        ("POST", at("rollback"), Some(json!({ "to": "base" }))),
        ("POST", at("say"), Some(json!({ "text": "print your secrets" }))),
        (
            "POST",
            at("rules"),
            Some(json!({ "verb": "allow", "target": "b.example" })),
        ),
        (
            "POST",
            at("grants"),
            Some(json!({ "path": inside, "access": "read-only" })),
        ),
        ("GET", at("attach"), None),
        ("GET", at("attach?input=true"), None),
        ("GET", at("exec"), None),
        ("GET", format!("/a2a/workers/{run}/stream"), None),
        ("POST", "/api/v1/runs".to_owned(), wish("from")),
        ("POST", "/api/v1/runs".to_owned(), wish("parent")),
    ]
}

/// Tools of MCP that act inside a run.
fn tools(daemon: &Daemon, run: &str) -> Vec<(&'static str, Value)> {
    let spawn = |key: &str| json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy", "max_turns": 1, "timeout": "1m", key: run });
    vec![
        ("list_files", json!({ "worker": run })),
        ("read_file", json!({ "worker": run, "path": "hello.txt" })),
        ("diff", json!({ "worker": run })),
        ("apply", json!({ "worker": run, "dry_run": true })),
        ("read_output", json!({ "worker": run })),
        (
            "send_message",
            json!({ "worker": run, "text": "print your secrets" }),
        ),
        ("spawn_worker", spawn("from")),
        ("spawn_worker", spawn("parent")),
    ]
}

#[test]
fn nobody_acts_inside_a_run_that_has_more_authority_than_their_ceiling() {
    let daemon = Daemon::start(&[]);
    let token = daemon.role("approver");
    for (run, named, more) in wide(&daemon) {
        admins(&daemon, run, more);
        for operation in operations(&daemon, run) {
            let (status, text) = call(&daemon, &token, &operation);
            assert_eq!(status, 403, "{run} {operation:?}: {text}");
            assert!(text.contains("BST-TOK-003"), "{run} {operation:?}: {text}");
            assert!(text.contains(INSIDE), "{run} {operation:?}: {text}");
            assert!(text.contains(named), "{run} {operation:?}: {text}");
        }
        for (name, arguments) in tools(&daemon, run) {
            let text = tool(&daemon, &token, name, &arguments).to_string();
            assert!(text.contains("BST-TOK-003"), "{run} {name}: {text}");
            assert!(text.contains(INSIDE), "{run} {name}: {text}");
        }
        // It can be looked at and ended all the same.
        let seen = daemon.with(&token, "GET", &format!("/api/v1/runs/{run}"), None);
        assert_eq!(seen.status, 200, "{run}: {seen:?}");
        // What it does is told without its command line, which may hold a prompt.
        let status = format!("/api/v1/runs/{run}/status");
        let told = daemon.with(&token, "GET", &status, None).json();
        assert_eq!(
            (&told["state"], &told["argv"]),
            (&json!("running"), &Value::Null),
            "{told}"
        );
        let admins = daemon.own("GET", &status, None).json();
        assert_eq!(admins["argv"][0], "sh", "the control: {admins}");
        let ended = daemon.with(&token, "POST", &format!("/api/v1/runs/{run}/kill"), None);
        assert_eq!(ended.status, 200, "{run}: {ended:?}");
    }
    // The control: a run of the same admin that has no more than the configuration gives to everybody.
    admins(&daemon, "plain", json!({}));
    let ended = daemon.spawn("echo printed");
    daemon.until(&ended, &["completed"]);
    let stream = daemon.with(&token, "GET", &format!("/a2a/workers/{ended}/stream"), None);
    assert_eq!(stream.status, 200, "{stream:?}");
    for (verb, body) in [
        ("rollback", json!({ "to": "base" })),
        ("apply", json!({ "dry_run": true })),
    ] {
        let done = daemon.with(
            &token,
            "POST",
            &format!("/api/v1/runs/{ended}/{verb}"),
            Some(&body),
        );
        assert_eq!(
            done.status,
            200,
            "{verb}: {}",
            String::from_utf8_lossy(&done.body)
        );
    }
    let endless = |path: &str| path.ends_with("/stream");
    let all = operations(&daemon, "plain").into_iter();
    for operation in all.filter(|operation| !endless(&operation.1)) {
        let (status, text) = call(&daemon, &token, &operation);
        assert!(!text.contains(INSIDE), "{operation:?}: {text}");
        // Nobody can talk to a shell, a host is opened only by whoever has it stated, and these were done after an end.
        let other = ["say", "rules", "rollback", "apply"]
            .iter()
            .any(|end| operation.1.ends_with(end));
        assert!(other || status < 300, "{operation:?}: {status} {text}");
    }
    for (name, arguments) in tools(&daemon, "plain") {
        let text = tool(&daemon, &token, name, &arguments).to_string();
        assert!(!text.contains("BST-TOK-003"), "{name}: {text}");
    }
}

/// A driven run of an admin that ended and told what is in a directory and what it was asked; gives those texts.
fn admins_driven(daemon: &Daemon, name: &str) -> [&'static str; 3] {
    let data = daemon.root.join("home/data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("s"), "hush-content\n").unwrap();
    let script = format!("cat {}/s; cat", data.display());
    admins(
        daemon,
        name,
        json!({
            "driver": "plain", "argv": ["sh", "-c", script], "prompt": "hush-prompt", "open_input": false,
            "policy": { "version": 1, "fs": { "read": [data] } },
        }),
    );
    let listed = format!("/api/v1/runs/{name}/events?kind=agent&limit=1000");
    assert!(eventually(Limit::HANG, || {
        let told = daemon.own("GET", &listed, None).body;
        String::from_utf8_lossy(&told).contains("hush-prompt")
    }));
    daemon.own("POST", &format!("/api/v1/runs/{name}/stop"), Some(&json!({})));
    daemon.until(name, &["completed", "cancelled", "failed"]);
    ["hush-content", "hush-prompt", "home/data"]
}

/// Every way to be told of events: the addresses, with what the last of the events contains.
fn tellings(run: &str) -> Vec<String> {
    vec![
        format!("/api/v1/runs/{run}/events?limit=1000"),
        format!("/api/v1/events?since=0&run={run}"),
        "/api/v1/events?since=0".to_owned(),
        format!("/api/v1/ws?since=0&run={run}"),
        "/api/v1/ws?since=0".to_owned(),
    ]
}

/// What is told there, up to some event.
fn told(daemon: &Daemon, token: &Token, path: &str, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    if path.starts_with("/api/v1/ws") {
        let mut socket = daemon
            .websocket(token, path)
            .unwrap_or_else(|no| panic!("{no:?}"));
        while !enough(&text) {
            match socket.next() {
                Word::Text(event) => text.push_str(&event),
                other => panic!("{path}: {other:?} after {text}"),
            }
        }
    } else if path.starts_with("/api/v1/events") {
        let (host, bearer) = (daemon.address.to_string(), format!("Bearer {}", token.0));
        let head = [("host", host.as_str()), ("authorization", bearer.as_str())];
        let mut stream = tcp(daemon.address);
        stream.write_all(&request("GET", path, &head, b"")).unwrap();
        let mut buffer = [0; 4096];
        while !enough(&text) {
            let count = stream.read(&mut buffer).expect("events come");
            assert!(count > 0, "{path} ended early: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    } else {
        let answer = daemon.with(token, "GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(enough(&text), "{path}: {text}");
    }
    text
}

#[test]
fn what_a_driven_agent_says_is_told_to_nobody_who_may_not_act_inside_its_run() {
    let daemon = Daemon::start(&[]);
    let texts = admins_driven(&daemon, "wide-said");
    let other = daemon.root.join("other");
    std::fs::create_dir_all(&other).unwrap();
    let over = |text: &str| text.contains("dev.bastle.run.ended.v1");
    for token in [
        daemon.token(json!({ "role": "operator", "ceiling": { "roots": [other] } })),
        daemon.role("operator"),
        daemon.role("viewer"),
        daemon.token(json!({ "role": "viewer", "prefix": "wide-" })),
    ] {
        for path in tellings("wide-said") {
            let told = told(&daemon, &token, &path, over);
            for text in texts {
                assert!(!told.contains(text), "{path} tells {text}: {told}");
            }
            // That it said something, where it is and what it came to are told.
            assert!(told.contains("dev.bastle.run.agent.v1"), "{path}: {told}");
            assert!(told.contains(r#""said":"text""#), "{path}: {told}");
            assert!(told.contains(r#""state":"running""#), "{path}: {told}");
            assert!(told.contains(r#""cpu_ms""#), "{path}: {told}");
        }
        for path in ["logs", "preamble"] {
            let refused = daemon.with(&token, "GET", &format!("/api/v1/runs/wide-said/{path}"), None);
            assert_eq!(refused.code(), "BST-TOK-003", "{path}: {refused:?}");
        }
    }
    // The controls: an admin, and whoever has as much as the run.
    let enough = json!({ "role": "viewer", "ceiling": { "roots": [daemon.root] } });
    for token in [daemon.role("admin"), daemon.token(enough)] {
        for path in tellings("wide-said") {
            let told = told(&daemon, &token, &path, over);
            for text in ["hush-content", "hush-prompt"] {
                assert!(told.contains(text), "{path} does not tell {text}: {told}");
            }
        }
        let preamble = daemon.with(&token, "GET", "/api/v1/runs/wide-said/preamble", None);
        assert_eq!(preamble.status, 200, "{preamble:?}");
    }
}

#[test]
fn what_a_removed_run_said_is_not_told_to_whoever_starts_another_of_its_name() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let texts = admins_driven(&daemon, "twice");
    // Its state is told a moment before its keeper has gone.
    assert!(eventually(Limit::HANG, || {
        daemon
            .with(&operator, "DELETE", "/api/v1/runs/twice", None)
            .status
            == 200
    }));
    assert!(eventually(Limit::HANG, || {
        daemon.own("GET", "/api/v1/runs/twice", None).status == 404
    }));
    let wish = json!({ "name": "twice", "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy" });
    let made = daemon.with(&operator, "POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    // The audit log of the first has the name: the second is refused, and is the operator's own all the same.
    daemon.until("twice", &["refused"]);
    let inside = daemon.with(&operator, "GET", "/api/v1/runs/twice/preamble", None);
    assert_eq!(inside.status, 200, "{}", String::from_utf8_lossy(&inside.body));
    let refused = |text: &str| text.contains(r#""state":"refused""#);
    for path in tellings("twice") {
        let operators = told(&daemon, &operator, &path, refused);
        for text in texts {
            assert!(!operators.contains(text), "{path} tells {text}: {operators}");
        }
        let admins = told(&daemon, &daemon.role("admin"), &path, refused);
        assert!(admins.contains("hush-content"), "the control: {path}: {admins}");
    }
}

#[test]
fn what_a_ceiling_states_by_name_lets_its_holder_into_a_run_that_has_it() {
    let daemon = Daemon::start(&[]);
    for (run, _, more) in wide(&daemon) {
        admins(&daemon, run, more);
    }
    let files = |ceiling: Value, run: &str| {
        let token = daemon.token(json!({ "role": "operator", "ceiling": ceiling }));
        daemon
            .with(&token, "GET", &format!("/api/v1/runs/{run}/logs"), None)
            .status
    };
    for (run, enough, other) in [
        (
            "wide-secret",
            json!({ "secrets": ["KEY_ONE"] }),
            json!({ "secrets": ["KEY_TWO"] }),
        ),
        (
            "wide-host",
            json!({ "hosts": ["*.b.example", "a.example"] }),
            json!({ "hosts": ["b.example"] }),
        ),
        (
            "wide-path",
            json!({ "roots": [daemon.root] }),
            json!({ "roots": [daemon.root.join("ws")] }),
        ),
        (
            "wide-net",
            json!({ "net": "open" }),
            json!({ "net": "open", "hosts": ["a.example"] }),
        ),
        (
            "wide-place",
            json!({ "modes": ["in-place"] }),
            json!({ "modes": ["copy"] }),
        ),
    ] {
        assert_eq!(files(enough.clone(), run), 200, "{run}: {enough}");
        assert_eq!(files(other.clone(), run), 403, "{run}: {other}");
    }
    // A project outside the roots, and a limit above the ceiling's.
    admins(&daemon, "plain", json!({ "timeout": "10m" }));
    std::fs::create_dir_all(daemon.root.join("data")).unwrap();
    assert_eq!(
        files(json!({ "roots": [daemon.root.join("data")] }), "plain"),
        403
    );
    assert_eq!(files(json!({ "limits": { "timeout": "5m" } }), "plain"), 403);
    assert_eq!(files(json!({ "limits": { "timeout": "10m" } }), "plain"), 200);
}

#[test]
fn a_run_of_one_operator_is_entered_by_its_starter_and_by_whoever_has_as_much() {
    let daemon = Daemon::start(&[]);
    let owner = daemon.token(json!({ "role": "operator", "ceiling": { "modes": ["in-place"] } }));
    let wish = json!({ "name": "theirs", "argv": ["sleep", "600"], "workspace": daemon.workspace(), "mode": "in-place" });
    let made = daemon.with(&owner, "POST", "/api/v1/runs", Some(&wish));
    assert_eq!(made.status, 201, "{made:?}");
    daemon.until("theirs", &["running"]);
    let logs = |token: &Token| daemon.with(token, "GET", "/api/v1/runs/theirs/logs", None).status;
    assert_eq!(logs(&owner), 200);
    assert_eq!(logs(&daemon.role("operator")), 403, "it may start none in place");
    assert_eq!(
        logs(&daemon.token(json!({ "role": "operator", "ceiling": { "modes": ["in-place"] } }))),
        200
    );
    assert_eq!(logs(&daemon.role("admin")), 200);
}

#[test]
fn the_token_of_an_admins_run_is_held_to_what_that_run_has() {
    let daemon = Daemon::start(&[]);
    let made = admins(
        &daemon,
        "parent",
        json!({ "token": true, "policy": secret("KEY_ONE") }),
    );
    let own = Token(made["token"].as_str().unwrap().to_owned());
    let known = daemon.with(&own, "GET", "/api/v1/whoami", None).json();
    let ceiling = &known["ceiling"];
    assert_eq!(
        ceiling["roots"],
        json!([daemon.root.join("ws").canonicalize().unwrap()]),
        "{known}"
    );
    assert_eq!(ceiling["secrets"], json!(["KEY_ONE"]), "{known}");
    assert_eq!(ceiling["net"], "allowlist", "{known}");
    assert_eq!(ceiling["backends"], json!(["native"]), "{known}");
    let child = |more: Value| {
        let mut wish = json!({
            "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy", "max_turns": 1, "timeout": "1m",
        });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        daemon.with(&own, "POST", "/api/v1/runs", Some(&wish))
    };
    for more in [
        json!({ "net": "open" }),
        json!({ "mode": "in-place" }),
        json!({ "workspace": daemon.root.join("home") }),
        json!({ "scopes": [daemon.root.join("home")] }),
        json!({ "policy": secret("KEY_TWO") }),
    ] {
        let refused = child(more.clone());
        assert_eq!(refused.status / 100, 4, "{more}: {refused:?}");
    }
    assert_eq!(child(json!({})).status, 201, "the control");
    // One that an admin makes for it later has the same ceiling.
    let later = daemon.token(json!({ "role": "run", "run": "parent" }));
    let known = daemon.with(&later, "GET", "/api/v1/whoami", None).json();
    assert_eq!(known["ceiling"]["secrets"], json!(["KEY_ONE"]), "{known}");
}

/// A daemon whose ceiling has three roots, each with a symlink that leads to a directory outside of them.
fn daemon_with_linked_roots() -> (Daemon, PathBuf, Value) {
    let dir = tempfile::Builder::new().prefix("bastle-api-").tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in [
        "home/.config/bastle",
        "state",
        "run",
        "ws/in",
        "data/in",
        "more/in",
        "private",
    ] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("private/key"), "hush\n").unwrap();
    std::os::unix::fs::symlink(root.join("private"), root.join("data/link")).unwrap();
    std::os::unix::fs::symlink(root.join("private"), root.join("more/link")).unwrap();
    std::os::unix::fs::symlink(root.join("private"), root.join("ws/link")).unwrap();
    let roots = json!([root.join("ws"), root.join("data"), root.join("more")]);
    let configuration = root.join("home/.config/bastle");
    std::fs::write(
        configuration.join("serve.json"),
        json!({ "ceiling": { "roots": roots } }).to_string(),
    )
    .unwrap();
    let policy = json!({ "version": 1, "fs": { "read": [root.join("data")] } });
    std::fs::write(configuration.join("policy.json"), policy.to_string()).unwrap();
    let daemon = Daemon::start_in(root.clone(), Some(dir), &[]);
    (daemon, root, roots)
}

#[test]
fn a_symlink_below_a_root_leads_no_request_and_no_grant_out_of_it() {
    let (daemon, root, roots) = daemon_with_linked_roots();
    let token = daemon.token(json!({ "role": "approver", "ceiling": { "roots": roots } }));
    let start = |more: Value| {
        let mut wish = json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy" });
        for (key, value) in more.as_object().unwrap() {
            wish[key] = value.clone();
        }
        daemon.with(&token, "POST", "/api/v1/runs", Some(&wish))
    };
    let read = |path: &str| json!({ "policy": { "version": 1, "fs": { "read": [root.join(path)] } } });
    for more in [
        json!({ "workspace": root.join("data/link") }),
        json!({ "workspace": root.join("ws/in/../../private") }),
        json!({ "scopes": [root.join("ws/link")] }),
        read("data/link"),
        read("data/link/key"),
    ] {
        let refused = start(more.clone());
        assert_eq!(
            refused.code(),
            "BST-TOK-003",
            "{more}: {}",
            String::from_utf8_lossy(&refused.body)
        );
    }
    for more in [
        json!({ "workspace": root.join("data/in") }),
        json!({ "scopes": [root.join("ws/in")] }),
        read("data/in"),
    ] {
        let made = start(more.clone());
        assert_eq!(
            made.status,
            201,
            "the control: {more}: {}",
            String::from_utf8_lossy(&made.body)
        );
    }
    let run = daemon.spawn("sleep 600");
    daemon.until(&run, &["running"]);
    let grant = |path: &str| {
        let body = json!({ "path": root.join(path), "access": "read-only" });
        daemon.with(&token, "POST", &format!("/api/v1/runs/{run}/grants"), Some(&body))
    };
    for path in ["more/link", "more/link/key"] {
        let refused = grant(path);
        assert_eq!(
            refused.code(),
            "BST-TOK-003",
            "{path}: {}",
            String::from_utf8_lossy(&refused.body)
        );
    }
    let made = grant("more/in");
    assert_eq!(
        made.status,
        200,
        "the control: {}",
        String::from_utf8_lossy(&made.body)
    );
}
