//! Which hosts and requests budgets of turns, tokens and cost count, and what a layer may say about it.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Project, User};
use bastle_contract::egress::BudgetKind;
use bastle_policy::{
    ConnectVerdict, FOUND_HERE, Host, HostRole, Layer, LayerKind, ModelCall, NetPolicy, NetRequest,
    UnlistedCall, countable, default_layers, preset, read_preset, uncounted_hosts,
};
use common::{layer, merged, with_default};

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

fn table(user: &str, project: Option<&str>) -> NetPolicy {
    let mut layers = vec![(User, user)];
    layers.extend(project.map(|text| (Project, text)));
    merged(&with_default(&layers)).net
}

fn called(table: &NetPolicy, method: &str, (name, port): (&str, u16), path: &str) -> Option<ModelCall> {
    called_as(table, method, (name, port), path, Kind::Plain)
}

enum Kind {
    Plain,
    WebSocket,
}

fn called_as(
    table: &NetPolicy,
    method: &str,
    (name, port): (&str, u16),
    path: &str,
    kind: Kind,
) -> Option<ModelCall> {
    table.model_call(&NetRequest {
        method,
        host: &host(name),
        port,
        path,
        body_len: None,
        operation: None,
        websocket: matches!(kind, Kind::WebSocket),
    })
}

fn reads(table: &NetPolicy, name: &str) -> bool {
    matches!(table.connect(&host(name), 443), ConnectVerdict::Inspect(_))
}

