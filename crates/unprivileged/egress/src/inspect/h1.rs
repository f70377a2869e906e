//! HTTP/1 from the agent's client: the strict reader on one side, answers written on the other.
//!
//! **Trust:** reads the agent's bytes through the strict parser. Request body and answer pass at the same time; a
//! request whose body was not read to its end is the last one of its connection.
use super::body::{AnyBody, Fed, Piece};
use super::canonical::Parsed;
use super::forward::answer;
use super::frames::FrameScrubber;
use super::reply::Reply;
use super::{Scheme, Session, Site, websocket};
use crate::cpu::CpuAccount;
use crate::denial::Asked;
use crate::http1::{Framing, Head, HeadError, Persist, RequestReader, Target, Version};
use crate::limits::DRAIN;
use crate::state::State;
use crate::via::Via;
use bastle_contract::Code;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// Tells a client that waits to send its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Most that is thrown away of a body that nobody wants.
const MAX_DRAINED: usize = 4 * 1024 * 1024;

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another one may.
    Again,
    /// The connection is to be closed.
    Close,
}

/// Serves the requests of a connection that was TLS.
pub(super) async fn serve<S>(session: Arc<Session>, site: Site, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (read, mut write) = tokio::io::split(stream);
    let mut reader = RequestReader::new(read);
    loop {
        let next = match reader.head().await {
            Ok(None) => Next::Close,
            Ok(Some(head)) => Box::pin(one(&session, &site, head, &mut reader, &mut write)).await,
            Err(error) => {
                refuse(&session.state, &site.via, &error, &mut write).await;
                Next::Close
            }
        };
        if next == Next::Close {
            // The client may be gone already.
            drop(write.shutdown().await);
            let mut rest = reader.get_mut().take(MAX_DRAINED as u64);
            drop(timeout(DRAIN, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await);
            return;
        }
    }
}

/// Judges and carries out one plain request of which the head was read.
pub(crate) async fn inspect_plain<R, W>(
    session: &Arc<Session>,
    via: &Via,
    head: Head,
    reader: &mut RequestReader<R>,
    writer: &mut W,
) -> Next
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let site = Site {
        via: via.clone(),
        scheme: Scheme::Http,
    };
    one(session, &site, head, reader, writer).await
}

async fn refuse<W: AsyncWrite + Unpin>(state: &State, via: &Via, error: &HeadError, writer: &mut W) {
    let code = match error {
        HeadError::Malformed(_) => Code::NetProtocol,
        HeadError::TooLarge | HeadError::Slow => Code::NetLimit,
        HeadError::Gone => return,
    };
    let denial = state
        .refuse(&Asked::connection(via), code, error.to_string())
        .await;
    let answer = denial.answer_as(error.status()).bytes(Persist::Close);
    // Whoever sent this may not wait for the answer.
    drop(writer.write_all(&answer).await);
}

async fn one<R, W>(
    session: &Arc<Session>,
    site: &Site,
    head: Head,
    reader: &mut RequestReader<R>,
    writer: &mut W,
) -> Next
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let about = About {
        keeps: head.keeps_alive(),
        version: head.version,
        head_only: head.method == Method::HEAD,
    };
    let expects = match head.headers.get(EXPECT) {
        None => Expects::Nothing,
        Some(value)
            if value.as_bytes().eq_ignore_ascii_case(b"100-continue") && head.version == Version::Http11 =>
        {
            Expects::Continue
        }
        Some(_) => {
            let asked = Asked::request(&site.via, head.method.as_str(), "");
            let denial = session
                .state
                .refuse(&asked, Code::NetProtocol, "an expectation nobody can meet")
                .await;
            drop(
                writer
                    .write_all(&denial.answer_as(417).bytes(Persist::Close))
                    .await,
            );
            return Next::Close;
        }
    };
    let length = match head.body {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked => None,
    };
    let (body, fill, wanted) = Fed::new(length);
    let parsed = parsed(head, length);
    let answering = Box::pin(answer(session, site, parsed, body.boxed_unsync()));
    let mut feeding = Feeding {
        fill: Some(fill),
        wanted,
        expects,
        malformed: false,
        cpu: Arc::clone(&session.state.cpu),
    };
    match serve_one(answering, &mut feeding, reader, writer, about).await {
        Ok(next) => next,
        // The client is gone, or the server broke off: what was sent cannot be taken back, so the connection ends.
        Err(_) => Next::Close,
    }
}

