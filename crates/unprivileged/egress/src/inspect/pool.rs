//! Connections to the servers of one client connection, kept between its requests.
//!
//! **Trust:** made only for a name and a table that allowed them; a new table makes new ones, so that every address
//! is checked by the rules in force.
use super::body::AnyBody;
use super::{Scheme, Session, Site};
use crate::dial::{self, Purpose, Refused};
use crate::limits::{DIAL_DEADLINE, MAX_HEAD};
use crate::state::Generation;
use crate::stream::{Client, Paced};
use crate::tls::{self, Protocols};
use bastle_contract::Code;
use bastle_policy::Host;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Most idle HTTP/1 connections kept for one client connection.
const MAX_IDLE: usize = 8;
/// Most headers of a response; servers send a few dozen.
const MAX_RESPONSE_HEADERS: usize = 256;

/// Bytes of an HTTP/1 response that are read before the client takes them.
const MAX_UNREAD_ONE: usize = 128 * 1024;
/// The same for HTTP/2, where it also bounds the speed over a distance: a mebibyte in a round trip.
const MAX_UNREAD_TWO: u32 = 1024 * 1024;

/// Connections at rest.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Line>>,
    /// One dials at a time, so that streams that come together share one HTTP/2 connection.
    opening: tokio::sync::Mutex<()>,
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Line {
    sender: Sender,
    host: Host,
    port: u16,
    generation: u64,
    /// Where it was dialled.
    pub(super) address: Option<IpAddr>,
    /// Whether requests must name the whole address.
    pub(super) absolute_form: bool,
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<AnyBody>),
    Two(http2::SendRequest<AnyBody>),
}

/// Gives a connection back when its response is over.
pub(super) struct Return {
    session: Arc<Session>,
    line: Line,
}

/// How a request failed.
pub(super) enum SendError {
    /// It was not sent at all; here it is again.
    Unsent(Box<Request<AnyBody>>),
    /// It may have been.
    Failed(String),
}

impl Return {
    pub(super) fn new(session: Arc<Session>, line: Line) -> Self {
        Self { session, line }
    }

    /// The response is over.
    pub(super) fn now(self) {
        self.session.pool.keep(self.line);
    }
}

impl Pool {
    /// A connection for `site`: one at rest, else a new one.
    pub(super) async fn line(
        &self,
        session: &Session,
        site: &Site,
        generation: &Generation,
        protocols: Protocols,
    ) -> Result<Line, Refused> {
        if protocols == Protocols::Http1 {
            return open(session, site, generation, protocols).await;
        }
        if let Some(line) = self.rested(site, generation.number) {
            return Ok(line);
        }
        let _turn = self.opening.lock().await;
        if let Some(line) = self.rested(site, generation.number) {
            return Ok(line);
        }
        let line = open(session, site, generation, protocols).await?;
        // An HTTP/2 connection serves many at once: others may use it from now on.
        if let Some(shared) = line.share() {
            self.keep(shared);
        }
        Ok(line)
    }

    fn rested(&self, site: &Site, generation: u64) -> Option<Line> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|line| line.generation == generation && line.is_open());
        let at = idle
            .iter()
            .position(|line| line.host == site.via.host && line.port == site.via.port)?;
        match idle.get(at).and_then(Line::share) {
            Some(shared) => Some(shared),
            None => Some(idle.swap_remove(at)),
        }
    }

    fn keep(&self, line: Line) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match line.sender {
            Sender::One(_) => false,
            Sender::Two(_) => idle
                .iter()
                .any(|other| other.host == line.host && other.port == line.port),
        };
        if !known && line.is_open() && idle.len() < MAX_IDLE {
            idle.push(line);
        }
    }
}

impl Line {
    fn is_open(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => !sender.is_closed(),
            Sender::Two(sender) => !sender.is_closed(),
        }
    }

    fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Two(sender) => Some(Self {
                sender: Sender::Two(sender.clone()),
                host: self.host.clone(),
                ..*self
            }),
        }
    }

    /// Whether the server speaks HTTP/2 here.
    pub(super) fn is_h2(&self) -> bool {
        matches!(self.sender, Sender::Two(_))
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(&mut self, request: Request<AnyBody>) -> Result<Response<Incoming>, SendError> {
        let outcome = match &mut self.sender {
            Sender::One(sender) => {
                if sender.ready().await.is_err() {
                    return Err(SendError::Unsent(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
            Sender::Two(sender) => {
                if sender.ready().await.is_err() {
                    return Err(SendError::Unsent(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
        };
        outcome.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None => SendError::Failed(chain(error.error())),
        })
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

async fn open(
    session: &Session,
    site: &Site,
    generation: &Generation,
    protocols: Protocols,
) -> Result<Line, Refused> {
    let purpose = match site.scheme {
        Scheme::Http => Purpose::Plain,
        Scheme::Https => Purpose::Tunnel,
    };
    let upstream = dial::open(&session.state, generation, &site.via, purpose).await?;
    let failed = |why: String| {
        Refused::new(
            Code::NetUpstream,
            format!("the server could not be spoken to: {why}"),
        )
    };
    let stream = Paced::new(
        Client::new(upstream.stream, upstream.early),
        Arc::clone(&session.state.cpu),
    );
    let sender = match site.scheme {
        Scheme::Http => one(stream).await.map_err(failed)?,
        Scheme::Https => {
            let handshake = timeout(DIAL_DEADLINE, tls::connect(&site.via.host, protocols, stream));
            let (stream, h2) = match handshake.await {
                Ok(outcome) => outcome.map_err(failed)?,
                Err(_) => return Err(failed("the TLS handshake did not finish in time".to_owned())),
            };
            if h2 {
                two(stream).await.map_err(failed)?
            } else {
                one(stream).await.map_err(failed)?
            }
        }
    };
    Ok(Line {
        sender,
        host: site.via.host.clone(),
        port: site.via.port,
        generation: generation.number,
        address: upstream.address,
        absolute_form: upstream.absolute_form,
    })
}

async fn one<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .max_headers(MAX_RESPONSE_HEADERS)
        .max_buf_size(MAX_UNREAD_ONE);
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| chain(&e))?;
    // It ends with its sender; how it ended is told to whoever waits for a response.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(Sender::One(sender))
}

async fn two<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .initial_stream_window_size(MAX_UNREAD_TWO)
        .initial_connection_window_size(MAX_UNREAD_TWO);
    let (sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| chain(&e))?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(Sender::Two(sender))
}
