//! From an identified destination to bytes that move: admission, the check of the first bytes, the relay.
//!
//! **Trust:** the destination and the first bytes come from the agent. Nothing is passed on before both agree.
use crate::budget::Flow;
use crate::canary::Seen;
use crate::denial::{Asked, Denial, Grounds};
use crate::dial::{self, Purpose, Upstream};
use crate::hello::{self, ACCESS_DENIED, HelloError};
use crate::http1::Persist;
use crate::inspect;
use crate::limits::DRAIN;
use crate::proxy;
use crate::relay::{Ended, relay};
use crate::state::{Generation, State, Terms};
use crate::stream::{Client, Paced};
use crate::tunnel::{Admission, Place};
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::{BudgetKind, NetClosed};
use bastle_policy::{ConnectVerdict, Decision, Host};
use bytes::{Bytes, BytesMut};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How an admitted connection is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes pass from the first one.
    Opaque,
    /// Bytes pass after the ClientHello named the host.
    Pass,
    /// Every request inside is judged.
    Inspect,
}

/// A connection that the table lets through to its next check.
#[must_use]
#[derive(Debug)]
pub(crate) struct Admitted {
    via: Via,
    /// How it goes on.
    pub way: Way,
    admission: Admission,
    decision: Decision,
    generation: Arc<Generation>,
}

/// Judges a connection by its name. Nothing has been looked up or dialled.
pub(crate) async fn admit(state: &State, via: Via) -> Result<Admitted, Denial> {
    let asked = Asked::connection(&via);
    // Before the rules: that it was tried is worth knowing even where they refuse it.
    if state.canary.in_name(via.host.as_str()) {
        return Err(state.deny(&asked, &Seen::Name.grounds()).await);
    }
    let generation = state.generation();
    let (way, admission, decision) = match generation.policy.connect(&via.host, via.port) {
        ConnectVerdict::Deny(decision) => return Err(state.deny(&asked, &Grounds::from(&decision)).await),
        ConnectVerdict::Pass(decision) if decision.opaque => (Way::Opaque, Admission::Pass, decision),
        ConnectVerdict::Pass(decision) => (Way::Pass, Admission::Pass, decision),
        ConnectVerdict::Inspect(decision) => (Way::Inspect, Admission::Inspect, decision),
        // What can be looked into is asked about request by request.
        ConnectVerdict::Ask(decision) if state.authority.is_some() || via.port == 80 => {
            (Way::Inspect, Admission::Inspect, decision)
        }
        ConnectVerdict::Ask(decision) => {
            state.ask(&asked, &decision).await?;
            (Way::Pass, Admission::Approved, decision)
        }
    };
    if state.budget.flow() != Flow::Go && state.budget.clear().await != Flow::Go {
        return Err(state
            .refuse(&asked, Code::NetBudget, "a budget of the run is used up")
            .await);
    }
    Ok(Admitted {
        via,
        way,
        admission,
        decision,
        generation,
    })
}

impl Admitted {
    /// Dials where bytes pass unseen, so that the client hears of a failure in the face's own words.
    pub(crate) async fn dial(&self, state: &State) -> Result<Option<Upstream>, Denial> {
        match self.way {
            Way::Inspect => Ok(None),
            Way::Pass | Way::Opaque => {
                match dial::open(state, &self.generation, &self.via, Purpose::Tunnel).await {
                    Ok(upstream) => Ok(Some(upstream)),
                    Err(refused) => {
                        let asked = Asked::connection(&self.via);
                        Err(state.refuse(&asked, refused.code, refused.reason).await)
                    }
                }
            }
        }
    }

    /// Carries the connection to its end. The face has told the client that it stands.
    pub(crate) async fn carry(
        self,
        state: Arc<State>,
        client: Client,
        upstream: Option<Upstream>,
        place: Place,
    ) {
        counted(state.budget.spend(BudgetKind::Connections, 1));
        let (mut stream, prefix) = client.into_parts();
        let upstream = match (self.way, upstream) {
            (Way::Opaque, Some(upstream)) => return self.pass(state, stream, prefix, upstream, place).await,
            (_, upstream) => upstream,
        };
        let mut buffer = BytesMut::from(&prefix[..]);
        match (self.first_bytes(&mut stream, &mut buffer).await, upstream) {
            (Ok(First::Tls), Some(upstream)) => {
                self.pass(state, stream, buffer.freeze(), upstream, place).await;
            }
            (Ok(First::Tls), None) => {
                let client = Client::new(stream, buffer.freeze());
                let (via, client) = (self.via.clone(), Paced::new(client, Arc::clone(&state.cpu)));
                let requests = inspect::inspect_tls(Arc::clone(&state), via, client);
                self.until_cut(&state, place, Box::pin(requests)).await;
            }
            (Ok(First::Plain), _) => {
                let requests = proxy::requests_inside(&state, &self.via, stream, buffer.freeze());
                self.until_cut(&state, place, Box::pin(requests)).await;
            }
            (Err((code, reason)), _) => {
                let denial = state.refuse(&Asked::connection(&self.via), code, reason).await;
                refuse_bytes(&mut stream, &buffer, &denial).await;
            }
        }
    }

