//! The HTTP proxy face: CONNECT and absolute-form, and plain HTTP inside tunnels.
//!
//! **Trust:** reads the agent's bytes through the strict parser; each request is judged by itself.
use crate::accept::Handshake;
use crate::carry::{admit, finish};
use crate::denial::{Asked, Denial};
use crate::http1::{Authority, Head, HeadError, Persist, RequestReader, Target};
use crate::inspect::{self, Next, Session};
use crate::local;
use crate::state::State;
use crate::stream::Client;
use crate::tunnel::Place;
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::{Face, LOCAL_NAME};
use bastle_policy::Host;
use bytes::Bytes;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The answer to a CONNECT that is let through.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

type Reader = RequestReader<OwnedReadHalf>;

/// Serves one client of the proxy.
pub(crate) async fn serve(state: Arc<State>, stream: TcpStream, handshake: Handshake) {
    let (read, mut write) = stream.into_split();
    let mut reader = RequestReader::new(read);
    let first = reader.head().await;
    let Some(place) = state.tunnels.place() else {
        let asked = Asked::raw(Face::Http, "-", 0);
        let denial = state
            .refuse(&asked, Code::NetLimit, "too many connections at once")
            .await;
        return end(reader, write, &denial.http1(Persist::Close)).await;
    };
    drop(handshake);
    let session = Session::new(Arc::clone(&state));
    let mut next = first;
    loop {
        match next {
            Ok(None) => return,
            Err(error) => return refuse_head(&state, Face::Http, "-", reader, write, &error).await,
            Ok(Some(head)) => {
                if let Target::Connect(authority) = &head.target {
                    let authority = authority.clone();
                    return connect(state, &authority, reader, write, place).await;
                }
                match proxied((&state, &session), head, &mut reader, &mut write).await {
                    Step::Again => {}
                    Step::Close => return,
                    Step::Refused(answer) => return end(reader, write, &answer).await,
                }
            }
        }
        next = reader.head().await;
    }
}

/// What follows a request.
enum Step {
    Again,
    Close,
    /// This answer, then the end.
    Refused(Vec<u8>),
}

/// Serves the plain requests inside a tunnel to `via`, whose Host must be that of the tunnel.
pub(crate) async fn requests_inside(state: &Arc<State>, via: &Via, stream: TcpStream, early: Bytes) {
    let (read, mut write) = stream.into_split();
    let mut reader = RequestReader::with_prefix(read, &early);
    drop(early);
    let session = Session::new(Arc::clone(state));
    loop {
        let head = match reader.head().await {
            Ok(None) => return,
            Err(error) => {
                return refuse_head(state, via.face, via.host.as_str(), reader, write, &error).await;
            }
            Ok(Some(head)) => head,
        };
        match inside((state, &session), via, head, &mut reader, &mut write).await {
            Step::Again => {}
            Step::Close => return,
            Step::Refused(answer) => return end(reader, write, &answer).await,
        }
    }
}

async fn inside(
    (state, session): (&Arc<State>, &Arc<Session>),
    via: &Via,
    head: Head,
    reader: &mut Reader,
    write: &mut OwnedWriteHalf,
) -> Step {
    let named = match (&head.target, &head.host) {
        (Target::Absolute { authority, .. }, _) => Some(authority),
        (Target::Origin(_) | Target::Asterisk, host) => host.as_ref(),
        (Target::Connect(_), _) => {
            let asked = Asked::connection(via);
            return refused(
                &state
                    .refuse(&asked, Code::NetProtocol, "a tunnel inside a tunnel")
                    .await,
            );
        }
    };
    let same = named.is_some_and(|authority| {
        Host::new(&authority.host).as_ref() == Ok(&via.host) && authority.port.unwrap_or(80) == via.port
    });
    if !same {
        let reason = "the Host of the request is not the host of the connection";
        let asked = Asked::request(via, head.method.as_str(), path_of(&head));
        return refused(&state.refuse(&asked, Code::NetMismatch, reason).await);
    }
    exchange((state, session), via, head, reader, write).await
}

