//! Looks allowed names up, and lets through only answers in which every address is allowed.
//!
//! **Trust:** the answer comes from the network: identifier, source, question and sizes are checked, records are taken
//! only along the chain of names that starts at the question. A rebinding or mixed answer refuses the request.
use crate::dial::Refused;
use crate::limits::{
    MAX_ADDRESSES, MAX_CACHE, MAX_CACHED_NAMES, MAX_TCP_ANSWER, MAX_UDP_ANSWER, RESOLVE_TRIES, RESOLVE_TRY,
};
use bastle_contract::Code;
use bastle_policy::{Host, NetPolicy};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Looks names up and remembers answers for a short time.
#[derive(Debug)]
pub(crate) struct Resolver {
    cache: Mutex<HashMap<Host, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    addresses: Vec<IpAddr>,
    until: Instant,
}

/// The usable part of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Addresses along the chain that starts at the question.
    pub addresses: Vec<IpAddr>,
    /// How long they hold.
    pub lifetime: Duration,
}

/// Why an answer is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is not the answer to this question: keep waiting for that.
    NotOurs,
    /// It was cut off: ask again over TCP.
    Cut,
    /// The server says no, or what it says cannot be read.
    Failed(&'static str),
}

impl Resolver {
    /// Remembers nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            cache: Mutex::default(),
        }
    }

    /// Addresses of an allowed name, every one of them allowed, in the order in which to dial.
    pub(crate) async fn checked(&self, policy: &NetPolicy, host: &Host) -> Result<Vec<IpAddr>, Refused> {
        let addresses = self.lookup(policy, host).await?;
        for address in &addresses {
            if let Err(why) = policy.address(*address) {
                let reason = format!("{host} resolves to {address}: {why}");
                return Err(Refused::new(Code::NetAddress, reason));
            }
        }
        Ok(addresses)
    }

    /// Addresses of a name, unchecked.
    pub(crate) async fn lookup(&self, policy: &NetPolicy, host: &Host) -> Result<Vec<IpAddr>, Refused> {
        if host.is_literal() {
            let literal = host.as_str().parse::<IpAddr>();
            return literal
                .map(|address| vec![address])
                .map_err(|_| Refused::new(Code::NetLiteral, "a malformed address"));
        }
        let fixed: Vec<IpAddr> = policy
            .hosts
            .iter()
            .filter(|(name, _)| name == host)
            .map(|(_, address)| *address)
            .collect();
        if !fixed.is_empty() {
            return Ok(fixed);
        }
        if let Some(kept) = self.remembered(host) {
            return Ok(kept);
        }
        let (v4, v6) = tokio::join!(
            self.ask(policy, host, RecordType::A),
            self.ask(policy, host, RecordType::AAAA),
        );
        let (v4, v6) = match (v4, v6) {
            (Ok(v4), Ok(v6)) => (v4, v6),
            // One family is enough: only what is known here, and checked, is ever dialled.
            (Ok(only), Err(_)) if !only.addresses.is_empty() => (only, Answered::default()),
            (Err(_), Ok(only)) if !only.addresses.is_empty() => (Answered::default(), only),
            (Err(refused), _) | (_, Err(refused)) => return Err(refused),
        };
        let lifetime = [&v4, &v6]
            .iter()
            .filter(|a| !a.addresses.is_empty())
            .map(|a| a.lifetime)
            .min();
        let addresses = interleave(&v6.addresses, &v4.addresses);
        if addresses.is_empty() {
            return Err(Refused::new(Code::NetResolve, format!("{host} has no address")));
        }
        if addresses.len() > MAX_ADDRESSES {
            return Err(Refused::new(
                Code::NetResolve,
                format!("{host} has too many addresses"),
            ));
        }
        self.remember(host, &addresses, lifetime.unwrap_or_default());
        Ok(addresses)
    }

    async fn ask(&self, policy: &NetPolicy, host: &Host, kind: RecordType) -> Result<Answered, Refused> {
        let question = question(host, kind)?;
        let mut last = "no name server is known";
        for _ in 0..RESOLVE_TRIES {
            for server in &policy.resolvers {
                match timeout(RESOLVE_TRY, exchange(*server, &question)).await {
                    Ok(Ok(answered)) => return Ok(answered),
                    Ok(Err(why)) => last = why,
                    Err(_) => last = "the name server did not answer in time",
                }
            }
        }
        Err(Refused::new(
            Code::NetResolve,
            format!("{host} cannot be resolved: {last}"),
        ))
    }

    fn remembered(&self, host: &Host) -> Option<Vec<IpAddr>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache
            .get(host)
            .filter(|kept| kept.until > Instant::now())
            .map(|kept| kept.addresses.clone())
    }

    fn remember(&self, host: &Host, addresses: &[IpAddr], lifetime: Duration) {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED_NAMES {
            cache.retain(|_, kept| kept.until > now);
        }
        if cache.len() < MAX_CACHED_NAMES {
            let until = now + lifetime.min(MAX_CACHE);
            cache.insert(
                host.clone(),
                Kept {
                    addresses: addresses.to_vec(),
                    until,
                },
            );
        }
    }
}

