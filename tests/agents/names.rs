//! A name server that leads every name below `lab.test` to loopback, knows no other, and remembers what it was asked.
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

/// The server. It ends with the process.
pub(crate) struct Names {
    /// Its port, UDP.
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("loopback has free ports");
        let port = socket.local_addr().expect("is bound").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut packet = [0_u8; 1500];
            while let Ok((size, who)) = socket.recv_from(&mut packet) {
                if let Some((name, answer)) = answer(&packet[..size]) {
                    seen.lock().expect("nobody panics with it").push(name);
                    if let Err(error) = socket.send_to(&answer, who) {
                        eprintln!("a name was not answered: {error}");
                    }
                }
            }
        });
        Self { port, asked }
    }

    /// Every name that it was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics with it").clone()
    }
}

/// The name in a question of one name, and the answer to it.
fn answer(question: &[u8]) -> Option<(String, Vec<u8>)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let size = usize::from(*question.get(at)?);
        if size == 0 {
            break;
        }
        let label = question.get(at + 1..at + 1 + size)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += 1 + size;
    }
    let end = at + 5;
    let wants_address = question.get(at + 1..at + 3)? == [0, 1];
    let name = labels.join(".");
    let known = name.ends_with(".lab.test");
    let found = u8::from(known && wants_address);
    let mut packet = question.get(..2)?.to_vec();
    // An answer with authority; no such name where it is none of ours.
    packet.extend([0x85, if known { 0x80 } else { 0x83 }, 0, 1, 0, found, 0, 0, 0, 0]);
    packet.extend(question.get(12..end)?);
    if found == 1 {
        packet.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some((name, packet))
}
