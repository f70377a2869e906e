//! Workers for captains: the runs of this daemon as tools, resources and prompts of the Model Context Protocol, at `/mcp`
//! and, for `bastle mcp`, over a pair of pipes.
//!
//! **Trust:** holds no right of its own. Every tool is one operation of the REST table, asked in the caller's name through
//! the same router, checks and handlers; what a token may not do there it may not do here.
mod approval;
mod content;
mod door;
mod face;
mod fuzz;
mod prompts;
mod resources;
mod schema;
mod tools;
mod wait;

pub(crate) use fuzz::fuzz;

use crate::app::App;
use crate::client::Client;
use crate::errors::Refusal;
use crate::guard::{Need, Peer, Who, header_of};
use crate::routes::{Route, read_body};
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bastle_contract::{Code, Fault};
use bastle_control::fleet::Verb;
use bastle_mcp::{Desk, Incoming, Limits, Reply, Stdio};
use door::{Asker, Door};
use face::Workers;
use futures_util::StreamExt;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The address.
const ADDRESS: &str = "/mcp";
/// Largest message over HTTP: as large as a request for many runs.
const MOST_MESSAGE: usize = 4 * 1024 * 1024;

/// What serves `/mcp`.
#[derive(Clone)]
pub(crate) struct Mcp(Arc<Desk<Workers>>);

impl Mcp {
    /// Tools that ask this router.
    pub(crate) fn new(router: Router, app: &App) -> Result<Self, Fault> {
        let face = Workers::new(Door::Inside(router), Some(app.closing.clone()));
        desk(face).map(Self)
    }
}

fn desk(face: Workers) -> Result<Arc<Desk<Workers>>, Fault> {
    Desk::new(face, Limits::default())
        .map(Arc::new)
        .map_err(|error| Fault::new(Code::ApiInternal, "no tools can be offered", error.message))
}

/// Offers the daemon's runs over standard input and output until the input ends.
///
/// # Errors
/// When a pipe fails or no runtime can be had.
pub fn stdio(client: &Client) -> Result<(), Fault> {
    let fail = |error: std::io::Error| {
        Fault::new(Code::ApiInternal, "the conversation broke off", error.to_string())
    };
    let desk = desk(Workers::new(Door::Far(client.clone()), None))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .map_err(fail)?;
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(std::fs::File::from);
    let ends = Stdio {
        input: tokio::fs::File::from_std(own(std::io::stdin().as_fd()).map_err(fail)?),
        output: tokio::fs::File::from_std(own(std::io::stdout().as_fd()).map_err(fail)?),
    };
    let ended = runtime.block_on(bastle_mcp::converse(desk, Asker::Pipe, ends));
    // A reader of standard input cannot be waited for: it may hang in a call that nobody ends.
    runtime.shutdown_background();
    ended.map_err(fail)
}

pub(crate) fn routes() -> Vec<Route> {
    let need = Need::Within(Verb::Read);
    vec![
        Route::post(
            ADDRESS,
            need,
            "Model Context Protocol: one message; see docs/mcp.md",
            serve,
        )
        .bytes("application/json"),
        Route::delete(
            ADDRESS,
            need,
            "Model Context Protocol: end a session of an older revision",
            serve,
        ),
    ]
}

async fn serve(
    State(_): State<App>,
    Extension(Mcp(desk)): Extension<Mcp>,
    Extension(peer): Extension<Peer>,
    Who(caller, _): Who,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let body = read_body(&parts.headers, body, MOST_MESSAGE).await?;
    let incoming = Incoming {
        method: parts.method,
        caller: Asker::Web {
            declared: header_of("mcp", &caller),
            id: caller.id.into(),
            peer,
            host: parts.headers.get(header::HOST).cloned(),
            token: parts.headers.get(header::AUTHORIZATION).cloned(),
        },
        headers: parts.headers,
        body,
    };
    Ok(respond(bastle_mcp::answer(desk, incoming).await))
}

fn respond(reply: Reply) -> Response {
    match reply {
        Reply::Plain {
            status,
            headers,
            body,
        } => {
            let empty = body.is_empty();
            let mut response = Response::new(Body::from(body));
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if !empty {
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
            }
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::try_from(value) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
        Reply::Events(events) => {
            let mut response = Response::new(Body::from_stream(events.map(Ok::<_, Infallible>)));
            let headers = response.headers_mut();
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/event-stream"),
            );
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            response
        }
    }
}
