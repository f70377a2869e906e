//! Traces for a collector, and settings that are read again while the daemon serves.
use crate::daemon::Daemon;
use crate::outward::receive;
use crate::support::{Limit, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;

const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// An attribute of a span.
fn attribute<'v>(span: &'v Value, key: &str) -> &'v Value {
    let all = span["attributes"].as_array().expect("attributes");
    all.iter()
        .find(|one| one["key"] == key)
        .map_or(&Value::Null, |one| &one["value"])
}

#[test]
fn a_run_is_told_to_the_collector_within_the_trace_of_its_request_which_its_agent_and_its_log_have_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let daemon = Daemon::start(&["--otlp", &url]);
    let token = daemon.role("operator");
    let bearer = format!("Bearer {}", token.0);
    let wish = json!({
        "argv": ["sh", "-c", "echo $TRACEPARENT; exit 3"], "workspace": daemon.workspace(), "mode": "copy", "net": "none",
    });
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("traceparent", SENT),
    ];
    let made = daemon.net("POST", "/api/v1/runs", &headers, wish.to_string().as_bytes());
    assert_eq!(made.status, 201, "{made:?}");
    let name = made.json()["runs"][0]["name"].as_str().unwrap().to_owned();
    // One that takes nothing at first is asked again.
    receive(
        &listener,
        "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let (head, body) = receive(&listener, TAKEN);
    assert!(
        head.starts_with("post /v1/traces ") && head.contains("content-type: application/json"),
        "{head}"
    );
    let told: Value = serde_json::from_slice(&body).unwrap();
    let spans = told["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap()
        .clone();
    let whole = &spans[0];
    assert_eq!(whole["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(whole["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(whole["name"], "invoke_agent sh");
    assert_eq!(whole["status"]["code"], 2, "{whole}");
    assert_eq!(
        attribute(whole, "gen_ai.operation.name")["stringValue"],
        "invoke_agent"
    );
    assert_eq!(attribute(whole, "gen_ai.agent.id")["stringValue"], name.as_str());
    assert_eq!(attribute(whole, "bastle.run.exit_code")["intValue"], "3");
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let own = whole["spanId"].as_str().unwrap();
    let mut names = Vec::new();
    let mut numbers = vec![own.to_owned()];
    for span in &spans[1..] {
        assert_eq!(
            (&span["traceId"], &span["parentSpanId"]),
            (&whole["traceId"], &json!(own))
        );
        assert!(
            number(&span["startTimeUnixNano"]) <= number(&span["endTimeUnixNano"]),
            "{span}"
        );
        names.push(span["name"].as_str().unwrap());
        numbers.push(span["spanId"].as_str().unwrap().to_owned());
    }
    assert_eq!(names, ["queued", "building", "running"]);
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), spans.len(), "every span has a number of its own");
    // The agent, the log and the events have the same trace, and the run's own place in it.
    let inside = format!("00-0af7651916cd43dd8448eb211c80319c-{own}-01");
    let output = daemon.own("GET", &format!("/api/v1/runs/{name}/logs"), None);
    assert!(
        String::from_utf8_lossy(&output.body).contains(&inside),
        "{output:?}"
    );
    let events = daemon
        .own("GET", &format!("/api/v1/runs/{name}/events"), None)
        .json();
    assert_eq!(events["items"][0]["traceparent"], inside.as_str(), "{events}");
    let log = daemon
        .root
        .join("state/bastle/audit")
        .join(&name)
        .join("log.jsonl");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("0af7651916cd43dd8448eb211c80319c"), "{log}");
}

#[test]
fn without_a_collector_nothing_is_sent_and_a_dead_one_holds_up_no_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It accepts and never answers.
    let daemon = Daemon::start(&["--otlp", &url]);
    for _ in 0..3 {
        let name = daemon.spawn("true");
        daemon.until(&name, &["completed"]);
    }
    drop(daemon);
    listener.set_nonblocking(true).unwrap();
    while listener.accept().is_ok() {}
    let daemon = Daemon::start(&[]);
    let name = daemon.spawn("true");
    daemon.until(&name, &["completed"]);
    drop(daemon);
    assert!(listener.accept().is_err(), "somebody was told who was not named");
    // A trace that has not the form of one begins a new one.
    let daemon = Daemon::start(&[]);
    let wish = json!({"argv": ["true"], "workspace": daemon.workspace(), "mode": "copy", "env": {"TRACEPARENT": "x; y"}});
    let made = daemon.own("POST", "/api/v1/runs", Some(&wish)).json();
    let name = made["runs"][0]["name"].as_str().unwrap();
    let events = daemon
        .own("GET", &format!("/api/v1/runs/{name}/events"), None)
        .json();
    let told = events["items"][0]["traceparent"].as_str().unwrap();
    assert!(told.len() == 55 && told.starts_with("00-"), "{told}");
}

#[test]
fn settings_are_read_again_at_a_signal_and_bad_ones_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("serve.json");
    let put = |settings: &Value| std::fs::write(&config, settings.to_string()).unwrap();
    put(&json!({"max_parallel": 1}));
    let daemon = Daemon::start(&["--config", config.to_str().unwrap()]);
    let most = || daemon.own("GET", "/api/v1/health", None).json()["max_parallel"].clone();
    let token = daemon.role("viewer");
    let bearer = format!("Bearer {}", token.0);
    let named = |host: &str| {
        let bytes = crate::http::request(
            "GET",
            "/api/v1/runs",
            &[("host", host), ("authorization", &bearer)],
            b"",
        );
        crate::http::exchange(&mut crate::http::tcp(daemon.address), &bytes).status
    };
    assert_eq!(most(), 1);
    assert_ne!(named("other.example"), 200);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    put(&json!({"max_parallel": 7, "allow_hosts": ["other.example"], "otlp": url}));
    daemon.signal(Signal::HUP);
    assert!(eventually(Limit::HANG, || most() == 7), "{}", most());
    assert_eq!(named("other.example"), 200);
    let name = daemon.spawn("true");
    let (_, body) = receive(&listener, TAKEN);
    assert!(
        String::from_utf8_lossy(&body).contains(&name),
        "the collector is told from now on"
    );
    // One that cannot be used as a whole changes nothing of it.
    put(&json!({"max_parallel": 9, "otlp": "http://elsewhere.example"}));
    daemon.signal(Signal::HUP);
    put(&json!({"max_parallel": 7, "allow_hosts": [], "otlp": url}));
    daemon.signal(Signal::HUP);
    assert!(eventually(Limit::HANG, || named("other.example") != 200));
    assert_eq!(most(), 7);
}
