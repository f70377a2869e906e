//! The way to the REST operations: through the daemon's own router, or to a daemon elsewhere. Both end at the same checks.
//!
//! **Trust:** what goes in carries the caller's own token or the caller's own uid, never anybody else's.
use crate::client::{Client, Reader};
use crate::guard::{DECLARED, Peer};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use bastle_contract::{Code, Fault};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::sync::Arc;
use tower::ServiceExt;

/// Largest answer of an operation that is read: a file, at most 16 MiB, or a list.
const MOST_ANSWER: usize = 20 * 1024 * 1024;

/// Whoever asks.
#[derive(Clone)]
pub(super) enum Asker {
    /// Somebody over HTTP or the local socket, as they came.
    Web {
        /// Who was recognised: sessions belong to it. Says nothing about rights.
        id: Arc<str>,
        peer: Peer,
        host: Option<HeaderValue>,
        token: Option<HeaderValue>,
        /// That it is a program, and its role here: operations are asked with no more.
        declared: Option<HeaderValue>,
    },
    /// Whoever started the process: the client has their token.
    Pipe,
}

/// Where operations are asked for.
#[derive(Clone)]
pub(super) enum Door {
    Inside(Router),
    Far(Client),
}

/// Events as they come. Dropped, it lets go of the stream.
pub(super) struct News {
    body: Body,
    reader: Reader,
}

impl News {
    /// The next event; `None` when no more come.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(event) = self.reader.next_event() {
                if let Ok(value) = serde_json::from_str(&event.data) {
                    return Some(value);
                }
            }
            let frame = self.body.frame().await?.ok()?;
            let data = frame.into_data().unwrap_or_default();
            if !self.reader.push(&data) {
                return None;
            }
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl Rest {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
        }
    }

    pub(super) fn post(path: String, body: Value) -> Self {
        Self {
            method: Method::POST,
            path,
            body: Some(body),
        }
    }
}

impl Door {
    /// Asks for an operation that answers with JSON.
    pub(super) async fn ask(&self, asker: &Asker, rest: Rest) -> Result<Value, Vec<Fault>> {
        match self {
            Self::Inside(router) => {
                let bytes = inside(router.clone(), asker, rest).await?;
                if bytes.is_empty() {
                    return Ok(Value::Null);
                }
                serde_json::from_slice(&bytes).map_err(|error| vec![unexpected(&error.to_string())])
            }
            Self::Far(client) => {
                let client = client.clone();
                far(move || match (rest.method, rest.body) {
                    (Method::POST, body) => client.post(&rest.path, &body.unwrap_or_default()),
                    (_, _) => client.get(&rest.path),
                })
                .await
            }
        }
    }

    /// Opens a stream of events.
    pub(super) async fn follow(&self, asker: &Asker, path: &str) -> Result<News, Vec<Fault>> {
        let (status, body) = match self {
            Self::Inside(router) => passed(router.clone(), asker, Rest::get(path.to_owned())).await?,
            Self::Far(client) => client.open(path).await?,
        };
        if status.is_success() {
            return Ok(News {
                body,
                reader: Reader::default(),
            });
        }
        Err(crate::client::refusal(status, &whole(body).await?))
    }

    /// Asks for bytes.
    pub(super) async fn bytes(&self, asker: &Asker, path: String) -> Result<Vec<u8>, Vec<Fault>> {
        match self {
            Self::Inside(router) => inside(router.clone(), asker, Rest::get(path)).await,
            Self::Far(client) => {
                let client = client.clone();
                far(move || client.bytes(&path)).await
            }
        }
    }
}

async fn far<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Vec<Fault>> + Send + 'static,
) -> Result<T, Vec<Fault>> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(vec![unexpected(&error.to_string())]),
    }
}

async fn inside(router: Router, asker: &Asker, rest: Rest) -> Result<Vec<u8>, Vec<Fault>> {
    let (status, body) = passed(router, asker, rest).await?;
    let bytes = whole(body).await?;
    if status.is_success() {
        Ok(bytes)
    } else {
        Err(crate::client::refusal(status, &bytes))
    }
}

async fn whole(body: Body) -> Result<Vec<u8>, Vec<Fault>> {
    let body = Limited::new(body, MOST_ANSWER).collect().await;
    let body = body.map_err(|error| vec![unexpected(&error.to_string())])?;
    Ok(body.to_bytes().to_vec())
}

/// The answer of the daemon's own router to somebody's question.
async fn passed(router: Router, asker: &Asker, rest: Rest) -> Result<(StatusCode, Body), Vec<Fault>> {
    let Asker::Web {
        peer,
        host,
        token,
        declared,
        ..
    } = asker
    else {
        return Err(vec![unexpected("nobody asks")]);
    };
    let mut request = Request::builder().method(rest.method).uri(rest.path);
    for (name, value) in [
        (header::HOST, host),
        (header::AUTHORIZATION, token),
        (DECLARED, declared),
    ] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let body = match rest.body {
        Some(body) => {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    let mut request = request
        .body(body)
        .map_err(|error| vec![unexpected(&error.to_string())])?;
    request.extensions_mut().insert(peer.clone());
    let Ok(response) = router.oneshot(request).await;
    Ok((response.status(), response.into_body()))
}

fn unexpected(why: &str) -> Fault {
    Fault::new(Code::ApiAnswer, "the operation gave no answer that is one", why).help("bastle daemon status")
}
