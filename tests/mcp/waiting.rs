//! Waiting for workers: told by what happens, not by looking again; and nothing stays when nobody waits any more.
use crate::client::{Pipes, Web, messages, meta};
use crate::daemon::Daemon;
use crate::support::{Limit, eventually};
use serde_json::{Value, json};

/// A number of the daemon's metrics; 0 where it is not told.
fn metric(daemon: &Daemon, name: &str) -> u64 {
    let text = daemon.own("GET", "/metrics", None).body;
    String::from_utf8_lossy(&text)
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .unwrap_or(0)
}

/// How often somebody looked at one run.
fn looks(daemon: &Daemon) -> u64 {
    metric(
        daemon,
        "bastle_http_requests_total{method=\"GET\",route=\"/api/v1/runs/{id}\",status=\"200\"}",
    )
}

fn streams(daemon: &Daemon) -> u64 {
    metric(daemon, "bastle_http_streams")
}

fn wish(run: &str) -> Value {
    let mut about = meta(json!({}));
    about["progressToken"] = json!(1);
    json!({ "name": "wait", "arguments": { "workers": [run], "timeout_s": 600 }, "_meta": about })
}

/// Waits for the end of a run without looking at it alone.
fn over(daemon: &Daemon, run: &str) {
    let ended = eventually(Limit::HANG, || {
        let all = daemon.own("GET", "/api/v1/runs?state=completed", None).json();
        all["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(|one| one["name"] == run))
    });
    assert!(ended, "{run} does not end");
}

/// A run, and somebody who waits for its end.
fn waiting(daemon: &Daemon) -> (String, Pipes, u64) {
    let run = daemon.spawn("sleep 600");
    daemon.until(&run, &["running"]);
    let mut pipes = Pipes::open(daemon);
    let id = pipes.send("tools/call", wish(&run));
    assert_eq!(pipes.hear()["method"], "notifications/progress");
    (run, pipes, id)
}

#[test]
fn who_waits_is_told_by_what_happens_and_looks_at_nobody_meanwhile() {
    let daemon = Daemon::start(&[]);
    let (run, mut pipes, id) = waiting(&daemon);
    assert!(streams(&daemon) > 0, "nobody follows what happens");
    let before = looks(&daemon);
    assert!(before > 0, "looks are counted");
    // Something happens to somebody else, for longer than a look again would take.
    let other = daemon.spawn("sleep 2");
    over(&daemon, &other);
    assert_eq!(looks(&daemon), before, "it was looked at again and again");
    let killed = daemon.own("POST", &format!("/api/v1/runs/{run}/kill"), Some(&json!({})));
    assert_eq!(killed.status, 200);
    let done = pipes.answer(id);
    let told = &done["result"]["structuredContent"];
    assert_eq!(told["why"], "ended", "{done}");
    assert!(
        !told["workers"][0]["code"].is_null() || !told["workers"][0]["reason"].is_null(),
        "how it ended is told: {told}"
    );
    assert!(
        eventually(Limit::HANG, || streams(&daemon) == 0),
        "a stream is left"
    );
    assert_eq!(pipes.end(), Some(0));
}

#[test]
fn who_waits_no_more_leaves_no_stream_behind_over_pipes_and_over_http() {
    let daemon = Daemon::start(&[]);
    let (run, mut pipes, id) = waiting(&daemon);
    assert!(eventually(Limit::HANG, || streams(&daemon) == 1));
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    pipes.write(&cancelled.to_string());
    assert!(
        eventually(Limit::HANG, || streams(&daemon) == 0),
        "a stream is left"
    );
    assert!(pipes.ask("server/discover", json!({}))["result"].is_object());
    assert_eq!(pipes.end(), Some(0));

    // Over HTTP the time is over: the stream goes with the answer.
    let web = Web::new(&daemon, json!({ "role": "viewer" }));
    let short = json!({ "name": "wait", "arguments": { "workers": [run], "timeout_s": 1 } });
    let last = messages(&web.send("tools/call", short)).pop().unwrap();
    assert_eq!(last["result"]["structuredContent"]["why"], "timeout", "{last}");
    assert!(
        eventually(Limit::HANG, || streams(&daemon) == 0),
        "a stream is left"
    );
    let killed = daemon.own("POST", &format!("/api/v1/runs/{run}/kill"), Some(&json!({})));
    assert_eq!(killed.status, 200);
}
