//! What a driven agent said, read from the run's events: the text of its messages, without the frames of its protocol.
//!
//! A driven agent speaks JSON on its standard output. Callers of MCP and A2A want what it said, so for such runs "output"
//! is this transcript; the frames stay readable as the raw log.
//!
//! **Trust:** the text is the agent's: data, bounded by the caller.
use crate::errors::Refusal;
use bastle_contract::RunId;
use bastle_control::fleet::{EventFilter, Fleet, StoredEvent};

/// Events that are read at once.
const BLOCK: usize = 1000;

/// A piece of text of the agent.
pub(crate) struct Piece {
    /// Number of its event among all events.
    pub(crate) seq: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) text: String,
}

/// Pieces of a transcript, and where the next ones begin.
pub(crate) struct Transcript {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) next: u64,
    /// Whether this is all there is now.
    pub(crate) whole: bool,
}

/// Whether a run's standard output is a protocol. A plain agent's output is its text.
pub(crate) fn speaks_a_protocol(fleet: &Fleet, run: &RunId) -> Result<bool, Refusal> {
    let spec = fleet.spec(run)?;
    Ok(spec
        .get()
        .driver
        .as_deref()
        .is_some_and(|driver| driver != "plain"))
}

/// What an event is to a transcript.
pub(crate) enum Mark<'e> {
    /// A piece of a message of the agent.
    Text(&'e str),
    /// Nothing: the agent may go on with its message after it.
    Within,
    /// The message before it is complete: the agent did something else, or somebody spoke to it.
    Boundary,
}

/// The kinds of events that a transcript is made of: what the agent said, and that somebody spoke to it.
pub(crate) const KINDS: [&str; 2] = ["agent", "said"];

/// Reads an event of one of [`KINDS`].
pub(crate) fn mark(event: &StoredEvent) -> Mark<'_> {
    if event.kind != "agent" {
        return Mark::Boundary;
    }
    match (event.data["said"].as_str(), event.data["text"].as_str()) {
        (Some("text"), Some(text)) => Mark::Text(text),
        (Some("thought" | "usage" | "noise"), _) => Mark::Within,
        _ => Mark::Boundary,
    }
}

/// What was said after event `since`, about `most` bytes of it.
pub(crate) fn read(fleet: &Fleet, run: &RunId, since: u64, most: usize) -> Result<Transcript, Refusal> {
    let filter = EventFilter {
        run: Some(run.clone()),
        kinds: KINDS.map(str::to_owned).to_vec(),
        ..EventFilter::default()
    };
    let mut transcript = Transcript {
        pieces: Vec::new(),
        next: since,
        whole: false,
    };
    let mut size = 0;
    // A part may begin within a message: then no line break stands before it.
    let mut ended = match fleet.events(since.saturating_sub(1), &filter, 1)?.first() {
        Some(event) if event.seq == since => matches!(mark(event), Mark::Boundary),
        Some(_) | None => since > 0,
    };
    loop {
        let found = fleet.events(transcript.next, &filter, BLOCK)?;
        for event in &found {
            let text = match mark(event) {
                Mark::Text(text) => text,
                Mark::Within | Mark::Boundary => {
                    ended |= matches!(mark(event), Mark::Boundary);
                    transcript.next = event.seq;
                    continue;
                }
            };
            if size >= most {
                return Ok(transcript);
            }
            let first = transcript.pieces.is_empty() && since == 0;
            let text = match ended && !first {
                true => format!("\n{text}"),
                false => text.to_owned(),
            };
            ended = false;
            size += text.len();
            transcript.next = event.seq;
            transcript.pieces.push(Piece {
                seq: event.seq,
                time_ms: event.time_ms,
                text,
            });
        }
        if found.len() < BLOCK {
            transcript.whole = true;
            return Ok(transcript);
        }
    }
}

/// The end of the transcript, at most `most` bytes, and how long all of it is.
pub(crate) fn tail(fleet: &Fleet, run: &RunId, most: usize) -> Result<(String, usize), Refusal> {
    let mut text = String::new();
    let (mut at, mut all) = (0, 0);
    loop {
        let part = read(fleet, run, at, most)?;
        for piece in &part.pieces {
            all += piece.text.len();
            text.push_str(&piece.text);
        }
        text.drain(..text.ceil_char_boundary(text.len().saturating_sub(most)));
        at = part.next;
        if part.whole {
            return Ok((text, all));
        }
    }
}
