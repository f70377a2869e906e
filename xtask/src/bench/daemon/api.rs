//! The daemon's API over its local socket: one request at a time, and the stream of events.
//!
//! Just enough of HTTP and WebSocket for a server that is ours: lengths are bounded, anything unexpected is an error.
use crate::sh::Failed;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// No answer and no event of a measurement is longer.
const MOST: u64 = 64 * 1024 * 1024;

/// One kept connection.
pub(super) struct Api {
    reader: BufReader<UnixStream>,
}

impl Api {
    /// Connects.
    pub(super) fn connect(socket: &Path) -> Result<Self, Failed> {
        let stream = UnixStream::connect(socket).map_err(Failed::io(socket.display()))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(Failed::io(socket.display()))?;
        Ok(Self {
            reader: BufReader::with_capacity(64 * 1024, stream),
        })
    }

    /// Asks and returns the answer, which must be a success.
    pub(super) fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failed> {
        let what = format!("{method} {path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let io = || Failed::io(&what);
        self.reader
            .get_mut()
            .write_all((head + &body).as_bytes())
            .map_err(io())?;
        let (status, length) = self.head().map_err(io())?;
        let mut bytes = Vec::new();
        self.reader
            .by_ref()
            .take(length.min(MOST))
            .read_to_end(&mut bytes)
            .map_err(io())?;
        let text = String::from_utf8_lossy(&bytes);
        if !(200..300).contains(&status) {
            return Err(Failed::new(what, format!("{status}: {text}")));
        }
        serde_json::from_str(&text).map_err(|error| Failed::new(what, format!("{error}: {text}")))
    }

    /// Status and length of the answer that follows.
    fn head(&mut self) -> std::io::Result<(u16, u64)> {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.reader.by_ref().take(16 * 1024).read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                return Ok((status, length));
            }
            if status == 0 {
                status = line
                    .split(' ')
                    .nth(1)
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(0);
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
    }
}

/// One event as it arrived.
pub(super) struct Event {
    /// When.
    pub(super) at: Instant,
    /// The CloudEvent.
    pub(super) value: Value,
}

impl Event {
    /// Its number among all events.
    pub(super) fn seq(&self) -> Option<u64> {
        self.value["sequence"].as_str()?.parse().ok()
    }

    /// The run and the state it says it is in.
    pub(super) fn state(&self) -> Option<(&str, &str)> {
        (self.value["type"] == "dev.bastle.run.state.v1").then(|| {
            Some((
                self.value["subject"].as_str()?,
                self.value["data"]["state"].as_str()?,
            ))
        })?
    }
}

/// The stream of events by WebSocket.
pub(super) struct Events {
    reader: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Events {
    /// Opens it for everything after `since`.
    pub(super) fn open(socket: &Path, since: u64) -> Result<Self, Failed> {
        let mut api = Api::connect(socket)?;
        let what = "GET /api/v1/ws";
        // The key is fixed: it proves to a cache in between that the server understood, and there is none.
        let head = format!(
            "{what}?since={since} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        api.reader
            .get_mut()
            .write_all(head.as_bytes())
            .map_err(Failed::io(what))?;
        match api.head().map_err(Failed::io(what))? {
            (101, _) => Ok(Self {
                reader: api.reader,
                socket: socket.to_owned(),
            }),
            (status, _) => Err(Failed::new(what, format!("status {status}"))),
        }
    }

    /// A second connection's handle to end a reader that waits.
    pub(super) fn closer(&self) -> Result<UnixStream, Failed> {
        self.reader
            .get_ref()
            .try_clone()
            .map_err(Failed::io(self.socket.display()))
    }

    /// The next event; nothing when the stream is over.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Failed> {
        let failed = || Failed::io("events");
        loop {
            let Some((kind, bytes)) = frame(&mut self.reader).map_err(failed())? else {
                return Ok(None);
            };
            match kind {
                TEXT => {
                    let at = Instant::now();
                    let value = serde_json::from_slice(&bytes)
                        .map_err(|error| Failed::new("events", error.to_string()))?;
                    return Ok(Some(Event { at, value }));
                }
                // A pong from a client is masked; with a mask of zeros the bytes stay as they are.
                PING if bytes.len() <= 125 => {
                    let length = u8::try_from(bytes.len()).unwrap_or(0);
                    let mut pong = vec![0x80 | PONG, 0x80 | length, 0, 0, 0, 0];
                    pong.extend(bytes);
                    self.reader.get_mut().write_all(&pong).map_err(failed())?;
                }
                CLOSE => return Ok(None),
                _ => {}
            }
        }
    }
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// One frame of a server: kind and bytes. Nothing at the end of the stream.
fn frame(reader: &mut impl Read) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 2];
    match reader.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = match head[1] & 0x7f {
        126 => {
            let mut long = [0; 2];
            reader.read_exact(&mut long)?;
            u64::from(u16::from_be_bytes(long))
        }
        127 => {
            let mut long = [0; 8];
            reader.read_exact(&mut long)?;
            u64::from_be_bytes(long)
        }
        short => u64::from(short),
    };
    if length > MOST {
        return Err(std::io::Error::other("a frame that is too long"));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    reader.read_exact(&mut bytes)?;
    Ok(Some((head[0] & 0x0f, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_three_lengths_are_read_and_a_torn_one_is_an_error() {
        let mut bytes = vec![0x81, 2, b'h', b'i', 0x89, 126, 0, 200];
        bytes.extend([7; 200]);
        bytes.extend([0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        bytes.extend([9; 65536]);
        let mut reader = bytes.as_slice();
        assert_eq!(frame(&mut reader).unwrap(), Some((TEXT, b"hi".to_vec())));
        assert_eq!(frame(&mut reader).unwrap(), Some((PING, vec![7; 200])));
        assert_eq!(frame(&mut reader).unwrap().map(|(_, b)| b.len()), Some(65536));
        assert_eq!(frame(&mut reader).unwrap(), None);
        assert!(frame(&mut [0x81, 5, 1].as_slice()).is_err());
        assert!(frame(&mut [0x81, 127, 255, 0, 0, 0, 0, 0, 0, 0].as_slice()).is_err());
    }

    #[test]
    fn a_state_is_read_from_events_of_states_only() {
        let event = |kind: &str| Event {
            at: Instant::now(),
            value: serde_json::json!({
                "type": kind, "subject": "a-1", "sequence": "7", "data": { "state": "running" }
            }),
        };
        let state = event("dev.bastle.run.state.v1");
        assert_eq!(state.state(), Some(("a-1", "running")));
        assert_eq!(state.seq(), Some(7));
        assert_eq!(event("dev.bastle.run.note.v1").state(), None);
    }
}
