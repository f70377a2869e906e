//! The transparent face: connections to synthetic addresses, from tools that know no proxy.
//!
//! **Trust:** the address was chosen by the agent; it stands for a name only if that name was looked up and allowed.
use crate::accept::Handshake;
use crate::carry::{admit, refuse_bytes};
use crate::denial::{Asked, Denial};
use crate::hello;
use crate::limits::REFUSED_WAIT;
use crate::proxy;
use crate::state::State;
use crate::stream::Client;
use crate::via::Via;
use bastle_contract::Code;
use bastle_contract::egress::{Face, LOCAL_NAME};
use bytes::{Bytes, BytesMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;

/// Serves one connection.
pub(crate) async fn serve(state: Arc<State>, stream: TcpStream, handshake: Handshake) {
    if let Ok(local) = stream.local_addr() {
        serve_to(state, stream, local, handshake).await;
    }
}

/// Serves a connection that was made to `local`.
pub(crate) async fn serve_to(state: Arc<State>, stream: TcpStream, local: SocketAddr, handshake: Handshake) {
    let via = match destination(&state, local).await {
        Ok(via) => via,
        Err(denial) => return refuse(stream, &denial).await,
    };
    let Some(place) = state.tunnels.place() else {
        let asked = Asked::connection(&via);
        let denial = state
            .refuse(&asked, Code::NetLimit, "too many connections at once")
            .await;
        return refuse(stream, &denial).await;
    };
    drop(handshake);
    if via.host.as_str() == LOCAL_NAME {
        return proxy::requests_inside(&state, &via, stream, Bytes::new()).await;
    }
    let dialled = match admit(&state, via).await {
        Ok(admitted) => admitted.dial(&state).await.map(|upstream| (admitted, upstream)),
        Err(denial) => Err(denial),
    };
    match dialled {
        Err(denial) => refuse(stream, &denial).await,
        Ok((admitted, upstream)) => {
            admitted
                .carry(state, Client::new(stream, Bytes::new()), upstream, place)
                .await;
        }
    }
}

async fn destination(state: &State, local: SocketAddr) -> Result<Via, Denial> {
    let face = Face::Transparent;
    let name = match local.ip() {
        IpAddr::V4(address) => state.names.name(address, Instant::now()),
        IpAddr::V6(_) => None,
    };
    match name {
        Some(host) => Ok(Via {
            host,
            port: local.port(),
            face,
        }),
        None => {
            let asked = Asked::raw(face, &local.ip().to_string(), local.port());
            let reason = "no name was looked up that has this address";
            Err(state.refuse(&asked, Code::NetLiteral, reason).await)
        }
    }
}

/// Waits for the first bytes, so that the refusal can be said in the client's own protocol.
async fn refuse(mut stream: TcpStream, denial: &Denial) {
    let mut buffer = BytesMut::new();
    let first = tokio::time::timeout(REFUSED_WAIT, hello::read_first(&mut stream, &mut buffer)).await;
    // Otherwise it waits for the server to speak first, or is gone: closing is all that can be said.
    if let Ok(Ok(_)) = first {
        refuse_bytes(&mut stream, &buffer, denial).await;
    }
}
