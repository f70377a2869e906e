//! Entries for fuzzers: arbitrary bytes as a conversation over pipes, and as the body of a request over HTTP.
//!
//! **Trust:** none in the bytes. An entry returns normally whatever they are; what must hold of every answer is checked
//! inside, because a server that says too much does not crash.
use crate::desk::Desk;
use crate::face::{About, Asked, Call, Face, Outcome, done};
use crate::http::{Incoming, Reply, answer};
use crate::limits::Limits;
use crate::stdio::{Stdio, converse};
use crate::words::{MODERN, RpcError};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest line that the fuzzed pipes take: short, so that longer ones are tried too.
const LINE: usize = 2048;

/// A face that answers everything, with how much it understood.
pub(crate) struct Echo;

impl Face for Echo {
    type Caller = ();

    fn about(&self) -> About {
        About {
            name: "echo",
            title: "echo",
            version: "0",
            instructions: "",
            capabilities: json!({ "tools": {} }),
        }
    }

    fn key(&self, (): &()) -> String {
        String::new()
    }

    async fn serve(&self, asked: Asked, _: &Call<()>) -> Result<Outcome, RpcError> {
        Ok(done(json!({ "asked": format!("{asked:?}").len() })))
    }
}

/// Everything that is said over pipes to these bytes; nothing where no runtime can be had.
pub(crate) fn said(bytes: &[u8]) -> Vec<u8> {
    let limits = Limits {
        line: LINE,
        ..Limits::default()
    };
    let (Ok(desk), Some(runtime)) = (Desk::new(Echo, limits), runtime()) else {
        return Vec::new();
    };
    runtime.block_on(async {
        let (output, mut reads) = tokio::io::duplex(1 << 20);
        let talked = tokio::spawn({
            let input = std::io::Cursor::new(bytes.to_vec());
            converse(Arc::new(desk), (), Stdio { input, output })
        });
        let mut all = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut reads, &mut all).await;
        assert!(read.is_ok() && matches!(talked.await, Ok(Ok(()))), "it broke off");
        all
    })
}

fn runtime() -> Option<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .ok()
}

/// Lines over pipes: whatever comes in, only messages go out, each on a line of its own.
pub fn fuzz_pipes(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let said = said(bytes);
    let mut answers = 0;
    for line in said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        is_message(line);
        answers += 1;
    }
    assert!(answers <= lines, "more answers than lines");
}

/// A body over HTTP. The first byte says how well its headers agree with it.
pub fn fuzz_http(bytes: &[u8]) {
    let (first, body) = bytes.split_first().unwrap_or((&0, &[]));
    let (Ok(desk), Some(runtime)) = (Desk::new(Echo, Limits::default()), runtime()) else {
        return;
    };
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let incoming = Incoming {
        method: Method::POST,
        headers: headers(*first, &parsed),
        body: Bytes::copy_from_slice(body),
        caller: (),
    };
    // A stream of changes goes on by itself; what it says is tried where it ends.
    if parsed["method"] == "subscriptions/listen" {
        return;
    }
    runtime.block_on(async {
        match answer(Arc::new(desk), incoming).await {
            Reply::Plain { status, body, .. } => {
                assert!((200..500).contains(&status), "status {status}");
                if !body.is_empty() {
                    is_message(body.as_bytes());
                }
            }
            Reply::Events(events) => {
                let frames: Vec<Bytes> = events.collect().await;
                assert!(!frames.is_empty(), "a stream without an answer");
            }
        }
    });
}

fn headers(how: u8, body: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    };
    put("content-type", Some("application/json"));
    put("accept", Some("application/json, text/event-stream"));
    match how % 4 {
        0 => {
            let name = [&body["params"]["name"], &body["params"]["uri"]];
            put("mcp-protocol-version", Some(MODERN));
            put("mcp-method", body["method"].as_str());
            put("mcp-name", name.into_iter().find_map(Value::as_str));
        }
        1 => put("mcp-protocol-version", Some("2025-11-25")),
        2 => put("mcp-session-id", Some("none")),
        _ => {}
    }
    headers
}

/// One whole answer of JSON-RPC, whose id is short enough to be told.
fn is_message(text: &[u8]) {
    let message: Value = serde_json::from_slice(text).unwrap_or_default();
    let shown = String::from_utf8_lossy(text);
    assert_eq!(message["jsonrpc"], "2.0", "no message: {shown}");
    assert!(
        message["result"].is_object() != message["error"].is_object(),
        "neither a result nor an error, or both: {shown}"
    );
    assert!(message["id"].to_string().len() <= 2000, "a long id: {shown}");
}
