//! Credentials: where they go, where they never go, and that they do not come back.
use super::*;
use bastle_contract::egress::{FromEgress, SecretValue};
use http_body::Frame;

pub(super) const REAL: &str = "sk-real-0123456789";
pub(super) const PHANTOM: &str = "bastle-phantom-abcdef";

pub(super) fn sections(rules: &str) -> String {
    format!(
        r#"{}, "secrets": [{{"name": "KEY", "from": "env:KEY", "hosts": ["{NAME}"], "ports": [PORT], "methods": ["GET", "POST"], "paths": ["/v1/**"]}}]"#,
        net(rules)
    )
}

pub(super) fn value(expires: Option<u64>) -> Vec<SecretValue> {
    vec![SecretValue {
        name: "KEY".to_owned(),
        phantom: PHANTOM.to_owned(),
        value: REAL.to_owned(),
        expires,
    }]
}

pub(super) fn with(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// Sends every byte by itself, so that a value never arrives in one piece.
pub(super) fn dripping(body: String) -> Answer {
    let frames: Vec<Result<Frame<Bytes>, Infallible>> = body
        .bytes()
        .map(|byte| Ok(Frame::data(Bytes::from(vec![byte]))))
        .collect();
    Response::new(Frames(frames.into_iter()).boxed_unsync())
}

pub(super) struct Frames(pub(super) std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn the_real_value_goes_out_and_never_comes_back_however_it_is_reflected() {
    for speaks in [Speaks::One, Speaks::Two] {
        let origin = origin(speaks, |seen| {
            let sent = seen
                .headers
                .get("authorization")
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let mut response = dripping(format!(
                "you sent {sent} and {}",
                crate::scrub::base64_padded(sent.as_bytes())
            ));
            response.headers_mut().insert("x-echo", sent.parse().unwrap());
            response
        })
        .await;
        let port = origin.port;
        let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
        egress.state.secrets.update(value(None));
        let sent = with(
            request(speaks, "GET", port, "/v1/x", ""),
            "authorization",
            &format!("Bearer {PHANTOM}"),
        );
        let got = ask(&egress, port, speaks, with(sent, "x-api-key", "of the agent")).await;
        assert_eq!(got.status, 200, "{}", got.body);
        let seen = &origin.seen()[0];
        assert_eq!(
            seen.headers.get("authorization").unwrap().to_str().unwrap(),
            format!("Bearer {REAL}")
        );
        assert!(!seen.headers.contains_key("x-api-key"));
        assert_eq!(seen.headers.get("accept-encoding").unwrap(), "identity");
        assert!(
            got.body.contains(&format!("you sent Bearer {PHANTOM}")),
            "{}",
            got.body
        );
        assert!(
            !got.body.contains(REAL) && !got.body.contains("c2stcmVhbC0wMTIzNDU2Nzg5"),
            "{}",
            got.body
        );
        assert_eq!(
            got.headers.get("x-echo").unwrap().to_str().unwrap(),
            format!("Bearer {PHANTOM}")
        );
        let used = egress.wait_for(|frame| match frame {
            FromEgress::Decided(d) if d.secret.is_some() => Some(d.clone()),
            _ => None,
        });
        let used = used.await;
        assert_eq!((used.secret.as_deref(), used.held), (Some("KEY"), true));
        assert!(!format!("{:?}", egress.frames()).contains(REAL));
    }
}

#[tokio::test]
async fn outside_its_methods_and_paths_the_value_is_not_sent_and_its_phantom_is_refused() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
    egress.state.secrets.update(value(None));
    let plain = request(Speaks::One, "DELETE", port, "/v1/x", "");
    assert_eq!(ask(&egress, port, Speaks::One, plain).await.status, 200);
    assert!(!origin.seen()[0].headers.contains_key("authorization"));
    for (method, path) in [("DELETE", "/v1/x"), ("GET", "/v2")] {
        let sent = with(
            request(Speaks::One, method, port, path, ""),
            "authorization",
            PHANTOM,
        );
        let got = ask(&egress, port, Speaks::One, sent).await;
        assert_eq!(
            (got.status, got.code().as_str()),
            (403, "BST-NET-011"),
            "{method} {path}"
        );
    }
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test]
async fn a_phantom_towards_another_host_is_refused_wherever_it_hides() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    // The same server under its own name, but the secret is for another port.
    let other = sections(r#""GET,POST api.example:PORT""#).replace(r#""ports": [PORT]"#, r#""ports": [443]"#);
    let egress = egress_for(port, &other).await;
    egress.state.secrets.update(value(None));
    let encoded = crate::scrub::base64_padded(format!("user:{PHANTOM}").as_bytes());
    let make = |path: &str, body: &str| request(Speaks::One, "POST", port, path, body);
    let long = format!("{}{PHANTOM}", "x".repeat(100_000));
    for sent in [
        make(&format!("/{PHANTOM}"), ""),
        make(&format!("/?q={PHANTOM}"), ""),
        make("/", PHANTOM),
        make("/", &encoded),
        make("/", &long),
        with(make("/", ""), "authorization", &format!("Bearer {PHANTOM}")),
        with(make("/", ""), "authorization", &format!("Basic {encoded}")),
        with(make("/", ""), "cookie", &format!("a={PHANTOM}")),
    ] {
        let shown = format!("{:?}", sent.headers());
        let got = ask(&egress, port, Speaks::One, sent).await;
        assert_eq!((got.status, got.code().as_str()), (403, "BST-NET-011"), "{shown}");
    }
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: {NAME}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{}\r\nf\r\n{}\r\n0\r\n\r\n",
        &PHANTOM[..6],
        &PHANTOM[6..]
    );
    let answer = raw(&egress, port, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        origin
            .seen()
            .iter()
            .all(|seen| !String::from_utf8_lossy(&seen.body).contains(PHANTOM))
    );
}

