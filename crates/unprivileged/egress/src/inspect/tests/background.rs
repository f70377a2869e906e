//! Requests to models whose answer comes by another request, or never comes.
use super::budgets::{model_host, whole_model_host};
use super::credentials::with;
use super::*;
use crate::testing::HANG;
use crate::usage::DEFAULT_OUTPUT;
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

const REFUSED: (u16, &str) = (403, "BST-NET-012");
const QUEUED: &str = r#"{"id":"resp_1","model":"gpt-4o","status":"queued","usage":null}"#;

fn post(speaks: Speaks, port: u16, path: &str, body: &str) -> Request<Full<Bytes>> {
    with(
        request(speaks, "POST", port, path, body),
        "content-type",
        "application/json",
    )
}

#[expect(clippy::too_many_lines, reason = "a table of requests")]
#[tokio::test]
async fn an_answer_that_comes_by_another_request_is_refused_under_a_budget_of_tokens_or_cost() {
    let origin = origin(Speaks::One, |_| text(QUEUED)).await;
    let port = origin.port;
    let long = "x".repeat(300_000);
    for budget in [r#"{"tokens": 1000000}"#, r#"{"usd": 100}"#] {
        let egress = egress_for(port, &whole_model_host(budget)).await;
        for (path, body) in [
            (
                "/v1/responses",
                r#"{"model":"gpt-4o","background":true}"#.to_owned(),
            ),
            (
                "/v1/responses",
                r#"{"background": true,"background":false,"model":"gpt-4o"}"#.to_owned(),
            ),
            (
                "/v1/responses",
                r#"{"model":"gpt-4o","\u0062ackground":true}"#.to_owned(),
            ),
            ("/v1/responses", r#"{"model":"gpt-4o","background":1}"#.to_owned()),
            (
                "/v1/responses",
                r#"{"model":"gpt-4o","background":"True"}"#.to_owned(),
            ),
            (
                "/v1/chat/completions",
                r#"{"model":"grok-4","deferred":true}"#.to_owned(),
            ),
            (
                "/v1/interactions",
                r#"{"model":"gemini-2.5-pro","background":true}"#.to_owned(),
            ),
            // The name of the model comes first, and what matters behind all that is read before the request is sent.
            (
                "/v1/responses",
                format!(r#"{{"model":"gpt-4o","input":"{long}","background":true}}"#),
            ),
        ] {
            for speaks in [Speaks::One, Speaks::Two] {
                let got = ask(&egress, port, speaks, post(speaks, port, path, &body)).await;
                let what = (budget, path, &body[..body.len().min(80)], speaks);
                assert_eq!((got.status, got.code().as_str()), REFUSED, "{what:?}");
            }
        }
        let coded = post(Speaks::One, port, "/v1/responses", r#"{"model":"gpt-4o"}"#);
        for coding in ["gzip", "zstd", "br", "unheard-of"] {
            let got = ask(
                &egress,
                port,
                Speaks::One,
                with(coded.clone(), "content-encoding", coding),
            )
            .await;
            assert_eq!((got.status, got.code().as_str()), REFUSED, "{coding}");
        }
        let wide: Vec<u8> = r#"{"background":true}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wide = post(Speaks::One, port, "/v1/responses", "").map(|_| Full::new(Bytes::from(wide)));
        let got = ask(&egress, port, Speaks::One, wide).await;
        assert_eq!((got.status, got.code().as_str()), REFUSED, "UTF-16");
        assert_eq!(origin.seen().len(), 0, "nothing arrived as a whole");
        for control in [
            r#"{"model":"gpt-4o","background":false}"#.to_owned(),
            r#"{"model":"gpt-4o","background":null}"#.to_owned(),
            r#"{"model":"gpt-4o","background":"transparent"}"#.to_owned(),
            r#"{"model":"gpt-4o","input":[{"background":true}]}"#.to_owned(),
            format!(r#"{{"model":"gpt-4o","input":"{long} \"background\":true"}}"#),
        ] {
            let got = ask(
                &egress,
                port,
                Speaks::One,
                post(Speaks::One, port, "/v1/responses", &control),
            )
            .await;
            assert_eq!(got.status, 200, "control: {} {}", &control[..40], got.body);
        }
        origin.seen.lock().unwrap().clear();
    }
    for budget in [r#"{"turns": 3}"#, r#"{"requests": 100}"#] {
        let egress = egress_for(port, &model_host(budget)).await;
        let sent = post(
            Speaks::One,
            port,
            "/v1/responses",
            r#"{"model":"gpt-4o","background":true}"#,
        );
        let got = ask(&egress, port, Speaks::One, sent).await;
        assert_eq!(got.status, 200, "control: {budget}");
    }
}

#[tokio::test]
async fn an_api_that_only_takes_work_in_is_refused_under_a_budget_of_tokens() {
    let origin = origin(Speaks::One, |_| text("{}")).await;
    let port = origin.port;
    let egress = egress_for(port, &model_host(r#"{"tokens": 1000000}"#)).await;
    for path in [
        "/async/chat/completions",
        "/api/paas/v4/async/chat/completions",
        "/v1/evals/e/runs",
    ] {
        let got = ask(&egress, port, Speaks::One, post(Speaks::One, port, path, "{}")).await;
        assert_eq!((got.status, got.code().as_str()), REFUSED, "{path}");
    }
}

/// A model that takes requests and never answers; tells how many bytes of them it has.
async fn silent() -> (u16, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(testing::server(NAME, &[HTTP11]));
    let (told, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, told) = (acceptor.clone(), told.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut all = 0;
                let mut piece = vec![0; 64 * 1024];
                while let Ok(read @ 1..) = stream.read(&mut piece).await {
                    all += read;
                    if told.send(all).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, heard)
}

/// A body that sends what it has and is never finished.
struct Endless(Option<Bytes>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// Sends a request and cancels it (RST_STREAM) once the model has this many bytes. Gives what it is charged.
async fn cancelled(budget: &str, body: UnsyncBoxBody<Bytes, Infallible>, at: usize) -> (u64, u64, u64) {
    let (port, mut heard) = silent().await;
    let egress = egress_for(port, &model_host(budget)).await;
    let stream = tls(&egress, NAME, NAME, port, Speaks::Two).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let sent = request(Speaks::Two, "POST", port, "/v1/messages", "").map(|_| body);
    let asking = tokio::spawn(async move {
        drop(sender.send_request(sent).await);
        // Kept until it is cancelled.
        std::future::pending::<()>().await;
    });
    while timeout(HANG, heard.recv()).await.unwrap().unwrap() < at {}
    asking.abort();
    let used = timeout(HANG, egress.closed()).await.unwrap().model;
    let used = used.unwrap_or_default();
    let counted = egress.state.budget.worst().used;
    (used.output, used.cost_micro_usd.unwrap_or(0), counted)
}

#[tokio::test]
async fn a_request_that_is_cancelled_before_its_answer_costs_what_was_reserved() {
    let whole = |text: &str| Full::new(Bytes::from(text.to_owned())).boxed_unsync();
    const HEAD: usize = 100;
    let (output, _, counted) = cancelled(
        r#"{"tokens": 100000}"#,
        whole(r#"{"model":"gpt-4o","max_tokens":9000}"#),
        HEAD,
    )
    .await;
    assert_eq!(output, 9_000);
    assert!(counted >= 9_000, "{counted}");
    let (output, _, _) = cancelled(r#"{"tokens": 100000}"#, whole(r#"{"model":"gpt-4o"}"#), HEAD).await;
    assert_eq!(output, DEFAULT_OUTPUT);
    let (output, cost, counted) = cancelled(
        r#"{"usd": 5}"#,
        whole(r#"{"model":"gpt-4o","max_tokens":9000}"#),
        HEAD,
    )
    .await;
    assert_eq!((output, cost), (9_000, counted));
    // Ten dollars for a million tokens.
    assert!(cost >= 90_000, "{cost}");
}

#[tokio::test]
async fn a_request_that_is_cancelled_before_it_was_sent_as_a_whole_costs_no_answer() {
    let text = format!(
        r#"{{"model":"gpt-4o","max_tokens":9000,"input":"{}"#,
        "x".repeat(400_000)
    );
    let body = Endless(Some(Bytes::from(text))).boxed_unsync();
    let (output, _, counted) = cancelled(r#"{"tokens": 1000000}"#, body, 300_000).await;
    assert_eq!(output, 0, "the model has no request to answer");
    assert!(counted >= 300_000 / 4, "what was sent is counted: {counted}");
}
