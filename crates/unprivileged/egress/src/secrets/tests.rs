//! Which credential goes where, and which never does.
use super::*;
use serde_json::json;

fn value(name: &str, phantom: &str, real: &str, expires: Option<u64>) -> SecretValue {
    SecretValue {
        name: name.to_owned(),
        phantom: phantom.to_owned(),
        value: real.to_owned(),
        expires,
    }
}

fn usage(name: &str, header: &str, methods: &[&str], paths: &[&str]) -> SecretUse {
    let template = include_str!("use.json");
    let mut document: serde_json::Value = serde_json::from_str(template).unwrap();
    document["name"] = json!(name);
    document["header"] = json!(header);
    document["methods"] = json!(methods);
    document["paths"] = json!(paths);
    serde_json::from_value(document).unwrap()
}

fn table() -> Arc<Table> {
    Secrets::new(vec![
        value("GH", "phantom_gh_0001", "real-gh-value", None),
        value("OTHER", "phantom_other_2", "real-other-value", None),
        value("OLD", "phantom_old_0003", "real-old-value", Some(1)),
    ])
    .now()
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

#[test]
fn the_agents_own_credentials_never_reach_a_host_with_a_secret() {
    let one = usage("GH", "Authorization: Bearer {}", &[], &[]);
    let mut sent = headers(&[
        ("authorization", "Bearer of-the-attacker"),
        ("x-api-key", "of-the-attacker"),
        ("private-token", "x"),
        ("accept", "a/b"),
    ]);
    assert_eq!(
        table().dress(&mut sent, &[&one], "GET", "/"),
        Dressed::With("GH".to_owned())
    );
    assert_eq!(
        sent,
        headers(&[("authorization", "Bearer real-gh-value"), ("accept", "a/b")])
    );
}

#[test]
fn outside_its_methods_and_paths_a_secret_is_not_used_and_nothing_takes_its_place() {
    let one = usage("GH", "x-api-key: {}", &["GET"], &["/repos/**"]);
    for (method, path) in [
        ("POST", "/repos/a"),
        ("GET", "/user"),
        ("GET", "/repos/%2e%2e/user"),
    ] {
        let mut sent = headers(&[("authorization", "Bearer phantom_gh_0001"), ("x-api-key", "mine")]);
        assert_eq!(
            table().dress(&mut sent, &[&one], method, path),
            Dressed::Plain,
            "{method} {path}"
        );
        assert_eq!(sent, HeaderMap::new());
    }
    let mut sent = HeaderMap::new();
    assert_eq!(
        table().dress(&mut sent, &[&one], "GET", "/repos/a"),
        Dressed::With("GH".to_owned())
    );
}

#[test]
fn the_phantom_that_was_sent_chooses_between_two_secrets_of_a_host() {
    let (one, two) = (
        usage("GH", "Authorization: Bearer {}", &[], &[]),
        usage("OTHER", "x-api-key: {}", &[], &[]),
    );
    let mut sent = headers(&[("x-api-key", "phantom_other_2")]);
    assert_eq!(
        table().dress(&mut sent, &[&one, &two], "GET", "/"),
        Dressed::With("OTHER".to_owned())
    );
    assert_eq!(sent, headers(&[("x-api-key", "real-other-value")]));
}

#[test]
fn a_password_that_is_a_phantom_becomes_the_real_password() {
    let one = usage("GH", "Authorization: Bearer {}", &[], &[]);
    let encoded = base64_padded(b"x-access-token:phantom_gh_0001");
    let mut sent = headers(&[("authorization", &format!("basic {encoded}"))]);
    assert_eq!(
        table().dress(&mut sent, &[&one], "POST", "/a.git/git-upload-pack"),
        Dressed::With("GH".to_owned())
    );
    let real = base64_padded(b"x-access-token:real-gh-value");
    assert_eq!(sent, headers(&[("authorization", &format!("Basic {real}"))]));
    let forced = usage("GH", "basic:me", &[], &[]);
    let mut sent = HeaderMap::new();
    assert_eq!(
        table().dress(&mut sent, &[&forced], "GET", "/"),
        Dressed::With("GH".to_owned())
    );
    assert_eq!(
        basic_of(sent.get("authorization").unwrap()),
        Some(b"me:real-gh-value".to_vec())
    );
}

#[test]
fn an_expired_or_unknown_secret_is_missing_and_is_used_after_its_renewal() {
    let old = usage("OLD", "Authorization: Bearer {}", &[], &[]);
    let none = usage("NONE", "Authorization: Bearer {}", &[], &[]);
    let mut sent = headers(&[("authorization", "Bearer phantom_old_0003")]);
    assert_eq!(
        table().dress(&mut sent, &[&old], "GET", "/"),
        Dressed::Missing("OLD".to_owned())
    );
    assert_eq!(sent, HeaderMap::new(), "the phantom itself is not sent either");
    assert_eq!(
        table().dress(&mut sent, &[&none], "GET", "/"),
        Dressed::Missing("NONE".to_owned())
    );
    let secrets = Secrets::new(vec![
        value("OLD", "phantom_old_0003", "a", Some(1)),
        value("GH", "p", "real", None),
    ]);
    secrets.update(vec![value("OLD", "phantom_old_0003", "renewed", None)]);
    assert_eq!(
        secrets.now().dress(&mut sent, &[&old], "GET", "/"),
        Dressed::With("OLD".to_owned())
    );
    assert_eq!(sent, headers(&[("authorization", "Bearer renewed")]));
    let kept = usage("GH", "x-api-key: {}", &[], &[]);
    assert_eq!(
        secrets.now().dress(&mut sent, &[&kept], "GET", "/"),
        Dressed::With("GH".to_owned())
    );
}

#[test]
fn a_phantom_is_seen_in_every_usual_encoding() {
    let table = table();
    assert_eq!(
        table.named_in(b"/?t=phantom_gh_0001&u=phantom_other_2"),
        ["GH", "OTHER"]
    );
    let encoded = base64_padded(b"user:phantom_gh_0001");
    assert_eq!(table.named_in(encoded.as_bytes()), ["GH"]);
    assert!(table.named_in(b"phantom_gh_000").is_empty());
}

#[test]
fn no_debug_output_shows_a_value() {
    let secrets = Secrets::new(vec![value("GH", "p", "real-gh-value", None)]);
    assert!(!format!("{secrets:?}").contains("real"));
    let one = usage("GH", "Authorization: Bearer {}", &[], &[]);
    let mut sent = HeaderMap::new();
    assert_eq!(
        secrets.now().dress(&mut sent, &[&one], "GET", "/"),
        Dressed::With("GH".to_owned())
    );
    assert!(!format!("{sent:?}").contains("real"), "{sent:?}");
}
