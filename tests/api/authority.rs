//! A request only narrows what its sender has: through REST, MCP and A2A alike, with a control beside every attempt.
use crate::daemon::{Daemon, Token};
use crate::http::Answer;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The extension of A2A that says how a worker is started.
const SPAWN: &str = "https://bastle.dev/a2a/spawn/v1";
const MODERN: &str = "2026-07-28";

/// A way to ask for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Rest,
    Mcp,
    A2a,
}

const DOORS: [Door; 3] = [Door::Rest, Door::Mcp, Door::A2a];

/// What came of asking.
struct Asked {
    /// The run that was started.
    run: Option<String>,
    /// The whole answer.
    text: String,
}

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn last_message(answer: &Answer) -> Value {
    let text = body(answer);
    let line = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back();
    serde_json::from_str(line.unwrap_or(&text)).unwrap_or(Value::Null)
}

/// Asks for one run. `wish` has the fields of `POST /api/v1/runs`.
fn ask(daemon: &Daemon, token: &Token, door: Door, wish: &Value) -> Asked {
    let bearer = format!("Bearer {}", token.0);
    match door {
        Door::Rest => {
            let answer = daemon.with(token, "POST", "/api/v1/runs", Some(wish));
            let run = (answer.status == 201).then(|| answer.json()["runs"][0]["name"].clone());
            Asked {
                run: run.and_then(|name| name.as_str().map(str::to_owned)),
                text: body(&answer),
            }
        }
        Door::Mcp => {
            let params = json!({
                "name": "spawn_worker", "arguments": wish,
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
                },
            });
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let headers = [
                ("authorization", bearer.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-protocol-version", MODERN),
                ("mcp-method", "tools/call"),
                ("mcp-name", "spawn_worker"),
            ];
            let answer = daemon.net("POST", "/mcp", &headers, call.to_string().as_bytes());
            let said = last_message(&answer);
            let run = said["result"]["structuredContent"]["worker"].as_str();
            Asked {
                run: run.map(str::to_owned),
                text: said.to_string(),
            }
        }
        Door::A2a => {
            let text = wish["prompt"].as_str().unwrap_or("do it");
            let mut wish = wish.clone();
            wish.as_object_mut().unwrap().remove("prompt");
            let message = json!({
                "messageId": format!("m-{}", wish.to_string().len()), "role": "ROLE_USER",
                "parts": [{ "text": text }], "metadata": { SPAWN: wish },
            });
            let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
            let call = json!({ "jsonrpc": "2.0", "id": "c", "method": "SendMessage", "params": params });
            let headers = [
                ("authorization", bearer.as_str()),
                ("a2a-version", "1.0"),
                ("content-type", "application/json"),
            ];
            let answer = daemon.net("POST", "/a2a/jsonrpc", &headers, call.to_string().as_bytes());
            let said = answer.json();
            Asked {
                run: said["result"]["task"]["id"].as_str().map(str::to_owned),
                text: said.to_string(),
            }
        }
    }
}

/// A run that ends by itself, with something on top.
fn wish(daemon: &Daemon, more: Value) -> Value {
    let mut wish = json!({ "argv": ["true"], "workspace": daemon.workspace(), "mode": "copy" });
    for (key, value) in more.as_object().unwrap() {
        wish[key] = value.clone();
    }
    wish
}

/// What an attacker leaves on the host when it works.
fn mark(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.root.join(name)
}

fn secret(from: &str) -> Value {
    json!({ "version": 1, "secrets": [{ "name": "STOLEN", "from": from, "hosts": ["example.com"] }] })
}