/// What the answer must know about its request.
#[derive(Clone, Copy)]
struct About {
    keeps: bool,
    version: Version,
    head_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expects {
    Nothing,
    Continue,
}

/// The request body on its way from the connection to whoever judges and sends it.
struct Feeding {
    fill: Option<mpsc::Sender<Piece>>,
    wanted: Arc<Notify>,
    expects: Expects,
    malformed: bool,
    cpu: Arc<CpuAccount>,
}

impl Feeding {
    /// Moves one piece; never returns when there is nothing to move.
    async fn step<R: AsyncRead + Unpin>(&mut self, reader: &mut RequestReader<R>) {
        let Some(fill) = self.fill.clone() else {
            return std::future::pending().await;
        };
        self.cpu.turn().await;
        // A place first: a piece that was read must not be lost when this future is dropped.
        let Ok(place) = fill.reserve().await else {
            self.fill = None;
            return;
        };
        match reader.body().await {
            Ok(Some(bytes)) => place.send(Piece::Data(bytes)),
            Ok(None) => {
                place.send(Piece::End);
                self.fill = None;
            }
            // Dropped without an end: the body counts as cut off, and the request fails.
            Err(_) => {
                self.malformed = true;
                self.fill = None;
            }
        }
    }
}

async fn serve_one<R, W>(
    mut answering: std::pin::Pin<Box<impl Future<Output = Reply>>>,
    feeding: &mut Feeding,
    reader: &mut RequestReader<R>,
    writer: &mut W,
    about: About,
) -> io::Result<Next>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let reply = loop {
        let wanted = Arc::clone(&feeding.wanted);
        let waits = feeding.expects == Expects::Continue;
        tokio::select! {
            reply = &mut answering => break reply,
            () = wanted.notified(), if waits => {
                writer.write_all(CONTINUE).await?;
                writer.flush().await?;
                feeding.expects = Expects::Nothing;
            }
            () = feeding.step(reader), if !waits => {}
        }
    };
    match reply {
        Reply::Answer(response) => write_answer(response, feeding, reader, writer, about).await,
        Reply::WebSocket {
            head,
            server,
            needles,
            ledger,
        } => {
            let mut text = status_line(head.status());
            put_fields(&mut text, head.headers());
            text.extend_from_slice(b"\r\n");
            writer.write_all(&text).await?;
            writer.flush().await?;
            let early = reader.take_buffered();
            let scrub = (!needles.is_empty()).then(|| FrameScrubber::new(needles));
            websocket::relay(reader.get_mut(), writer, early, server, scrub, &ledger).await;
            Ok(Next::Close)
        }
    }
}

/// How an answer is delimited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delimited {
    Nothing,
    Length,
    Chunks,
    Close,
}

