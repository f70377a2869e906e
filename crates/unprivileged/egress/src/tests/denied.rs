//! What the HTTP face refuses, and in which words.
use crate::testing::{echo, egress, table};
use bastle_contract::Code;
use bastle_contract::egress::{Face, FromEgress};
use serde_json::Value;

fn body(answer: &str) -> Value {
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

fn connect(authority: &str) -> Vec<u8> {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn a_host_without_a_rule_is_denied_before_any_lookup_with_one_id_everywhere() {
    let egress = egress(table(r#"{"allow": ["fine.example"]}"#, &[])).await;
    let answer = egress.say(&connect("other.example:443")).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    let denial = egress.denial().await;
    assert!(
        answer.contains(&format!("\r\nX-Bastle-Denied: {}\r\n", denial.id)),
        "{answer}"
    );
    let body = body(&answer);
    for (key, value) in [
        ("error", Value::from("policy_denied")),
        ("id", denial.id.clone().into()),
        ("code", Code::NetDenied.info().code.into()),
        ("layer", "proxy".into()),
        ("host", "other.example".into()),
        ("rule", Value::Null),
        ("deliberate", true.into()),
        ("retry", false.into()),
    ] {
        assert_eq!(body[key], value, "{key} of {body}");
    }
    assert!(
        body["guidance"]
            .as_str()
            .unwrap()
            .contains("POST http://bastle.local/v1/requests")
    );
    assert_eq!(
        (denial.face, denial.port, denial.count, denial.held),
        (Face::Connect, 443, 1, false)
    );
}

#[tokio::test]
async fn addresses_ports_and_look_alikes_of_an_allowed_host_are_denied() {
    let net = r#"{"allow": ["api.fine.example", "*.wide.example"]}"#;
    for (authority, code) in [
        ("93.184.216.34:443", Code::NetLiteral),
        ("10.0.0.1:443", Code::NetLiteral),
        ("[::1]:443", Code::NetLiteral),
        ("api.fine.example:22", Code::NetPort),
        ("api.fine.example:6379", Code::NetPort),
        ("xapi.fine.example:443", Code::NetDenied),
        ("evil-fine.example:443", Code::NetDenied),
        ("api.fine.example.evil.org:443", Code::NetDenied),
        ("wide.example:443", Code::NetDenied),
    ] {
        let egress = egress(table(net, &[])).await;
        let answer = egress.say(&connect(authority)).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{authority}: {answer}");
        assert_eq!(egress.denial().await.code, Some(code), "{authority}");
        assert_eq!(body(&answer)["code"], code.info().code, "{authority}");
    }
}

#[tokio::test]
async fn disguised_authorities_are_refused_as_malformed() {
    let egress = egress(table(r#"{"allow": ["fine.example"]}"#, &[])).await;
    for authority in [
        "fine.example%00.evil.org:443",
        "%66ine.example:443",
        "fine.example\t:443",
        "user@fine.example:443",
        "fine.example#x:443",
        "fine.example?x:443",
        "fine.example\x7f:443",
        "fine.example:0443x",
        "fine.example:",
        "fine.example",
        ":443",
        "fine.example:99999",
        "0x7f.1:443",
        "127.1:443",
    ] {
        let answer = egress.say(&connect(authority)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{authority:?}: {answer}");
    }
}

#[tokio::test]
async fn an_allowed_name_that_leads_to_a_special_address_is_denied_and_nothing_is_dialled() {
    let server = echo(b"").await;
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "10.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "192.168.0.1",
    ] {
        let port = server.address.port();
        let net = format!(r#"{{"allow": [{{"rule": "in.example:{port}", "opaque": true}}]}}"#);
        // One good address beside the bad one does not help.
        let egress = egress(table(
            &net,
            &[("in.example", "93.184.216.34"), ("in.example", address)],
        ))
        .await;
        let answer = egress.say(&connect(&format!("in.example:{port}"))).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{address}: {answer}");
        assert_eq!(egress.denial().await.code, Some(Code::NetAddress), "{address}");
    }
    assert!(server.heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_empty_list_denies_everything() {
    let egress = egress(table(r#"{"allow": []}"#, &[])).await;
    for authority in ["a.example:443", "api.anthropic.com:443", "github.com:443"] {
        assert!(
            egress.say(&connect(authority)).await.starts_with("HTTP/1.1 403 "),
            "{authority}"
        );
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_denied_and_says_that_no_policy_is_involved() {
    let egress = egress(table(r#"{"allow": ["gone.example"]}"#, &[])).await;
    let answer = egress.say(&connect("gone.example:443")).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(body(&answer)["deliberate"], false);
    assert_eq!(egress.denial().await.code, Some(Code::NetResolve));
}

#[tokio::test]
async fn ambiguous_requests_are_refused_and_the_connection_is_closed() {
    let server = echo(b"").await;
    let port = server.address.port();
    let net = format!(r#"{{"allow": ["fine.example:{port}"], "addresses": ["127.0.0.1/32"]}}"#);
    let egress = egress(table(&net, &[("fine.example", "127.0.0.1")])).await;
    let base = format!("POST http://fine.example:{port}/ HTTP/1.1\r\nHost: fine.example:{port}\r\n");
    for rest in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET",
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        "Content-Length: +4\r\n\r\nabcd",
        "Content-Length: 4, 4\r\n\r\nabcd",
        "Content-Length: 0x4\r\n\r\nabcd",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
        "X: a\r\n folded\r\n\r\n",
        "X: a\n\r\n",
        "X: a\rY: b\r\n\r\n",
        "X: a\0b\r\n\r\n",
        "X\r\n\r\n",
        ": x\r\n\r\n",
        "Host: other.example\r\n\r\n",
    ] {
        let answer = egress.say(format!("{base}{rest}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{rest:?}: {answer}");
        assert_eq!(
            answer.matches("Content-Length: ").count(),
            1,
            "{rest:?}: {answer}"
        );
    }
    assert!(
        server.heard.lock().unwrap().is_empty(),
        "the server saw something"
    );
}

#[tokio::test]
async fn an_address_and_a_host_header_that_differ_are_refused() {
    let egress = egress(table(r#"{"allow": ["a.example", "b.example"]}"#, &[])).await;
    for request in [
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
        "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /etc HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let answer = egress.say(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn identical_denials_collapse_and_a_loop_is_told_and_slowed_down() {
    let egress = egress(table(r#"{"allow": []}"#, &[])).await;
    let mut last = String::new();
    let start = std::time::Instant::now();
    for _ in 0..21 {
        last = egress.say(&connect("again.example:443")).await;
    }
    assert_eq!(body(&last)["code"], Code::NetLoop.info().code);
    assert!(start.elapsed() >= std::time::Duration::from_secs(1));
    let total = || egress.decisions().iter().map(|d| d.count).sum::<u32>();
    egress.wait_for(|_| (total() == 21).then_some(())).await;
    assert!(egress.decisions().len() <= 4, "{:?}", egress.decisions());
}

#[tokio::test]
async fn the_agent_learns_what_is_allowed_and_can_ask_for_more_but_gets_nothing_by_asking() {
    let egress = egress(table(r#"{"allow": ["GET fine.example/x/**"]}"#, &[])).await;
    let policy = egress
        .say(b"GET http://bastle.local/v1/policy HTTP/1.1\r\nHost: bastle.local\r\n\r\n")
        .await;
    assert!(
        policy.starts_with("HTTP/1.1 200 ") && policy.contains("GET fine.example/x/**"),
        "{policy}"
    );
    assert!(
        !policy.contains("user.json"),
        "where rules stand is no business of the agent: {policy}"
    );
    let wanted = br#"{"rule": "other.example", "why": "tests"}"#;
    let head = format!(
        "POST http://bastle.local/v1/requests HTTP/1.1\r\nHost: bastle.local\r\nContent-Length: {}\r\n\r\n",
        wanted.len()
    );
    let answer = egress.say(&[head.as_bytes(), wanted].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let rule = egress
        .wait_for(|frame| match frame {
            FromEgress::Wanted { rule, why } => Some(format!("{rule}|{why}")),
            _ => None,
        })
        .await;
    assert_eq!(rule, "other.example|tests");
    assert!(
        egress
            .say(&connect("other.example:443"))
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    let large = "POST http://bastle.local/v1/requests HTTP/1.1\r\nHost: bastle.local\r\nContent-Length: 99999\r\n\r\n";
    let flood = [large.as_bytes(), &[b'x'; 60_000]].concat();
    assert!(egress.say(&flood).await.starts_with("HTTP/1.1 413 "));
}
