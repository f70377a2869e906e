//! The server of the protocol's conformance suite: its fixtures on our own desk and our own HTTP.
//!
//! For tests only. Listens on a free port of this machine, prints the address, and serves until its input ends.
#![forbid(unsafe_code)]

mod fixtures;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bastle_mcp::{Desk, Incoming, Limits, Reply, answer};
use fixtures::Fixtures;
use futures_util::StreamExt;
use std::convert::Infallible;
use std::io::Read;
use std::sync::Arc;

type Shared = (Arc<Desk<Fixtures>>, String);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let desk = Desk::new(Fixtures::default(), Limits::default()).map_err(|error| error.message)?;
        let router = Router::new()
            .fallback(serve)
            .with_state((Arc::new(desk), format!(":{port}")));
        println!("http://127.0.0.1:{port}/mcp");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            served = std::future::IntoFuture::into_future(axum::serve(listener, router)) => served?,
            read = ended => drop(read??),
        }
        Ok(())
    })
}

/// Whether a name is one of this server's; what the daemon's own admission does for `/mcp`.
fn own(name: &str, port: &str) -> bool {
    let host = name.strip_prefix("http://").unwrap_or(name);
    ["127.0.0.1", "localhost"]
        .iter()
        .any(|own| host.strip_prefix(own) == Some(port))
}

async fn serve(State((desk, port)): State<Shared>, request: Request) -> Response {
    for name in [header::HOST, header::ORIGIN] {
        let foreign = request
            .headers()
            .get_all(&name)
            .iter()
            .any(|value| !value.to_str().is_ok_and(|value| own(value, &port)));
        if foreign {
            return axum::http::StatusCode::FORBIDDEN.into_response();
        }
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, 1 << 20).await else {
        return axum::http::StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let incoming = Incoming {
        method: parts.method,
        headers: parts.headers,
        body,
        caller: (),
    };
    match answer(desk, incoming).await {
        Reply::Plain {
            status,
            headers,
            body,
        } => {
            let mut response = Response::builder().status(status);
            if !body.is_empty() {
                response = response.header(header::CONTENT_TYPE, "application/json");
            }
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response
                .body(Body::from(body))
                .unwrap_or_else(|_| axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
        Reply::Events(events) => (
            [(header::CONTENT_TYPE, "text/event-stream")],
            Body::from_stream(events.map(Ok::<_, Infallible>)),
        )
            .into_response(),
    }
}
