//! What a client with a token less than an admin's tries, to get at the host, at foreign runs or at more rights. Each attack is
//! judged by what came of it, and stands beside the same request that is allowed.
use crate::daemon::{Daemon, Token};
use crate::http::Answer;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn wish(daemon: &Daemon, more: Value) -> Value {
    let mut wish = json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy" });
    for (key, value) in more.as_object().expect("an object") {
        wish[key] = value.clone();
    }
    wish
}

/// The run that an answer names.
fn run_of(answer: &Answer) -> Option<String> {
    (answer.status == 201)
        .then(|| answer.json()["runs"][0]["name"].as_str().map(str::to_owned))
        .flatten()
}

fn over(daemon: &Daemon, run: &str) -> String {
    daemon.until(run, &["completed", "failed", "refused", "cancelled"]);
    body(&daemon.own("GET", &format!("/api/v1/runs/{run}/logs"), None))
}

/// The daemon's admin token.
fn admin_token(daemon: &Daemon) -> String {
    let file = daemon.root.join("state/bastle/daemon/admin.token");
    std::fs::read_to_string(file)
        .expect("the daemon has one")
        .trim()
        .to_owned()
}

#[test]
fn nothing_that_an_operator_writes_into_a_request_brings_a_file_of_the_host_into_a_run() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    // Not below a root of the daemon's ceiling.
    let outside = tempfile::Builder::new()
        .prefix("bastle-private-")
        .tempdir_in("/var/tmp")
        .expect("a fresh place");
    let private = outside.path().to_path_buf();
    std::fs::write(private.join("key"), "LOOT-of-the-host").expect("can be written");
    let key = private.join("key").display().to_string();
    let marks = daemon.root.join("ran-on-the-host");
    let state = daemon.root.join("state").display().to_string();
    symlink(&private, daemon.root.join("ws/link")).expect("a fresh link");
    let secret = |from: &str| json!({ "policy": { "version": 1, "secrets": [{ "name": "X", "from": from, "hosts": ["a.example"] }] } });
    let read = |path: &str| json!({ "policy": { "version": 1, "fs": { "read": [path] } } });
    for more in [
        secret(&format!("exec:sh -c 'touch {}; cat {key}'", marks.display())),
        secret(&format!("file:{key}")),
        secret("env:HOME"),
        read("/"),
        read(&format!("{}/../private", daemon.workspace())),
        read(&format!("{}/link", daemon.workspace())),
        read("./link"),
        json!({ "policy": { "version": 1, "net": { "addresses": ["0.0.0.0/0"], "allow": ["127.0.0.1"] } } }),
        json!({ "workspace": state }),
        json!({ "workspace": format!("{}/../state", daemon.workspace()), "mode": "in-place" }),
        json!({ "workspace": format!("{}/link", daemon.workspace()) }),
        json!({ "env": { "BASTLE_SPAWNER": "/tmp/x", "LD_PRELOAD": key } }),
        json!({ "scopes": [private], "mode": "in-place" }),
    ] {
        let mut more = more;
        let look = format!(
            "cat {key} link/key key ../private/key /proc/1/root{key} 2>/dev/null; env; find / -name key -path '*private*' 2>/dev/null"
        );
        more["argv"] = json!(["sh", "-c", look]);
        let answer = daemon.with(
            &operator,
            "POST",
            "/api/v1/runs",
            Some(&wish(&daemon, more.clone())),
        );
        // What is let through anyway must not show it either.
        let told = run_of(&answer).map_or_else(|| body(&answer), |run| over(&daemon, &run));
        assert!(
            !told.contains("LOOT") && !told.contains(&admin_token(&daemon)),
            "{more}: {told}"
        );
        assert!(!marks.exists(), "{more}: a program ran on the host");
    }
    // The control: what an admin grants is read.
    let mut more = read(&private.display().to_string());
    more["argv"] = json!(["cat", key]);
    let admin = daemon.role("admin");
    let answer = daemon.with(&admin, "POST", "/api/v1/runs", Some(&wish(&daemon, more)));
    let run = run_of(&answer).unwrap_or_else(|| panic!("{}", body(&answer)));
    assert!(
        over(&daemon, &run).contains("LOOT"),
        "the file was there to be read"
    );
}