/// Dialling alternates between the families, so that one that leads nowhere costs one pause only.
fn interleave(first: &[IpAddr], second: &[IpAddr]) -> Vec<IpAddr> {
    let mut both = Vec::with_capacity(first.len() + second.len());
    for at in 0..first.len().max(second.len()) {
        both.extend(first.get(at));
        both.extend(second.get(at));
    }
    both
}

fn question(host: &Host, kind: RecordType) -> Result<Query, Refused> {
    let absolute = format!("{host}.");
    let name = Name::from_ascii(&absolute).map_err(|_| {
        Refused::new(
            Code::NetResolve,
            format!("{host} is not a name that can be looked up"),
        )
    })?;
    Ok(Query::query(name, kind))
}

fn packet(id: u16, question: &Query) -> Option<Vec<u8>> {
    let mut edns = Edns::new();
    edns.set_max_payload(u16::try_from(MAX_UDP_ANSWER).ok()?);
    let mut message = Message::new();
    message.set_id(id);
    message.set_message_type(MessageType::Query);
    message.set_op_code(OpCode::Query);
    message.set_recursion_desired(true);
    message.add_query(question.clone());
    message.set_edns(edns);
    message.to_vec().ok()
}

/// One question to one server: UDP from a port of its own, then TCP if the answer was cut off.
async fn exchange(server: SocketAddr, question: &Query) -> Result<Answered, &'static str> {
    let id = (random_u32() & 0xffff) as u16;
    let packet = packet(id, question).ok_or("the question cannot be written")?;
    let unreachable = |_: io::Error| "the name server cannot be reached";
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connected: the kernel drops what comes from anybody else. The port is the kernel's random choice.
    let socket = UdpSocket::bind((any, 0)).await.map_err(unreachable)?;
    socket.connect(server).await.map_err(unreachable)?;
    socket.send(&packet).await.map_err(unreachable)?;
    let mut buffer = [0; MAX_UDP_ANSWER];
    loop {
        let n = socket.recv(&mut buffer).await.map_err(unreachable)?;
        match read_answer(&buffer[..n], id, question) {
            Ok(answered) => return Ok(answered),
            Err(Unusable::NotOurs) => {}
            Err(Unusable::Cut) => break,
            Err(Unusable::Failed(why)) => return Err(why),
        }
    }
    let answer = over_tcp(server, &packet).await.map_err(unreachable)?;
    match read_answer(&answer, id, question) {
        Ok(answered) => Ok(answered),
        Err(Unusable::NotOurs | Unusable::Cut) => Err("the name server's answer is malformed"),
        Err(Unusable::Failed(why)) => Err(why),
    }
}

async fn over_tcp(server: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(packet).await?;
    let n = usize::from(stream.read_u16().await?);
    if n > MAX_TCP_ANSWER {
        return Err(io::Error::other("an answer larger than the limit"));
    }
    let mut answer = vec![0; n];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// What an answer says to this question.
pub(crate) fn read_answer(bytes: &[u8], id: u16, question: &Query) -> Result<Answered, Unusable> {
    let Ok(message) = Message::from_vec(bytes) else {
        return Err(Unusable::NotOurs);
    };
    let ours = message.id() == id
        && message.message_type() == MessageType::Response
        && message.op_code() == OpCode::Query
        && matches!(message.queries(), [asked] if asked.name() == question.name()
            && asked.query_type() == question.query_type()
            && asked.query_class() == question.query_class());
    if !ours {
        return Err(Unusable::NotOurs);
    }
    if message.truncated() {
        return Err(Unusable::Cut);
    }
    match message.response_code() {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Err(Unusable::Failed("there is no such name")),
        ResponseCode::ServFail => return Err(Unusable::Failed("the name server failed")),
        _ => return Err(Unusable::Failed("the name server refused")),
    }
    let mut name = question.name().clone();
    let mut answered = Answered {
        addresses: Vec::new(),
        lifetime: MAX_CACHE,
    };
    // Each step follows one alias; more steps than records would be a circle.
    for _ in 0..=message.answers().len() {
        let mut alias = None;
        for record in message.answers().iter().filter(|record| *record.name() == name) {
            let address = match record.data() {
                RData::A(a) => IpAddr::V4(a.0),
                RData::AAAA(aaaa) => IpAddr::V6(aaaa.0),
                RData::CNAME(to) => {
                    alias = Some(to.0.clone());
                    continue;
                }
                _ => continue,
            };
            answered.addresses.push(address);
            answered.lifetime = answered.lifetime.min(Duration::from_secs(record.ttl().into()));
        }
        match alias {
            Some(next) if answered.addresses.is_empty() => name = next,
            Some(_) | None => break,
        }
    }
    Ok(answered)
}

/// Random bits from the kernel. Should it ever refuse, the clock is worse but the source port is still random.
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u32::from_ne_bytes(bytes),
        Ok(_) | Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos()),
    }
}

/// For fuzzing: an answer to a question for `a.example`, whatever its identifier says.
pub(crate) fn fuzz_answer(bytes: &[u8]) {
    let id = bytes.get(..2).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
    if let Ok(name) = Name::from_ascii("a.example.") {
        drop(read_answer(bytes, id, &Query::query(name, RecordType::A)));
    }
}
