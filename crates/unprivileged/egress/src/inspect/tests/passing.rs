//! What is allowed arrives, unchanged and counted, whichever versions of HTTP meet.
use super::*;
use bastle_contract::egress::{Face, FromEgress, NetVerdict};

#[tokio::test]
async fn an_allowed_request_arrives_between_any_two_versions_and_another_method_does_not() {
    for client in [Speaks::One, Speaks::Two] {
        for server in [Speaks::One, Speaks::Two] {
            let origin = origin(server, |seen| {
                text(format!("{} {}", seen.method, seen.body.len()))
            })
            .await;
            let egress = egress_for(origin.port, &net(r#""GET,POST api.example:PORT/v1/**""#)).await;
            let sent = request(client, "POST", origin.port, "/v1/a?secret=1", "four");
            let got = ask(&egress, origin.port, client, sent).await;
            assert_eq!(
                (got.status, got.body.as_str()),
                (200, "POST 4"),
                "{client:?} {server:?}"
            );
            for (method, path, status, code) in [
                ("DELETE", "/v1/a", 403, "BST-NET-001"),
                ("GET", "/v2", 403, "BST-NET-001"),
                ("GET", "/v1/../v2", 400, "BST-NET-006"),
                ("GET", "/v1/%2e%2e/v2", 400, "BST-NET-006"),
            ] {
                let got = ask(
                    &egress,
                    origin.port,
                    client,
                    request(client, method, origin.port, path, ""),
                )
                .await;
                assert_eq!(
                    (got.status, got.code().as_str()),
                    (status, code),
                    "{method} {path}"
                );
                assert!(got.headers.contains_key("x-bastle-denied"));
            }
            let seen = origin.seen();
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert!(seen[0].uri.ends_with("/v1/a?secret=1"));
            let allowed = egress.wait_for(|frame| match frame {
                FromEgress::Decided(d) if d.verdict == NetVerdict::Allowed && d.face == Face::Https => {
                    Some(d.clone())
                }
                _ => None,
            });
            let allowed = allowed.await;
            assert_eq!(
                allowed.path.as_deref(),
                Some("/v1/a"),
                "no query string in a record"
            );
            assert!(allowed.held && allowed.address.is_some());
            let closed = egress.closed().await;
            assert_eq!(
                (closed.seq, closed.bytes_out, closed.bytes_in, closed.status),
                (allowed.seq, 4, 6, Some(200))
            );
        }
    }
}

#[tokio::test]
async fn requests_of_one_connection_share_one_connection_to_the_server() {
    for server in [Speaks::One, Speaks::Two] {
        let origin = origin(server, |_| text("x")).await;
        let egress = egress_for(origin.port, &net(r#""GET api.example:PORT""#)).await;
        let stream = tls(&egress, NAME, NAME, origin.port, Speaks::One).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..5 {
            sender.ready().await.unwrap();
            let response = sender
                .send_request(request(Speaks::One, "GET", origin.port, "/", ""))
                .await
                .unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "x");
        }
        assert_eq!(origin.seen().len(), 5);
        assert_eq!(origin.connections.load(Ordering::SeqCst), 1, "{server:?}");
    }
}

#[tokio::test]
async fn many_streams_of_a_client_are_judged_each_by_itself() {
    let origin = origin(Speaks::Two, |seen| text(seen.uri.clone())).await;
    let egress = egress_for(origin.port, &net(r#""GET api.example:PORT/ok/**""#)).await;
    let stream = tls(&egress, NAME, NAME, origin.port, Speaks::Two).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..40 {
        let mut sender = sender.clone();
        let path = if n % 4 == 0 {
            format!("/no/{n}")
        } else {
            format!("/ok/{n}")
        };
        let sent = request(Speaks::Two, "GET", origin.port, &path, "");
        tasks.spawn(async move { (n, sender.send_request(sent).await.unwrap().status().as_u16()) });
    }
    while let Some(done) = tasks.join_next().await {
        let (n, status) = done.unwrap();
        assert_eq!(status, if n % 4 == 0 { 403 } else { 200 }, "{n}");
    }
    assert_eq!(origin.seen().len(), 30);
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_body_is_awaited_only_after_the_request_is_allowed() {
    let origin = origin(Speaks::One, |seen| text(seen.body.clone())).await;
    let egress = egress_for(origin.port, &net(r#""POST api.example:PORT/ok""#)).await;
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {NAME}:{}\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
            origin.port
        )
    };
    let refused = raw(&egress, origin.port, head("/no").as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let passed = raw(&egress, origin.port, format!("{}hello", head("/ok")).as_bytes()).await;
    assert!(
        passed.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "),
        "{passed}"
    );
    assert!(passed.contains("hello"), "{passed}");
}

#[tokio::test]
async fn a_websocket_passes_only_where_a_rule_says_so_and_its_bytes_are_counted() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(testing::server(NAME, &[HTTP11]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = vec![0; 4096];
            let n = stream.read(&mut head).await.unwrap();
            assert!(
                String::from_utf8_lossy(&head[..n])
                    .to_lowercase()
                    .contains("upgrade: websocket")
            );
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            let mut frame = [0; 5];
            stream.read_exact(&mut frame).await.unwrap();
            stream.write_all(&frame).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let rules = r#"{"rule": "GET api.example:PORT/ws", "websocket": true}, "GET api.example:PORT/plain""#;
    let egress = egress_for(port, &net(rules)).await;
    let head = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {NAME}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n"
        )
    };
    let refused = raw(&egress, port, head("/plain").as_bytes()).await;
    assert!(refused.contains("BST-NET-006"), "{refused}");
    let passed = raw(&egress, port, format!("{}hello", head("/ws")).as_bytes()).await;
    assert!(
        passed.starts_with("HTTP/1.1 101 ") && passed.ends_with("hello"),
        "{passed}"
    );
    let closed = egress.closed().await;
    assert_eq!(
        (closed.bytes_out, closed.bytes_in, closed.status),
        (5, 5, None.or(closed.status))
    );
}

#[tokio::test]
async fn model_tokens_are_read_from_the_answer_and_stop_the_run_at_the_limit() {
    let answer = r#"{"model":"claude-sonnet-4-5","usage":{"input_tokens":900,"output_tokens":100}}"#;
    let origin = origin(Speaks::One, move |_| {
        let mut response = text(answer);
        response
            .headers_mut()
            .insert("content-type", "application/json".parse().unwrap());
        response
    })
    .await;
    let sections = format!(
        r#"{}, "budget": {{"tokens": 1000}}"#,
        net(r#""POST api.example:PORT/v1/messages""#)
    );
    let egress = egress_for(origin.port, &sections).await;
    let sent = || request(Speaks::One, "POST", origin.port, "/v1/messages", "{}");
    assert_eq!(ask(&egress, origin.port, Speaks::One, sent()).await.status, 200);
    let model = egress.closed().await.model.unwrap();
    assert_eq!(
        (model.input, model.output, model.cost_micro_usd),
        (900, 100, Some(4200))
    );
    let mut stream = TcpStream::connect(egress.http).await.unwrap();
    use tokio::io::AsyncWriteExt;
    let connect = format!(
        "CONNECT {NAME}:{0} HTTP/1.1\r\nHost: {NAME}:{0}\r\n\r\n",
        origin.port
    );
    stream.write_all(connect.as_bytes()).await.unwrap();
    let refused = crate::testing::read_all(&mut stream).await;
    assert!(refused.contains("BST-NET-012"), "{refused}");
    assert_eq!(origin.seen().len(), 1);
    assert_eq!(
        origin.seen()[0].headers.get("accept-encoding").unwrap(),
        "identity"
    );
}

#[tokio::test]
async fn a_run_that_learns_reads_unknown_hosts_without_credentials_and_writes_to_none() {
    use bastle_contract::egress::SecretValue;
    let listener = TcpListener::bind("127.0.0.1:443").await;
    // Only the usual ports are learned; where 443 is not free this cannot be tried.
    let Ok(listener) = listener else { return };
    let acceptor = TlsAcceptor::from(testing::server(NAME, &[HTTP11]));
    let heard = Arc::new(Mutex::new(String::new()));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = vec![0; 4096];
            let n = stream.read(&mut head).await.unwrap();
            all.lock().unwrap().push_str(&String::from_utf8_lossy(&head[..n]));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                .await
                .unwrap();
        }
    });
    let sections = format!(
        r#""mode": "learn", {}, "secrets": [{{"name": "KEY", "from": "env:KEY", "hosts": ["{NAME}"]}}]"#,
        net(r#""elsewhere.example""#)
    );
    let egress = egress_for(443, &sections).await;
    egress.state.secrets.update(vec![SecretValue {
        name: "KEY".to_owned(),
        phantom: "phantom-0123456".to_owned(),
        value: "real-0123456789".to_owned(),
        expires: None,
    }]);
    let get = Request::builder()
        .uri("/x")
        .header("host", NAME)
        .body(Full::default())
        .unwrap();
    assert_eq!(ask(&egress, 443, Speaks::One, get).await.body, "ok");
    let post = Request::builder()
        .method("POST")
        .uri("/x")
        .header("host", NAME)
        .body(Full::default())
        .unwrap();
    assert_eq!(ask(&egress, 443, Speaks::One, post).await.status, 403);
    let heard = heard.lock().unwrap().clone();
    assert!(
        heard.starts_with("GET /x ") && !heard.contains("real-") && !heard.contains("POST"),
        "{heard}"
    );
}