#[test]
fn neither_a_batch_nor_a_key_carries_a_wide_request_along_with_a_good_one() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let good = wish(&daemon, json!({}));
    let evil = wish(&daemon, json!({ "net": "open" }));
    let post = |body: Value| daemon.with(&operator, "POST", "/api/v1/runs", Some(&body));
    let whole = post(json!({ "runs": [good, evil] }));
    assert!(
        whole.status >= 400 && body(&whole).contains("BST-TOK-003"),
        "{}",
        body(&whole)
    );
    let partial = post(json!({ "runs": [good, evil], "partial": true }));
    let told = partial.json();
    assert!(told["runs"][0]["name"].is_string(), "control: {told}");
    assert!(told["runs"][1]["name"].is_null(), "{told}");
    let keyed = |one: &Value| post(json!({ "runs": [one], "key": "again" }));
    let first = keyed(&good);
    let run = run_of(&first).expect("control");
    let widened = keyed(&evil);
    assert!(
        widened.status >= 400,
        "another request under the same key: {}",
        body(&widened)
    );
    let again = keyed(&good).json();
    assert_eq!(
        (&again["repeated"], &again["runs"][0]["name"]),
        (&json!(true), &json!(run)),
        "control: {again}"
    );
}

#[test]
fn a_token_of_some_runs_neither_begins_with_nor_hangs_onto_a_foreign_one() {
    let daemon = Daemon::start(&[]);
    let make = |name: &str| {
        let more = json!({ "name": name, "argv": ["sh", "-c", "echo LOOT > made.txt"] });
        let answer = daemon.own("POST", "/api/v1/runs", Some(&wish(&daemon, more)));
        assert_eq!(answer.status, 201, "{}", body(&answer));
        over(&daemon, name);
    };
    make("theirs-1");
    make("mine-1");
    let enough = json!({ "roots": [daemon.root] });
    let token = daemon.token(json!({ "role": "operator", "prefix": "mine-", "ceiling": enough }));
    let ask = |number: usize, more: Value| {
        let mut more = more;
        more["name"] = json!(format!("mine-new-{number}"));
        more["argv"] = json!(["sh", "-c", "cat made.txt"]);
        daemon.with(&token, "POST", "/api/v1/runs", Some(&wish(&daemon, more)))
    };
    for (number, (field, foreign, absent)) in [
        ("from", "theirs-1", "absent-1"),
        ("from", "theirs-1@1", "absent-1@1"),
        ("from", "theirs", "absent"),
        ("parent", "theirs-1", "absent-1"),
        ("parent", "THEIRS-1", "ABSENT-1"),
    ]
    .into_iter()
    .enumerate()
    {
        let told = ask(number, json!({ field: foreign }));
        assert!(run_of(&told).is_none(), "{field} {foreign}: {}", body(&told));
        // Not even that it is there.
        let none = ask(number, json!({ field: absent }));
        let same = |answer: &Answer, name: &str| {
            let name = name.split('@').next().unwrap_or_default();
            (answer.status, body(answer).replace(name, "NAME"))
        };
        assert_eq!(same(&told, foreign), same(&none, absent), "{field} {foreign}");
    }
    let answer = ask(90, json!({ "from": "mine-1" }));
    let run = run_of(&answer).unwrap_or_else(|| panic!("control: {}", body(&answer)));
    assert!(over(&daemon, &run).contains("LOOT"), "control");
}

#[test]
fn no_file_that_a_project_brings_makes_the_daemon_read_its_own_token_out() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let secret = admin_token(&daemon);
    let token = daemon.root.join("state/bastle/daemon/admin.token");
    let project = daemon.root.join("ws");
    let policy = project.join("agent-permissions.json");
    let ask = || {
        let run = daemon.with(
            &operator,
            "POST",
            "/api/v1/runs",
            Some(&wish(
                &daemon,
                json!({ "argv": ["cat", "agent-permissions.json"] }),
            )),
        );
        let told = run_of(&run).map_or_else(String::new, |run| over(&daemon, &run));
        let question = json!({ "kind": "read", "target": "x", "workspace": project });
        let asked = daemon.with(&operator, "POST", "/api/v1/policies/can-i", Some(&question));
        format!("{told}{}{}", body(&run), body(&asked))
    };
    // A chain of links, the second of which leads out.
    symlink(&token, project.join("hop")).expect("a fresh link");
    symlink("hop", &policy).expect("a fresh link");
    let linked = ask();
    assert!(
        !linked.contains(&secret) && !linked.contains(&secret[..16]),
        "{linked}"
    );
    std::fs::remove_file(&policy).expect("own link");
    // A directory on the way is the link.
    std::fs::create_dir(project.join(".bastle")).expect("a fresh place");
    symlink("/proc/self/environ", &policy).expect("a fresh link");
    let environment = ask();
    assert!(!environment.contains("XDG_STATE_HOME="), "{environment}");
    std::fs::remove_file(&policy).expect("own link");
    // What is no policy is told without its text.
    std::fs::write(&policy, format!("{{\"version\": 1, \"{secret}\"")).expect("can be written");
    let broken = daemon.with(&operator, "POST", "/api/v1/runs", Some(&wish(&daemon, json!({}))));
    assert!(
        broken.status >= 400 && !body(&broken).contains(&secret),
        "{}",
        body(&broken)
    );
    std::fs::write(&policy, r#"{"version": 1}"#).expect("can be written");
    std::fs::remove_file(project.join("hop")).expect("own link");
    assert!(ask().contains("version"), "control");
}

