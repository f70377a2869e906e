//! What one peer is shown, read from the run's files: a peer that reads slowly costs its bounded queue and nothing else.
use crate::live::Peer;
use crate::runs::{EventReader, OutputReader, RunDir};
use bastle_contract::Fault;
use bastle_contract::runs::RunEvent;
use bastle_contract::stream::{MAX_PAYLOAD, StreamKind};
use serde_json::{Value, json};
use std::io;

/// Bytes of the text of an event that is cut: each may take six as JSON.
const MOST_TEXT: usize = 8 * 1024;

/// A place in a file.
pub(crate) enum Feed {
    /// What the agent printed.
    Output { reader: OutputReader, hands: Hands },
    /// What happened.
    Events(EventReader),
}

/// Whether what a peer sends goes to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hands {
    /// It does.
    Type,
    /// It only looks.
    Rest,
}

/// How far a peer was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// It has everything that is there.
    All,
    /// It has to read before there is more.
    Part,
}

impl Feed {
    /// The output from a record on; without one, only what comes.
    pub(crate) fn output(dir: &RunDir, since: Option<u64>, now: u64, hands: Hands) -> Result<Self, Fault> {
        let mut reader = dir.printed()?;
        reader.seek(since.unwrap_or(now).min(now)).map_err(|error| {
            Fault::new(
                bastle_contract::Code::StateDir,
                "cannot read what the run printed",
                error.to_string(),
            )
        })?;
        Ok(Self::Output { reader, hands })
    }

    /// The events after a number.
    pub(crate) fn events(dir: &RunDir, since: u64) -> Result<Self, Fault> {
        EventReader::open(&dir.events_path(), since)
            .map(Self::Events)
            .map_err(|error| {
                Fault::new(
                    bastle_contract::Code::StateDir,
                    "cannot read the events of the run",
                    error.to_string(),
                )
            })
    }

    /// Whether what the peer sends goes to the agent.
    pub(crate) fn takes_input(&self) -> bool {
        match self {
            Self::Output { hands, .. } => *hands == Hands::Type,
            Self::Events(_) => false,
        }
    }

    /// Queues as much as fits.
    pub(crate) fn fill(&mut self, peer: &mut Peer) -> io::Result<Fed> {
        // The largest frame fits, so what was read is never refused.
        while peer.room() >= MAX_PAYLOAD {
            let queued = match self {
                Self::Output { reader, .. } => match reader.next_record()? {
                    Some(record) => peer.queue(record.kind, &record.bytes),
                    None => return Ok(Fed::All),
                },
                Self::Events(reader) => match reader.next_event()? {
                    Some(event) => {
                        let bytes = fitting(event).map_err(io::Error::other)?;
                        peer.queue(StreamKind::Event, &bytes)
                    }
                    None => return Ok(Fed::All),
                },
            };
            if !queued {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(Fed::Part)
    }
}

/// An event that is larger than a frame is shown with its text cut, or without what it is about: the file has it whole.
fn fitting(mut event: RunEvent) -> serde_json::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(&event)?;
    if bytes.len() <= MAX_PAYLOAD {
        return Ok(bytes);
    }
    let short = event.data.get("text").and_then(Value::as_str).map(|text| {
        let end = text.floor_char_boundary(MOST_TEXT);
        format!("{} … ({} bytes in all)", &text[..end], text.len())
    });
    match short {
        Some(short) => event.data["text"] = Value::String(short),
        None => event.data = json!({ "left_out": bytes.len() }),
    }
    let bytes = serde_json::to_vec(&event)?;
    if bytes.len() <= MAX_PAYLOAD {
        return Ok(bytes);
    }
    event.data = json!({ "left_out": bytes.len() });
    serde_json::to_vec(&event)
}
