//! Budgets of turns, tokens and cost against requests that lie about what they use, and against APIs nobody declared.
use super::*;
use crate::testing::HANG;
use http_body::{Body, Frame};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Sleep, timeout};

/// How long a server takes: long enough for all requests of a test to be judged before the first answer is settled.
const THINKS: Duration = Duration::from_millis(700);

/// A body that comes late.
struct Late {
    sleep: Pin<Box<Sleep>>,
    text: Option<Bytes>,
}

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.sleep.as_mut().poll(context));
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }
}

fn late(text: &'static str) -> Answer {
    let body = Late {
        sleep: Box::pin(tokio::time::sleep(THINKS)),
        text: Some(Bytes::from_static(text.as_bytes())),
    };
    Response::new(body.boxed_unsync())
}

/// The status of each of 30 requests that one client sends at once.
async fn thirty(egress: &Egress, port: u16, path: &str, body: &str) -> Vec<u16> {
    let stream = tls(egress, NAME, NAME, port, Speaks::Two).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let mut sender = sender.clone();
        let sent = request(Speaks::Two, "POST", port, path, body);
        tasks.spawn(async move {
            let response = sender.send_request(sent).await.unwrap();
            let status = response.status().as_u16();
            drop(response.into_body().collect().await);
            status
        });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    statuses
}

/// The server under this name is a model's, and every request to it passes the rules.
pub(super) fn model_host(budget: &str) -> String {
    format!(
        r#""net": {{"allow": [{{"rule": "GET,POST api.example:PORT/**", "websocket": true}}], "addresses": ["127.0.0.1/32"],
            "models": [{{"host": "api.example", "api": "any"}}]}}, "budget": {budget}"#
    )
}

