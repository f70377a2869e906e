//! Server-sent events as they come, one after another.
use super::Client;
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::{Duration, Instant};

/// Longest event that is held.
const MOST_EVENT: usize = 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its number: the next stream goes on after it with `since=`.
    pub id: Option<String>,
    /// Its sort.
    pub event: Option<String>,
    /// Its data.
    pub data: String,
}

/// Events of one stream.
pub struct Events {
    client: Client,
    body: Option<Incoming>,
    reader: Reader,
}

/// What came of waiting.
#[derive(Debug)]
pub enum Waited {
    /// An event.
    Event(SseEvent),
    /// The time is over.
    Late,
    /// The stream has ended.
    Ended,
}

impl Events {
    pub(super) fn new(client: Client, response: Response<Incoming>) -> Self {
        Self {
            client,
            body: Some(response.into_body()),
            reader: Reader::default(),
        }
    }

    /// Waits at most so long for the next event.
    pub fn wait(&mut self, patience: Duration) -> Waited {
        let until = Instant::now() + patience;
        loop {
            if let Some(event) = self.reader.next_event() {
                return Waited::Event(event);
            }
            let Some(body) = &mut self.body else {
                return Waited::Ended;
            };
            let left = until.saturating_duration_since(Instant::now());
            let frame = self
                .client
                .inner
                .runtime
                .block_on(async { tokio::time::timeout(left, body.frame()).await });
            let data: Option<Bytes> = match frame {
                Err(_) => return Waited::Late,
                Ok(Some(Ok(frame))) => frame.into_data().ok(),
                Ok(Some(Err(_)) | None) => {
                    self.body = None;
                    continue;
                }
            };
            if !self.reader.push(&data.unwrap_or_default()) {
                self.body = None;
            }
        }
    }
}

impl Iterator for Events {
    type Item = SseEvent;

    fn next(&mut self) -> Option<SseEvent> {
        loop {
            match self.wait(Duration::from_secs(3600)) {
                Waited::Event(event) => return Some(event),
                Waited::Late => {}
                Waited::Ended => return None,
            }
        }
    }
}

/// Puts events together from bytes.
#[derive(Default)]
pub(crate) struct Reader {
    held: Vec<u8>,
}

impl Reader {
    /// Takes bytes; `false` when an event is longer than any is.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.held.extend_from_slice(bytes);
        self.held.len() <= MOST_EVENT
    }

    /// The next whole event; comments are passed over.
    pub(crate) fn next_event(&mut self) -> Option<SseEvent> {
        loop {
            let end = self.held.windows(2).position(|two| two == b"\n\n")?;
            let block: Vec<u8> = self.held.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block);
            let mut event = SseEvent::default();
            let mut data: Vec<&str> = Vec::new();
            for line in text.lines() {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match name {
                    "id" => event.id = Some(value.to_owned()),
                    "event" => event.event = Some(value.to_owned()),
                    "data" => data.push(value),
                    _ => {}
                }
            }
            if !data.is_empty() {
                event.data = data.join("\n");
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_whole_however_the_bytes_are_cut_and_an_endless_one_is_refused() {
        let text = b": hello\n\nid: 7\nevent: run.state\ndata: {\"a\":1}\n\ndata: x\ndata: y\n\n";
        for cut in 1..text.len() {
            let mut reader = Reader::default();
            let mut got = Vec::new();
            for part in text.chunks(cut) {
                assert!(reader.push(part));
                while let Some(event) = reader.next_event() {
                    got.push(event);
                }
            }
            assert_eq!(got.len(), 2, "cut {cut}");
            assert_eq!(got[0].id.as_deref(), Some("7"));
            assert_eq!(got[0].data, "{\"a\":1}");
            assert_eq!(got[1].data, "x\ny");
        }
        let mut reader = Reader::default();
        assert!(!reader.push(&vec![b'x'; MOST_EVENT + 1]));
    }
}
