//! The SOCKS5 face: no authentication (the listener is the run's identity), CONNECT only.
//!
//! **Trust:** reads the agent's bytes; every message has a fixed largest size.
use crate::accept::Handshake;
use crate::carry::{admit, finish};
use crate::denial::{Asked, Denial};
use crate::dns::is_synthetic;
use crate::limits::HEAD_DEADLINE;
use crate::state::State;
use crate::stream::Client;
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::Face;
use bastle_policy::Host;
use bytes::{Buf, Bytes, BytesMut};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where a client wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A name, as sent.
    Name(String),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
}

/// Reply codes of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    /// The connection stands.
    Succeeded = 0,
    /// Something else.
    General = 1,
    /// Not allowed by rule.
    NotAllowed = 2,
    /// The name has no address.
    HostUnreachable = 4,
    /// The server does not answer.
    Refused = 5,
    /// BIND or UDP.
    CommandUnsupported = 7,
    /// Neither name nor address.
    AddressUnsupported = 8,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocksError {
    /// Not SOCKS5, or a reserved byte is set.
    Malformed,
    /// The client offers no way without a password.
    Methods,
    /// A command other than CONNECT.
    Command,
    /// An address type that does not exist.
    Address,
}

/// The greeting at the front of `bytes` and its length; `None` while it is incomplete.
pub(crate) fn parse_greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    match bytes.first() {
        None => return Ok(None),
        Some(5) => {}
        Some(_) => return Err(SocksError::Malformed),
    }
    let Some(&count) = bytes.get(1) else {
        return Ok(None);
    };
    let Some(methods) = bytes.get(2..2 + usize::from(count)) else {
        return Ok(None);
    };
    if methods.contains(&0) {
        Ok(Some(2 + methods.len()))
    } else {
        Err(SocksError::Methods)
    }
}

/// The request at the front of `bytes`, its port and its length; `None` while it is incomplete.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Option<(Destination, u16, usize)>, SocksError> {
    let Some(head) = bytes.get(..4) else {
        return if bytes.first().is_some_and(|&version| version != 5) {
            Err(SocksError::Malformed)
        } else {
            Ok(None)
        };
    };
    if head[0] != 5 || head[2] != 0 {
        return Err(SocksError::Malformed);
    }
    if head[1] != 1 {
        return Err(SocksError::Command);
    }
    let (start, length) = match head[3] {
        1 => (4, 4),
        4 => (4, 16),
        3 => match bytes.get(4) {
            None => return Ok(None),
            Some(0) => return Err(SocksError::Address),
            Some(&length) => (5, usize::from(length)),
        },
        _ => return Err(SocksError::Address),
    };
    let end = start + length;
    let (Some(address), Some(port)) = (bytes.get(start..end), bytes.get(end..end + 2)) else {
        return Ok(None);
    };
    let destination = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
        (Ok(v4), _) if head[3] == 1 => Destination::V4(v4.into()),
        (_, Ok(v6)) if head[3] == 4 => Destination::V6(v6.into()),
        _ => Destination::Name(
            std::str::from_utf8(address)
                .map_err(|_| SocksError::Address)?
                .to_owned(),
        ),
    };
    Ok(Some((
        destination,
        u16::from_be_bytes([port[0], port[1]]),
        end + 2,
    )))
}

/// Serves one client of the SOCKS face.
pub(crate) async fn serve(state: Arc<State>, mut stream: TcpStream, handshake: Handshake) {
    let mut buffer = BytesMut::new();
    let negotiated = tokio::time::timeout(HEAD_DEADLINE, negotiate(&mut stream, &mut buffer)).await;
    let (destination, port) = match negotiated {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(Some(error))) => return refuse(&state, stream, error).await,
        // Gone or slow: it has asked for nothing.
        Ok(Err(None)) | Err(_) => return,
    };
    let Some(place) = state.tunnels.place() else {
        let asked = Asked::raw(Face::Socks, "-", 0);
        let denial = state
            .refuse(&asked, Code::NetLimit, "too many connections at once")
            .await;
        return reply_denial(&mut stream, &denial).await;
    };
    drop(handshake);
    let admitted = match canonical(&state, destination, port).await {
        Ok(via) => admit(&state, via).await,
        Err(denial) => Err(denial),
    };
    let dialled = match admitted {
        Ok(admitted) => admitted.dial(&state).await.map(|upstream| (admitted, upstream)),
        Err(denial) => Err(denial),
    };
    match dialled {
        Err(denial) => reply_denial(&mut stream, &denial).await,
        Ok((admitted, upstream)) => {
            if stream.write_all(&reply(Reply::Succeeded)).await.is_ok() {
                let client = Client::new(stream, buffer.freeze());
                admitted.carry(state, client, upstream, place).await;
            }
        }
    }
}

