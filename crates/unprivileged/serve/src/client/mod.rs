//! The client of the daemon: plain calls that wait, over the local socket, HTTP or HTTPS.
//!
//! **Trust:** the daemon is the user's own, but its answers are bounded and parsed strictly all the same. The token goes
//! in a header only, never in an address.
mod sse;
mod target;
mod tunnel;

pub(crate) use sse::Reader;
pub use sse::{Events, SseEvent, Waited};
pub use target::Target;
pub(crate) use target::io;

use crate::guard::DECLARED;
use bastle_contract::{Code, Fault};
use bastle_control::fleet::Declared;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Largest answer that is read at once.
const MOST_ANSWER: usize = 64 * 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon that can be asked.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    token: Option<HeaderValue>,
    declared: Option<HeaderValue>,
    runtime: Runtime,
}

/// The body of a refusal. Fields that this version does not know are passed over.
#[derive(Debug, Deserialize)]
struct Problem {
    code: Option<Code>,
    title: Option<String>,
    detail: Option<String>,
    #[serde(default)]
    help: Vec<String>,
    #[serde(default)]
    faults: Vec<Fault>,
}

impl Client {
    /// A client of the daemon at `target`. Connects at the first call.
    ///
    /// # Errors
    /// When the token cannot stand in a header, or no runtime can be had.
    pub fn connect(target: Target, token: Option<&str>) -> Result<Self, Fault> {
        Self::connect_as(target, token, None)
    }

    /// The same for a program that says so with every request: the daemon gives it no more than it declares.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub fn connect_as(
        target: Target,
        token: Option<&str>,
        declared: Option<&Declared>,
    ) -> Result<Self, Fault> {
        let declared = declared
            .map(|declared| HeaderValue::try_from(declared.to_string()))
            .transpose()
            .map_err(|error| {
                Fault::new(
                    Code::UsageArgument,
                    "unusable name of a program",
                    error.to_string(),
                )
            })?;
        let token = token
            .map(|token| {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
                    Fault::new(
                        Code::UsageArgument,
                        "the token is no token",
                        "it has characters that none has",
                    )
                })?;
                value.set_sensitive(true);
                Ok::<_, Fault>(value)
            })
            .transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                Fault::new(
                    Code::ApiUnreachable,
                    "no runtime for the client",
                    error.to_string(),
                )
            })?;
        Ok(Self {
            inner: Arc::new(Inner {
                target,
                token,
                declared,
                runtime,
            }),
        })
    }

    /// Where the daemon is.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// Reads something, e.g. `/api/v1/runs?state=running`.
    ///
    /// # Errors
    /// The daemon's refusals, or that it cannot be reached.
    pub fn get(&self, path: &str) -> Result<Value, Vec<Fault>> {
        self.call(Method::GET, path, None)
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Vec<Fault>> {
        self.call(Method::POST, path, Some(body))
    }

    /// Puts something in its place.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn put(&self, path: &str, body: &Value) -> Result<Value, Vec<Fault>> {
        self.call(Method::PUT, path, Some(body))
    }

    /// Removes something.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<Value, Vec<Fault>> {
        self.call(Method::DELETE, path, None)
    }

    /// Bytes as they are, e.g. of a file: at most 64 MiB.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, Vec<Fault>> {
        self.inner.runtime.block_on(async {
            let wait = async {
                let response = self.inner.send(Method::GET, path, None).await.map_err(one)?;
                let (status, body) = whole(response).await.map_err(one)?;
                if status.is_success() {
                    Ok(body.to_vec())
                } else {
                    Err(refusal(status, &body))
                }
            };
            tokio::time::timeout(PATIENCE, wait)
                .await
                .unwrap_or_else(|_| Err(one(late(&self.inner.target))))
        })
    }

    /// Events as they come: an address that answers with server-sent events.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn stream(&self, path: &str) -> Result<Events, Vec<Fault>> {
        let response = self.inner.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, async {
                let response = self.inner.send(Method::GET, path, None).await.map_err(one)?;
                if response.status().is_success() {
                    return Ok(response);
                }
                let (status, body) = whole(response).await.map_err(one)?;
                Err(refusal(status, &body))
            })
            .await
            .unwrap_or_else(|_| Err(one(late(&self.inner.target))))
        })?;
        Ok(Events::new(self.clone(), response))
    }

    /// An answer as it comes, within the runtime of whoever asks. Dropped, it ends.
    pub(crate) async fn open(&self, path: &str) -> Result<(StatusCode, axum::body::Body), Vec<Fault>> {
        let sent = tokio::time::timeout(PATIENCE, self.inner.send(Method::GET, path, None)).await;
        let response = sent.map_err(|_| one(late(&self.inner.target)))?.map_err(one)?;
        Ok((response.status(), axum::body::Body::new(response.into_body())))
    }

    /// A stream of frames (`bastle_contract::stream`) as a socket: an address that is a WebSocket of such frames, e.g.
    /// `/api/v1/runs/NAME/attach?since=0`. `first` is sent before anything else, where the address wants words. What is
    /// written to the socket goes to the run; it ends when the daemon closes.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn websocket(&self, path: &str, first: Option<&Value>) -> Result<UnixStream, Vec<Fault>> {
        let identity = [
            (header::AUTHORIZATION, self.inner.token.as_ref()),
            (DECLARED, self.inner.declared.as_ref()),
        ];
        tunnel::open(&self.inner.target, &identity, path, first)
    }

    fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Vec<Fault>> {
        self.inner.runtime.block_on(async {
            let wait = async {
                let response = self.inner.send(method, path, body).await.map_err(one)?;
                let (status, body) = whole(response).await.map_err(one)?;
                if !status.is_success() {
                    return Err(refusal(status, &body));
                }
                if body.is_empty() {
                    return Ok(Value::Null);
                }
                serde_json::from_slice(&body).map_err(|error| one(unexpected(&error.to_string())))
            };
            tokio::time::timeout(PATIENCE, wait)
                .await
                .unwrap_or_else(|_| Err(one(late(&self.inner.target))))
        })
    }
}