    /// Serves requests until they end or the table does not allow the connection any more.
    async fn until_cut(&self, state: &State, place: Place, requests: Pin<Box<impl Future<Output = ()>>>) {
        let live = state
            .tunnels
            .list(place, self.via.clone(), Admission::Inspect, None);
        state.recheck(self.generation.number, live.tunnel());
        tokio::select! {
            () = requests => {}
            () = live.until_cut() => {}
        }
    }

    /// Reads what the client says first and checks that it names the same host.
    async fn first_bytes(
        &self,
        stream: &mut TcpStream,
        buffer: &mut BytesMut,
    ) -> Result<First, (Code, String)> {
        let broken = |error: HelloError| (Code::NetProtocol, error.to_string());
        let first = hello::read_first(stream, buffer).await.map_err(broken)?;
        if !hello::is_tls(first) {
            // Port 443 promises TLS. Elsewhere plain HTTP may be meant, and is judged request by request.
            return if self.via.port != 443 && first.is_ascii_uppercase() {
                Ok(First::Plain)
            } else {
                Err(broken(HelloError::NotTls))
            };
        }
        let hello = hello::read_hello(stream, buffer).await.map_err(broken)?;
        match &hello.sni {
            Some(name) if Host::new(name).as_ref() == Ok(&self.via.host) => Ok(First::Tls),
            Some(name) => {
                let shown = bastle_audit::sanitize(name);
                Err((
                    Code::NetMismatch,
                    format!("the TLS handshake names {shown}, not {}", self.via.host),
                ))
            }
            // Clients that dial an address have no name to send.
            None if self.via.host.is_literal() => Ok(First::Tls),
            None => Err((Code::NetMismatch, "the TLS handshake names no host".to_owned())),
        }
    }

    /// Records the tunnel and relays. In a task of its own, because that of the face is much larger than a tunnel
    /// needs, and a thousand of them rest most of the time.
    async fn pass(self, state: Arc<State>, client: TcpStream, early: Bytes, server: Upstream, place: Place) {
        let asked = Asked::connection(&self.via);
        let terms = Terms {
            address: server.address,
            ..Terms::default()
        };
        let Ok(seq) = state.allow(&asked, &self.decision, terms).await else {
            return;
        };
        let live = state
            .tunnels
            .list(place, self.via.clone(), self.admission, server.address);
        state.recheck(self.generation.number, live.tunnel());
        let (mut client, mut stream, early) = (client, server.stream, (early, server.early));
        tokio::spawn(async move {
            let tunnel = live.tunnel();
            tokio::select! {
                ended = relay(&state, tunnel, &mut client, &mut stream, early) => match ended {
                    Ended::Closed | Ended::Budget => {}
                },
                () = live.until_cut() => {}
            }
            let closed = NetClosed {
                seq,
                bytes_out: tunnel.sent.load(Ordering::Relaxed),
                bytes_in: tunnel.received.load(Ordering::Relaxed),
                status: None,
                model: None,
            };
            drop((client, stream));
            state.closed(closed).await;
        });
    }
}

/// What a client speaks.
enum First {
    /// TLS, with the right name.
    Tls,
    /// Perhaps plain HTTP; its parser decides.
    Plain,
}

/// The amount is spent whatever it leads to: the flow is looked at before the next one.
fn counted(_: Flow) {}

/// Answers a refused connection in the client's own protocol, as far as its first bytes tell which.
pub(crate) async fn refuse_bytes(stream: &mut TcpStream, first: &[u8], denial: &Denial) {
    let answer = match first.first() {
        Some(&byte) if hello::is_tls(byte) => ACCESS_DENIED.to_vec(),
        Some(byte) if byte.is_ascii_uppercase() => denial.http1(Persist::Close),
        Some(_) | None => Vec::new(),
    };
    finish(stream, &answer).await;
}

/// Writes a last answer and closes. What the peer still sends is read for a moment: closing with unread bytes resets
/// the connection, and the answer would be lost.
pub(crate) async fn finish(stream: &mut TcpStream, answer: &[u8]) {
    let ending = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut thrown_away = [0; 1024];
        while stream.read(&mut thrown_away).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    // The connection is dropped in any case.
    drop(tokio::time::timeout(DRAIN, ending).await);
}