/// Greeting and request; `Err(None)` when the client is gone.
async fn negotiate(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
) -> Result<(Destination, u16), Option<SocksError>> {
    loop {
        if let Some(length) = parse_greeting(buffer)? {
            buffer.advance(length);
            break;
        }
        fill(stream, buffer).await?;
    }
    stream.write_all(&[5, 0]).await.map_err(|_| None)?;
    loop {
        if let Some((destination, port, length)) = parse_request(buffer)? {
            buffer.advance(length);
            return Ok((destination, port));
        }
        fill(stream, buffer).await?;
    }
}

/// The longest message has 262 bytes: reading in pieces of 512 cannot grow the buffer far.
async fn fill(stream: &mut TcpStream, buffer: &mut BytesMut) -> Result<(), Option<SocksError>> {
    match stream.take(512).read_buf(buffer).await {
        Ok(n) if n > 0 => Ok(()),
        Ok(_) | Err(_) => Err(None),
    }
}

async fn canonical(state: &State, destination: Destination, port: u16) -> Result<Via, Denial> {
    let face = Face::Socks;
    let (shown, host) = match destination {
        // A client that looked the name up itself has our address for it.
        Destination::V4(address) if is_synthetic(address) => {
            match state.names.name(address, Instant::now()) {
                Some(host) => return Ok(Via { host, port, face }),
                None => {
                    let asked = Asked::raw(face, &address.to_string(), port);
                    let reason = "no name was looked up that has this address";
                    return Err(state.refuse(&asked, Code::NetLiteral, reason).await);
                }
            }
        }
        Destination::V4(address) => (address.to_string(), Host::new(&address.to_string())),
        Destination::V6(address) => {
            let asked = Asked::raw(face, &format!("[{address}]"), port);
            return Err(state
                .refuse(&asked, Code::NetLiteral, "an IPv6 address instead of a name")
                .await);
        }
        Destination::Name(name) => {
            let host = Host::new(&name);
            (name, host)
        }
    };
    match host {
        Ok(host) if port != 0 => Ok(Via { host, port, face }),
        Ok(_) | Err(_) => {
            let asked = Asked::raw(face, &shown, port);
            Err(state
                .refuse(&asked, Code::NetProtocol, "it is not a host name and port")
                .await)
        }
    }
}

async fn refuse(state: &State, mut stream: TcpStream, error: SocksError) {
    let (reason, answer) = match error {
        SocksError::Malformed => ("it is not SOCKS5", Bytes::new()),
        SocksError::Methods => ("the client insists on a password", Bytes::from_static(&[5, 0xff])),
        SocksError::Command => ("only CONNECT is served", reply(Reply::CommandUnsupported)),
        SocksError::Address => ("the address has no known type", reply(Reply::AddressUnsupported)),
    };
    // Counted like every refusal; the protocol has no room for its name.
    let _denial: Denial = state
        .refuse(&Asked::raw(Face::Socks, "-", 0), Code::NetProtocol, reason)
        .await;
    finish(&mut stream, &answer).await;
}

async fn reply_denial(stream: &mut TcpStream, denial: &Denial) {
    let code = match denial.code() {
        Code::NetResolve => Reply::HostUnreachable,
        Code::NetUpstream => Reply::Refused,
        Code::NetLimit | Code::NetLost => Reply::General,
        _ => Reply::NotAllowed,
    };
    finish(stream, &reply(code)).await;
}

/// A reply with the empty address: the real one is nobody's business.
fn reply(code: Reply) -> Bytes {
    Bytes::copy_from_slice(&[5, code as u8, 0, 1, 0, 0, 0, 0, 0, 0])
}