/// Policies that reach further than the daemon's own configuration, and the word of each that a refusal names.
fn wider(daemon: &Daemon, door: Door) -> Vec<(&'static str, Value)> {
    let private = daemon.root.join("private");
    std::fs::create_dir_all(&private).unwrap();
    std::fs::write(private.join("key"), "a private key\n").unwrap();
    let touched = mark(daemon, &format!("touched-{door:?}"));
    vec![
        ("secrets", secret(&format!("exec:touch {}", touched.display()))),
        (
            "secrets",
            secret(&format!("file:{}", private.join("key").display())),
        ),
        ("secrets", secret("env:HOME")),
        ("secrets", secret("store:anything")),
        (
            "net.addresses",
            json!({ "version": 1, "net": { "addresses": ["127.0.0.0/8"] } }),
        ),
        (
            "net.resolvers",
            json!({ "version": 1, "net": { "resolvers": ["127.0.0.1"] } }),
        ),
        (
            "net.upstream",
            json!({ "version": 1, "net": { "upstream": "http://127.0.0.1:9" } }),
        ),
        ("fs.read", json!({ "version": 1, "fs": { "read": ["/etc"] } })),
        ("fs.read", json!({ "version": 1, "fs": { "read": [private] } })),
        ("fs.write", json!({ "version": 1, "fs": { "write": [private] } })),
        (
            "net.allow",
            json!({ "version": 1, "net": { "allow": ["exfiltration.example"] } }),
        ),
        ("env.set", json!({ "version": 1, "env": { "set": { "A": "b" } } })),
        (
            "env.pass",
            json!({ "version": 1, "env": { "pass": ["XDG_STATE_HOME"] } }),
        ),
        ("mode", json!({ "version": 1, "mode": "learn" })),
        ("lock", json!({ "version": 1, "lock": ["net"] })),
        ("cache", json!({ "version": 1, "cache": ["cargo"] })),
        (
            "approvals.reviewers",
            json!({ "version": 1, "approvals": { "reviewers": ["me"] } }),
        ),
        (
            "audit.canary",
            json!({ "version": 1, "audit": { "canary": false } }),
        ),
        (
            "net.default",
            json!({ "version": 1, "net": { "default": "ask" } }),
        ),
        (
            "net.ipLiterals",
            json!({ "version": 1, "net": { "ipLiterals": true } }),
        ),
        ("net.listen", json!({ "version": 1, "net": { "listen": [8080] } })),
    ]
}

#[test]
fn a_policy_in_a_request_never_widens_what_the_daemon_was_configured_to_give() {
    let daemon = Daemon::start(&[]);
    for door in DOORS {
        let operator = daemon.role("operator");
        for (named, policy) in wider(&daemon, door) {
            let asked = ask(
                &daemon,
                &operator,
                door,
                &wish(&daemon, json!({ "policy": policy })),
            );
            if let Some(run) = &asked.run {
                daemon.until(run, &["completed", "failed", "refused"]);
            }
            let touched = mark(&daemon, &format!("touched-{door:?}"));
            assert!(!touched.exists(), "{door:?}: a program was run on the host");
            assert_eq!(asked.run, None, "{door:?} started a run with {policy}");
            assert!(
                asked.text.contains("BST-TOK-003"),
                "{door:?} {policy}: {}",
                asked.text
            );
            assert!(asked.text.contains(named), "{door:?} {named}: {}", asked.text);
        }
        // The control: the same request that only narrows is started and ends well.
        let less = json!({
            "version": 1, "fs": { "hide": ["./hello.txt"] }, "net": { "deny": ["example.com"] },
            "limits": { "timeout": "1m", "pids": 64 }, "exec": { "deny": ["sudo"] }, "env": { "pass": [] },
        });
        let asked = ask(
            &daemon,
            &operator,
            door,
            &wish(&daemon, json!({ "policy": less })),
        );
        let run = asked.run.unwrap_or_else(|| panic!("{door:?}: {}", asked.text));
        assert_eq!(
            daemon.until(&run, &["completed", "failed", "refused"])["state"],
            "completed"
        );
    }
    // The control: an admin's word counts as the operator's own.
    let touched = mark(&daemon, "touched-by-admin");
    let policy = secret(&format!("exec:sh -c 'echo value; touch {}'", touched.display()));
    let admin = daemon.role("admin");
    let asked = ask(
        &daemon,
        &admin,
        Door::Rest,
        &wish(&daemon, json!({ "policy": policy })),
    );
    let run = asked.run.unwrap_or_else(|| panic!("{}", asked.text));
    daemon.until(&run, &["completed", "failed", "refused"]);
    assert!(touched.exists(), "the attempt above would have worked");
}

#[test]
fn what_a_narrowing_policy_hides_is_hidden_inside() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let read = |policy: Value| {
        let more = json!({ "argv": ["cat", "hello.txt"], "policy": policy });
        let asked = ask(&daemon, &operator, Door::Rest, &wish(&daemon, more));
        let run = asked.run.unwrap_or_else(|| panic!("{}", asked.text));
        daemon.until(&run, &["completed", "failed"])["state"].clone()
    };
    assert_eq!(read(json!({ "version": 1 })), "completed");
    assert_eq!(
        read(json!({ "version": 1, "fs": { "hide": ["./hello.txt"] } })),
        "failed"
    );
}

