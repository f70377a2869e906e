//! Who may what: roles, hosts, origins, tokens.
use crate::daemon::{Daemon, Token};
use crate::http::{Answer, exchange, request, tcp, unix};
use serde_json::{Value, json};

/// Every operation of the document: method, address with something in its places, weakest role.
fn operations(daemon: &Daemon) -> Vec<(String, String, Option<String>)> {
    let document = daemon.own("GET", "/api/v1/openapi.json", None).json();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let about = operation["description"].as_str().unwrap_or_default();
            let role = about
                .strip_prefix("Role: ")
                .map(|role| role.trim_end_matches('.').to_owned());
            let path = path
                .replace("{id}", "no-such-thing")
                .replace("{name}", "no-such-thing");
            all.push((method.to_uppercase(), path, role));
        }
    }
    assert!(all.len() > 60, "only {} operations", all.len());
    all
}

/// A body that no handler accepts: what passes the guard is refused as not understood, and nothing is done.
const NONSENSE: &str = r#"{"nobody-knows-this":1}"#;

fn ask(daemon: &Daemon, token: Option<&Token>, method: &str, path: &str) -> Answer {
    let bearer = token.map(|token| format!("Bearer {}", token.0));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let body = if method == "GET" || method == "DELETE" {
        ""
    } else {
        NONSENSE
    };
    daemon.net(method, path, &headers, body.as_bytes())
}

#[test]
fn every_operation_is_refused_without_a_token_and_below_its_role_and_to_nobody_else() {
    let daemon = Daemon::start(&[]);
    let ladder = ["viewer", "operator", "approver", "admin"];
    let tokens: Vec<Token> = ladder.iter().map(|role| daemon.role(role)).collect();
    let before = daemon.everything();
    for (method, path, role) in operations(&daemon) {
        // Streams stay open; they have a test of their own.
        if path == "/api/v1/events" {
            continue;
        }
        let stranger = ask(&daemon, None, &method, &path).status;
        let Some(role) = role else {
            assert_eq!(stranger, 200, "{method} {path} is open to all");
            continue;
        };
        assert_eq!(stranger, 401, "{method} {path} without a token");
        let needed = ladder.iter().position(|one| *one == role).expect("a role");
        for (rank, token) in tokens.iter().enumerate() {
            let answer = ask(&daemon, Some(token), &method, &path);
            let refused = answer.status == 403 && answer.code() == "BST-API-003";
            assert_eq!(
                refused,
                rank < needed,
                "{method} {path} as {}: {answer:?}",
                ladder[rank]
            );
            assert!(answer.status < 500, "{method} {path}: {answer:?}");
            assert_ne!(answer.status, 401, "{method} {path}");
        }
    }
    assert_eq!(daemon.everything(), before, "refused requests change nothing");
}

#[test]
fn another_host_or_page_is_refused_whatever_token_it_has() {
    let daemon = Daemon::start(&["--allow-origin", "https://ui.example"]);
    let admin = daemon.role("admin");
    let bearer = format!("Bearer {}", admin.0);
    let own = daemon.address.to_string();
    let evil_port = format!("evil.example:{}", daemon.address.port());
    let ask = |headers: &[(&str, &str)]| {
        let all = [&[("authorization", bearer.as_str())], headers].concat();
        exchange(
            &mut tcp(daemon.address),
            &request("GET", "/api/v1/runs", &all, b""),
        )
    };
    for bad in [
        &[("host", "evil.example")][..],
        &[("host", evil_port.as_str())],
        &[("host", "localhost.evil.tld")],
        &[("host", own.as_str()), ("origin", "null")],
        &[("host", own.as_str()), ("origin", "http://localhost.evil.tld")],
        &[("host", own.as_str()), ("origin", "https://evil.example")],
        &[("host", own.as_str()), ("sec-fetch-site", "cross-site")],
    ] {
        let answer = ask(bad);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "BST-API-004"),
            "{bad:?}"
        );
    }
    assert_eq!(ask(&[]).status, 400, "a request names its host");
    let local = format!("localhost:{}", daemon.address.port());
    for good in [
        &[("host", own.as_str())][..],
        &[("host", local.as_str())],
        &[("host", own.as_str()), ("origin", "https://ui.example")],
    ] {
        let answer = ask(good);
        assert_eq!(answer.status, 200, "{good:?}");
        assert!(
            !answer.head.contains("access-control-allow-origin"),
            "no page may read it"
        );
    }
    let simple = daemon.net(
        "POST",
        "/api/v1/runs",
        &[("authorization", &bearer), ("content-type", "text/plain")],
        b"{}",
    );
    assert_eq!((simple.status, simple.code().as_str()), (415, "BST-API-005"));
}

