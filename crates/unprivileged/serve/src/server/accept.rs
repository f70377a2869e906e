//! Accepting connections and serving them, each with deadlines for every part that a peer could draw out.
use super::crowd::{Crowd, Place};
use super::paced::{Paced, STALL};
use crate::guard::Peer;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tower::ServiceExt;

/// How long a peer may take for the head of a request, and stay idle between two.
const HEAD: Duration = Duration::from_secs(15);
/// How long a peer may take for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Largest head.
const MOST_HEAD: usize = 32 * 1024;
/// How long to wait where the system has no descriptor left.
const BREATH: Duration = Duration::from_millis(50);

/// What a listener needs to serve.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) crowd: Arc<Crowd>,
    pub(super) tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    pub(super) closing: watch::Receiver<bool>,
}

/// Serves an address until the daemon ends.
pub(super) async fn network(listener: TcpListener, serving: Serving) {
    let mut closing = serving.closing.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let Some(place) = serving.crowd.enter() else {
            continue;
        };
        let serving = serving.clone();
        let peer = Peer::Network(address.ip().to_canonical());
        tokio::spawn(async move {
            // Small answers go out at once; where that cannot be set they go out a little later.
            drop(stream.set_nodelay(true));
            match serving.tls.as_ref().map(|tls| Arc::clone(&tls.borrow())) {
                None => serve(stream, peer, place, serving).await,
                Some(config) => {
                    let acceptor = tokio_rustls::TlsAcceptor::from(config);
                    let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        serve(stream, peer, place, serving).await;
                    }
                }
            }
        });
    }
}

/// Serves the local socket until the daemon ends.
pub(super) async fn local(listener: UnixListener, serving: Serving) {
    let mut closing = serving.closing.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        // One whose user the kernel does not tell is nobody.
        let Ok(credentials) = stream.peer_cred() else {
            continue;
        };
        let Some(place) = serving.crowd.enter() else {
            continue;
        };
        let peer = Peer::Local(credentials.uid());
        tokio::spawn(serve(stream, peer, place, serving.clone()));
    }
}

async fn serve<S>(stream: S, peer: Peer, place: Place, serving: Serving)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let member = Arc::clone(&place.member);
    let router = serving.router.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let busy = member.work();
        let router = router.clone();
        let peer = peer.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let response = router.oneshot(request).await?;
            // The connection is at work until the last byte of the answer is on its way.
            Ok::<_, Infallible>(response.map(|body| {
                use http_body_util::BodyExt;
                Body::new(body.map_frame(move |frame| {
                    let _at_work = &busy;
                    frame
                }))
            }))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MOST_HEAD)
        .max_headers(64)
        .half_close(false)
        .serve_connection(TokioIo::new(Paced::new(stream, STALL)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut closing = serving.closing.clone();
    tokio::select! {
        // What a peer did wrong is its own affair.
        _ = connection.as_mut() => return,
        () = place.member.leave.notified() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    // The daemon bounds how long it waits for this.
    drop(connection.await);
}
