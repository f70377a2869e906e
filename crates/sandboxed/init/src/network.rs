//! The sandbox's own network: loopback up, and where the plan says so the faces of egress.
//!
//! Runs in the new network namespace with capabilities over it, before confinement. The listeners are made here
//! because a socket belongs for ever to the namespace it was made in; they are handed over by descriptor and no
//! copy stays, so nothing inside can answer in the place of egress.
use crate::hooks;
use crate::step::Step;
use bastle_contract::egress::{DNS_PORT, Faces, PROXY_PORT, SOCKS_PORT, SYNTHETIC_NET, SYNTHETIC_PREFIX};
use bastle_contract::{Fault, FromInit, Network, socket};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

/// Connections that wait to be accepted; the kernel cuts it to its own maximum.
const BACKLOG: i32 = 1024;
/// `lo` is the first interface of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Brings loopback up.
pub(crate) fn loopback() -> Result<(), Fault> {
    let what = "loopback";
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .step(what, "socket")?;
    bastle_sys::net::loopback_up(socket.as_fd()).step(what, "lo")
}

/// Makes the faces of egress, where the plan has them.
pub(crate) fn faces(network: &Network) -> Result<Vec<OwnedFd>, Fault> {
    let Network::Egress(faces) = network else {
        return Ok(Vec::new());
    };
    if !hooks::enforces("egress-faces") {
        return Ok(Vec::new());
    }
    synthetic_addresses().step("synthetic addresses", "lo")?;
    listen(faces)
}

/// Hands them to control, if there are any.
pub(crate) fn hand_over(listeners: Vec<OwnedFd>, control: &OwnedFd) -> Result<(), Fault> {
    if listeners.is_empty() {
        return Ok(());
    }
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    socket::send(control, &FromInit::Faces, &descriptors).step("egress faces", "hand over")
}

/// One descriptor per face, in the order egress expects.
fn listen(faces: &Faces) -> Result<Vec<OwnedFd>, Fault> {
    let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut listeners = vec![
        stream(local(PROXY_PORT))?,
        stream(local(SOCKS_PORT))?,
        bound(SocketType::DGRAM, local(DNS_PORT))?,
        stream(local(DNS_PORT))?,
    ];
    for port in &faces.transparent {
        listeners.push(stream(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port))?);
    }
    Ok(listeners)
}

fn stream(at: SocketAddrV4) -> Result<OwnedFd, Fault> {
    let socket = bound(SocketType::STREAM, at)?;
    rustix::net::listen(&socket, BACKLOG).step("egress faces", at)?;
    Ok(socket)
}

fn bound(kind: SocketType, at: SocketAddrV4) -> Result<OwnedFd, Fault> {
    let what = "egress faces";
    // Not blocking: the process that serves it waits for many at once.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None).step(what, at)?;
    rustix::net::bind(&socket, &at).step(what, at)?;
    Ok(socket)
}

/// `ip address add 198.18.0.1/15 dev lo`: every address of the range is this machine's own. An address and not only a
/// route, because C libraries ask for IPv4 only where some interface has an address besides 127.0.0.1.
fn synthetic_addresses() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // 0 is NETLINK_ROUTE.
        None,
    )?;
    rustix::net::send(&socket, &address_message(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (got, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // nlmsghdr (16 bytes), then nlmsgerr: a negative errno, 0 for success.
    let Some(code) = answer.get(16..20).filter(|_| got >= 20) else {
        return Err(Errno::PROTO);
    };
    match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
        0 => Ok(()),
        negative => Err(Errno::from_raw_os_error(-negative)),
    }
}

/// The request, as rtnetlink(7) lays it out: nlmsghdr, ifaddrmsg, IFA_LOCAL, IFA_ADDRESS.
fn address_message() -> Vec<u8> {
    let mut own = SYNTHETIC_NET;
    own[3] = 1;
    let mut body = vec![libc::AF_INET as u8, SYNTHETIC_PREFIX, 0, libc::RT_SCOPE_HOST];
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    attribute(&mut body, libc::IFA_LOCAL, own);
    attribute(&mut body, libc::IFA_ADDRESS, own);
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend((16 + body.len() as u32).to_ne_bytes());
    message.extend(libc::RTM_NEWADDR.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    // Sequence number and sender: one request on a socket of its own needs neither.
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}