/// One absolute-form request.
async fn proxied(
    (state, session): (&Arc<State>, &Arc<Session>),
    head: Head,
    reader: &mut Reader,
    write: &mut OwnedWriteHalf,
) -> Step {
    let authority = match (&head.target, &head.host) {
        (Target::Absolute { authority, .. }, _) => authority,
        // Asked directly, the proxy is only what it is to everybody.
        (Target::Origin(_), Some(host)) if host.host.eq_ignore_ascii_case(LOCAL_NAME) => host,
        _ => {
            let asked = Asked::raw(Face::Http, "-", 0);
            let reason = "the proxy was asked for a path; it needs the whole address";
            return refused(&state.refuse(&asked, Code::NetProtocol, reason).await);
        }
    };
    match destination(state, Face::Http, authority, 80).await {
        Ok(via) => exchange((state, session), &via, head, reader, write).await,
        Err(denial) => refused(&denial),
    }
}

async fn exchange(
    (state, session): (&Arc<State>, &Arc<Session>),
    via: &Via,
    head: Head,
    reader: &mut Reader,
    write: &mut OwnedWriteHalf,
) -> Step {
    state.cpu.turn().await;
    let keeps = head.keeps_alive();
    if via.host.as_str() == LOCAL_NAME {
        let answer = local::answer(state, &head, reader).await;
        let (persist, step) = if keeps && reader.body_done() {
            (Persist::Keep, Step::Again)
        } else {
            (Persist::Close, Step::Close)
        };
        return match write.write_all(&answer.bytes(persist)).await {
            Ok(()) => step,
            Err(_) => Step::Close,
        };
    }
    // On the heap: a connection that rests between requests is much smaller than one inside a request.
    let next = Box::pin(inspect::inspect_plain(session, via, head, reader, write)).await;
    match next {
        Next::Again if keeps && reader.body_done() => Step::Again,
        Next::Again | Next::Close => Step::Close,
    }
}

async fn connect(
    state: Arc<State>,
    authority: &Authority,
    reader: Reader,
    mut write: OwnedWriteHalf,
    place: Place,
) {
    let admitted = match destination(&state, Face::Connect, authority, 443).await {
        Ok(via) => admit(&state, via).await,
        Err(denial) => Err(denial),
    };
    let dialled = match admitted {
        Ok(admitted) => admitted.dial(&state).await.map(|upstream| (admitted, upstream)),
        Err(denial) => Err(denial),
    };
    match dialled {
        Err(denial) => end(reader, write, &denial.http1(Persist::Close)).await,
        Ok((admitted, upstream)) => {
            if write.write_all(ESTABLISHED).await.is_err() {
                return;
            }
            let (read, early) = reader.into_parts();
            let Ok(stream) = read.reunite(write) else { return };
            admitted
                .carry(state, Client::new(stream, early), upstream, place)
                .await;
        }
    }
}

/// The canonical destination, or the refusal of a malformed one.
async fn destination(state: &State, face: Face, authority: &Authority, default: u16) -> Result<Via, Denial> {
    let port = authority.port.unwrap_or(default);
    match Host::new(&authority.host) {
        Ok(host) => Ok(Via { host, port, face }),
        Err(error) => {
            let asked = Asked::raw(face, &authority.host, port);
            let code = if authority.host.starts_with('[') {
                Code::NetLiteral
            } else {
                Code::NetProtocol
            };
            Err(state
                .refuse(&asked, code, bastle_audit::sanitize(&error.to_string()))
                .await)
        }
    }
}

fn path_of(head: &Head) -> &str {
    match &head.target {
        Target::Absolute { path, .. } | Target::Origin(path) => path,
        Target::Asterisk => "*",
        Target::Connect(_) => "",
    }
}

fn refused(denial: &Denial) -> Step {
    Step::Refused(denial.http1(Persist::Close))
}

/// Answers a head that has no single reading.
async fn refuse_head(
    state: &State,
    face: Face,
    host: &str,
    reader: Reader,
    write: OwnedWriteHalf,
    error: &HeadError,
) {
    let code = match error {
        HeadError::Malformed(_) => Code::NetProtocol,
        HeadError::TooLarge | HeadError::Slow => Code::NetLimit,
        // A client that went away asked for nothing.
        HeadError::Gone => return,
    };
    let denial = state
        .refuse(&Asked::raw(face, host, 0), code, error.to_string())
        .await;
    end(
        reader,
        write,
        &denial.answer_as(error.status()).bytes(Persist::Close),
    )
    .await;
}

/// A last answer.
async fn end(reader: Reader, write: OwnedWriteHalf, answer: &[u8]) {
    let (read, _) = reader.into_parts();
    if let Ok(mut stream) = read.reunite(write) {
        finish(&mut stream, answer).await;
    }
}
