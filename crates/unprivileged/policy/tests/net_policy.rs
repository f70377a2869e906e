//! What goes out: connections by name, requests by what is inside.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Flags, Managed, Project, User};
use Outcome::{Allow, Ask, Deny};
use bastle_contract::{Code, Mechanism};
use bastle_policy::{
    BodyNeed, ConnectVerdict, Decision, Host, LayerKind, NetMode, NetPolicy, NetRequest, Operation, Outcome,
};
use common::{layer, merged, with_default};

fn table(net: &str) -> NetPolicy {
    let user = format!(r#"{{"version": 1, "net": {net}}}"#);
    merged(&with_default(&[(User, &user)])).net
}

fn in_mode(net: &str, mode: NetMode) -> NetPolicy {
    let mut layers = with_default(&[(User, &format!(r#"{{"version": 1, "net": {net}}}"#))]);
    let mut flags = layer(Flags, r#"{"version": 1}"#);
    std::sync::Arc::make_mut(&mut flags.document).net.mode = Some(bastle_policy::At::nowhere(mode));
    layers.push(flags);
    merged(&layers).net
}

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

/// `deny`, `ask`, `pass`, `opaque`, `inspect` or `learn`.
fn connect(table: &NetPolicy, name: &str, port: u16) -> &'static str {
    match table.connect(&host(name), port) {
        ConnectVerdict::Deny(_) => "deny",
        ConnectVerdict::Ask(_) => "ask",
        ConnectVerdict::Pass(decision) if decision.opaque => "opaque",
        ConnectVerdict::Pass(_) => "pass",
        ConnectVerdict::Inspect(decision) if decision.learned => "learn",
        ConnectVerdict::Inspect(_) => "inspect",
    }
}

fn request(table: &NetPolicy, method: &str, name: &str, path: &str) -> Decision {
    table.request(&plain(method, &host(name), path))
}

fn plain<'a>(method: &'a str, host: &'a Host, path: &'a str) -> NetRequest<'a> {
    NetRequest {
        method,
        host,
        port: 443,
        path,
        body_len: None,
        operation: None,
        websocket: false,
    }
}

#[test]
fn a_connection_is_denied_by_name_and_looked_into_only_where_a_rule_needs_it() {
    let table = table(
        r#"{"allow": ["a.com", "*.b.com", "GET c.com/x", "d.com:8443", {"rule": "ssh.e.com:22", "opaque": true}, "f.com", {"rule": "g.com", "maxBody": "1K"}],
            "ask": ["POST f.com", "h.com", "PUT i.com"], "deny": ["bad.b.com", "DELETE *.b.com"]}"#,
    );
    for (name, port, verdict) in [
        ("a.com", 443, "pass"),
        ("a.com", 80, "inspect"),
        ("a.com", 0, "pass"),
        ("a.com", 22, "deny"),
        ("x.a.com", 443, "deny"),
        ("x.b.com", 443, "inspect"),
        ("bad.b.com", 443, "deny"),
        ("bad.b.com", 0, "deny"),
        ("c.com", 443, "inspect"),
        ("d.com", 8443, "pass"),
        ("d.com", 443, "deny"),
        ("d.com", 0, "pass"),
        ("ssh.e.com", 22, "opaque"),
        ("ssh.e.com", 443, "deny"),
        ("f.com", 443, "inspect"),
        ("g.com", 443, "inspect"),
        ("h.com", 443, "ask"),
        ("h.com", 0, "ask"),
        ("i.com", 443, "inspect"),
        ("nobody.com", 443, "deny"),
        ("nobody.com", 0, "deny"),
        ("localhost", 443, "deny"),
        ("canary.bastle.invalid", 443, "deny"),
        ("bastle.local", 443, "deny"),
        ("93.184.216.34", 443, "deny"),
    ] {
        assert_eq!(connect(&table, name, port), verdict, "{name}:{port}");
    }
    assert_eq!(table.transparent_ports(), [443, 80, 22, 8443]);
    assert!(table.needs_authority());
    assert_eq!(table.selftest(), Ok(()));
}

#[test]
fn each_refusal_has_its_own_code_and_says_how_to_allow_it() {
    let table = table(
        r#"{"allow": ["a.com", "GET c.com/x", {"rule": "POST r.com/rpc", "rpc": ["tools/list"]}, {"rule": "g.com", "maxBody": "1K"}],
            "deny": [{"rule": "m.com", "rpc": ["x"]}]}"#,
    );
    let code = |decision: Decision| (decision.outcome, decision.code.unwrap());
    let asked = |name: &str, port| code(table.connect(&host(name), port).decision().clone());
    assert_eq!(asked("b.com", 443), (Deny, Code::NetDenied));
    assert_eq!(asked("a.com", 25), (Deny, Code::NetPort));
    assert_eq!(asked("9.9.9.9", 443), (Deny, Code::NetLiteral));
    assert_eq!(
        code(request(&table, "POST", "c.com", "/x")),
        (Deny, Code::NetDenied)
    );
    assert_eq!(
        code(request(&table, "POST", "r.com", "/rpc")),
        (Deny, Code::NetOperation)
    );
    let (a, g) = (host("a.com"), host("g.com"));
    let socket = NetRequest {
        websocket: true,
        ..plain("GET", &a, "/")
    };
    assert_eq!(code(table.request(&socket)), (Deny, Code::NetProtocol));
    let large = NetRequest {
        body_len: Some(1025),
        ..plain("POST", &g, "/")
    };
    assert_eq!(code(table.request(&large)), (Deny, Code::NetLimit));
    let nowhere = NetRequest {
        port: 0,
        ..plain("GET", &a, "/")
    };
    assert_eq!(code(table.request(&nowhere)), (Deny, Code::NetPort));
    let unknown = table.connect(&host("b.com"), 8443).decision().clone();
    assert_eq!(unknown.mechanism, Mechanism::Proxy);
    assert!(
        unknown.help[0].contains("bastle run --allow-net b.com:8443 -- CMD"),
        "{unknown:?}"
    );
    assert!(
        unknown.help[1].contains("add \"b.com:8443\" to net.allow"),
        "{unknown:?}"
    );
    let other = request(&table, "POST", "c.com", "/x");
    assert!(other.help[0].contains("--allow-net 'POST c.com/x'"), "{other:?}");
}

#[test]
fn requests_inside_are_judged_one_by_one() {
    let table = table(
        r#"{"allow": ["GET,HEAD c.com/x/**", "a.com"], "ask": ["DELETE a.com"], "deny": ["a.com/admin/**"]}"#,
    );
    for (method, name, path, outcome) in [
        ("GET", "c.com", "/x/y", Allow),
        ("POST", "c.com", "/x/y", Deny),
        ("GET", "c.com", "/x/../y", Deny),
        ("GET", "c.com", "/x/%2e%2e/y", Deny),
        ("GET", "c.com", "/y", Deny),
        ("get", "c.com", "/x/y", Deny),
        ("GET", "a.com", "/", Allow),
        ("DELETE", "a.com", "/", Ask),
        ("GET", "a.com", "/admin/x", Deny),
        ("GET", "a.com", "//admin/x", Deny),
        ("GET", "a.com", "/%61dmin/x", Deny),
        ("GET", "a.com", "/x%20y", Allow),
        ("GET", "d.com", "/", Deny),
    ] {
        let decision = request(&table, method, name, path);
        assert_eq!(
            decision.outcome, outcome,
            "{method} {name}{path}: {}",
            decision.reason
        );
    }
}

#[test]
fn operations_in_a_body_are_matched_and_doubt_never_allows() {
    let table = table(
        r#"{"allow": [{"rule": "POST m.com/mcp", "rpc": ["tools/list", "tools/call:get_*", "ping"]},
                     {"rule": "POST q.com/graphql", "graphql": ["query", "mutation:CreateIssue"]}, "POST d.com"],
            "deny": [{"rule": "d.com", "rpc": ["tools/call:delete_*"]}]}"#,
    );
    let rpc = |names: &[&str]| Some(Operation::Rpc(names.iter().map(|n| (*n).to_owned()).collect()));
    let graph = |names: &[&str]| {
        Some(Operation::GraphQl(
            names.iter().map(|n| (*n).to_owned()).collect(),
        ))
    };
    for (name, path, operation, outcome) in [
        ("m.com", "/mcp", rpc(&["tools/list"]), Allow),
        ("m.com", "/mcp", rpc(&["tools/call:get_issue"]), Allow),
        (
            "m.com",
            "/mcp",
            rpc(&["tools/call:get_issue", "tools/call:drop"]),
            Deny,
        ),
        ("m.com", "/mcp", rpc(&["tools/call"]), Deny),
        ("m.com", "/mcp", rpc(&["initialize"]), Deny),
        ("m.com", "/mcp", rpc(&[]), Deny),
        ("m.com", "/mcp", graph(&["query"]), Deny),
        ("m.com", "/mcp", Some(Operation::Unreadable), Deny),
        ("m.com", "/mcp", None, Deny),
        ("q.com", "/graphql", graph(&["query:Anything"]), Allow),
        ("q.com", "/graphql", graph(&["query"]), Allow),
        ("q.com", "/graphql", graph(&["mutation:CreateIssue"]), Allow),
        ("q.com", "/graphql", graph(&["mutation"]), Deny),
        ("q.com", "/graphql", graph(&["mutation:DropAll"]), Deny),
        ("q.com", "/graphql", graph(&["query", "mutation:DropAll"]), Deny),
        ("q.com", "/graphql", rpc(&["query"]), Deny),
        ("d.com", "/", rpc(&["tools/list"]), Allow),
        ("d.com", "/", rpc(&["tools/list", "tools/call:delete_all"]), Deny),
        ("d.com", "/", Some(Operation::Unreadable), Deny),
        ("d.com", "/", None, Deny),
    ] {
        let to = host(name);
        let asked = NetRequest {
            operation: operation.as_ref(),
            ..plain("POST", &to, path)
        };
        assert_eq!(table.request(&asked).outcome, outcome, "{name} {operation:?}");
    }
    assert_eq!(
        table.body_need("POST", &host("m.com"), 443, "/mcp"),
        BodyNeed::Rpc
    );
    assert_eq!(
        table.body_need("GET", &host("m.com"), 443, "/mcp"),
        BodyNeed::None
    );
    assert_eq!(
        table.body_need("POST", &host("q.com"), 443, "/graphql"),
        BodyNeed::GraphQl
    );
    assert_eq!(
        table.body_need("POST", &host("d.com"), 443, "/any"),
        BodyNeed::Rpc
    );
}

