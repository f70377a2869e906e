//! Overrides, credentials and destinations in spellings that only some servers understand.
use super::credentials::with;
use super::*;

const REFUSED: (u16, &str) = (400, "BST-NET-006");
const FORM: &str = "application/x-www-form-urlencoded";

/// Status and code of the answer to each request.
async fn outcome(egress: &Egress, port: u16, speaks: Speaks, sent: Request<Full<Bytes>>) -> (u16, String) {
    let got = ask(egress, port, speaks, sent).await;
    (got.status, got.code())
}

fn is(got: &(u16, String), expected: (u16, &str)) -> bool {
    (got.0, got.1.as_str()) == expected
}

#[tokio::test]
async fn a_header_that_some_server_takes_for_the_method_or_path_is_refused_in_every_spelling() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |_| text("ok")).await;
        let port = origin.port;
        let egress = egress_for(port, &net(r#""GET,POST api.example:PORT/v1/**""#)).await;
        for name in [
            "x_original_url",
            "x_http_method",
            "x_http-method_override",
            "x.http.method.override",
            "x_rewrite_url",
            "x-original-path",
            "x-envoy-original-path",
            "x_envoy_original_path",
            "x-forwarded-path",
            "x-forwarded-prefix",
            "x-override-url",
            "x-amz-copy-source",
            "x-copy-from",
            "destination-account",
        ] {
            let sent = with(request(speaks, "POST", port, "/v1/a", ""), name, "/admin");
            let got = outcome(&egress, port, speaks, sent).await;
            assert!(is(&got, REFUSED), "{speaks:?} {name}: {got:?}");
        }
        assert!(origin.seen().is_empty());
        for name in [
            "x-original-language",
            "x-forwarded-for",
            "x_request_id",
            "x-method-count",
            "origin",
        ] {
            let sent = with(request(speaks, "POST", port, "/v1/a", ""), name, "/admin");
            let got = outcome(&egress, port, speaks, sent).await;
            assert!(is(&got, (200, "")), "{speaks:?} {name}: {got:?}");
        }
    }
}

