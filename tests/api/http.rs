//! A small HTTP and WebSocket client that can also misbehave.
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Far more than a healthy answer takes.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Bytes both ways.
pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        let problem = self.json();
        assert!(self.head.contains("application/problem+json"), "{}", self.head);
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }
}

/// Connects to an address.
pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// Connects to the local socket.
pub(crate) fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the daemon listens");
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
}

/// A request as bytes.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// Sends bytes and reads the whole answer.
pub(crate) fn exchange(stream: &mut dyn Stream, bytes: &[u8]) -> Answer {
    // A server that refuses early may close before it has read all.
    drop(stream.write_all(bytes));
    let mut all = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&all)),
        }
    }
    parse(&all)
}

fn parse(all: &[u8]) -> Answer {
    let end = all
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(all)));
    let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let rest = &all[end + 4..];
    let body = if head.contains("transfer-encoding: chunked") {
        unchunk(rest)
    } else {
        rest.to_vec()
    };
    Answer { status, head, body }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 || rest.len() < end + 2 + size {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    body
}

/// An open WebSocket.
pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    held: Vec<u8>,
}

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Text(String),
    Binary(Vec<u8>),
    Closed(u16),
}

impl Socket {
    /// Shakes hands, or gives the refusal back.
    pub(crate) fn open(
        mut stream: Box<dyn Stream>,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, Answer> {
        let mut text = format!(
            "GET {path} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).expect("an answer") == 0 {
                break;
            }
            head.push(byte[0]);
        }
        let told = String::from_utf8_lossy(&head).to_ascii_lowercase();
        if told.starts_with("http/1.1 101") {
            return Ok(Self {
                stream,
                held: Vec::new(),
            });
        }
        let length = told
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next())
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("the body of the refusal");
        Err(parse(&[head, body].concat()))
    }

    /// The next message; pings are answered.
    pub(crate) fn next(&mut self) -> Word {
        loop {
            let (kind, payload) = self.frame();
            match kind {
                1 => return Word::Text(String::from_utf8(payload).unwrap()),
                2 => return Word::Binary(payload),
                8 => {
                    let code = payload
                        .get(..2)
                        .map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
                    return Word::Closed(code);
                }
                9 => self.send(10, &payload),
                _ => {}
            }
        }
    }

    fn need(&mut self, count: usize) -> bool {
        let mut buffer = [0; 65536];
        while self.held.len() < count {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.held.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    fn frame(&mut self) -> (u8, Vec<u8>) {
        if !self.need(2) {
            return (8, Vec::new());
        }
        let kind = self.held[0] & 15;
        let (head, length) = match self.held[1] & 127 {
            126 if self.need(4) => (4, usize::from(u16::from_be_bytes([self.held[2], self.held[3]]))),
            127 if self.need(10) => {
                let long: [u8; 8] = self.held[2..10].try_into().unwrap();
                (10, usize::try_from(u64::from_be_bytes(long)).unwrap())
            }
            short => (2, usize::from(short)),
        };
        if !self.need(head + length) {
            return (8, Vec::new());
        }
        let payload = self.held[head..head + length].to_vec();
        self.held.drain(..head + length);
        (kind, payload)
    }

    /// Sends a message; masked by zeros, which is a mask.
    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut bytes = vec![0x80 | kind];
        match payload.len() {
            length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).unwrap()),
            length => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        drop(self.stream.write_all(&bytes));
    }
}