/// The same with a rule that does not look at methods or paths: what reads requests there is the budget alone.
pub(super) fn whole_model_host(budget: &str) -> String {
    let rule = r#"{"rule": "GET,POST api.example:PORT/**", "websocket": true}"#;
    model_host(budget).replace(rule, r#""api.example:PORT""#)
}

#[tokio::test]
async fn thirty_dishonest_requests_at_once_do_not_pass_a_budget_of_tokens_or_cost() {
    const USED: &str = r#"{"model":"gpt-4o","usage":{"prompt_tokens":0,"completion_tokens":2000}}"#;
    for budget in [r#"{"tokens": 4000}"#, r#"{"usd": 0.04}"#] {
        for body in [
            r#"{"model":"gpt-4o","max_completion_tokens":2000,"max_tokens":1}"#,
            r#"{"model":"gpt-4o","max_tokens":1,"n":30}"#,
            r#"{"model":"gpt-4o","max_tokens":2000,"max_tokens":1}"#,
            r#"{"model":"gpt-4o","max_tokens":1}"#,
        ] {
            let origin = origin(Speaks::Two, |_| late(USED)).await;
            let egress = egress_for(origin.port, &model_host(budget)).await;
            let statuses = thirty(&egress, origin.port, "/v1/chat/completions", body).await;
            // Each uses half of the budget.
            assert_eq!(
                (origin.seen().len(), &statuses[..3]),
                (2, &[200, 200, 403][..]),
                "{budget} {body}"
            );
        }
        let origin = origin(Speaks::Two, |_| late("{}")).await;
        let egress = egress_for(origin.port, &model_host(r#"{"tokens": 1000000}"#)).await;
        let statuses = thirty(&egress, origin.port, "/v1/chat/completions", "{}").await;
        assert_eq!(
            statuses, [200; 30],
            "control: a large budget lets all pass at once"
        );
    }
}

/// A server that turns every connection into a WebSocket and answers each message with one of `answer` bytes.
async fn websocket_server(answer: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(testing::server(NAME, &[HTTP11]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
                stream.write_all(switched).await.unwrap();
                // The messages of these tests are a head of six bytes and a payload of two.
                let mut message = [0; 8];
                let mut frame = vec![0x82, answer];
                frame.resize(2 + usize::from(answer), b'x');
                while stream.read_exact(&mut message).await.is_ok() {
                    if stream.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Opens a WebSocket; the head of the answer comes back with it.
async fn websocket(egress: &Egress, port: u16, path: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = tls(egress, NAME, NAME, port, Speaks::One).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {NAME}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let byte = timeout(HANG, stream.read_u8()).await.unwrap();
        answer.push(byte.unwrap());
    }
    (stream, String::from_utf8(answer).unwrap())
}

/// How many of these messages were answered, each sent after the answer to the one before.
async fn answered(stream: &mut TlsStream<TcpStream>, messages: usize, answer: u8) -> usize {
    let mut frame = vec![0; 2 + usize::from(answer)];
    for n in 0..messages {
        if stream
            .write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'])
            .await
            .is_err()
        {
            return n;
        }
        match timeout(HANG, stream.read_exact(&mut frame)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return n,
            Err(_) => panic!("message {n} waits for ever"),
        }
    }
    messages
}

#[tokio::test]
async fn messages_over_one_websocket_do_not_pass_a_budget_of_cost() {
    let port = websocket_server(120).await;
    // At a dollar for a million tokens each message and its answer cost 32.5 millionths.
    let priced = model_host(r#"{"usd": 0.005}"#).replace(
        r#""api": "any""#,
        r#""api": "any", "price": {"input": 1, "output": 1}"#,
    );
    let egress = egress_for(port, &priced).await;
    let (mut stream, _) = websocket(&egress, port, "/v1/realtime").await;
    let passed = answered(&mut stream, 200, 120).await;
    assert!((150..=155).contains(&passed), "{passed} messages were answered");
    // Of a model that nobody named each token costs as much as the dearest.
    let egress = egress_for(port, &model_host(r#"{"usd": 0.005}"#)).await;
    let (mut stream, head) = websocket(&egress, port, "/v1/realtime").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let passed = answered(&mut stream, 200, 120).await;
    assert!((1..=10).contains(&passed), "{passed} messages were answered");
    drop(stream);
    let used = egress.closed().await.model.unwrap().cost_micro_usd.unwrap();
    let counted = egress.state.budget.worst();
    assert_eq!(
        counted.used, used,
        "what was counted as it passed is not counted again at the end"
    );
    let roomy = egress_for(port, &model_host(r#"{"usd": 5}"#)).await;
    let (mut stream, _) = websocket(&roomy, port, "/v1/realtime").await;
    assert_eq!(answered(&mut stream, 20, 120).await, 20, "control");
}

#[tokio::test]
async fn a_websocket_whose_estimate_is_larger_than_the_budget_never_waits_for_itself() {
    let port = websocket_server(1).await;
    for budget in [r#"{"tokens": 4000}"#, r#"{"tokens": 4000, "turns": 10}"#] {
        let egress = egress_for(port, &model_host(budget)).await;
        let (mut stream, _) = websocket(&egress, port, "/v1/realtime").await;
        assert_eq!(answered(&mut stream, 10, 1).await, 10, "{budget}");
    }
}

#[tokio::test]
async fn a_write_to_an_api_that_nobody_declared_is_a_turn_on_a_models_host() {
    let origin = origin(Speaks::Two, |seen| {
        if seen.uri.ends_with("/embeddings") {
            text(r#"{"usage":{"prompt_tokens":8,"total_tokens":8}}"#)
        } else if seen.uri.ends_with("/missing") {
            let mut answer = text("no");
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
            answer
        } else {
            text("x".repeat(4_000))
        }
    })
    .await;
    let post = async |egress: &Egress, path: &str| {
        let sent = request(Speaks::One, "POST", origin.port, path, "draw");
        ask(egress, origin.port, Speaks::One, sent).await
    };
    let egress = egress_for(origin.port, &model_host(r#"{"turns": 2}"#)).await;
    for free in ["/v1/messages/count_tokens", "/v1/embeddings", "/v1/missing"] {
        for _ in 0..3 {
            let status = post(&egress, free).await.status;
            assert!(matches!(status, 200 | 404), "{free}: {status}");
        }
    }
    let get = request(Speaks::One, "GET", origin.port, "/v1/models", "");
    assert_eq!(ask(&egress, origin.port, Speaks::One, get).await.status, 200);
    for status in [200, 200, 403] {
        assert_eq!(post(&egress, "/v1/images/generations").await.status, status);
    }
    // Each answer is 4 000 bytes: 1 000 tokens, at most 0.12 dollars.
    for budget in [r#"{"tokens": 1500}"#, r#"{"usd": 0.15}"#] {
        let egress = egress_for(origin.port, &model_host(budget)).await;
        let stream = tls(&egress, NAME, NAME, origin.port, Speaks::Two).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        for expected in [200, 200, 403] {
            let sent = request(Speaks::Two, "POST", origin.port, "/v1/images/generations", "draw");
            let response = sender.send_request(sent).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{budget}");
            drop(response.into_body().collect().await);
        }
    }
    let free = egress_for(origin.port, &model_host(r#"{"requests": 100}"#)).await;
    for _ in 0..3 {
        assert_eq!(post(&free, "/v1/images/generations").await.status, 200);
    }
}

#[tokio::test]
async fn thirty_requests_at_once_to_an_api_that_nobody_declared_do_not_pass_a_budget_of_turns() {
    let origin = origin(Speaks::Two, |_| late("a picture")).await;
    let egress = egress_for(origin.port, &model_host(r#"{"turns": 3}"#)).await;
    let statuses = thirty(&egress, origin.port, "/v1/images/generations", "draw").await;
    assert_eq!(
        (origin.seen().len(), &statuses[..4]),
        (3, &[200, 200, 200, 403][..])
    );
}

#[tokio::test]
async fn grpc_and_undeclared_websockets_to_a_models_host_are_refused_under_a_budget_of_models() {
    let served = origin(Speaks::Two, |_| text("x")).await;
    let grpc = |kind: &str| {
        let mut sent = request(
            Speaks::Two,
            "POST",
            served.port,
            "/google.ai.Service/Generate",
            "",
        );
        sent.headers_mut().insert("content-type", kind.parse().unwrap());
        sent
    };
    let port = websocket_server(1).await;
    const LIVE: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
    for (budget, waiver) in [
        (r#"{"turns": 3}"#, "--waive turns"),
        (r#"{"tokens": 3000}"#, "--waive tokens"),
        (r#"{"usd": 3, "turns": 9}"#, "--waive turns --waive usd"),
    ] {
        let egress = egress_for(served.port, &model_host(budget)).await;
        for kind in [
            "application/grpc",
            "Application/gRPC+proto",
            "application/grpc-web",
        ] {
            let got = ask(&egress, served.port, Speaks::Two, grpc(kind)).await;
            assert_eq!((got.status, got.code().as_str()), (403, "BST-NET-012"), "{kind}");
            assert!(got.body.contains(waiver), "{}", got.body);
        }
        let egress = egress_for(port, &model_host(budget)).await;
        let refused = raw(&egress, port, format!("GET {LIVE} HTTP/1.1\r\nHost: {NAME}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n").as_bytes()).await;
        assert!(
            refused.starts_with("HTTP/1.1 403 ") && refused.contains(waiver),
            "{refused}"
        );
    }
    assert_eq!(served.seen().len(), 0);
    let free = egress_for(served.port, &model_host(r#"{"requests": 100}"#)).await;
    assert_eq!(
        ask(&free, served.port, Speaks::Two, grpc("application/grpc"))
            .await
            .status,
        200,
        "control"
    );
    let free = egress_for(port, &model_host(r#"{"requests": 100}"#)).await;
    let (_, head) = websocket(&free, port, LIVE).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "control: {head}");
}
