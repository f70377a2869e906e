//! From an allowed name to a connection: look up, check every address, dial only what was checked.
//!
//! **Trust:** the name was allowed. The resolver's answer is not trusted: one refused address refuses all of them.
use crate::limits::{DIAL_DEADLINE, DIAL_NEXT, MAX_DIALS};
use crate::state::{Generation, State};
use crate::upstream;
use crate::via::Via;
use bastle_contract::Code;
use bytes::Bytes;
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub(crate) struct Refused {
    /// Code of it.
    pub code: Code,
    /// One sentence.
    pub reason: String,
}

impl Refused {
    /// A refusal with its reason.
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

/// What a connection is for, which decides how a company proxy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Bytes, TLS or other: a company proxy gets CONNECT.
    Tunnel,
    /// Plain HTTP requests: a company proxy gets them in absolute form.
    Plain,
}

/// A connection to the server, or to the company proxy in its place.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// The connection.
    pub stream: TcpStream,
    /// What the server has said already.
    pub early: Bytes,
    /// Where it was dialled; `None` behind a company proxy.
    pub address: Option<IpAddr>,
    /// Whether requests must name the whole `http://host/path`.
    pub absolute_form: bool,
}

/// Looks up, checks and dials.
pub(crate) async fn open(
    state: &State,
    generation: &Generation,
    via: &Via,
    purpose: Purpose,
) -> Result<Upstream, Refused> {
    let policy = &generation.policy;
    let Some(proxy) = &policy.upstream else {
        let addresses = state.resolver.checked(policy, &via.host).await?;
        let (stream, address) = dial(&addresses, via.port).await?;
        return Ok(Upstream {
            stream,
            early: Bytes::new(),
            address: Some(address),
            absolute_form: false,
        });
    };
    // The proxy's own address is the operator's choice and mostly a private one: not judged as a destination.
    let addresses = state.resolver.lookup(policy, &proxy.host).await?;
    let (mut stream, _) = dial(&addresses, proxy.port).await.map_err(|refused| {
        Refused::new(
            refused.code,
            format!(
                "the company proxy {}:{}: {}",
                proxy.host, proxy.port, refused.reason
            ),
        )
    })?;
    let (early, absolute_form) = match purpose {
        Purpose::Tunnel => (upstream::tunnel(&mut stream, via).await?, false),
        Purpose::Plain => (Bytes::new(), true),
    };
    Ok(Upstream {
        stream,
        early,
        address: None,
        absolute_form,
    })
}

/// The first of `addresses` that answers, and which it was. The next one is tried when one fails or hesitates.
pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> Result<(TcpStream, IpAddr), Refused> {
    let deadline = Instant::now() + DIAL_DEADLINE;
    if let [only] = addresses {
        return match timeout_at(deadline, connect(*only, port)).await {
            Ok(connected) => connected.map_err(|error| unreachable_because(&error.to_string())),
            Err(_) => Err(too_late()),
        };
    }
    let mut waiting = addresses.iter().take(MAX_DIALS);
    let mut tries = JoinSet::new();
    let mut last = None;
    loop {
        let started = waiting.next();
        if let Some(address) = started {
            tries.spawn(connect(*address, port));
        }
        let until = if started.is_some() && waiting.len() > 0 {
            deadline.min(Instant::now() + DIAL_NEXT)
        } else {
            deadline
        };
        match timeout_at(until, tries.join_next()).await {
            Ok(Some(Ok(Ok(connected)))) => return Ok(connected),
            Ok(Some(Ok(Err(error)))) => last = Some(error.to_string()),
            Ok(Some(Err(_))) => {}
            Ok(None) if waiting.len() == 0 => {
                return Err(unreachable_because(last.as_deref().unwrap_or("no address")));
            }
            Err(_) if Instant::now() >= deadline => return Err(too_late()),
            Ok(None) | Err(_) => {}
        }
    }
}

fn unreachable_because(why: &str) -> Refused {
    Refused::new(Code::NetUpstream, format!("it could not be reached: {why}"))
}

fn too_late() -> Refused {
    Refused::new(Code::NetUpstream, "it did not answer in time")
}

/// Connects to one address, and says which it was, so that nobody has to ask the kernel.
async fn connect(address: IpAddr, port: u16) -> io::Result<(TcpStream, IpAddr)> {
    let stream = TcpStream::connect(SocketAddr::new(address, port)).await?;
    // Small writes of both sides must not wait for each other; without it they are slower, not wrong.
    let _slower = stream.set_nodelay(true).is_err();
    Ok((stream, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    const HERE: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2)),
    ];

    /// A port that is taken, and on which nobody listens for as long as the socket lives.
    fn taken(address: &str) -> (TcpSocket, u16) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address.parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        (socket, port)
    }

    #[tokio::test]
    async fn where_nobody_listens_nothing_is_connected_and_the_reason_is_told() {
        let (_taken, port) = taken("0.0.0.0:0");
        for addresses in [&HERE[..1], &HERE[..]] {
            let refused = dial(addresses, port).await.unwrap_err();
            assert_eq!(refused.code, Code::NetUpstream);
            assert!(refused.reason.contains("could not be reached: "), "{refused}");
        }
        let nowhere = dial(&[], port).await.unwrap_err();
        assert_eq!(nowhere.reason, "it could not be reached: no address");
    }

    #[tokio::test]
    async fn the_address_that_answered_is_the_one_that_is_recorded() {
        let (_taken, port) = taken("127.0.0.1:0");
        let _listener = TcpListener::bind((HERE[1], port)).await.unwrap();
        for addresses in [&HERE[1..], &HERE[..]] {
            let (stream, address) = dial(addresses, port).await.unwrap();
            assert_eq!(address, HERE[1]);
            assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(address, port));
            assert!(stream.nodelay().unwrap());
        }
    }
}