#[test]
fn a_host_that_a_person_names_is_read_under_a_budget_of_models_and_only_then() {
    for (budget, read) in [
        (r#"{"turns": 3}"#, true),
        (r#"{"tokens": 3}"#, true),
        (r#"{"usd": 3}"#, true),
        (r#"{"requests": 3}"#, false),
    ] {
        let user = format!(
            r#"{{"version": 1, "net": {{"allow": ["llm.corp.test", "chatgpt.com"]}}, "budget": {budget}}}"#
        );
        let table = table(&user, None);
        for name in ["llm.corp.test", "chatgpt.com"] {
            assert_eq!(reads(&table, name), read, "{name} {budget}");
        }
        assert_eq!(table.needs_authority(), read, "{budget}");
    }
}

#[test]
fn only_the_operator_takes_a_host_out_of_counting_or_sets_a_price() {
    let entry = r#"{"host": "llm.corp.test", "api": "none"}, {"host": "other.test", "price": {"input": 1, "output": 1}}"#;
    let loose = format!(
        r#"{{"version": 1, "net": {{"models": [{entry}, {{"host": "more.test", "port": 9, "paths": ["/own"]}}]}}}}"#
    );
    let user =
        r#"{"version": 1, "net": {"allow": ["llm.corp.test", "more.test:9"]}, "budget": {"turns": 3}}"#;
    let project = merged(&with_default(&[(User, user), (Project, &loose)]));
    assert_eq!(
        project.net.host_role(&host("llm.corp.test"), 443),
        HostRole::Unknown
    );
    assert!(reads(&project.net, "llm.corp.test"));
    let refused: Vec<&str> = project.not_granted.iter().map(|one| one.what.as_str()).collect();
    assert!(refused.contains(&"net.models llm.corp.test none"), "{refused:?}");
    assert!(refused.contains(&"net.models other.test any"), "{refused:?}");
    assert!(
        called(&project.net, "POST", ("more.test", 9), "/own").is_some(),
        "more counting is no loosening"
    );
    let own = format!(
        r#"{{"version": 1, "net": {{"allow": ["llm.corp.test"], "models": [{entry}]}}, "budget": {{"turns": 3}}}}"#
    );
    let operator = table(&own, None);
    assert_eq!(
        operator.host_role(&host("llm.corp.test"), 443),
        HostRole::NotModel
    );
    assert!(!reads(&operator, "llm.corp.test"), "control");
    let call = called(&operator, "POST", ("other.test", 443), "/v1/messages");
    assert_eq!(call.unwrap().price.unwrap().input, 1_000);
}

#[test]
fn requests_to_models_are_known_by_path_on_every_host_and_others_are_not() {
    let table = table(r#"{"version": 1, "budget": {"turns": 3}}"#, None);
    let call = |method: &str, name: &str, path: &str| called(&table, method, (name, 443), path);
    for (name, path) in [
        ("any.test", "/v1/chat/completions"),
        ("any.test", "/api/chat"),
        ("chatgpt.com", "/backend-api/codex/responses"),
        (
            "x.openai.azure.com",
            "/openai/deployments/gpt-4o/chat/completions",
        ),
        (
            "bedrock-runtime.eu-west-1.amazonaws.com",
            "/model/anthropic.claude-3/invoke",
        ),
        (
            "us-central1-aiplatform.googleapis.com",
            "/v1/projects/p/locations/l/publishers/google/models/gemini:streamGenerateContent",
        ),
        ("openrouter.ai", "/api/v1/chat/completions"),
        ("api.cohere.com", "/v2/chat"),
    ] {
        assert!(call("POST", name, path).unwrap().counted, "{name}{path}");
        assert!(
            call("post", name, path).is_some() && call("PUT", name, path).is_some(),
            "{name}{path}"
        );
        assert!(call("GET", name, path).is_none(), "{name}{path}");
        assert!(
            called_as(&table, "GET", (name, 443), path, Kind::WebSocket).is_some(),
            "a WebSocket: {name}{path}"
        );
    }
    for (name, path) in [
        ("any.test", "/v1/models"),
        ("any.test", "/v2/chat"),
        ("github.com", "/v1/messages"),
        ("api.anthropic.com", "/v1/messages/count_tokens"),
    ] {
        assert!(call("POST", name, path).is_none(), "{name}{path}");
    }
    assert!(
        !call("POST", "api.anthropic.com", "/v1/messages/batches")
            .unwrap()
            .counted
    );
    assert!(call("POST", "any.test", "/v1/batches").is_none());
}

#[test]
fn what_passes_unread_stops_a_launch_unless_it_is_declared_or_waived() {
    let opaque = |more: &str| {
        format!(
            r#"{{"version": 1, "net": {{"allow": [{{"rule": "db.test:5432", "opaque": true}}]{more}}}, "budget": {{"turns": 3, "usd": 1}}}}"#
        )
    };
    let mut refused = table(&opaque(""), None);
    let fault = countable(&refused).unwrap_err().to_string();
    assert!(fault.contains("db.test:5432"), "{fault}");
    refused.budget.waived = vec![BudgetKind::Turns];
    assert!(countable(&refused).is_err(), "the other one holds");
    refused.budget.waived.push(BudgetKind::Cost);
    assert!(countable(&refused).is_ok());
    let declared = table(
        &opaque(r#", "models": [{"host": "db.test", "api": "none"}]"#),
        None,
    );
    assert!(countable(&declared).is_ok());
    let ollama = |price: &str| {
        table(
            &format!(
                r#"{{"version": 1, "net": {{"models": [{{"host": "gpu.test", "port": 11434, "api": "ollama-chat"{price}}}]}}, "budget": {{"usd": 1}}}}"#
            ),
            None,
        )
    };
    assert!(countable(&ollama("")).is_err());
    assert!(countable(&ollama(r#", "price": {"input": 0, "output": 0}"#)).is_ok());
}

const MINE: &str = r#"{
  "version": 1,
  "agent": { "title": "Mine", "programs": ["mine"] },
  "net": { "allow": ["llm.mine.test"] }
}"#;

/// The table of a run with this preset and what it found on this host, under a budget.
fn under(preset: &Layer, found: &str, budget: &str) -> NetPolicy {
    let mut layers = default_layers("default").unwrap();
    layers.push(preset.clone());
    let more = layer(LayerKind::Preset, found);
    layers.push(Layer {
        name: format!("{}{FOUND_HERE}", preset.name),
        ..more
    });
    layers.push(layer(User, &format!(r#"{{"version": 1, "budget": {budget}}}"#)));
    merged(&layers).net
}

#[test]
fn hosts_of_a_preset_that_a_person_keeps_are_read_under_a_budget_of_models() {
    let mine = read_preset("mine", 1, MINE.as_bytes()).unwrap();
    let newer = read_preset("claude", 2, MINE.as_bytes()).unwrap();
    let built_in = preset("claude").unwrap();
    let found = r#"{"version": 1, "net": {"allow": ["key.mine.test"]}}"#;
    for (kept, read) in [(&mine, true), (&newer, true), (&built_in, false)] {
        let table = under(kept, found, r#"{"turns": 3}"#);
        assert_eq!(reads(&table, "key.mine.test"), read, "{}", kept.name);
        assert_eq!(
            uncounted_hosts(&table).contains(&"key.mine.test".to_owned()),
            !read,
            "{}",
            kept.name
        );
        if read {
            assert!(reads(&table, "llm.mine.test"), "{}", kept.name);
        }
        let free = under(kept, found, r#"{"requests": 3}"#);
        assert!(!reads(&free, "key.mine.test"), "control: {}", kept.name);
        assert_eq!(uncounted_hosts(&free), [""; 0], "nothing is to be counted there");
    }
    // One that a person extends is no other.
    let mut layers = vec![mine];
    layers.insert(0, preset("default").unwrap());
    layers.push(layer(User, r#"{"version": 1, "budget": {"usd": 3}}"#));
    assert!(reads(&merged(&layers).net, "llm.mine.test"));
}

#[test]
fn every_write_and_upgrade_at_a_models_host_is_a_call_or_declared_to_be_none() {
    let table = table(
        r#"{"version": 1, "net": {"models": [
            {"host": "own.test", "paths": ["/think"], "price": {"input": 1, "output": 1}},
            {"host": "api.groq.com", "api": "none"}
        ]}, "budget": {"turns": 3}}"#,
        None,
    );
    let asked = |method: &str, name: &str, path: &str, websocket: bool| {
        table.unlisted_call(&NetRequest {
            method,
            host: &host(name),
            port: 443,
            path,
            body_len: None,
            operation: None,
            websocket,
        })
    };
    for method in ["POST", "PUT", "PATCH", "DELETE", "post", "ODD"] {
        for path in [
            "/v1/images/generations",
            "/",
            "/v1/messages/count_tokens/../paint",
        ] {
            assert!(
                matches!(
                    asked(method, "api.openai.com", path, false),
                    UnlistedCall::Write(_)
                ),
                "{method} {path}"
            );
        }
        assert_eq!(
            asked(method, "api.anthropic.com", "/v1//messages/COUNT_tokens", false),
            UnlistedCall::Management
        );
        for elsewhere in ["any.test", "github.com", "api.groq.com"] {
            assert_eq!(asked(method, elsewhere, "/v1/paint", false), UnlistedCall::None);
        }
    }
    let UnlistedCall::Write(own) = asked("POST", "own.test", "/other", false) else {
        panic!("a declared host is a model's");
    };
    assert_eq!(own.price.unwrap().input, 1_000);
    for method in ["GET", "head", "OPTIONS"] {
        assert_eq!(
            asked(method, "api.openai.com", "/v1/x", false),
            UnlistedCall::None
        );
        assert_eq!(
            asked(method, "api.openai.com", "/v1/x", true),
            UnlistedCall::WebSocket
        );
    }
}
