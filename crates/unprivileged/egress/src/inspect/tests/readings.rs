//! Requests that two servers read differently, in both versions of HTTP.
use super::budgets::whole_model_host;
use super::*;

fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn a_path_that_servers_resolve_differently_is_refused_where_methods_or_paths_decide() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |seen| text(seen.uri.clone())).await;
        let port = origin.port;
        let by_path = egress_for(port, &net(r#""GET api.example:PORT/public/**""#)).await;
        let by_method = egress_for(port, &net(r#""GET api.example:PORT""#)).await;
        for path in [
            "/public/%2e%2e/private",
            "/public/.%2e/private",
            "/public/..%2fprivate",
            "/public/..;x/private",
            "/public/a%5cb",
            "/public/%252e%252e/private",
            "/public/%c0%ae%c0%ae/private",
            "/public/%00",
            "/public/%zz",
        ] {
            for egress in [&by_path, &by_method] {
                let got = ask(egress, port, speaks, request(speaks, "GET", port, path, "")).await;
                assert_eq!(
                    (got.status, got.code().as_str()),
                    (400, "BST-NET-006"),
                    "{speaks:?} {path}"
                );
            }
        }
        for path in ["/public/a%2fb", "/public//a", "/public/a;b"] {
            let got = ask(&by_path, port, speaks, request(speaks, "GET", port, path, "")).await;
            assert_eq!(
                (got.status, got.code().as_str()),
                (400, "BST-NET-006"),
                "{speaks:?} {path}"
            );
            let got = ask(&by_method, port, speaks, request(speaks, "GET", port, path, "")).await;
            assert_eq!(
                got.status, 200,
                "a scoped package is not refused: {speaks:?} {path}"
            );
        }
        let got = ask(
            &by_path,
            port,
            speaks,
            request(speaks, "GET", port, "/%70ublic/%7Ea?b=%2e", ""),
        )
        .await;
        assert_eq!(
            got.body, "/public/~a?b=%2e",
            "what was judged is what is sent: {speaks:?}"
        );
    }
}

#[tokio::test]
async fn a_method_in_lower_case_is_refused_in_both_versions() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::Two, |_| text("ok")).await;
        let port = origin.port;
        let egress = egress_for(port, &net(r#""api.example:PORT/v1/**""#)).await;
        for method in ["get", "Get", "delete"] {
            let got = ask(&egress, port, speaks, request(speaks, method, port, "/v1/a", "")).await;
            assert_eq!(got.status, 400, "{speaks:?} {method}: {}", got.body);
        }
        assert!(origin.seen().is_empty());
        assert_eq!(
            ask(&egress, port, speaks, request(speaks, "GET", port, "/v1/a", ""))
                .await
                .status,
            200
        );
    }
}

#[tokio::test]
async fn a_request_that_names_another_method_or_path_is_refused_where_rules_decide_by_them() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(Speaks::One, |_| text("ok")).await;
        let port = origin.port;
        let egress = egress_for(port, &net(r#""GET,POST api.example:PORT/v1/**""#)).await;
        let post = |body: &str| request(speaks, "POST", port, "/v1/a", body);
        let form = |body: &str| with(post(body), "content-type", "application/x-www-form-urlencoded");
        let parts = |name: &str| {
            let body =
                format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nDELETE\r\n--x--\r\n");
            with(post(&body), "content-type", "multipart/form-data; boundary=x")
        };
        let long = format!("a={}&_method=DELETE", "x".repeat(300_000));
        for (what, sent) in [
            ("override", with(post(""), "x-http-method-override", "DELETE")),
            ("method", with(post(""), "x-http-method", "DELETE")),
            ("short", with(post(""), "x-method-override", "DELETE")),
            ("url", with(post(""), "x-original-url", "/admin")),
            ("rewrite", with(post(""), "x-rewrite-url", "/admin")),
            (
                "query",
                request(speaks, "POST", port, "/v1/a?x=1&_method=DELETE", ""),
            ),
            (
                "escaped",
                request(speaks, "POST", port, "/v1/a?%5Fmethod=DELETE", ""),
            ),
            ("bare", request(speaks, "POST", port, "/v1/a?method=DELETE", "")),
            (
                "short",
                request(speaks, "POST", port, "/v1/a?a=b&httpMethod=GET", ""),
            ),
            ("form", form("a=b&_method=DELETE")),
            ("bare form", form("a=b&method=delete")),
            ("long bare form", form(&long.replace("_method", "method"))),
            ("long form", form(&long)),
            ("parts", parts("_method")),
            ("bare parts", parts("method")),
        ] {
            let got = ask(&egress, port, speaks, sent).await;
            assert_eq!(
                (got.status, got.code().as_str()),
                (400, "BST-NET-006"),
                "{speaks:?} {what}"
            );
        }
        assert!(
            origin.seen().iter().all(|seen| seen.body.len() < long.len() - 1),
            "no whole form arrived"
        );
        let before = origin.seen().len();
        for control in [
            form("method=DELETED&a=b"),
            form("method=flickr.photos.delete"),
            parts("file"),
            request(speaks, "POST", port, "/v1/a?method=x", ""),
        ] {
            assert_eq!(
                ask(&egress, port, speaks, control).await.status,
                200,
                "{speaks:?}"
            );
        }
        assert_eq!(origin.seen().len(), before + 4);
    }
}

#[tokio::test]
async fn under_a_budget_of_models_no_request_to_a_model_names_another_method_or_path() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let hidden = |speaks| {
        let get = |path: &str| request(speaks, "GET", port, path, "");
        let file = |body: &str| {
            let sent = request(speaks, "DELETE", port, "/v1/files/x", body);
            with(sent, "content-type", "application/x-www-form-urlencoded")
        };
        [
            (
                "header",
                with(get("/v1/chat/completions"), "x-http-method-override", "POST"),
            ),
            ("query", get("/v1/chat/completions?_method=POST")),
            ("bare query", get("/v1/chat/completions?method=POST")),
            (
                "path",
                with(
                    request(speaks, "POST", port, "/v1/files", ""),
                    "x-original-url",
                    "/v1/chat/completions",
                ),
            ),
            ("body", file("_method=POST")),
        ]
    };
    for speaks in [Speaks::One, Speaks::Two] {
        for budget in [r#"{"turns": 3}"#, r#"{"tokens": 3000}"#, r#"{"usd": 3}"#] {
            let egress = egress_for(port, &whole_model_host(budget)).await;
            for (what, sent) in hidden(speaks) {
                let got = ask(&egress, port, speaks, sent).await;
                assert_eq!(
                    (got.status, got.code().as_str()),
                    (400, "BST-NET-006"),
                    "{speaks:?} {budget} {what}"
                );
            }
            assert_eq!(origin.seen().len(), 0);
            let plain = request(speaks, "GET", port, "/v1/models?method=x", "");
            assert_eq!(ask(&egress, port, speaks, plain).await.status, 200, "control");
            origin.seen.lock().unwrap().clear();
        }
    }
}