#[tokio::test]
async fn a_destination_is_judged_as_the_path_of_the_request_is() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |_| text("ok")).await;
        let port = origin.port;
        let rules = net(r#""MOVE api.example:PORT/public/**", "GET api.example:PORT/private/**""#);
        let egress = egress_for(port, &rules).await;
        let by_method = egress_for(port, &net(r#""MOVE api.example:PORT""#)).await;
        let moved = |to: &str| with(request(speaks, "MOVE", port, "/public/a", ""), "destination", to);
        let here = format!("https://{NAME}:{port}");
        for to in [
            format!("https://other.example:{port}/public/b"),
            format!("http://{NAME}:{port}/public/b"),
            format!("https://user@{NAME}:{port}/public/b"),
            format!("{here}/public/%2e%2e/private/x"),
            format!("{here}/public/a%2fb"),
            format!("{here}/public/b?x"),
            format!("//{NAME}:{port}/public/b"),
            here.clone(),
            "public/b".to_owned(),
            String::new(),
        ] {
            let got = outcome(&egress, port, speaks, moved(&to)).await;
            assert!(is(&got, REFUSED), "{speaks:?} {to}: {got:?}");
        }
        for to in [format!("{here}/private/x"), "/private/x".to_owned()] {
            let got = outcome(&egress, port, speaks, moved(&to)).await;
            assert_eq!(got.0, 403, "{speaks:?} {to}: {got:?}");
        }
        let mut twice = moved("/public/b");
        twice
            .headers_mut()
            .append("destination", "/private/x".parse().unwrap());
        let got = outcome(&egress, port, speaks, twice).await;
        assert!(is(&got, REFUSED), "{speaks:?} twice: {got:?}");
        assert!(origin.seen().is_empty());
        for to in [format!("{here}/public/b"), "/public/b".to_owned()] {
            let got = outcome(&egress, port, speaks, moved(&to)).await;
            assert!(is(&got, (200, "")), "control: {speaks:?} {to}: {got:?}");
        }
        let got = outcome(&by_method, port, speaks, moved("/private/x")).await;
        assert!(is(&got, (200, "")), "no path decides: {speaks:?} {got:?}");
    }
}

#[tokio::test]
async fn a_destination_outside_the_paths_of_a_secret_is_refused() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let sections = format!(
        r#"{}, "secrets": [{{"name": "KEY", "from": "env:KEY", "hosts": ["{NAME}"], "ports": [PORT], "paths": ["/v1/**"]}}]"#,
        net(r#""api.example:PORT""#)
    );
    let egress = egress_for(port, &sections).await;
    egress.state.secrets.update(super::credentials::value(None));
    let moved = |to: &str| {
        let sent = request(Speaks::One, "MOVE", port, "/v1/a", "");
        with(sent, "destination", to)
    };
    let got = outcome(&egress, port, Speaks::One, moved("/v2/a")).await;
    assert!(is(&got, REFUSED), "{got:?}");
    let got = outcome(&egress, port, Speaks::One, moved("/v1/b")).await;
    assert!(is(&got, (200, "")), "control: {got:?}");
}

#[tokio::test]
async fn a_body_that_some_server_takes_for_a_form_is_refused_when_it_names_a_method_or_hides_its_names() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |_| text("ok")).await;
        let port = origin.port;
        let rules = net(r#""GET,POST api.example:PORT/v1/**""#);
        let post = |body: &str| request(speaks, "POST", port, "/v1/a", body);
        let typed = |kind: &str, body: &str| with(post(body), "content-type", kind);
        let coded = |kind: &str, body: &str| with(typed(kind, body), "content-encoding", "gzip");
        let named = "a=b&_method=DELETE";
        let object = r#"{"a":{"_method":1},"_method":"DELETE"}"#;
        let long = format!(r#"{{"a":"{}","_method":"DELETE"}}"#, "x".repeat(300_000));
        for (what, sent) in [
            ("no type", post(named)),
            (
                "two types",
                typed("application/x-www-form-urlencoded, a/b", named),
            ),
            ("two types, json", typed("a/b, application/json", object)),
            (
                "a blank in the type",
                typed("application/x-www-form-urlencoded x", named),
            ),
            ("coded", coded(FORM, "\u{1}\u{2}")),
            ("coded parts", coded("multipart/form-data; boundary=x", "abc")),
            ("coded json", coded("application/json", "abc")),
            ("coded, no type", with(post("abc"), "content-encoding", "br")),
            (
                "charset",
                typed("application/x-www-form-urlencoded; charset=ibm037", "abc"),
            ),
            (
                "charset, quoted",
                typed("multipart/form-data; boundary=x; charset=\"utf-16\"", "abc"),
            ),
            (
                "charset, hidden",
                typed("application/x-www-form-urlencoded; xcharset=ibm037", "abc"),
            ),
            (
                "charset of json",
                typed("application/json; charset=utf-16", "abc"),
            ),
            ("json", typed("application/json", object)),
            (
                "json, escaped",
                typed("application/json", r#"{"\u005fmethod":"DELETE"}"#),
            ),
            ("json of another name", typed("application/vnd.api+json", object)),
            ("json as text", typed("text/json", object)),
            ("json in a parameter", typed("text/plain; a=/json", object)),
            (
                "json in a form",
                typed("application/x-www-form-urlencoded; a=/json", object),
            ),
            (
                "json with comments",
                typed("application/json", r#"{/*"*/"a":1,"_method":"DELETE"}"#),
            ),
            ("long json", typed("application/json", &long)),
            (
                "padded",
                typed(FORM, &format!("{}_method=DELETE", "+".repeat(120))),
            ),
            ("cut by a NUL", typed(FORM, "_method%00x=DELETE")),
            (
                "another field",
                with(typed("text/plain", named), "content_type", FORM),
            ),
        ] {
            // One of its own: a client that is refused again and again is slowed down.
            let egress = egress_for(port, &rules).await;
            let got = outcome(&egress, port, speaks, sent).await;
            assert!(is(&got, REFUSED), "{speaks:?} {what}: {got:?}");
        }
        let whole = |seen: &Seen| seen.body.len() == long.len();
        assert!(!origin.seen().iter().any(whole), "the end did not arrive");
        let egress = egress_for(port, &rules).await;
        let large = format!(r#"{{"a":["{}"],"method":"x"}}"#, "_method".repeat(50_000));
        for (what, sent) in [
            ("no type", post("a=b&method=remove")),
            ("no type, no form", post("\u{0}\u{1}'/#")),
            ("form", typed(FORM, "method=remove&a=DELETE")),
            (
                "charset",
                typed("application/x-www-form-urlencoded; charset=UTF-8", "a=b"),
            ),
            (
                "latin",
                typed("application/x-www-form-urlencoded; charset=iso-8859-1", "a=b"),
            ),
            (
                "json",
                typed(
                    "application/json",
                    r#"{"a":{"_method":"x"},"b":["_method"],"c":"_method"}"#,
                ),
            ),
            ("list", typed("application/json", r#"[{"_method":"x"}]"#)),
            ("lines", typed("application/x-ndjson", "{\"a\":1}\n{\"b\":2}\n")),
            ("large json", typed("application/json; charset=utf-8", &large)),
            ("text", coded("text/plain", named)),
            (
                "nothing",
                with(request(speaks, "GET", port, "/v1/a", ""), "content-type", "json"),
            ),
            (
                "chunks of a store",
                with(post("abc"), "content-encoding", "aws-chunked"),
            ),
        ] {
            let got = outcome(&egress, port, speaks, sent).await;
            assert!(is(&got, (200, "")), "control: {speaks:?} {what}: {got:?}");
        }
    }
}

#[tokio::test]
async fn credential_headers_are_taken_out_in_every_spelling() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |_| text("ok")).await;
        let port = origin.port;
        let sections = super::credentials::sections(r#""api.example:PORT""#);
        let with_secret = egress_for(port, &sections).await;
        with_secret.state.secrets.update(super::credentials::value(None));
        let without = egress_for(port, &net(r#""GET api.example:PORT/v1/**""#)).await;
        let own = [
            "x_api_key",
            "x_auth_token",
            "private.token",
            "x_goog-api_key",
            "proxy_authorization",
        ];
        for egress in [&with_secret, &without] {
            let mut sent = request(speaks, "GET", port, "/v1/a", "");
            for name in own {
                sent = with(sent, name, "of the agent");
            }
            sent = with(sent, "x_api_keys", "kept");
            let got = outcome(egress, port, speaks, sent).await;
            assert!(is(&got, (200, "")), "{speaks:?}: {got:?}");
        }
        let seen = origin.seen();
        assert_eq!(seen.len(), 2);
        for seen in seen {
            for name in own {
                assert!(!seen.headers.contains_key(name), "{speaks:?} {name}: {seen:?}");
            }
            assert_eq!(seen.headers.get("x_api_keys").unwrap(), "kept", "control");
        }
    }
}
