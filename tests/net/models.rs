//! Budgets that hold for any model: self-hosted servers, odd spellings, many requests at once, answers that tell nothing.
use crate::support::{Fence, Lab, Limit, Output, for_each_identity};
use crate::world::{Scripts, host, says, world};
use serde_json::{Value, json};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(240));

/// A run that may reach what `allow` says, under a budget, with `net.models` as given.
fn fence<'a>(lab: &'a Lab, allow: &Value, budget: &Value, models: &Value) -> Fence<'a> {
    let mut net = json!({ "allow": allow });
    if models.as_array().is_some_and(|list| !list.is_empty()) {
        net["models"] = models.clone();
    }
    let rest = json!({ "budget": budget, "git": { "push": "allow", "forcePush": "allow" } });
    let document = world().document(&net, &rest);
    world().under(lab, &world().policy(lab, &document)).within(SLOW)
}

fn post(url: &str, body: &Value) -> String {
    format!(
        "curl -s --path-as-is -o /dev/null -w '%{{http_code}}\\n' -H 'Content-Type: application/json' -d '{body}' {url}\n"
    )
}

/// Requests that reached a server under this name, without WebSocket upgrades.
fn reached(name: &str) -> usize {
    let seen = world().seen(name);
    seen.iter().filter(|request| request["method"] == "POST").count()
}

fn stopped_at(output: &Output, name: &str, most: usize) {
    assert_eq!(output.ended.code, 75, "{output:?}");
    assert_eq!(reached(name), most, "{output:?}");
}

#[test]
fn a_budget_of_turns_holds_at_servers_that_are_in_no_list_whatever_their_api_is() {
    for_each_identity(|lab| {
        for (scheme, path, how) in [
            ("https", "/v1/chat/completions", "plain"),
            ("https", "/backend-api/codex/responses", "gzip"),
            ("http", "/v1/messages", "plain"),
            ("http", "/api/chat", "lines"),
            ("http", "/api/generate", "silent"),
            ("http", "/completion", "plain"),
            ("http", "/model/anthropic.claude-3-haiku/converse", "plain"),
            (
                "http",
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
                "plain",
            ),
        ] {
            let name = host("llm");
            let port = if scheme == "https" { "{tls}" } else { "{plain}" };
            let asks = post(&format!("{scheme}://{name}:{port}{path}"), &json!({ "how": how })).repeat(6);
            let allow = json!([format!("{name}:{port}")]);
            let output = fence(lab, &allow, &json!({ "turns": 3 }), &json!([]))
                .shell(&format!("{asks}sleep 30; echo survived"));
            stopped_at(&output, &name, 3);
            assert!(
                output.said().starts_with("200\n200\n200"),
                "{scheme} {path}: {output:?}"
            );
        }
        let name = host("llm");
        let allow = json!([format!("{name}:{{plain}}")]);
        let asks = post(&format!("http://{name}:{{plain}}/api/chat"), &json!({})).repeat(3);
        let control =
            fence(lab, &allow, &json!({ "turns": 3 }), &json!([])).shell(&format!("{asks}echo survived"));
        says(&control, "200\n200\n200\nsurvived");
    });
}

#[test]
fn no_spelling_of_a_path_and_no_version_of_http_is_a_turn_that_nobody_counts() {
    for_each_identity(|lab| {
        let name = host("llm");
        let spelled: String = [
            "/v1/%6dessages",
            "/V1/Messages",
            "/v1/messages/",
            "/v1/mess%61ges/?beta=true",
            "/v1/messages?x",
        ]
        .iter()
        .map(|path| post(&format!("https://{name}:{{tls}}{path}"), &json!({})))
        .collect();
        let again = spelled.replace("curl -s", "curl -s --http2");
        let allow = json!([format!("{name}:{{tls}}")]);
        let output = fence(lab, &allow, &json!({ "turns": 3 }), &json!([]))
            .shell(&format!("{spelled}{again}sleep 30; echo survived"));
        stopped_at(&output, &name, 3);
    });
}

