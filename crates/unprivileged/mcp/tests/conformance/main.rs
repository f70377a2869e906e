//! The protocol's own conformance suite against our desk and our HTTP, with the fixtures it expects.
//!
//! Every scenario that a revision requires must pass; what the suite runs besides (extensions, pending ones) is not
//! counted, as the suite itself does not.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod fixtures;
#[path = "../../../../../tests/mcp/suite.rs"]
mod suite;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bastle_mcp::{Desk, Incoming, Limits, Reply, answer};
use fixtures::Fixtures;
use futures_util::StreamExt;
use std::convert::Infallible;
use std::sync::Arc;

type Shared = (Arc<Desk<Fixtures>>, String);

#[test]
fn every_scenario_that_a_revision_requires_passes() {
    let suite = match suite::installed() {
        Ok(suite) => suite,
        Err(why) => return skip("every_scenario_that_a_revision_requires_passes", &why),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let desk = Desk::new(Fixtures::default(), Limits::default()).unwrap();
    let router = Router::new()
        .fallback(serve)
        .with_state((Arc::new(desk), format!(":{port}")));
    runtime.spawn(std::future::IntoFuture::into_future(axum::serve(
        listener, router,
    )));
    let url = format!("http://127.0.0.1:{port}/mcp");
    for revision in ["2026-07-28", "2025-11-25"] {
        let results = std::env::temp_dir().join(format!("bastle-mcp-{}-{revision}", std::process::id()));
        let mut command = suite.against(&url, &["--requirements", revision, "-o"]);
        let ended = command.arg(&results).output().unwrap();
        drop(std::fs::remove_dir_all(&results));
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{revision}: {said}\n{errors}");
        assert!(
            said.contains("tools-call-with-progress: 2 passed, 0 failed"),
            "{said}"
        );
    }
}

/// Counted as skipped, not as passed.
fn skip(test: &str, reason: &str) {
    use std::io::Write;
    eprintln!("skipped: {test}: {reason}");
    if let Some(list) = std::env::var_os("BASTLE_SKIPS") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(list)
            .unwrap();
        // A line is a test, written at once: other tests append to the same file.
        let line = format!("{test}: {}\n", reason.trim().replace('\n', "; "));
        file.write_all(line.as_bytes()).unwrap();
    }
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