#[test]
fn a_token_that_is_wrong_cut_revoked_expired_or_in_the_address_opens_nothing() {
    let daemon = Daemon::start(&[]);
    let good = daemon.role("viewer");
    assert_eq!(daemon.with(&good, "GET", "/api/v1/runs", None).status, 200);
    let cut = Token(good.0[..good.0.len() - 1].to_owned());
    let longer = Token(format!("{}a", good.0));
    let upper = Token(good.0.to_uppercase());
    for bad in [cut, longer, upper, Token("x".into()), Token("bst_".into())] {
        let answer = daemon.with(&bad, "GET", "/api/v1/runs", None);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (401, "BST-API-002"),
            "{}",
            bad.0
        );
        assert!(answer.head.contains("www-authenticate: bearer"));
    }
    for path in [
        format!("/api/v1/runs?token={}", good.0),
        format!("/api/v1/runs?access_token={}", good.0),
    ] {
        assert_eq!(daemon.net("GET", &path, &[], b"").status, 401);
    }
    let tokens = daemon.own("GET", "/api/v1/tokens", None).json();
    assert!(!tokens.to_string().contains(&good.0), "the secret is told once");
    let ids: Vec<&Value> = tokens["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "viewer")
        .collect();
    let id = ids[0]["id"].as_str().unwrap();
    assert_eq!(
        daemon.own("DELETE", &format!("/api/v1/tokens/{id}"), None).status,
        200
    );
    assert_eq!(
        daemon.with(&good, "GET", "/api/v1/runs", None).status,
        401,
        "revoked at once"
    );
}

#[test]
fn a_token_held_to_some_runs_sees_and_ends_only_these() {
    let daemon = Daemon::start(&[]);
    let one = |prefix: &str| {
        let wish = json!({ "prefix": prefix, "runs": [{
            "argv": ["sleep", "600"], "workspace": daemon.workspace(), "mode": "copy",
        }]});
        let made = daemon.own("POST", "/api/v1/runs", Some(&wish));
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["runs"][0]["name"].as_str().unwrap().to_owned()
    };
    let (mine, other) = (one("mine"), one("other"));
    daemon.until(&mine, &["running"]);
    daemon.until(&other, &["running"]);
    let token = daemon.token(json!({ "role": "operator", "prefix": "mine-" }));
    let seen = daemon.with(&token, "GET", "/api/v1/runs", None).json();
    let names: Vec<&str> = seen["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [mine.as_str()]);
    for (method, path) in [
        ("GET", format!("/api/v1/runs/{other}")),
        ("GET", format!("/api/v1/runs/{other}/logs")),
        ("GET", format!("/api/v1/runs/{other}/files")),
        ("POST", format!("/api/v1/runs/{other}/stop")),
        ("POST", format!("/api/v1/agents/{other}/stop")),
    ] {
        assert_eq!(
            daemon.with(&token, method, &path, None).status,
            404,
            "{method} {path}"
        );
    }
    for path in ["/api/v1/batches", "/api/v1/stats", "/metrics"] {
        assert_eq!(daemon.with(&token, "GET", path, None).status, 403, "{path}");
    }
    let how = json!({ "all": true, "kill": true });
    let all = daemon.with(&token, "POST", "/api/v1/stop", Some(&how));
    assert_eq!(all.status, 200, "{all:?}");
    daemon.until(&mine, &["cancelled"]);
    assert_eq!(
        daemon.until(&other, &["running", "cancelled", "failed"])["state"],
        "running",
        "all of theirs, and no other"
    );
}

#[test]
fn what_fails_inside_is_not_told_to_whoever_is_no_admin() {
    let daemon = Daemon::start(&[]);
    let operator = daemon.role("operator");
    let wish = json!({ "argv": ["true"], "workspace": "/root/there/is/no/such/place" });
    let told = daemon.with(&operator, "POST", "/api/v1/runs", Some(&wish));
    assert!((400..500).contains(&told.status), "{told:?}");
    let text = String::from_utf8_lossy(&told.body).into_owned();
    assert!(!text.contains("/root"), "{text}");
    let admin = daemon.own("POST", "/api/v1/runs", Some(&wish));
    assert!(
        String::from_utf8_lossy(&admin.body).contains("/root"),
        "{admin:?}"
    );
}

#[test]
fn the_doors_without_a_token_say_nothing_and_the_socket_is_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start(&[]);
    let answer = daemon.net("GET", "/healthz", &[], b"");
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"{\"status\":\"ok\"}"[..])
    );
    // Whether the fence held at the newest probe and how old that is, and nothing about this host.
    let ready = daemon.net("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    let said: Vec<&String> = ready.as_object().unwrap().keys().collect();
    assert_eq!(said, ["age_ms", "containment", "probed_at", "status"], "{ready}");
    let mode = std::fs::metadata(&daemon.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let answer = exchange(
        &mut unix(&daemon.socket),
        &request("GET", "/api/v1/whoami", &[("host", "x")], b""),
    );
    assert_eq!(answer.json()["role"], "admin");
    let wrong = [("host", "x"), ("authorization", "Bearer bst_wrong")];
    let answer = exchange(
        &mut unix(&daemon.socket),
        &request("GET", "/api/v1/whoami", &wrong, b""),
    );
    assert_eq!(answer.status, 401, "a wrong token is wrong for the owner too");
    let metrics = daemon.own("GET", "/metrics", None);
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        text.contains("bastle_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"200\"} 1"),
        "{text}"
    );
}