#[tokio::test]
async fn a_compressed_answer_that_cannot_be_looked_through_is_refused() {
    let origin = origin(Speaks::One, |_| {
        let mut response = text("....");
        response
            .headers_mut()
            .insert("content-encoding", "compress".parse().unwrap());
        response
    })
    .await;
    let port = origin.port;
    let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
    egress.state.secrets.update(value(None));
    let got = ask(
        &egress,
        port,
        Speaks::One,
        request(Speaks::One, "GET", port, "/v1/x", ""),
    )
    .await;
    assert_eq!((got.status, got.code().as_str()), (502, "BST-NET-011"));
}

#[tokio::test]
async fn over_plain_http_no_credential_is_sent() {
    use crate::testing::echo;
    let server = echo(b"").await;
    let port = server.address.port();
    let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
    egress.state.secrets.update(value(None));
    let bytes =
        format!("GET http://{NAME}:{port}/v1/x HTTP/1.1\r\nHost: {NAME}:{port}\r\nConnection: close\r\n\r\n");
    drop(egress.say(bytes.as_bytes()).await);
    let heard = String::from_utf8_lossy(&server.heard.lock().unwrap()).into_owned();
    assert!(heard.starts_with("GET /v1/x HTTP/1.1\r\n"), "{heard}");
    assert!(!heard.contains(REAL), "{heard}");
    let bytes = format!(
        "GET http://{NAME}:{port}/v1/x HTTP/1.1\r\nHost: {NAME}:{port}\r\nAuthorization: {PHANTOM}\r\n\r\n"
    );
    let answer = egress.say(bytes.as_bytes()).await;
    assert!(answer.contains("BST-NET-011"), "{answer}");
}

#[tokio::test]
async fn an_expired_value_is_asked_for_and_the_request_waits_for_its_renewal() {
    let origin = origin(Speaks::One, |_| text("ok")).await;
    let port = origin.port;
    let egress = Arc::new(egress_for(port, &sections(r#""api.example:PORT""#)).await);
    egress.state.secrets.update(value(Some(1)));
    let waiting = tokio::spawn({
        let egress = Arc::clone(&egress);
        async move {
            ask(
                &egress,
                port,
                Speaks::One,
                request(Speaks::One, "GET", port, "/v1/x", ""),
            )
            .await
            .status
        }
    });
    let name = egress.wait_for(|frame| match frame {
        FromEgress::NeedSecret { name } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(name.await, "KEY");
    assert!(origin.seen().is_empty());
    egress.state.secrets.update(value(None));
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(
        origin.seen()[0]
            .headers
            .get("authorization")
            .unwrap()
            .to_str()
            .unwrap(),
        format!("Bearer {REAL}")
    );
}
