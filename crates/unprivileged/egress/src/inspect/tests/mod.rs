//! Requests through a whole egress, against real TLS servers on loopback, with real clients.
mod attacks;
mod background;
mod bodies;
mod budgets;
mod credentials;
mod disguises;
mod git;
mod passing;
mod readings;
mod scrubbing;

use crate::budget::Attendance;
use crate::testing::{Egress, egress_asking, table_of};
use crate::tls::{H2, HTTP11, testing};
use bastle_policy::NetPolicy;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Name of the server in these tests.
const NAME: &str = "api.example";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    One,
    Two,
}

impl Speaks {
    fn offered(self) -> Vec<&'static [u8]> {
        match self {
            Self::One => vec![HTTP11],
            Self::Two => vec![H2],
        }
    }
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    uri: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A TLS server that answers with what `answer` makes of each request.
struct Origin {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicU32>,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>;

fn text(body: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(body.into()).boxed_unsync())
}

async fn origin<F>(speaks: Speaks, answer: F) -> Origin
where
    F: Fn(&Seen) -> Answer + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(testing::server(NAME, &speaks.offered()));
    let (seen, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
    let (all, count) = (Arc::clone(&seen), Arc::clone(&connections));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, all, count, answer) =
                (acceptor.clone(), all.clone(), count.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let service = service_fn(move |request: Request<Incoming>| {
                    let (all, answer) = (all.clone(), answer.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let Ok(body) = body.collect().await else {
                            return Ok(text("cut off"));
                        };
                        let seen = Seen {
                            method: parts.method.to_string(),
                            uri: parts.uri.to_string(),
                            headers: parts.headers,
                            body: body.to_bytes(),
                        };
                        let response = answer(&seen);
                        all.lock().unwrap().push(seen);
                        Ok::<_, Infallible>(response)
                    }
                });
                let io = TokioIo::new(stream);
                match speaks {
                    Speaks::One => drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(io, service)
                            .await,
                    ),
                    Speaks::Two => drop(
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(io, service)
                            .await,
                    ),
                }
            });
        }
    });
    Origin {
        port,
        seen,
        connections,
    }
}

impl Origin {
    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// An egress with these sections, in which `PORT` is the server's port.
async fn egress_for(port: u16, sections: &str) -> Egress {
    egress_asking(table(port, sections), Attendance::Unattended, false).await
}

/// The same with a person who says yes.
async fn egress_with_a_person(port: u16, sections: &str) -> Egress {
    egress_asking(table(port, sections), Attendance::Attended, true).await
}

fn table(port: u16, sections: &str) -> NetPolicy {
    let hosts = [(NAME, "127.0.0.1"), ("other.example", "127.0.0.1")];
    table_of(&sections.replace("PORT", &port.to_string()), &hosts)
}

/// The `net` section with these rules.
fn net(rules: &str) -> String {
    format!(r#""net": {{"allow": [{rules}], "addresses": ["127.0.0.1/32"]}}"#)
}

/// A tunnel to `name`, with TLS inside that names `sni` and trusts only the run's authority.
async fn tls(
    egress: &Egress,
    name: &str,
    sni: &str,
    port: u16,
    speaks: Speaks,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = egress.tunnel(&format!("{name}:{port}")).await;
    let pem = egress.state.authority.as_ref().unwrap().pem();
    let connector = TlsConnector::from(testing::client(pem, &speaks.offered()));
    connector
        .connect(ServerName::try_from(sni.to_owned()).unwrap(), stream)
        .await
}

/// What came back.
#[derive(Debug)]
struct Got {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Got {
    fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends one request through a tunnel of its own.
async fn ask(egress: &Egress, port: u16, speaks: Speaks, request: Request<Full<Bytes>>) -> Got {
    let stream = tls(egress, NAME, NAME, port, speaks).await.unwrap();
    let io = TokioIo::new(stream);
    let response = match speaks {
        Speaks::One => {
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
        Speaks::Two => {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    };
    let (parts, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    Got {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// A request with the right names for either version.
fn request(speaks: Speaks, method: &str, port: u16, path: &str, body: &str) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method);
    let builder = match speaks {
        Speaks::One => builder.uri(path).header("host", format!("{NAME}:{port}")),
        Speaks::Two => builder.uri(format!("https://{NAME}:{port}{path}")),
    };
    builder.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

/// Writes raw bytes into a tunnel's TLS and reads until it is closed, or until nothing more comes.
async fn raw(egress: &Egress, port: u16, bytes: &[u8]) -> String {
    use tokio::io::AsyncWriteExt;
    let mut stream = tls(egress, NAME, NAME, port, Speaks::One).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    crate::testing::read_all(&mut stream).await
}
