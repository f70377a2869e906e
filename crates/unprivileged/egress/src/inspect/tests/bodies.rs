//! Rules about what is inside a body.
use super::*;

fn json(request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    typed(request, "application/json")
}

fn typed(mut request: Request<Full<Bytes>>, kind: &str) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert("content-type", kind.parse().unwrap());
    request
}

#[tokio::test]
async fn a_body_larger_than_the_rule_allows_is_refused_with_and_without_its_length() {
    let origin = origin(Speaks::One, |seen| text(seen.body.len().to_string())).await;
    let port = origin.port;
    let egress = egress_for(
        port,
        &net(r#"{"rule": "POST api.example:PORT/up", "maxBody": "1KiB"}"#),
    )
    .await;
    let fits = request(Speaks::One, "POST", port, "/up", &"a".repeat(1024));
    assert_eq!(ask(&egress, port, Speaks::One, fits).await.body, "1024");
    for speaks in [Speaks::One, Speaks::Two] {
        let large = request(speaks, "POST", port, "/up", &"a".repeat(1025));
        let got = ask(&egress, port, speaks, large).await;
        assert_eq!(
            (got.status, got.code().as_str()),
            (413, "BST-NET-013"),
            "{speaks:?}"
        );
    }
    let chunk = format!("400\r\n{}\r\n", "a".repeat(1024));
    let bytes = format!(
        "POST /up HTTP/1.1\r\nHost: {NAME}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    let answer = raw(&egress, port, bytes.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let whole: Vec<Seen> = origin
        .seen()
        .into_iter()
        .filter(|seen| seen.body.len() > 1024)
        .collect();
    assert!(whole.is_empty(), "{whole:?}");
}

#[tokio::test]
async fn a_tool_that_no_rule_names_is_not_called() {
    let origin = origin(Speaks::Two, |_| text("{}")).await;
    let port = origin.port;
    let rule = r#"{"rule": "POST api.example:PORT/mcp", "rpc": ["initialize", "tools/call:get_*"]}"#;
    let egress = egress_for(port, &net(rule)).await;
    let call = |body: &str| json(request(Speaks::One, "POST", port, "/mcp", body));
    let get = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_issue"}}"#;
    assert_eq!(ask(&egress, port, Speaks::One, call(get)).await.status, 200);
    let large = format!(r#"{{"method":"initialize","x":"{}"}}"#, "y".repeat(1024 * 1024));
    for body in [
        r#"{"method":"tools/call","params":{"name":"delete_repo"}}"#,
        r#"[{"method":"initialize"},{"method":"tools/call","params":{"name":"delete_repo"}}]"#,
        r#"{"method":"initialize","method":"tools/call","params":{"name":"delete_repo"}}"#,
        "not json",
        "",
        large.as_str(),
    ] {
        let got = ask(&egress, port, Speaks::One, call(body)).await;
        assert_eq!(
            (got.status, got.code().as_str()),
            (403, "BST-NET-015"),
            "{}",
            &body[..body.len().min(80)]
        );
    }
    let mut packed = call(get);
    packed
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(ask(&egress, port, Speaks::One, packed).await.status, 403);
    assert_eq!(origin.seen().len(), 1);
    assert_eq!(origin.seen()[0].body, get);
}

#[tokio::test]
async fn a_mutation_does_not_pass_where_only_queries_may() {
    let origin = origin(Speaks::One, |_| text("{}")).await;
    let port = origin.port;
    let rule = r#"{"rule": "GET,POST api.example:PORT/graphql", "graphql": ["query"]}"#;
    let egress = egress_for(port, &net(rule)).await;
    let post = |path: &str, body: &str| json(request(Speaks::One, "POST", port, path, body));
    let status = async |request| ask(&egress, port, Speaks::One, request).await.status;
    assert_eq!(
        status(post("/graphql", r#"{"query":"query A { viewer { login } }"}"#)).await,
        200
    );
    let get = |query: &str| request(Speaks::One, "GET", port, &format!("/graphql?query={query}"), "");
    assert_eq!(status(get("%7Bviewer%7D")).await, 200);
    assert_eq!(status(get("mutation%7Bx%7D")).await, 403);
    for (path, body) in [
        ("/graphql", r#"{"query":"mutation { deleteRepository }"}"#),
        (
            "/graphql",
            r#"{"query":"query A { a } mutation B { b }","operationName":"A"}"#,
        ),
        (
            "/graphql",
            r#"{"extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#,
        ),
        (
            "/graphql",
            r#"{"query":"{ a }","extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#,
        ),
        ("/graphql", r#"{"query":"{ a }","doc_id":"7"}"#),
        ("/graphql?documentId=7", r#"{"query":"{ a }"}"#),
        ("/graphql?extensions=x", r#"{"query":"{ a }"}"#),
        ("/graphql?query=mutation%7Bx%7D", r#"{"query":"{ a }"}"#),
        ("/graphql?%71uery=mutation%7Bx%7D", r#"{"query":"{ a }"}"#),
    ] {
        assert_eq!(status(post(path, body)).await, 403, "{path} {body}");
    }
    assert_eq!(origin.seen().len(), 2);
}

#[tokio::test]
async fn a_body_that_does_not_say_it_is_utf_8_json_is_not_judged_as_json() {
    let origin = origin(Speaks::One, |_| text("{}")).await;
    let port = origin.port;
    let rules = r#"{"rule": "POST api.example:PORT/mcp", "rpc": ["initialize"]},
        {"rule": "POST api.example:PORT/graphql", "graphql": ["query"]}"#;
    let egress = egress_for(port, &net(rules)).await;
    let bodies = [
        ("/mcp", r#"{"method":"initialize"}"#),
        ("/graphql", r#"{"query":"{ a }"}"#),
    ];
    for (path, body) in bodies {
        let post = || request(Speaks::One, "POST", port, path, body);
        assert_eq!(
            ask(&egress, port, Speaks::One, json(post())).await.status,
            200,
            "control"
        );
        assert_eq!(
            ask(&egress, port, Speaks::One, post()).await.code(),
            "BST-NET-015"
        );
        for kind in [
            "application/json; charset=utf-16",
            "application/json; charset=utf-7",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/graphql",
        ] {
            let got = ask(&egress, port, Speaks::One, typed(post(), kind)).await;
            assert_eq!(
                (got.status, got.code().as_str()),
                (403, "BST-NET-015"),
                "{path} {kind}"
            );
        }
        let mut two = json(post());
        two.headers_mut()
            .append("content-type", "text/plain".parse().unwrap());
        assert_eq!(
            ask(&egress, port, Speaks::One, two).await.code(),
            "BST-NET-015",
            "{path}"
        );
    }
    assert_eq!(origin.seen().len(), 2);
}
