//! One address over HTTP: a message per POST, answered with JSON, or with a stream of events where something is said
//! before the answer is there.
//!
//! **Trust:** hosts, origins and tokens are checked before this is reached, by whoever owns the address. Headers are
//! untrusted and must agree with the body. A client that goes away takes its request with it: the work is dropped with the
//! answer's body.
use crate::base64;
use crate::desk::{AtWork, Desk};
use crate::face::Face;
use crate::legacy;
use crate::modern;
use crate::words::{LEGACY, MODERN, Message, Request, RpcError, id_of, read};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The header of a session of the older revisions.
const SESSION: &str = "mcp-session-id";
/// How long an answer may take before a stream is begun, so that whoever waits sees that somebody is there.
const QUIET: Duration = Duration::from_secs(3);
/// How often a stream says that it is still there.
const PULSE: Duration = Duration::from_secs(15);

/// A request over HTTP; its body was bounded when it was read.
pub struct Incoming<C> {
    /// Its method.
    pub method: Method,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Who sent it.
    pub caller: C,
}

/// What goes back.
pub enum Reply {
    /// Whole.
    Plain {
        /// The status.
        status: u16,
        /// Headers beside the usual ones.
        headers: Vec<(&'static str, String)>,
        /// JSON, or nothing.
        body: String,
    },
    /// `text/event-stream`.
    Events(BoxStream<'static, Bytes>),
}

impl Reply {
    fn error(error: &RpcError, id: &Value) -> Self {
        Self::Plain {
            status: error.status,
            headers: Vec::new(),
            body: error.message(id).to_string(),
        }
    }

    fn bare(status: u16) -> Self {
        Self::Plain {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }
}

type Work = BoxFuture<'static, (u16, Value)>;

/// Answers one request. The reply holds the work: dropped, it ends.
pub async fn answer<F: Face>(desk: Arc<Desk<F>>, incoming: Incoming<F::Caller>) -> Reply {
    let key = desk.face.key(&incoming.caller);
    match incoming.method {
        Method::POST => {}
        Method::DELETE => {
            let known = header(&incoming.headers, SESSION).is_some_and(|name| desk.close(&key, name));
            return Reply::bare(if known { 200 } else { 404 });
        }
        _ => {
            return Reply::Plain {
                status: 405,
                headers: vec![("allow", "POST, DELETE".to_owned())],
                body: String::new(),
            };
        }
    }
    let value = match desk.face.parse(&incoming.body) {
        Ok(value) => value,
        Err(why) => return Reply::error(&RpcError::parse(&why), &Value::Null),
    };
    let id = id_of(&value);
    match read(value) {
        Err(error) => Reply::error(&error, &id),
        Ok(Message::Notification { .. }) => Reply::bare(202),
        Ok(Message::Response { id, outcome }) => {
            let heard = desk.answered(&key, &id, outcome);
            Reply::bare(if heard { 202 } else { 400 })
        }
        Ok(Message::Request(request)) => match take(desk, request, incoming, &key).await {
            Ok(reply) => reply,
            Err(error) => Reply::error(&error, &id),
        },
    }
}

async fn take<F: Face>(
    desk: Arc<Desk<F>>,
    request: Request,
    incoming: Incoming<F::Caller>,
    key: &str,
) -> Result<Reply, RpcError> {
    let headers = &incoming.headers;
    let version = header(headers, "mcp-protocol-version");
    let old = version.is_some_and(|version| LEGACY.contains(&version));
    let (sender, receiver) = mpsc::channel(64);
    if request.method == "initialize" && !request.is_modern() {
        let session = legacy::agree(&request)?;
        let welcome = desk.welcome(&session);
        let name = desk.open(key, session)?;
        return Ok(Reply::Plain {
            status: 200,
            headers: vec![(SESSION, name)],
            body: json!({ "jsonrpc": "2.0", "id": request.id, "result": welcome }).to_string(),
        });
    }
    let streams = accepts_events(headers);
    let caller = incoming.caller;
    let at_work = desk.begin(key)?;
    if !request.is_modern() && (old || header(headers, SESSION).is_some()) {
        let name = header(headers, SESSION)
            .ok_or_else(|| RpcError::request("mcp-session-id: begin with initialize"))?;
        if version.is_some() && !old {
            return Err(RpcError::version(version.unwrap_or_default()));
        }
        let Some(session) = desk.session(key, name) else {
            return Err(RpcError::new(-32001, "there is no such session; begin with initialize").status(404));
        };
        let longest = desk.limits.longest;
        let work: Work = Box::pin(async move {
            let done = desk.legacy(&request, &session, caller, sender);
            let done = tokio::time::timeout(longest, done).await;
            finished(&request.id, done.unwrap_or_else(|_| Err(late())))
        });
        return Ok(reply(work, receiver, streams, at_work).await);
    }
    agreeing(&request, headers)?;
    let capabilities = modern::check(&request)?;
    let longest = match request.method.as_str() {
        "subscriptions/listen" => None,
        _ => Some(desk.limits.longest),
    };
    let work: Work = Box::pin(async move {
        let done = desk.modern(&request, capabilities, caller, sender);
        let done = match longest {
            None => done.await,
            Some(longest) => tokio::time::timeout(longest, done)
                .await
                .unwrap_or_else(|_| Err(late())),
        };
        finished(&request.id, done)
    });
    Ok(reply(work, receiver, streams, at_work).await)
}

fn late() -> RpcError {
    RpcError::internal("the answer took too long")
}

fn finished(id: &Value, done: Result<Value, RpcError>) -> (u16, Value) {
    match done {
        Ok(result) => (200, json!({ "jsonrpc": "2.0", "id": id, "result": result })),
        Err(error) => (error.status, error.message(id)),
    }
}

/// What the headers say must be what the body says: whatever stands between may have decided by them.
fn agreeing(request: &Request, headers: &HeaderMap) -> Result<(), RpcError> {
    let version = header(headers, "mcp-protocol-version");
    match (version, request.version()) {
        (None, _) => return Err(RpcError::header("mcp-protocol-version: missing")),
        (Some(header), Some(body)) if header != body => {
            return Err(RpcError::header(
                "mcp-protocol-version: the body says another one",
            ));
        }
        // A body without it is told what it lacks; a header that names a revision nobody serves, that.
        (Some(header), None) if header != MODERN => return Err(RpcError::version(header)),
        (Some(_), Some(_) | None) => {}
    }
    if header(headers, "mcp-method") != Some(request.method.as_str()) {
        return Err(RpcError::header(
            "mcp-method: missing, or not the method of the body",
        ));
    }
    let named = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let said = header(headers, "mcp-name").and_then(plain_name);
    let meant = request.params.get(named).and_then(Value::as_str);
    if said.is_none() || said.as_deref() != meant {
        return Err(RpcError::header(format!(
            "mcp-name: missing, or not the {named} of the body"
        )));
    }
    Ok(())
}

fn plain_name(header: &str) -> Option<String> {
    match header
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    {
        Some(sealed) => String::from_utf8(base64::decode(sealed)?).ok(),
        None => Some(header.to_owned()),
    }
}

/// The one value of a header; two are none.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok().map(str::trim),
        (None, _) | (_, Some(_)) => None,
    }
}

/// Whether a stream may be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Streams {
    Yes,
    No,
}

