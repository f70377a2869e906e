//! Answers of a server that was given a secret: whatever they are packed in, its value does not come back.
use super::credentials::{PHANTOM, REAL, sections, value, with};
use super::*;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body::Frame;
use std::io::Write;

fn packed(coding: &str, body: &str) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body.as_bytes()).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body.as_bytes()).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => {
            ruzstd::encoding::compress_to_vec(body.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        }
        _ => body.as_bytes().to_vec(),
    }
}

async fn answered<F>(speaks: Speaks, answer: F) -> (Got, Vec<Seen>)
where
    F: Fn(&Seen) -> Answer + Clone + Send + Sync + 'static,
{
    let origin = origin(speaks, answer).await;
    let port = origin.port;
    let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
    egress.state.secrets.update(value(None));
    let sent = with(request(speaks, "GET", port, "/v1/x", ""), "range", "bytes=5-");
    let sent = with(sent, "if-range", "\"x\"");
    let got = ask(&egress, port, speaks, sent).await;
    (got, origin.seen())
}

fn coded(coding: &'static str, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut response = text(body);
    if !coding.is_empty() {
        response
            .headers_mut()
            .insert("content-encoding", coding.parse().unwrap());
    }
    response
        .headers_mut()
        .insert("content-type", kind.parse().unwrap());
    response
}

#[tokio::test]
async fn a_value_inside_a_compressed_answer_is_taken_out_and_the_client_gets_plain_text() {
    for speaks in [Speaks::One, Speaks::Two] {
        for coding in ["gzip", "deflate", "zstd"] {
            let (got, seen) = answered(speaks, move |_| {
                coded(
                    coding,
                    "text/plain",
                    packed(coding, &format!("you sent {REAL}, end")),
                )
            })
            .await;
            assert_eq!(
                got.body,
                format!("you sent {PHANTOM}, end"),
                "{speaks:?} {coding}"
            );
            assert!(!got.headers.contains_key("content-encoding"), "{coding}");
            assert!(!seen[0].headers.contains_key("range") && !seen[0].headers.contains_key("if-range"));
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_looked_through_is_refused() {
    for coding in ["compress", "gzip, gzip", "aes128gcm"] {
        let (got, _) = answered(Speaks::One, move |_| coded(coding, "text/plain", REAL.into())).await;
        assert_eq!(
            (got.status, got.code().as_str()),
            (502, "BST-NET-011"),
            "{coding}"
        );
    }
    let (got, _) = answered(Speaks::One, |_| {
        coded("", "multipart/byteranges; boundary=x", REAL.into())
    })
    .await;
    assert_eq!((got.status, got.code().as_str()), (502, "BST-NET-011"));
    let (got, _) = answered(Speaks::Two, |_| {
        let mut response = coded("", "text/plain", REAL.into());
        *response.status_mut() = http::StatusCode::PARTIAL_CONTENT;
        response
    })
    .await;
    assert_eq!((got.status, got.code().as_str()), (502, "BST-NET-011"));
    let broken = b"\x1f\x8b\x08\0\0\0\0\0\0\x03garbage".to_vec();
    let (got, _) = answered(Speaks::One, move |_| coded("gzip", "text/plain", broken.clone())).await;
    assert!(!got.body.contains("end"), "a broken one is cut off: {got:?}");
}

#[tokio::test]
async fn a_value_split_over_events_lines_fields_or_trailers_does_not_come_back() {
    let (first, second) = REAL.split_at(7);
    for (what, body) in [
        (
            "events",
            format!("data: {first}\n\ndata: {second}\n\ndata: end\n\n"),
        ),
        (
            "named",
            format!("event: a\ndata: {first}\n\nevent: b\nid: 2\ndata: {second}\n\ndata: end\n\n"),
        ),
        ("lines", format!("{first}\r\n{second} end")),
        (
            "unicode",
            format!(
                "{} end",
                REAL.bytes().map(|b| format!("\\u{b:04x}")).collect::<String>()
            ),
        ),
        (
            "html",
            format!(
                "{} end",
                REAL.bytes().map(|b| format!("&#{b};")).collect::<String>()
            ),
        ),
    ] {
        let sent = body.clone();
        let (got, _) = answered(Speaks::One, move |_| super::credentials::dripping(sent.clone())).await;
        assert!(
            got.body.contains(PHANTOM) && got.body.contains("end"),
            "{what}: {}",
            got.body
        );
        assert!(
            !got.body.contains(second) && !got.body.contains(&body),
            "{what}: {}",
            got.body
        );
    }
    let (got, _) = answered(Speaks::Two, |_| {
        let name = http::HeaderName::from_bytes(format!("x-{REAL}").as_bytes()).unwrap();
        let mut response = text("end");
        response.headers_mut().insert(name, "1".parse().unwrap());
        response.headers_mut().insert("x-kept", "1".parse().unwrap());
        response
    })
    .await;
    assert!(got.headers.contains_key("x-kept"), "control");
    assert!(!format!("{:?}", got.headers).contains(REAL), "{:?}", got.headers);
}

#[tokio::test]
async fn what_was_held_back_comes_before_the_trailers_and_those_are_clean() {
    let origin = origin(Speaks::Two, |_| {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-token", REAL.parse().unwrap());
        let frames = vec![
            Ok(Frame::data(Bytes::from(format!("ends with {}", &REAL[..6])))),
            Ok(Frame::trailers(trailers)),
        ];
        Response::new(super::credentials::Frames(frames.into_iter()).boxed_unsync())
    })
    .await;
    let port = origin.port;
    let egress = egress_for(port, &sections(r#""api.example:PORT""#)).await;
    egress.state.secrets.update(value(None));
    let stream = tls(&egress, NAME, NAME, port, Speaks::Two).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut sent = request(Speaks::Two, "GET", port, "/v1/x", "");
    sent.headers_mut().insert("te", "trailers".parse().unwrap());
    let body = sender
        .send_request(sent)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    assert_eq!(
        trailers.get("x-token").map(|value| value.to_str().unwrap()),
        Some(PHANTOM)
    );
    assert_eq!(body.to_bytes(), format!("ends with {}", &REAL[..6]));
}