#[test]
fn fields_that_open_more_are_refused_to_whoever_is_no_admin() {
    let daemon = Daemon::start(&[]);
    let outside = tempfile::Builder::new()
        .prefix("bastle-out-")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::create_dir_all(daemon.root.join("home/.ssh")).unwrap();
    std::os::unix::fs::symlink(outside.path(), daemon.root.join("home/link")).unwrap();
    for door in DOORS {
        let operator = daemon.role("operator");
        for (named, more) in [
            ("net", json!({ "net": "open" })),
            ("mode", json!({ "mode": "in-place" })),
            ("workspace", json!({ "workspace": outside.path() })),
            ("workspace", json!({ "workspace": daemon.root.join("home/link") })),
            ("workspace", json!({ "workspace": "/nowhere/at/all" })),
            ("scopes", json!({ "scopes": ["/var/tmp"] })),
            ("workspace", json!({ "workspace": daemon.root.join("home/.ssh") })),
        ] {
            let asked = ask(&daemon, &operator, door, &wish(&daemon, more.clone()));
            assert_eq!(asked.run, None, "{door:?} started a run with {more}");
            assert!(
                asked.text.contains("BST-TOK-003"),
                "{door:?} {more}: {}",
                asked.text
            );
            assert!(asked.text.contains(named), "{door:?} {named}: {}", asked.text);
        }
        for field in ["unprotect", "waive", "expand", "hooks", "policy_files"] {
            let asked = ask(
                &daemon,
                &operator,
                door,
                &wish(&daemon, json!({ field: ["./.git"] })),
            );
            assert_eq!(
                asked.run, None,
                "{door:?} started a run with {field}: {}",
                asked.text
            );
        }
    }
    // The control: a token whose ceiling states them is given them, as far as the daemon's default allows.
    let wide = daemon.token(json!({ "role": "operator", "ceiling": {
        "roots": [daemon.root, outside.path()], "net": "open", "modes": ["copy", "in-place"],
    }}));
    for more in [json!({ "net": "open" }), json!({ "mode": "in-place" })] {
        let asked = ask(&daemon, &wide, Door::Rest, &wish(&daemon, more.clone()));
        assert!(asked.run.is_some(), "{more}: {}", asked.text);
    }
    let more = json!({ "workspace": outside.path() });
    let asked = ask(&daemon, &wide, Door::Rest, &wish(&daemon, more));
    assert!(
        asked.text.contains("BST-TOK-003"),
        "a token is not above the daemon: {}",
        asked.text
    );
}