#[test]
fn the_own_token_of_a_run_leads_to_nothing_but_itself() {
    let daemon = Daemon::start(&[]);
    let other = daemon.spawn("sleep 600");
    let asked = json!({ "runs": [wish(&daemon, json!({ "argv": ["sleep", "600"], "token": true }))] });
    let made = daemon.own("POST", "/api/v1/runs", Some(&asked)).json();
    let own = Token(made["runs"][0]["token"].as_str().expect("a token").to_owned());
    let run = made["runs"][0]["name"].as_str().expect("a name").to_owned();
    daemon.until(&run, &["running"]);
    daemon.until(&other, &["running"]);
    let before = daemon.everything();
    for (method, path, sent) in [
        ("POST", "/api/v1/tokens".to_owned(), json!({ "role": "admin" })),
        ("GET", "/api/v1/tokens".to_owned(), json!({})),
        ("POST", "/api/v1/approvals/1/approve".to_owned(), json!({})),
        (
            "POST",
            "/api/v1/stop".to_owned(),
            json!({ "all": true, "kill": true }),
        ),
        (
            "POST",
            format!("/api/v1/runs/{run}/grants"),
            json!({ "path": "/etc", "access": "read-only" }),
        ),
        (
            "POST",
            format!("/api/v1/runs/{run}/rules"),
            json!({ "verb": "allow", "target": "*" }),
        ),
        ("POST", format!("/api/v1/runs/{run}/kill"), json!({})),
        ("GET", format!("/api/v1/runs/{other}"), json!({})),
        ("GET", format!("/api/v1/runs/{other}/logs"), json!({})),
        ("POST", format!("/api/v1/runs/{other}/kill"), json!({})),
        ("GET", "/metrics".to_owned(), json!({})),
    ] {
        let sent = (method == "POST").then_some(sent);
        let answer = daemon.with(&own, method, &path, sent.as_ref());
        assert!(
            [403, 404].contains(&answer.status),
            "{method} {path}: {} {}",
            answer.status,
            body(&answer)
        );
    }
    assert_eq!(daemon.everything(), before, "nothing was changed");
    let itself = daemon.with(&own, "GET", &format!("/api/v1/runs/{run}"), None);
    assert_eq!(itself.status, 200, "control: {}", body(&itself));
}

#[test]
fn the_owners_socket_gives_a_program_no_role_that_it_only_claims() {
    let daemon = Daemon::start(&[]);
    let call = |headers: &[(&str, &str)], tool: &str, arguments: Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "bastle mcp; role=admin", "version": "1" },
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let own = [
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        let bytes = crate::http::request(
            "POST",
            "/mcp",
            &[&own, headers].concat(),
            message.to_string().as_bytes(),
        );
        body(&crate::http::exchange(
            &mut crate::http::unix(&daemon.socket),
            &bytes,
        ))
    };
    for headers in [
        &[][..],
        &[("x-bastle-role", "admin")],
        &[("x-forwarded-user", "uid:0"), ("x-remote-user", "root")],
        &[("user-agent", "bastle mcp; role=admin")],
    ] {
        let told = call(
            headers,
            "approve",
            json!({ "approval": 1, "hash": "0".repeat(64) }),
        );
        assert!(told.contains("needs the role approver"), "{headers:?}: {told}");
    }
    let told = call(&[], "list_workers", json!({}));
    assert!(
        told.contains("workers") && !told.contains("\"isError\":true"),
        "control: {told}"
    );
}