impl Inner {
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Fault> {
        let stream = self.target.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(target::io(stream))
            .await
            .map_err(|error| unexpected(&error.to_string()))?;
        // It ends with the answer; what it could report, the answer reports.
        drop(tokio::spawn(connection));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.target.host())
            .header(header::ACCEPT, "application/json, text/event-stream");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.clone());
        }
        if let Some(declared) = &self.declared {
            request = request.header(DECLARED, declared.clone());
        }
        let bytes = match body {
            Some(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(value.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(bytes)).map_err(|error| {
            Fault::new(
                Code::UsageArgument,
                "the request cannot be written",
                error.to_string(),
            )
        })?;
        sender
            .send_request(request)
            .await
            .map_err(|error| unexpected(&error.to_string()))
    }
}

async fn whole(response: Response<Incoming>) -> Result<(StatusCode, Bytes), Fault> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MOST_ANSWER)
        .collect()
        .await
        .map_err(|error| unexpected(&error.to_string()))?;
    Ok((status, body.to_bytes()))
}

/// What the daemon refused, as faults.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Vec<Fault> {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return one(unexpected(&format!("status {status} without a reason")));
    };
    if !problem.faults.is_empty() {
        return problem.faults;
    }
    let what = problem
        .detail
        .or(problem.title)
        .unwrap_or_else(|| format!("the daemon answered {status}"));
    let mut fault = Fault::new(problem.code.unwrap_or(Code::ApiAnswer), what, "");
    fault.help = problem.help;
    one(fault)
}

fn one(fault: Fault) -> Vec<Fault> {
    vec![fault]
}

fn unexpected(why: &str) -> Fault {
    Fault::new(Code::ApiAnswer, "the answer is not a daemon's", why).help("bastle daemon status")
}

fn late(target: &Target) -> Fault {
    target::unreachable(&target.to_string(), "it did not answer in time")
}