async fn write_answer<R, W>(
    response: Response<AnyBody>,
    feeding: &mut Feeding,
    reader: &mut RequestReader<R>,
    writer: &mut W,
    about: About,
) -> io::Result<Next>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let (mut parts, mut body) = response.into_parts();
    let empty =
        about.head_only || matches!(parts.status.as_u16(), 204 | 304) || parts.status.is_informational();
    let delimited = match (empty, body.size_hint().exact(), about.version) {
        (true, _, _) => Delimited::Nothing,
        (false, Some(length), _) => {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            Delimited::Length
        }
        (false, None, Version::Http11) => {
            parts.headers.remove(CONTENT_LENGTH);
            parts
                .headers
                .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            Delimited::Chunks
        }
        (false, None, Version::Http10) => {
            parts.headers.remove(CONTENT_LENGTH);
            Delimited::Close
        }
    };
    // A body that nobody takes any more is not waited for: the next bytes of this connection are its rest.
    let taken = feeding.fill.as_ref().is_some_and(|fill| !fill.is_closed());
    let unread = !reader.body_done() && (!taken || feeding.expects == Expects::Continue);
    let keeps = about.keeps && delimited != Delimited::Close && !feeding.malformed && !unread;
    if !keeps {
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("close"));
    } else if about.version == Version::Http10 {
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    }
    let mut text = status_line(parts.status);
    put_fields(&mut text, &parts.headers);
    text.extend_from_slice(b"\r\n");
    writer.write_all(&text).await?;
    if delimited != Delimited::Nothing {
        write_body(&mut body, feeding, reader, writer, delimited).await?;
    }
    writer.flush().await?;
    let again = keeps && reader.body_done();
    if !again && !feeding.malformed && feeding.expects == Expects::Nothing {
        drain(reader).await;
    }
    Ok(if again { Next::Again } else { Next::Close })
}

/// Takes what the client still sends, so that the answer is not lost to a reset of the connection.
async fn drain<R: AsyncRead + Unpin>(reader: &mut RequestReader<R>) {
    let reading = async {
        let mut taken = 0;
        while taken < MAX_DRAINED
            && let Ok(Some(bytes)) = reader.body().await
        {
            taken += bytes.len();
        }
    };
    // Whoever has not finished by then is cut off.
    drop(timeout(DRAIN, reading).await);
}

async fn write_body<R, W>(
    body: &mut AnyBody,
    feeding: &mut Feeding,
    reader: &mut RequestReader<R>,
    writer: &mut W,
    delimited: Delimited,
) -> io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = feeding.step(reader), if feeding.expects == Expects::Nothing => continue,
        };
        let Some(frame) = frame else { break };
        // Trailers have no place here: few clients read them, and none asked.
        let data = frame.map_err(io::Error::other)?.into_data();
        if let Ok(bytes) = data {
            write_piece(writer, &bytes, delimited).await?;
        }
    }
    match delimited {
        Delimited::Chunks => writer.write_all(b"0\r\n\r\n").await,
        Delimited::Nothing | Delimited::Length | Delimited::Close => Ok(()),
    }
}

async fn write_piece<W: AsyncWrite + Unpin>(
    writer: &mut W,
    bytes: &Bytes,
    delimited: Delimited,
) -> io::Result<()> {
    match delimited {
        _ if bytes.is_empty() => return Ok(()),
        Delimited::Chunks => {
            let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
            framed.extend_from_slice(bytes);
            framed.extend_from_slice(b"\r\n");
            writer.write_all(&framed).await?;
        }
        Delimited::Length | Delimited::Close => writer.write_all(bytes).await?,
        Delimited::Nothing => {}
    }
    // Streams of events are read as they come.
    writer.flush().await
}

fn parsed(head: Head, length: Option<u64>) -> Parsed {
    let written = |authority: &crate::http1::Authority| match authority.port {
        Some(port) => format!("{}:{port}", authority.host),
        None => authority.host.clone(),
    };
    let (authority, target) = match &head.target {
        Target::Connect(authority) => (Some(written(authority)), String::new()),
        Target::Absolute { authority, path } => (Some(written(authority)), path.clone()),
        Target::Origin(path) => (None, path.clone()),
        Target::Asterisk => (None, "*".to_owned()),
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target, None),
    };
    Parsed {
        method: head.method,
        path,
        query,
        // In absolute form it is checked by the parser and, with the port, by the authority.
        scheme: None,
        authority,
        headers: head.headers,
        length,
        can_upgrade: head.version == Version::Http11,
    }
}

fn status_line(status: StatusCode) -> Vec<u8> {
    let phrase = status.canonical_reason().unwrap_or_default();
    format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes()
}

fn put_fields(text: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
}
