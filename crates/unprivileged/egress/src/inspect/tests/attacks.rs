//! Requests that pretend to be for one host, or to be one request.
use super::*;

#[tokio::test]
async fn a_request_for_another_host_inside_an_allowed_connection_is_refused() {
    let origin = origin(Speaks::One, |_| text("leak")).await;
    let port = origin.port;
    let egress = egress_for(port, &net(r#""GET api.example:PORT", "GET other.example:PORT""#)).await;
    for host in [
        "other.example".to_owned(),
        format!("other.example:{port}"),
        NAME.to_owned(),
        format!("{NAME}:{}", port ^ 1),
        format!("{NAME}.:{port}x"),
        format!("x@{NAME}:{port}"),
    ] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = raw(&egress, port, bytes.as_bytes()).await;
        let refused = answer.starts_with("HTTP/1.1 421 ") || answer.starts_with("HTTP/1.1 400 ");
        assert!(refused, "{host}: {answer}");
    }
    let fronted = Request::builder()
        .uri(format!("https://other.example:{port}/"))
        .body(Full::default())
        .unwrap();
    let got = ask(&egress, port, Speaks::Two, fronted).await;
    assert_eq!((got.status, got.code().as_str()), (421, "BST-NET-005"));
    let two = Request::builder()
        .uri(format!("https://{NAME}:{port}/"))
        .header("host", "other.example")
        .body(Full::default())
        .unwrap();
    assert_ne!(ask(&egress, port, Speaks::Two, two).await.status, 200);
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[tokio::test]
async fn a_handshake_that_names_another_host_ends_in_an_alert() {
    let origin = origin(Speaks::One, |_| text("leak")).await;
    let egress = egress_for(origin.port, &net(r#""GET api.example:PORT""#)).await;
    let refused = tls(&egress, NAME, "other.example", origin.port, Speaks::One)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("AccessDenied"), "{refused}");
    assert_eq!(
        egress.denial().await.code,
        Some(bastle_contract::Code::NetMismatch)
    );
    assert_eq!(origin.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn methods_that_reflect_or_tunnel_and_foreign_upgrades_are_refused() {
    let origin = origin(Speaks::One, |_| text("leak")).await;
    let port = origin.port;
    let egress = egress_for(
        port,
        &net(r#"{"rule": "GET,TRACE,TRACK api.example:PORT/**", "websocket": true}"#),
    )
    .await;
    for method in ["TRACE", "TRACK"] {
        let got = ask(
            &egress,
            port,
            Speaks::One,
            request(Speaks::One, method, port, "/", ""),
        )
        .await;
        assert_eq!(got.status, 405, "{method}");
    }
    let inner = raw(
        &egress,
        port,
        format!("CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(inner.starts_with("HTTP/1.1 405 "), "{inner}");
    for upgrade in ["h2c", "websocket, h2c", "TLS/1.0"] {
        let bytes = format!(
            "GET / HTTP/1.1\r\nHost: {NAME}:{port}\r\nUpgrade: {upgrade}\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\n\r\n"
        );
        let answer = raw(&egress, port, bytes.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{upgrade}: {answer}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[tokio::test]
async fn nothing_can_be_smuggled_behind_an_allowed_request() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let egress = egress_for(port, &net(r#""POST api.example:PORT/ok""#)).await;
    let hidden = format!("DELETE /smuggled HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n");
    for framing in [
        format!(
            "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            hidden.len() + 5
        ),
        "Transfer-Encoding: xchunked\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
        "Content-Length: 0\r\nContent-Length: 40\r\n\r\n".to_owned(),
        "Content-Length: +0\r\n\r\n".to_owned(),
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n1_0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\n\r\n0\r\n\r\n".to_owned(),
    ] {
        let bytes = format!("POST /ok HTTP/1.1\r\nHost: {NAME}:{port}\r\n{framing}{hidden}");
        let answer = raw(&egress, port, bytes.as_bytes()).await;
        assert!(!answer.contains("HTTP/1.1 200"), "{framing:?}: {answer}");
    }
    assert!(
        origin.seen().iter().all(|seen| seen.uri != "/smuggled"),
        "{:?}",
        origin.seen()
    );
    // Well-formed, the second request is a request of its own, and judged as one.
    let bytes = format!("POST /ok HTTP/1.1\r\nHost: {NAME}:{port}\r\nContent-Length: 0\r\n\r\n{hidden}");
    let answer = raw(&egress, port, bytes.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 403 "),
        "{answer}"
    );
    assert!(origin.seen().iter().all(|seen| seen.uri != "/smuggled"));
}

#[tokio::test]
async fn fields_of_one_hop_do_not_pass_and_connection_cannot_take_out_others() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let egress = egress_for(port, &net(r#""GET api.example:PORT""#)).await;
    let bytes = format!(
        "GET / HTTP/1.1\r\nHost: {NAME}:{port}\r\nConnection: close, x-secret, cookie\r\nX-Secret: 1\r\nCookie: c\r\nTE: trailers\r\nProxy-Authorization: x\r\nKeep-Alive: 5\r\n\r\n"
    );
    let answer = raw(&egress, port, bytes.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let headers = origin.seen()[0].headers.clone();
    for gone in [
        "x-secret",
        "te",
        "proxy-authorization",
        "keep-alive",
        "connection",
    ] {
        assert!(!headers.contains_key(gone), "{gone}: {headers:?}");
    }
    assert_eq!(headers.get("cookie").unwrap(), "c");
    assert_eq!(
        headers.get("host").unwrap().to_str().unwrap(),
        format!("{NAME}:{port}")
    );
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_gets_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Trusted authority, other name: the host's own name is what is checked.
    let acceptor = TlsAcceptor::from(testing::server("elsewhere.example", &[HTTP11]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            assert!(acceptor.accept(stream).await.is_err(), "the handshake must fail");
        }
    });
    let egress = egress_for(port, &net(r#""GET api.example:PORT""#)).await;
    let got = ask(
        &egress,
        port,
        Speaks::One,
        request(Speaks::One, "GET", port, "/", ""),
    )
    .await;
    assert_eq!(
        (got.status, got.code().as_str()),
        (502, "BST-NET-008"),
        "{}",
        got.body
    );
}

#[tokio::test]
async fn a_redirect_is_given_to_the_client_and_its_target_is_judged_by_itself() {
    let origin = origin(Speaks::One, |_| {
        let mut response = text("");
        *response.status_mut() = http::StatusCode::FOUND;
        response
            .headers_mut()
            .insert("location", "https://evil.example/".parse().unwrap());
        response
            .headers_mut()
            .insert("alt-svc", "h3=\":443\"".parse().unwrap());
        response
    })
    .await;
    let egress = egress_for(origin.port, &net(r#""GET api.example:PORT""#)).await;
    let got = ask(
        &egress,
        origin.port,
        Speaks::One,
        request(Speaks::One, "GET", origin.port, "/", ""),
    )
    .await;
    assert_eq!(got.status, 302);
    assert!(!got.headers.contains_key("alt-svc"));
    assert_eq!(origin.seen().len(), 1, "nobody followed");
}

#[tokio::test]
async fn a_new_table_cuts_a_request_that_waits_for_its_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(testing::server(NAME, &[HTTP11]));
    let (gone, ended) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut heard = Vec::new();
        // Never answers; ends when the other side does.
        drop(stream.read_to_end(&mut heard).await);
        gone.send(heard.len()).unwrap();
    });
    let egress = egress_for(port, &net(r#""GET api.example:PORT/**""#)).await;
    let stream = tls(&egress, NAME, NAME, port, Speaks::Two).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let waiting = tokio::spawn(sender.send_request(request(Speaks::Two, "GET", port, "/slow", "")));
    egress
        .wait_for(|frame| matches!(frame, bastle_contract::egress::FromEgress::Decided(_)).then_some(()))
        .await;
    let table = crate::testing::table_of(&net("\"elsewhere.example\""), &[]);
    assert_eq!(egress.state.reload(table), Ok(1));
    let within = crate::testing::HANG;
    assert!(
        tokio::time::timeout(within, waiting)
            .await
            .unwrap()
            .unwrap()
            .is_err()
    );
    assert!(tokio::time::timeout(within, ended).await.unwrap().unwrap() > 0);
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Opens HTTP/2 with our own frames, sends `frames` until nobody takes them any more, and says how many were taken.
async fn flood(egress: &Egress, port: u16, frames: impl Iterator<Item = Vec<u8>>) -> usize {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stream = tls(egress, NAME, NAME, port, Speaks::Two).await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        while read.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
        seen.store(true, Ordering::SeqCst);
    });
    let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    opening.extend(frame(4, 0, 0, &[]));
    write.write_all(&opening).await.unwrap();
    let mut taken = 0;
    for bytes in frames {
        if ended.load(Ordering::SeqCst)
            || write.write_all(&bytes).await.is_err()
            || write.flush().await.is_err()
        {
            break;
        }
        taken += 1;
        tokio::task::yield_now().await;
    }
    // What was taken last may still be on its way.
    for _ in 0..3000 {
        if ended.load(Ordering::SeqCst) {
            return taken;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the connection is still open after {taken} frames");
}

#[tokio::test]
async fn a_client_that_opens_and_resets_streams_is_cut_off() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let egress = egress_for(origin.port, &net(r#""GET api.example:PORT/**""#)).await;
    let mut block = vec![0x82, 0x87, 0x84, 0x01];
    let authority = format!("{NAME}:{}", origin.port);
    block.push(u8::try_from(authority.len()).unwrap());
    block.extend_from_slice(authority.as_bytes());
    let resets = (0..50_000u32).map(move |n| {
        let stream = 2 * n + 1;
        let mut bytes = frame(1, 0x5, stream, &block);
        bytes.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
        bytes
    });
    let taken = flood(&egress, origin.port, resets).await;
    assert!(taken < 50_000, "{taken}");
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let egress = egress_for(origin.port, &net(r#""GET api.example:PORT/**""#)).await;
    // A literal header of 100 bytes, again and again, and never the flag that ends them.
    let mut header = vec![0x00, 1, b'a', 100];
    header.extend([b'x'; 100]);
    let piece = header.repeat(150);
    let frames = (0..10_000).map(move |n| frame(if n == 0 { 1 } else { 9 }, 0, 1, &piece));
    let taken = flood(&egress, origin.port, frames).await;
    assert!(taken < 1_000, "{taken} frames of 15 KiB were taken");
    assert!(origin.seen().is_empty());
}