fn accepts_events(headers: &HeaderMap) -> Streams {
    let takes = |value: &http::HeaderValue| {
        value
            .to_str()
            .is_ok_and(|text| text.contains("text/event-stream") || text.contains("*/*"))
    };
    if headers.get_all(http::header::ACCEPT).iter().any(takes) {
        Streams::Yes
    } else {
        Streams::No
    }
}

/// A request under way, and what it says meanwhile.
struct Flow<F: Face> {
    work: Option<Work>,
    receiver: mpsc::Receiver<Value>,
    /// What is to be said next.
    ready: Vec<Value>,
    _at_work: AtWork<F>,
}

async fn reply<F: Face>(
    mut work: Work,
    mut receiver: mpsc::Receiver<Value>,
    streams: Streams,
    at_work: AtWork<F>,
) -> Reply {
    let mut ready = Vec::new();
    let quiet = tokio::time::sleep(QUIET);
    tokio::pin!(quiet);
    let mut open = true;
    let finished = loop {
        tokio::select! {
            biased;
            said = receiver.recv(), if open => match (said, streams) {
                (Some(said), Streams::Yes) => {
                    ready.push(said);
                    break None;
                }
                // Without a stream there is nowhere to say it.
                (Some(_), Streams::No) => {}
                (None, _) => open = false,
            },
            finished = &mut work => break Some(finished),
            () = &mut quiet, if streams == Streams::Yes => break None,
        }
    };
    let work = match finished {
        Some((status, message)) => {
            if streams == Streams::Yes {
                while let Ok(said) = receiver.try_recv() {
                    ready.push(said);
                }
            }
            if ready.is_empty() {
                return Reply::Plain {
                    status,
                    headers: Vec::new(),
                    body: message.to_string(),
                };
            }
            ready.push(message);
            None
        }
        None => Some(work),
    };
    ready.reverse();
    Reply::Events(Box::pin(events(Flow {
        work,
        receiver,
        ready,
        _at_work: at_work,
    })))
}

fn events<F: Face>(flow: Flow<F>) -> impl Stream<Item = Bytes> + Send {
    futures_util::stream::unfold(flow, |mut flow| async move {
        if let Some(said) = flow.ready.pop() {
            return Some((frame(&said), flow));
        }
        let work = flow.work.as_mut()?;
        tokio::select! {
            biased;
            Some(said) = flow.receiver.recv() => Some((frame(&said), flow)),
            (_, message) = work => {
                flow.work = None;
                let mut last = vec![message];
                while let Ok(said) = flow.receiver.try_recv() {
                    last.insert(1, said);
                }
                flow.ready = last;
                let next = flow.ready.pop()?;
                Some((frame(&next), flow))
            }
            () = tokio::time::sleep(PULSE) => Some((Bytes::from_static(b": still here\n\n"), flow)),
        }
    })
}

/// JSON has no line breaks of its own when it is written on one line.
fn frame(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}
