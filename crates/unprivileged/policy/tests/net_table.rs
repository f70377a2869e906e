//! The table on its journey to egress: it reads back as it was written, a forged one is refused, and what a project
//! asks of the way out is not granted.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use LayerKind::{Project, User};
use bastle_policy::{Host, LayerKind, NetPolicy};
use common::{merged, with_default};

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

#[test]
fn the_table_reads_back_as_it_was_written_and_a_forged_one_is_refused() {
    let user = r#"{"version": 1, "mode": "learn",
      "net": {"allow": ["a.com", "GET *.b.com/x/**", {"rule": "POST m.com/mcp", "rpc": ["tools/call:get_*"], "maxBody": "1MiB", "websocket": true}, {"rule": "s.com:22", "opaque": true}],
              "ask": [{"rule": "q.com", "graphql": ["mutation"]}], "deny": ["c.com:8080"], "ports": [443, 8443], "addresses": ["10.0.0.0/8", "fd00::/16"],
              "resolvers": ["127.0.0.1:5353", "1.1.1.1", "[::1]:53"], "upstream": "http://proxy.corp:3128"},
      "secrets": [{"name": "K", "from": "env:K", "hosts": ["*.b.com"], "methods": ["GET"], "paths": ["/v1/**"], "ports": [8443], "header": "X-Key: k={};"}],
      "git": {"push": "allow", "branches": ["agent/*"], "remotes": ["origin"]}, "budget": {"usd": 1, "onExceed": "stop"}}"#;
    let table = merged(&with_default(&[
        (User, user),
        (Project, r#"{"version": 1, "net": {"deny": ["x.b.com"]}}"#),
    ]))
    .net;
    let text = serde_json::to_string(&table).unwrap();
    let again: NetPolicy = serde_json::from_str(&text).unwrap();
    assert_eq!(again, table);
    assert_eq!(again.selftest(), Ok(()));
    let verdict = again.connect(&host("x.b.com"), 443);
    let (rule, origin) = verdict.decision().rule.clone().unwrap();
    assert_eq!(
        (rule.as_str(), origin.to_string().as_str()),
        ("net.deny x.b.com", "project.json:1")
    );
    for (from, to) in [
        ("\"a.com\"", "\"*\""),
        ("\"a.com\"", "\"a_b\""),
        ("\"a.com\"", "{\"rule\":\"a.com\",\"x\":1}"),
        ("10.0.0.0/8", "0.0.0.0/0"),
        ("10.0.0.0/8", "169.254.169.254/32"),
        ("agent/*\"", "agent/*\",\"x\":\"y\""),
        ("http://proxy.corp:3128", "https://proxy.corp:3128"),
        ("X-Key: k={};", "Host: {}"),
        ("tools/call:get_*", "tools call"),
        ("\"mode\":\"allowlist\"", "\"mode\":\"allowlist\",\"extra\":1"),
        ("\"learn\":true", "\"learn\":1"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let forged = text.replacen(from, to, 1);
        assert!(
            serde_json::from_str::<NetPolicy>(&forged).is_err(),
            "{from} → {to}"
        );
    }
    let empty = NetPolicy {
        tiers: Vec::new(),
        ..table
    };
    assert!(empty.selftest().is_err(), "a table nobody made is not used");
}

#[test]
fn what_a_project_asks_of_the_way_out_is_listed_and_not_granted() {
    let project = r#"{"version": 1, "net": {"addresses": ["10.0.0.0/8", "192.168.0.0/16"], "resolvers": ["6.6.6.6"], "upstream": "http://evil.com:80"},
      "secrets": [{"name": "K", "from": "env:K", "hosts": ["evil.com"]}], "budget": {"requests": 5}}"#;
    let user = r#"{"version": 1, "net": {"addresses": ["10.1.0.0/16", "172.16.0.0/12"], "resolvers": ["1.1.1.1"]}, "budget": {"requests": 50}}"#;
    let policy = merged(&with_default(&[(User, user), (Project, project)]));
    let ranges: Vec<String> = policy.net.addresses.iter().map(|r| r.value.to_string()).collect();
    assert_eq!(ranges, ["10.1.0.0/16"], "only what both name is left");
    assert_eq!(policy.net.resolvers, ["1.1.1.1:53".parse().unwrap()]);
    assert_eq!(policy.net.upstream, None);
    assert!(policy.net.secrets.is_empty());
    assert_eq!(policy.net.budget.requests, Some(5), "a smaller budget is kept");
    let asked: Vec<&str> = policy.not_granted.iter().map(|r| r.what.as_str()).collect();
    for what in [
        "net.addresses 10.0.0.0/8",
        "net.addresses 192.168.0.0/16",
        "net.resolvers 6.6.6.6:53",
        "net.upstream http://evil.com:80",
        "secrets K",
    ] {
        assert!(asked.contains(&what), "{what} in {asked:?}");
    }
}
