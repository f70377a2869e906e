//! The binding HTTP+JSON: addresses and methods of HTTP for the same calls.
use super::asked::Params;
use super::calls::{At, Call, Done, Op, extensions, perform, version};
use super::card;
use super::stream::{Step, TaskStream};
use super::wrong::{Kind, Wrong};
use crate::app::App;
use crate::errors::Refusal;
use crate::guard::Who;
use crate::json;
use crate::routes::extract::bytes_of;
use axum::body::Body;
use axum::extract::{Query, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use bastle_control::fleet::Verb;
use bytes::Bytes;
use serde_json::{Value, json};
use std::convert::Infallible;

/// Largest body.
pub(super) const MOST_BODY: usize = 1024 * 1024;
const OWN: &str = "application/a2a+json";
const JSON: &str = "application/json";

/// What `GET /tasks/…` asks for.
pub(super) fn reading(task: &str) -> Option<Op> {
    Some(if task.ends_with(":subscribe") {
        Op::Subscribe
    } else {
        Op::Get
    })
}

/// What `POST /tasks/…` asks for.
pub(super) fn acting(task: &str) -> Option<Op> {
    match task.rsplit_once(':')?.1 {
        "cancel" => Some(Op::Cancel),
        "subscribe" => Some(Op::Subscribe),
        _ => None,
    }
}

/// One call.
pub(super) async fn serve(
    which: fn(&str) -> Option<Op>,
    (State(app), who): (State<App>, Who),
    path: RawPathParams,
    request: Request,
) -> Response<Body> {
    let media = media(request.headers());
    let extensions = extensions(request.headers());
    let mut response = match call(which, app, who, &path, request).await {
        Ok(Done::Value(value)) => told(StatusCode::OK, media, &value),
        Ok(Done::Stream(stream)) => streamed(*stream, None),
        Err(wrong) => refused(media, &wrong),
    };
    tell_extensions(&mut response, extensions);
    response
}

pub(super) fn tell_extensions(response: &mut Response<Body>, extensions: Option<String>) {
    if let Some(value) = extensions.and_then(|all| HeaderValue::from_str(&all).ok()) {
        response.headers_mut().insert("a2a-extensions", value);
    }
}

async fn call(
    which: fn(&str) -> Option<Op>,
    app: App,
    who: Who,
    path: &RawPathParams,
    request: Request,
) -> Result<Done, Wrong> {
    version(request.headers(), request.uri())?;
    let named = |wanted: &str| {
        path.iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    let task = named("task").unwrap_or_default();
    let op = which(task).ok_or_else(|| Wrong::new(Kind::Method, "nothing of that name is done to a task"))?;
    let call = caller(app, who, named("run"), request.headers()).await?;
    let mut params = query(request.uri())?;
    if request.method() == Method::POST {
        let (parts, body) = request.into_parts();
        let bytes = bytes_of(body, MOST_BODY)
            .await
            .map_err(|refusal: Refusal| call.wrong(&refusal))?;
        if !bytes.is_empty() {
            is_json(&parts.headers)?;
            match json::value(&bytes).map_err(|wrong| Wrong::new(Kind::Parse, wrong.to_string()))? {
                Value::Object(members) => params.extend(members),
                _ => return Err(Wrong::new(Kind::Request, "the body is no object")),
            }
        }
    }
    if let Some(tenant) = named("tenant") {
        params.insert("tenant".to_owned(), json!(tenant));
    }
    let task = task.rsplit_once(':').map_or(task, |(task, _)| task);
    match op {
        Op::Get | Op::Cancel | Op::Subscribe => {
            params.insert("id".to_owned(), json!(task));
        }
        Op::PushCreate | Op::PushGet | Op::PushList | Op::PushDelete => {
            params.insert("taskId".to_owned(), json!(task));
            if let Some(config) = named("config") {
                params.insert("id".to_owned(), json!(config));
            }
        }
        Op::Send | Op::Stream | Op::List | Op::Card => {}
    }
    perform(call, op, params).await
}

/// Who calls whom.
pub(super) async fn caller(
    app: App,
    who: Who,
    run: Option<&str>,
    headers: &HeaderMap,
) -> Result<Call, Wrong> {
    let mut call = Call {
        base: card::base(&app, headers),
        app,
        who,
        at: At::Door,
    };
    if let Some(run) = run {
        call.at = At::Worker(call.run(Verb::Read, run).await?);
    }
    Ok(call)
}

/// Parameters of the address.
pub(super) fn query(uri: &Uri) -> Result<Params, Wrong> {
    let all = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| Wrong::new(Kind::Request, "the parameters of the address cannot be read"))?;
    let mut params = Params::new();
    for (name, value) in all.0 {
        if name.eq_ignore_ascii_case("a2a-version") {
            continue;
        }
        if params.insert(name.clone(), json!(value)).is_some() {
            return Err(Wrong::field(crate::dto::plain(&name), "is there twice"));
        }
    }
    Ok(params)
}

/// Whether a body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Wrong> {
    match content_type(headers).as_str() {
        OWN | JSON => Ok(()),
        _ => Err(Wrong::new(
            Kind::ContentType,
            format!("content-type: {OWN} or {JSON}"),
        )),
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    given
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// The answer is of the type of the question; of what is accepted; else of the protocol's own type.
fn media(headers: &HeaderMap) -> &'static str {
    match content_type(headers).as_str() {
        JSON => return JSON,
        OWN => return OWN,
        _ => {}
    }
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if accepts.contains(JSON) && !accepts.contains(OWN) {
        JSON
    } else {
        OWN
    }
}

pub(super) fn told(status: StatusCode, media: &'static str, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A refusal.
pub(super) fn refused(media: &'static str, wrong: &Wrong) -> Response<Body> {
    told(wrong.kind.status(), media, &wrong.rest())
}

/// Events as server-sent events; for JSON-RPC each in an answer to the id of the call.
pub(super) fn streamed(stream: TaskStream, id: Option<Value>) -> Response<Body> {
    let events = futures_util::stream::unfold((stream, id), |(mut stream, id)| async move {
        let frame = match stream.next().await {
            Step::Told(seq, value) => {
                let value = match &id {
                    Some(id) => json!({ "jsonrpc": "2.0", "id": id, "result": value }),
                    None => value,
                };
                Bytes::from(format!("id: {seq}\ndata: {value}\n\n"))
            }
            Step::Quiet => Bytes::from_static(b": still here\n\n"),
            Step::Over => return None,
        };
        Some((Ok::<_, Infallible>(frame), (stream, id)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
