//! Serves the resolver face over UDP and TCP.
//!
//! **Trust:** reads the agent's packets, one at a time; every name is judged, nothing is forwarded.
use super::packet::{Asking, Kind, Reply, answer, complaint, parse_query};
use crate::accept::Handshake;
use crate::canary::Seen;
use crate::denial::{Asked, Grounds};
use crate::limits::{HEAD_DEADLINE, MAX_QUERY, MAX_TCP_QUERIES};
use crate::state::State;
use bastle_contract::Code;
use bastle_contract::egress::{Face, LOCAL_NAME};
use bastle_policy::{ConnectVerdict, Host};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Answers datagrams until the socket breaks.
pub(crate) async fn serve_udp(state: Arc<State>, socket: UdpSocket) {
    // One byte more than the largest query, so that a larger one is seen to be larger.
    let mut buffer = [0; MAX_QUERY + 1];
    loop {
        state.cpu.turn().await;
        match socket.recv_from(&mut buffer).await {
            Ok((n, peer)) => {
                if let Some(reply) = reply_to(&state, &buffer[..n]).await {
                    // A client that is gone needs no answer.
                    drop(socket.send_to(&reply, peer).await);
                }
            }
            // An unreachable client's error arrives here; a broken socket must not make this loop spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers the queries of one TCP connection.
pub(crate) async fn serve_tcp(state: Arc<State>, mut stream: TcpStream, _handshake: Handshake) {
    for _ in 0..MAX_TCP_QUERIES {
        state.cpu.turn().await;
        let Ok(Ok(query)) = timeout(HEAD_DEADLINE, read_query(&mut stream)).await else {
            return;
        };
        let Some(reply) = reply_to(&state, &query).await else {
            return;
        };
        let Ok(length) = u16::try_from(reply.len()) else {
            return;
        };
        let framed = [&length.to_be_bytes()[..], &reply].concat();
        match timeout(HEAD_DEADLINE, stream.write_all(&framed)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

async fn read_query(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_QUERY {
        return Err(std::io::Error::other("a query larger than the limit"));
    }
    let mut query = vec![0; length];
    stream.read_exact(&mut query).await?;
    Ok(query)
}

async fn reply_to(state: &State, packet: &[u8]) -> Option<Vec<u8>> {
    let asking = match parse_query(packet) {
        Ok(asking) => asking,
        Err(why) => return complaint(why),
    };
    // Nobody here knows who an address belongs to, and asking tells nobody anything.
    if asking.name.to_ascii_lowercase().ends_with(".arpa") {
        return Some(answer(&asking, &Reply::Denied("bastle: no reverse names")));
    }
    Some(judge(state, &asking).await)
}

async fn judge(state: &State, asking: &Asking) -> Vec<u8> {
    if state.canary.in_name(&asking.name) {
        let asked = Asked::raw(Face::Dns, &asking.name, 0);
        let denial = state.deny(&asked, &Seen::Name.grounds()).await;
        return answer(asking, &Reply::Denied(&denial.line()));
    }
    // Service labels belong to the host behind them; they are never answered with anything but "nothing of this type".
    let mut name = asking.name.as_str();
    while let Some((_, rest)) = name.split_once('.').filter(|(label, _)| label.starts_with('_')) {
        name = rest;
    }
    let host = match Host::new(name) {
        Ok(host) => host,
        Err(_) => {
            let asked = Asked::raw(Face::Dns, &asking.name, 0);
            let denial = state
                .refuse(&asked, Code::NetProtocol, "it is not a host name")
                .await;
            return answer(asking, &Reply::Denied(&denial.line()));
        }
    };
    if host.as_str() == "localhost" && asking.kind == Kind::A {
        return answer(asking, &Reply::Address(Ipv4Addr::LOCALHOST));
    }
    if host.as_str() != LOCAL_NAME
        && let ConnectVerdict::Deny(decision) = state.generation().policy.connect(&host, 0)
    {
        let denial = state
            .deny(
                &Asked::raw(Face::Dns, host.as_str(), 0),
                &Grounds::from(&decision),
            )
            .await;
        return answer(asking, &Reply::Denied(&denial.line()));
    }
    let service = name.len() != asking.name.len();
    let reply = match asking.kind {
        Kind::A if !service => match state.names.address(&host, Instant::now()) {
            Some(address) => Reply::Address(address),
            None => Reply::Failed,
        },
        Kind::A | Kind::Aaaa | Kind::Other(_) => Reply::Empty,
    };
    answer(asking, &reply)
}
