//! Probes of egress: a name that nobody may reach must be refused, in egress's own words, through every face.
//!
//! The twin of each attempt is the answer itself: only a process that judges can refuse with a reason, so a dead
//! proxy or one that lets through is told from one that holds.
use super::{Control, Probe};
use bastle_contract::egress::{CANARY_NAME, DNS_PORT, PROXY_PORT};
use bastle_contract::{Guarantee, Network, ProbeResult};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// How long egress may take to answer. It starts beside the fence; on a loaded machine that takes a while.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

pub(super) fn probe(network: &Network, results: &mut Vec<ProbeResult>) {
    let Network::Egress(_) = network else {
        return;
    };
    let request = format!("CONNECT {CANARY_NAME}:443 HTTP/1.1\r\nHost: {CANARY_NAME}:443\r\n\r\n");
    let answer = exchange(SocketType::STREAM, PROXY_PORT, request.as_bytes());
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).unwrap_or("nothing").to_owned();
    let control = Control::new(
        "egress answers in its own words",
        answer.windows(DENIED.len()).any(|part| part == DENIED),
    );
    results.push(
        Probe::new(
            Guarantee::NetConfined,
            format!("ask the proxy for {CANARY_NAME}"),
            "403",
        )
        .judge(status, &control),
    );
    let answer = exchange(SocketType::DGRAM, DNS_PORT, &question());
    let control = Control::new(
        "egress answers the question",
        answer.len() >= 12 && answer[..2] == QUESTION_ID && answer[2] & 0x80 != 0,
    );
    let observed = match answer.get(3).map(|flags| flags & 0x0f) {
        Some(3 | 5) if answer[6..8] == [0, 0] => "refused".to_owned(),
        Some(code) => format!("code {code}"),
        None => "nothing".to_owned(),
    };
    results.push(
        Probe::new(
            Guarantee::NetConfined,
            format!("look {CANARY_NAME} up"),
            "refused",
        )
        .judge(observed, &control),
    );
}

/// The word of every refusal by policy.
const DENIED: &[u8] = b"policy_denied";

const QUESTION_ID: [u8; 2] = [0xba, 0x57];

/// A question for the address of the canary, as RFC 1035 lays it out.
fn question() -> Vec<u8> {
    let mut message = QUESTION_ID.to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in CANARY_NAME.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Sends and takes the first bytes of the answer; nothing on any failure.
fn exchange(kind: SocketType, port: u16, bytes: &[u8]) -> Vec<u8> {
    let talk = || -> rustix::io::Result<Vec<u8>> {
        let socket = rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL)?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while readable(&socket)? {
            let (got, _) = rustix::net::recv(&socket, &mut buffer, RecvFlags::empty())?;
            answer.extend(&buffer[..got]);
            // A datagram is whole; of a stream the word that says it all is enough.
            let told = answer.windows(DENIED.len()).any(|part| part == DENIED);
            if got == 0 || kind == SocketType::DGRAM || told || answer.len() > 8192 {
                break;
            }
        }
        Ok(answer)
    };
    talk().unwrap_or_default()
}

fn readable(socket: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&PATIENCE))? > 0)
}
