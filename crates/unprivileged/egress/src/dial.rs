//! From an allowed name to a connection: look up, check every address, dial only what was checked.
//!
//! **Trust:** the name was allowed. The resolver's answer is not trusted: one refused address refuses all of them.
use crate::limits::{DIAL_DEADLINE, DIAL_NEXT, MAX_DIALS};
use crate::state::{Generation, State};
use crate::upstream;
use crate::via::Via;
use bastle_contract::Code;
use bytes::Bytes;
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
        let stream = dial(&addresses, via.port).await?;
        let address = stream.peer_addr().ok().map(|peer| peer.ip());
        return Ok(Upstream {
            stream,
            early: Bytes::new(),
            address,
            absolute_form: false,
        });
    };
    // The proxy's own address is the operator's choice and mostly a private one: not judged as a destination.
    let addresses = state.resolver.lookup(policy, &proxy.host).await?;
    let mut stream = dial(&addresses, proxy.port).await.map_err(|refused| {
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

/// The first of `addresses` that answers. The next one is tried when one fails or hesitates.
pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> Result<TcpStream, Refused> {
    let deadline = Instant::now() + DIAL_DEADLINE;
    let mut waiting = addresses.iter().take(MAX_DIALS);
    let mut tries = JoinSet::new();
    let mut last = None;
    loop {
        let started = waiting.next();
        if let Some(address) = started {
            tries.spawn(TcpStream::connect(SocketAddr::new(*address, port)));
        }
        let until = if started.is_some() && waiting.len() > 0 {
            deadline.min(Instant::now() + DIAL_NEXT)
        } else {
            deadline
        };
        match timeout_at(until, tries.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => {
                // Small writes of both sides must not wait for each other; without it they are slower, not wrong.
                drop(stream.set_nodelay(true));
                return Ok(stream);
            }
            Ok(Some(Ok(Err(error)))) => last = Some(error.to_string()),
            Ok(Some(Err(_))) => {}
            Ok(None) if waiting.len() == 0 => {
                let why = last.unwrap_or_else(|| "no address".to_owned());
                return Err(Refused::new(
                    Code::NetUpstream,
                    format!("it could not be reached: {why}"),
                ));
            }
            Err(_) if Instant::now() >= deadline => {
                return Err(Refused::new(Code::NetUpstream, "it did not answer in time"));
            }
            Ok(None) | Err(_) => {}
        }
    }
}