#[test]
fn thirty_requests_at_once_do_not_pass_a_budget_of_three_turns_or_of_their_tokens() {
    for_each_identity(|lab| {
        let honest = json!({ "how": "slow", "max_tokens": 2_000 });
        for (budget, ask) in [
            (json!({ "turns": 3 }), &honest),
            (json!({ "tokens": 4_000 }), &honest),
            (
                json!({ "tokens": 4_000 }),
                &json!({ "how": "slow", "max_completion_tokens": 2_000, "max_tokens": 1 }),
            ),
            (
                json!({ "tokens": 4_000 }),
                &json!({ "how": "slow", "max_tokens": 1, "n": 30 }),
            ),
        ] {
            let name = host("llm");
            let one = post(&format!("https://{name}:{{tls}}/v1/chat/completions"), ask).replace('\n', " &\n");
            let script = format!("for i in $(seq 30); do {one} done\nwait; sleep 30; echo survived");
            let allow = json!([format!("{name}:{{tls}}")]);
            let output = fence(lab, &allow, &budget, &json!([])).shell(&script);
            // Each uses 1500 tokens: after two there is room for one more.
            stopped_at(&output, &name, 3);
        }
        let name = host("llm");
        let one = post(
            &format!("https://{name}:{{tls}}/v1/chat/completions"),
            &json!({ "how": "slow" }),
        )
        .replace('\n', " &\n");
        let allow = json!([format!("{name}:{{tls}}")]);
        let control = fence(lab, &allow, &json!({ "turns": 30 }), &json!([]))
            .shell(&format!("for i in $(seq 30); do {one} done\nwait; echo survived"));
        assert!(control.said().ends_with("survived"), "{control:?}");
        assert_eq!(reached(&name), 30);
    });
}

#[test]
fn a_stream_that_is_cut_and_an_answer_that_tells_nothing_are_counted_by_what_passed() {
    for_each_identity(|lab| {
        let filler = "x".repeat(2_400);
        for (how, note, budget) in [
            ("cut", "", 700),
            ("silent", filler.as_str(), 1_000),
            ("gzip", "", 2_900),
        ] {
            let name = host("llm");
            let allow = json!([format!("{name}:{{plain}}")]);
            let ask = post(
                &format!("http://{name}:{{plain}}/v1/chat/completions"),
                &json!({ "how": how, "note": note }),
            );
            let run = |tokens: u64, count: usize| {
                fence(lab, &allow, &json!({ "tokens": tokens }), &json!([]))
                    .shell(&format!("{}sleep 2; echo survived", ask.repeat(count)))
            };
            // Two are more than the budget, one is not.
            stopped_at(&run(budget, 6), &name, 2);
            let control = run(1_000_000, 1);
            assert!(control.said().ends_with("survived"), "{how}: {control:?}");
            let told = control.events("net-closed");
            let closed = told
                .iter()
                .find(|event| event["model"].is_object())
                .expect("told");
            let estimated = if how == "gzip" {
                Value::Null
            } else {
                json!("estimated")
            };
            assert_eq!(closed["model"]["basis"], estimated, "{how}: {closed}");
        }
    });
}

#[test]
fn what_cannot_be_counted_refuses_the_run_until_it_is_declared_or_waived_by_name() {
    for_each_identity(|lab| {
        let name = host("llm");
        let opaque = json!([{ "rule": format!("{name}:{{tls}}"), "opaque": true }]);
        let budget = json!({ "turns": 3 });
        let refused = fence(lab, &opaque, &budget, &json!([])).shell("echo started");
        assert_eq!(refused.ended.code, 125, "{refused:?}");
        let told = &refused.ended.stderr;
        assert!(
            told.contains("BST-LIM-009") && told.contains("budget.turns") && told.contains("--waive turns"),
            "{told}"
        );
        let waived = fence(lab, &opaque, &budget, &json!([]))
            .flags(["--waive", "turns"])
            .shell("echo started");
        says(&waived, "started");
        let declared = json!([{ "host": name, "api": "none" }]);
        says(
            &fence(lab, &opaque, &budget, &declared).shell("echo started"),
            "started",
        );
        says(
            &fence(lab, &opaque, &json!({ "requests": 3 }), &json!([])).shell("echo started"),
            "started",
        );
        let ollama = json!([{ "host": name, "api": "ollama-chat" }]);
        let whole = json!([format!("{name}:{{plain}}")]);
        let unpriced = fence(lab, &whole, &json!({ "usd": 1 }), &ollama).shell("echo started");
        assert_eq!(unpriced.ended.code, 125, "{unpriced:?}");
        assert!(unpriced.ended.stderr.contains("price"), "{unpriced:?}");
        let priced = json!([{ "host": name, "api": "ollama-chat", "price": { "input": 0, "output": 0 } }]);
        says(
            &fence(lab, &whole, &json!({ "usd": 1 }), &priced).shell("echo started"),
            "started",
        );
    });
}

