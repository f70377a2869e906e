//! HTTP/2 from the agent's client.
//!
//! **Trust:** reads the agent's frames through the HTTP library, with its limits set: streams at once, size of
//! headers, and resets before answers, each of which has been a way to exhaust a server.
use super::body::AnyBody;
use super::canonical::Parsed;
use super::forward::answer;
use super::reply::Reply;
use super::{Session, Site};
use crate::limits::{KEEP_ALIVE, MAX_HEAD};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Streams at once, as common servers have it.
const MAX_STREAMS: u32 = 100;
/// Streams that were reset before they were taken; clients give up on a few, never on many at once.
const MAX_RESET: usize = 20;
/// Bytes that wait to be sent on one stream.
const MAX_WAITING: usize = 256 * 1024;

/// Bytes of requests that may come before somebody reads them, on one connection. The client is on this machine: more
/// would only be held here.
const MAX_UNREAD: u32 = 128 * 1024;

/// Serves requests until the connection ends.
pub(super) async fn serve<S>(session: Arc<Session>, site: Site, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (session, site) = (Arc::clone(&session), site.clone());
        async move { Ok::<_, Infallible>(respond(&session, &site, request).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_RESET)
        .max_local_error_reset_streams(MAX_RESET)
        .max_send_buf_size(MAX_WAITING)
        .initial_stream_window_size(MAX_UNREAD)
        .initial_connection_window_size(MAX_UNREAD)
        .keep_alive_interval(KEEP_ALIVE);
    // How it ended is the client's affair; every request in it has its own account.
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(session: &Arc<Session>, site: &Site, request: Request<Incoming>) -> Response<AnyBody> {
    let (parts, body) = request.into_parts();
    let length = body.size_hint().exact();
    let parsed = Parsed {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        scheme: parts.uri.scheme_str().map(str::to_owned),
        authority: parts
            .uri
            .authority()
            .map(|authority| authority.as_str().to_owned()),
        headers: parts.headers,
        length,
        can_upgrade: false,
    };
    match answer(session, site, parsed, body.map_err(Into::into).boxed_unsync()).await {
        Reply::Answer(response) => response,
        // Never asked for: upgrades are refused before anything is sent.
        Reply::WebSocket { .. } => {
            let mut response = Response::new(super::body::whole(""));
            *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
            response
        }
    }
}
