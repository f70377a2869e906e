//! Connections into the sandbox: init connects to a port of its own loopback and hands the connection to control.
//!
//! It never waits: `connect` does not block, and one that is not answered (a server that accepts nobody and whose queue
//! is full) is given up after a while. The faces of egress are no server of the agent's and are not dialled.
use bastle_contract::egress::{DNS_PORT, PROXY_PORT, SOCKS_PORT};
use bastle_contract::{Code, Fault, FromInit, MAX_DIALS, Network};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a server may take: on loopback, one that accepts at all takes no time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that are being made.
pub(crate) struct Dials {
    /// Ports on which egress listens.
    refused: Vec<u16>,
    pending: Vec<Dialing>,
}

struct Dialing {
    id: u32,
    to: SocketAddr,
    socket: OwnedFd,
    until: Instant,
}

/// What control is told, with the connection if there is one.
pub(crate) type Told = (FromInit, Option<OwnedFd>);

impl Dials {
    pub(crate) fn of(network: &Network) -> Self {
        let refused = match network {
            Network::Egress(faces) => {
                let own = [PROXY_PORT, SOCKS_PORT, DNS_PORT];
                own.into_iter().chain(faces.transparent.iter().copied()).collect()
            }
            Network::None => Vec::new(),
        };
        Self {
            refused,
            pending: Vec::new(),
        }
    }

    /// Begins one; the answer when it is known at once.
    pub(crate) fn begin(&mut self, id: u32, port: u16) -> Option<Told> {
        let refuse = |why: &str| {
            let what = format!("port {port} of the sandbox cannot be forwarded");
            let fault =
                Fault::new(Code::PortRefused, what, why).help("name a port that a program inside listens on");
            Some((FromInit::NotDialed { id, fault }, None))
        };
        if port == 0 {
            return refuse("port 0 is none");
        }
        if self.refused.contains(&port) {
            return refuse("egress listens there, no server of the agent's");
        }
        if self.pending.len() >= MAX_DIALS {
            return refuse("too many connections are being made at once");
        }
        self.dial(id, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn dial(&mut self, id: u32, to: SocketAddr) -> Option<Told> {
        match connect(to) {
            Ok((socket, Ok(()))) => self.connected(id, to, socket),
            Ok((socket, Err(Errno::INPROGRESS))) => {
                let until = Instant::now() + PATIENCE;
                self.pending.push(Dialing {
                    id,
                    to,
                    socket,
                    until,
                });
                None
            }
            Ok((_, Err(cause))) | Err(cause) => self.failed(id, to, &cause.to_string()),
        }
    }

    fn connected(&mut self, id: u32, to: SocketAddr, socket: OwnedFd) -> Option<Told> {
        // Where nobody listens, a socket can be given the very port it connects to, and then speaks to itself.
        let (own, peer) = (
            rustix::net::getsockname(&socket),
            rustix::net::getpeername(&socket),
        );
        match (own, peer) {
            (Ok(own), Ok(Some(peer))) if own != peer => Some((FromInit::Dialed { id }, Some(socket))),
            _ => self.failed(id, to, "nobody listens there"),
        }
    }

    /// The other loopback address is tried once; then it is told.
    fn failed(&mut self, id: u32, to: SocketAddr, why: &str) -> Option<Told> {
        if to.is_ipv4() {
            return self.dial(id, SocketAddr::from((Ipv6Addr::LOCALHOST, to.port())));
        }
        let port = to.port();
        let what = format!("nothing inside answers on port {port}");
        let fault = Fault::new(Code::PortRefused, what, format!("127.0.0.1 and ::1: {why}"))
            .help("start the server first; it must listen on 127.0.0.1, ::1 or all addresses");
        Some((FromInit::NotDialed { id, fault }, None))
    }

    /// For waiting: what is being connected, with its id.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.pending
            .iter()
            .map(|dialing| (dialing.id, dialing.socket.as_fd()))
    }

    /// When patience with the first of them runs out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|dialing| dialing.until).min()
    }

    /// One of them has an answer.
    pub(crate) fn settle(&mut self, id: u32) -> Option<Told> {
        let at = self.pending.iter().position(|dialing| dialing.id == id)?;
        let Dialing {
            id,
            to,
            socket,
            until: _,
        } = self.pending.swap_remove(at);
        match rustix::net::sockopt::socket_error(&socket) {
            Ok(Ok(())) => self.connected(id, to, socket),
            Ok(Err(cause)) | Err(cause) => self.failed(id, to, &cause.to_string()),
        }
    }

    /// Gives those up that took too long.
    pub(crate) fn expire(&mut self) -> Vec<Told> {
        let now = Instant::now();
        let late: Vec<(u32, SocketAddr)> = self
            .pending
            .iter()
            .filter(|dialing| dialing.until <= now)
            .map(|dialing| (dialing.id, dialing.to))
            .collect();
        self.pending.retain(|dialing| dialing.until > now);
        let why = "the server does not accept connections";
        late.into_iter()
            .filter_map(|(id, to)| self.failed(id, to, why))
            .collect()
    }
}

fn connect(to: SocketAddr) -> Result<(OwnedFd, Result<(), Errno>), Errno> {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let connecting = rustix::net::connect(&socket, &to);
    Ok((socket, connecting))
}