#[test]
fn an_open_network_hides_no_model_on_any_port() {
    for_each_identity(|lab| {
        let budget = json!({ "turns": 3 });
        for (scheme, port) in [("http", "{plain}"), ("https", "{tls}")] {
            let name = host("llm");
            let asks = post(
                &format!("{scheme}://{name}:{port}/v1/chat/completions"),
                &json!({}),
            )
            .repeat(6);
            let run = |more: &[&str]| {
                fence(lab, &json!([]), &budget, &json!([]))
                    .flags(["--net", "open"])
                    .flags(more)
                    .shell(&format!("{asks}sleep 2; echo survived"))
            };
            stopped_at(&run(&[]), &name, 3);
        }
    });
}

#[test]
fn a_model_without_a_price_is_refused_under_a_budget_of_cost_and_counted_at_the_price_that_policy_states() {
    for_each_identity(|lab| {
        let name = host("llm");
        let allow = json!([format!("{name}:{{plain}}")]);
        let url = format!("http://{name}:{{plain}}/v1/chat/completions");
        let body = json!({ "model": "house-model-7" });
        let shown = format!("curl -s -H 'Content-Type: application/json' -d '{body}' {url}\n");
        let refused = fence(lab, &allow, &json!({ "usd": 1 }), &json!([]))
            .shell(&format!("{shown}echo; echo survived"));
        let said: Value =
            serde_json::from_str(refused.said().lines().next().unwrap_or_default()).expect("JSON");
        assert_eq!(said["error"], "policy_denied", "{said}");
        assert_eq!(
            (said["retry"].clone(), said["deliberate"].clone()),
            (json!(false), json!(true)),
            "{said}"
        );
        assert!(
            said["reason"]
                .as_str()
                .unwrap_or_default()
                .contains("house-model-7"),
            "{said}"
        );
        assert_eq!(reached(&name), 0);
        // 1000 in at 100 and 500 out at 200 dollars for a million: 0.2 dollars each.
        let models = json!([{ "host": name, "price": { "input": 100, "output": 200 } }]);
        let output = fence(lab, &allow, &json!({ "usd": 0.5 }), &models)
            .shell(&format!("{}sleep 30; echo survived", post(&url, &body).repeat(6)));
        stopped_at(&output, &name, 3);
    });
}

#[test]
fn a_project_can_declare_more_models_but_neither_take_a_host_out_nor_set_a_price() {
    for_each_identity(|lab| {
        let name = host("llm");
        let allow = json!([format!("{name}:{{plain}}")]);
        let project = json!({ "version": 1, "net": { "models": [
            { "host": name, "api": "none" },
            { "host": name, "paths": ["/own/think"], "api": "openai-chat" },
        ] } });
        lab.plant(
            std::path::Path::new("ws/agent-permissions.json"),
            &project.to_string(),
        );
        let asks = post(&format!("http://{name}:{{plain}}/own/think"), &json!({})).repeat(2)
            + &post(&format!("http://{name}:{{plain}}/v1/messages"), &json!({})).repeat(4);
        let output = fence(lab, &allow, &json!({ "turns": 3 }), &json!([]))
            .shell(&format!("{asks}sleep 30; echo survived"));
        stopped_at(&output, &name, 3);
    });
}

#[test]
fn every_message_of_a_websocket_to_a_model_is_a_turn() {
    for_each_identity(|lab| {
        let name = host("llm");
        let allow = json!([{ "rule": format!("{name}:{{plain}}"), "websocket": true }]);
        let script = format!(
            r#"
s = socket.create_connection(PROXY, 12)
s.settimeout(12)
s.sendall(b"GET http://{name}:{{plain}}/v1/realtime HTTP/1.1\r\nHost: {name}:{{plain}}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
head = b""
while b"\r\n\r\n" not in head:
    head += s.recv(1)
print(status(head), flush=True)
for i in range(6):
    s.sendall(bytes([0x81, 0x80 | 2, 0, 0, 0, 0]) + b"m%d" % i)
    got = s.recv(4)
    print(got[2:].decode(), flush=True)
print("survived")
"#
        );
        let output =
            fence(lab, &allow, &json!({ "turns": 3 }), &json!([])).python(lab, &world().fill(&script));
        assert_eq!(output.ended.code, 75, "{output:?}");
        assert_eq!(
            output.said().lines().take(4).collect::<Vec<_>>(),
            ["101", "m0", "m1", "m2"],
            "{output:?}"
        );
        assert!(!output.said().contains("m3"), "{output:?}");
    });
}