/// A daemon whose settings state no ceiling, with a project below its home directory.
fn unstated() -> (Daemon, String) {
    let dir = tempfile::Builder::new().prefix("bastle-api-").tempdir().unwrap();
    let root = dir.path().to_path_buf();
    for name in ["home/project", "state", "run", "ws"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let project = root.join("home/project").display().to_string();
    (Daemon::start_in(root, Some(dir), &[]), project)
}

#[test]
fn without_settings_projects_lie_below_the_home_directory_and_a_token_states_others() {
    let (daemon, project) = unstated();
    let operator = daemon.role("operator");
    let elsewhere = daemon.root.join("ws");
    let at = |workspace: &str| json!({ "argv": ["true"], "workspace": workspace });
    let refused = ask(&daemon, &operator, Door::Rest, &at(elsewhere.to_str().unwrap()));
    assert!(
        refused.run.is_none() && refused.text.contains("BST-TOK-003"),
        "{}",
        refused.text
    );
    let asked = ask(&daemon, &operator, Door::Rest, &at(&project));
    let run = asked.run.unwrap_or_else(|| panic!("{}", asked.text));
    daemon.until(&run, &["completed"]);
    // Without a mode and without git it would have been in place.
    let files = daemon.own("GET", &format!("/api/v1/runs/{run}/files"), None);
    assert_eq!(files.status, 200, "it has a tree of its own: {files:?}");
    let wide = daemon.token(json!({ "role": "operator", "ceiling": { "roots": [elsewhere] } }));
    let asked = ask(&daemon, &wide, Door::Rest, &at(elsewhere.to_str().unwrap()));
    assert!(asked.run.is_some(), "the control: {}", asked.text);
    let refused = ask(&daemon, &wide, Door::Rest, &at(&project));
    assert!(
        refused.text.contains("BST-TOK-003"),
        "only where it says: {}",
        refused.text
    );
}

#[test]
fn a_ceiling_is_shown_kept_and_holds_profiles_presets_hosts_and_numbers() {
    let daemon = Daemon::start(&[]);
    let profile = json!({ "document": {
        "version": 1, "name": "mine", "timeout": "5m", "ceiling": { "limits": { "pids": 50 } },
        "policy": { "version": 1, "net": { "allow": ["a.example", "b.example"] } },
    }});
    let kept = daemon.own("PUT", "/api/v1/profiles/mine", Some(&profile));
    assert!(kept.status < 300, "{kept:?}");
    let stated = json!({
        "profiles": ["default", "mine"], "presets": ["default"], "hosts": ["a.example"],
        "limits": { "timeout": "10m", "turns": 20 }, "max_runs": 8,
    });
    let token = daemon.token(json!({ "role": "operator", "ceiling": stated }));
    let known = daemon.with(&token, "GET", "/api/v1/whoami", None).json();
    for (field, value) in stated.as_object().unwrap() {
        assert_eq!(known["ceiling"][field], *value, "{known}");
    }
    assert_eq!(known["ceiling"]["net"], "allowlist");
    assert_eq!(known["ceiling"]["modes"], json!(["copy", "overlay", "worktree"]));
    assert_eq!(
        known["ceiling"]["roots"],
        json!([daemon.root.canonicalize().unwrap()])
    );
    assert_eq!(
        daemon.own("GET", "/api/v1/whoami", None).json()["ceiling"],
        Value::Null
    );
    let listed = daemon.own("GET", "/api/v1/tokens", None).json();
    assert!(listed["items"].to_string().contains("a.example"), "{listed}");
    for (named, more) in [
        ("profile claude", json!({ "profile": "claude", "prompt": "x" })),
        ("preset dev", json!({ "preset": "dev" })),
        ("limits.timeout", json!({ "timeout": "11m" })),
        (
            "limits.timeout",
            json!({ "policy": { "version": 1, "limits": { "timeout": "1h" } } }),
        ),
        ("limits.timeout", json!({ "profile": "mine", "timeout": "6m" })),
        (
            "limits.pids",
            json!({ "profile": "mine", "policy": { "version": 1, "limits": { "pids": 51 } } }),
        ),
        ("budget.turns", json!({ "max_turns": 21 })),
        (
            "net.allow b.example",
            json!({ "profile": "mine", "policy": { "version": 1, "net": { "allow": ["b.example"] } } }),
        ),
        (
            "net.allow",
            json!({ "policy": { "version": 1, "net": { "allow": ["a.example"] } } }),
        ),
    ] {
        let asked = ask(&daemon, &token, Door::Rest, &wish(&daemon, more.clone()));
        assert_eq!(asked.run, None, "{more}");
        assert!(asked.text.contains("BST-TOK-003"), "{more}: {}", asked.text);
        assert!(asked.text.contains(named), "{named}: {}", asked.text);
    }
    let within = json!({
        "profile": "mine", "timeout": "4m", "max_turns": 20,
        "policy": { "version": 1, "net": { "allow": ["a.example"] }, "limits": { "pids": 50 } },
    });
    let asked = ask(&daemon, &token, Door::Rest, &wish(&daemon, within));
    let run = asked.run.unwrap_or_else(|| panic!("the control: {}", asked.text));
    daemon.until(&run, &["completed"]);
    for bad in [
        json!({ "role": "admin", "ceiling": { "net": "none" } }),
        json!({ "role": "operator", "ceiling": { "roots": ["relative"] } }),
        json!({ "role": "operator", "ceiling": { "roots": ["/nowhere/at/all"] } }),
        json!({ "role": "operator", "ceiling": { "hosts": ["*"] } }),
        json!({ "role": "operator", "ceiling": { "all": true } }),
    ] {
        let answer = daemon.own("POST", "/api/v1/tokens", Some(&bad));
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
}

#[test]
fn requests_side_by_side_never_have_more_runs_than_their_token_allows() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token(json!({ "role": "operator", "ceiling": { "max_runs": 3 } }));
    let sleeping = wish(&daemon, json!({ "argv": ["sleep", "600"] }));
    let asked: Vec<Asked> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| ask(&daemon, &token, Door::Rest, &sleeping)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let started: Vec<&String> = asked.iter().filter_map(|one| one.run.as_ref()).collect();
    assert_eq!(started.len(), 3);
    for refused in asked.iter().filter(|one| one.run.is_none()) {
        assert!(refused.text.contains("BST-RUN-006"), "{}", refused.text);
    }
    let many = json!({ "runs": [sleeping, sleeping], "partial": true });
    assert_eq!(
        daemon.with(&token, "POST", "/api/v1/runs", Some(&many)).status,
        429
    );
    let kill = format!("/api/v1/runs/{}/kill", started[0]);
    assert_eq!(daemon.with(&token, "POST", &kill, None).status, 200);
    daemon.until(started[0], &["cancelled"]);
    let free = crate::support::eventually(crate::support::Limit::HANG, || {
        ask(&daemon, &token, Door::Rest, &sleeping).run.is_some()
    });
    assert!(free, "a place that is free is given again");
    assert!(
        ask(&daemon, &daemon.role("operator"), Door::Rest, &sleeping)
            .run
            .is_some(),
        "others have their own"
    );
}

#[test]
fn a_child_stays_within_the_ceiling_of_whoever_started_its_parent_and_counts_there() {
    let daemon = Daemon::start(&[]);
    let token = daemon.token(json!({ "role": "operator", "ceiling": {
        "max_runs": 2, "hosts": ["a.example"], "limits": { "timeout": "10m" },
    }}));
    let hidden = json!({ "version": 1, "fs": { "hide": ["./hello.txt"] } });
    let parent = json!({ "runs": [wish(&daemon, json!({
        "argv": ["sleep", "600"], "token": true, "policy": hidden,
    }))]});
    let made = daemon.with(&token, "POST", "/api/v1/runs", Some(&parent)).json();
    let name = made["runs"][0]["name"].as_str().unwrap().to_owned();
    let own = Token(made["runs"][0]["token"].as_str().unwrap().to_owned());
    daemon.until(&name, &["running"]);
    let known = daemon.with(&own, "GET", "/api/v1/whoami", None).json();
    assert_eq!(known["ceiling"]["hosts"], json!(["a.example"]), "{known}");
    let child = |more: Value| {
        let mut all = json!({ "max_turns": 1, "timeout": "1m" });
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        ask(&daemon, &own, Door::Rest, &wish(&daemon, all))
    };
    for more in [
        json!({ "policy": secret("env:HOME") }),
        json!({ "net": "open" }),
        json!({ "mode": "in-place" }),
        json!({ "policy": { "version": 1, "net": { "allow": ["b.example"] } } }),
    ] {
        let asked = child(more.clone());
        assert_eq!(asked.run, None, "{more}");
    }
    // What the request of the parent hid, the child does not see either; and it takes the last place.
    let asked = child(json!({ "argv": ["sh", "-c", "cat hello.txt && exit 9; sleep 600"] }));
    let first = asked.run.unwrap_or_else(|| panic!("the control: {}", asked.text));
    daemon.until(&first, &["running"]);
    let refused = child(json!({}));
    assert!(refused.text.contains("BST-RUN-006"), "{}", refused.text);
    let state = daemon.own("GET", &format!("/api/v1/runs/{first}"), None).json();
    assert_eq!(state["state"], "running", "it did not read the file: {state}");
}

#[test]
fn an_approver_opens_only_paths_and_hosts_that_an_admin_stated() {
    let daemon = Daemon::start(&[]);
    std::fs::create_dir_all(daemon.root.join("data/in")).unwrap();
    let (shown, other) = (daemon.root.join("data/in"), daemon.root.join("home"));
    let run = daemon.spawn("sleep 600");
    daemon.until(&run, &["running"]);
    let plain = daemon.role("approver");
    let stated = daemon.token(json!({ "role": "approver", "ceiling": {
        "roots": [daemon.root.join("data"), daemon.workspace()], "hosts": ["a.example"],
    }}));
    let grants = format!("/api/v1/runs/{run}/grants");
    let rules = format!("/api/v1/runs/{run}/rules");
    let grant = |path: &PathBuf| json!({ "path": path.canonicalize().unwrap(), "access": "read-only" });
    let rule = |verb: &str, target: &str| json!({ "verb": verb, "target": target });
    for (token, at, body) in [
        (&plain, &rules, rule("allow", "a.example")),
        (&plain, &rules, rule("revoke", "a.example")),
        (&stated, &grants, grant(&other)),
        (&stated, &rules, rule("allow", "b.example")),
        (&stated, &rules, rule("allow", "*.a.example")),
        (&stated, &rules, rule("allow", "p_1")),
    ] {
        let answer = daemon.with(token, "POST", at, Some(&body));
        assert_eq!(answer.status, 403, "{body}: {answer:?}");
        assert_eq!(answer.code(), "BST-TOK-003", "{body}");
    }
    for (at, body) in [
        (&grants, grant(&shown)),
        (&rules, rule("allow", "a.example")),
        (&rules, rule("deny", "b.example")),
    ] {
        let answer = daemon.with(&stated, "POST", at, Some(&body));
        assert_eq!(
            answer.status,
            200,
            "the control: {body}: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
}