#[test]
fn a_body_limit_holds_for_what_is_streamed_too() {
    let one = table(r#"{"allow": [{"rule": "g.com", "maxBody": "1K"}]}"#);
    let to = host("g.com");
    let streamed = one.request(&plain("POST", &to, "/"));
    assert_eq!((streamed.outcome, streamed.max_body), (Allow, Some(1024)));
    let both =
        table(r#"{"allow": [{"rule": "g.com", "maxBody": "1K"}, {"rule": "PUT g.com", "maxBody": "2K"}]}"#);
    let larger = NetRequest {
        body_len: Some(2000),
        ..plain("PUT", &to, "/")
    };
    assert_eq!(both.request(&larger).outcome, Allow);
    assert_eq!(both.request(&plain("PUT", &to, "/")).max_body, Some(2048));
    // A project's limit holds beside the operator's.
    let layers = with_default(&[
        (
            User,
            r#"{"version": 1, "net": {"allow": [{"rule": "g.com", "maxBody": "1K"}]}}"#,
        ),
        (
            Project,
            r#"{"version": 1, "net": {"allow": [{"rule": "g.com", "maxBody": "10"}]}}"#,
        ),
    ]);
    let narrowed = merged(&layers).net;
    assert_eq!(narrowed.request(&plain("POST", &to, "/")).max_body, Some(10));
    let eleven = NetRequest {
        body_len: Some(11),
        ..plain("POST", &to, "/")
    };
    assert_eq!(narrowed.request(&eleven).outcome, Deny);
}

#[test]
fn without_a_network_nothing_is_allowed_and_open_allows_no_more_than_names() {
    for mode in [NetMode::None, NetMode::Offline] {
        let table = in_mode(r#"{"allow": ["a.com"]}"#, mode);
        let verdict = table.connect(&host("a.com"), 443);
        assert_eq!(verdict.decision().code, Some(Code::NetNone));
        assert_eq!(verdict.decision().mechanism, Mechanism::Netns);
        assert!(!table.needs_authority());
        assert_eq!(table.selftest(), Ok(()));
    }
    let open = in_mode(
        r#"{"allow": [], "deny": ["bad.com", "DELETE careful.com"]}"#,
        NetMode::Open,
    );
    for (name, port, verdict) in [
        ("a.com", 443, "pass"),
        ("a.com", 80, "inspect"),
        ("a.com", 25, "opaque"),
        ("bad.com", 443, "deny"),
        ("careful.com", 443, "inspect"),
        ("localhost", 443, "deny"),
        ("169.254.169.254", 80, "deny"),
        ("9.9.9.9", 443, "deny"),
        ("canary.bastle.invalid", 443, "deny"),
    ] {
        assert_eq!(connect(&open, name, port), verdict, "{name}:{port}");
    }
    assert_eq!(open.selftest(), Ok(()));
    assert!(open.address("10.0.0.1".parse().unwrap()).is_err());
}

#[test]
fn a_project_still_narrows_an_open_network_and_a_lock_keeps_it_shut() {
    let mut flags = layer(Flags, r#"{"version": 1}"#);
    std::sync::Arc::make_mut(&mut flags.document).net.mode = Some(bastle_policy::At::nowhere(NetMode::Open));
    let mut layers = with_default(&[(
        Project,
        r#"{"version": 1, "net": {"allow": ["a.com"], "deny": ["b.a.com"]}}"#,
    )]);
    layers.push(flags.clone());
    let narrowed = merged(&layers).net;
    assert_eq!(connect(&narrowed, "a.com", 443), "pass");
    assert_eq!(connect(&narrowed, "c.com", 443), "deny");
    let mut layers = with_default(&[(Managed, r#"{"version": 1, "lock": ["net"]}"#)]);
    layers.push(flags);
    let locked = merged(&layers);
    assert_eq!(locked.net.mode, NetMode::Allowlist);
    assert!(
        locked.inactive.iter().any(|i| i.what == "--net open"),
        "{:?}",
        locked.inactive
    );
}

#[test]
fn a_run_that_learns_reads_unknown_hosts_and_nothing_more() {
    let user = r#"{"version": 1, "mode": "learn", "net": {"allow": ["a.com", "GET k.com/x"], "ask": ["s.com"], "deny": ["bad.com", "p.com/secret"]}}"#;
    let table = merged(&with_default(&[(User, user)])).net;
    assert!(table.learn && table.needs_authority());
    for (name, port, verdict) in [
        ("a.com", 443, "pass"),
        ("new.com", 443, "learn"),
        ("new.com", 0, "learn"),
        ("new.com", 22, "deny"),
        ("bad.com", 443, "deny"),
        ("s.com", 443, "ask"),
        ("localhost", 443, "deny"),
        ("9.9.9.9", 443, "deny"),
    ] {
        assert_eq!(connect(&table, name, port), verdict, "{name}:{port}");
    }
    for (method, name, path, outcome, learned) in [
        ("GET", "new.com", "/", Allow, true),
        ("HEAD", "new.com", "/", Allow, true),
        ("POST", "new.com", "/", Deny, false),
        ("GET", "k.com", "/x", Allow, false),
        ("GET", "k.com", "/y", Allow, true),
        ("PUT", "k.com", "/y", Deny, false),
        ("GET", "bad.com", "/", Deny, false),
        ("GET", "p.com", "/secret", Deny, false),
        ("GET", "s.com", "/", Ask, false),
    ] {
        let decision = request(&table, method, name, path);
        assert_eq!(
            (decision.outcome, decision.learned),
            (outcome, learned),
            "{method} {name}{path}"
        );
    }
    let new = host("new.com");
    let carrying = NetRequest {
        body_len: Some(5),
        ..plain("GET", &new, "/")
    };
    assert_eq!(table.request(&carrying).outcome, Deny);
    // A project cannot make a run learn.
    let project = merged(&with_default(&[(Project, r#"{"version": 1, "mode": "learn"}"#)])).net;
    assert!(!project.learn);
}

#[test]
fn a_secret_is_for_its_hosts_ports_methods_and_paths_and_makes_tls_end_here() {
    let user = r#"{"version": 1, "net": {"allow": ["a.com", "*.b.com", "a.com:8443"]},
      "secrets": [{"name": "K", "from": "env:K", "hosts": ["a.com"], "methods": ["GET"], "paths": ["/v1/**"], "header": "x-api-key: {}"},
                  {"name": "P", "from": "env:P", "hosts": ["x.b.com"], "ports": [443, 9], "header": "basic:git"}]}"#;
    let table = merged(&with_default(&[(User, user)])).net;
    assert_eq!(connect(&table, "a.com", 443), "inspect");
    assert_eq!(connect(&table, "a.com", 8443), "pass");
    assert_eq!(connect(&table, "x.b.com", 443), "inspect");
    assert_eq!(connect(&table, "y.b.com", 443), "pass");
    let (a, x) = (host("a.com"), host("x.b.com"));
    let found: Vec<_> = table.secrets_for(&a, 443).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].covers("GET", "/v1/a/b"));
    for (method, path) in [
        ("POST", "/v1/a"),
        ("GET", "/v2"),
        ("GET", "/v1/../v2"),
        ("GET", "/v1/%2e%2e/x"),
    ] {
        assert!(!found[0].covers(method, path), "{method} {path}");
    }
    assert_eq!(
        table.secrets_for(&a, 80).count(),
        0,
        "never where TLS is not expected"
    );
    assert_eq!(table.secrets_for(&x, 9).count(), 1);
    assert_eq!(table.secrets_for(&host("evil.com"), 443).count(), 0);
    let shown: Vec<String> = table.secrets.iter().map(|s| s.header.to_string()).collect();
    assert_eq!(shown, ["x-api-key: {}", "basic:git"]);
}

#[test]
fn budgets_for_models_and_pushes_make_tls_end_only_where_they_apply() {
    let plain = table(r#"{"allow": ["api.anthropic.com", "github.com", "a.com"]}"#);
    assert_eq!(connect(&plain, "api.anthropic.com", 443), "pass");
    assert_eq!(
        connect(&plain, "github.com", 443),
        "inspect",
        "a push must be seen"
    );
    assert_eq!(connect(&plain, "a.com", 443), "pass");
    let user = r#"{"version": 1, "net": {"allow": ["api.anthropic.com", "github.com", {"rule": "github.com:22", "opaque": true}]},
       "budget": {"usd": 0.5, "bytesOut": "1M", "requests": 7}, "git": {"push": "allow", "forcePush": "allow"}}"#;
    let counted = merged(&with_default(&[(User, user)])).net;
    assert_eq!(connect(&counted, "api.anthropic.com", 443), "inspect");
    assert_eq!(connect(&counted, "github.com", 443), "pass");
    assert_eq!(connect(&counted, "github.com", 22), "opaque");
    assert!(
        bastle_policy::countable(&counted).is_ok(),
        "a known git host is no model"
    );
    assert_eq!(counted.budget.cost_micro_usd, Some(500_000));
    assert_eq!(
        (counted.budget.bytes_out, counted.budget.requests),
        (Some(1 << 20), Some(7))
    );
    let no_rule = table(r#"{"allow": ["a.com"]}"#);
    assert!(!no_rule.needs_authority());
}

#[test]
fn an_address_in_a_rule_needs_its_range_granted() {
    let bare = table(r#"{"ipLiterals": true, "allow": ["10.0.0.1", "9.9.9.9"]}"#);
    assert_eq!(connect(&bare, "9.9.9.9", 443), "pass");
    let refused = bare.connect(&host("10.0.0.1"), 443);
    assert_eq!(refused.decision().code, Some(Code::NetAddress));
    let granted = table(r#"{"ipLiterals": true, "allow": ["10.0.0.1"], "addresses": ["10.0.0.0/24"]}"#);
    assert_eq!(connect(&granted, "10.0.0.1", 443), "pass");
}
