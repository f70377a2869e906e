//! Frames of a stream that is attached to a living run or to a command in it: a kind, a length, bytes.
use std::fmt;

/// Largest payload of one frame.
pub const MAX_PAYLOAD: usize = 64 * 1024;
const HEADER: usize = 5;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamKind {
    /// To the run: bytes for its input. Empty: the input ends.
    Input = 0,
    /// From the run: its output.
    Output = 1,
    /// From the run: its errors.
    Errors = 2,
    /// To the run: the size of the viewer's terminal as JSON [`crate::runs::TtySize`].
    Resize = 3,
    /// From the run, last: how it ended, as JSON.
    Ended = 4,
    /// From the run: something that happened, as JSON [`crate::runs::RunEvent`].
    Event = 5,
    /// To the run: a signal number as one byte.
    Signal = 6,
}

/// One frame.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamFrame {
    /// What it carries.
    pub kind: StreamKind,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
}

impl fmt::Debug for StreamFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({} bytes)", self.kind, self.payload.len())
    }
}

/// Bytes that are no stream of frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// A frame larger than any is.
    #[error("a frame of {0} bytes; at most {MAX_PAYLOAD} are accepted")]
    Length(usize),
}

impl TryFrom<u8> for StreamKind {
    type Error = StreamError;

    fn try_from(byte: u8) -> Result<Self, StreamError> {
        [
            Self::Input,
            Self::Output,
            Self::Errors,
            Self::Resize,
            Self::Ended,
            Self::Event,
            Self::Signal,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
        .ok_or(StreamError::Kind(byte))
    }
}

/// Bytes of one or more frames that carry `payload`: one too long for a frame is cut into several.
#[must_use]
pub fn frames(kind: StreamKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + HEADER);
    let mut one = |part: &[u8]| {
        bytes.push(kind as u8);
        bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    if payload.is_empty() {
        one(&[]);
    }
    payload.chunks(MAX_PAYLOAD).for_each(&mut one);
    bytes
}

/// Puts frames together from bytes as they come. Holds at most one frame and what was given last.
#[derive(Default)]
pub struct StreamReader {
    held: Vec<u8>,
    at: usize,
}

impl StreamReader {
    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.at);
        self.at = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<StreamFrame>, StreamError> {
        let rest = &self.held[self.at..];
        let Some((header, rest)) = rest.split_at_checked(HEADER) else {
            return Ok(None);
        };
        let kind = StreamKind::try_from(header[0])?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(StreamError::Length(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.at += HEADER + length;
        Ok(Some(StreamFrame { kind, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_whole_however_the_bytes_are_cut() {
        let mut bytes = frames(StreamKind::Output, &vec![7; MAX_PAYLOAD + 10]);
        bytes.extend(frames(StreamKind::Input, b""));
        bytes.extend(frames(StreamKind::Event, b"{}"));
        for step in [1, 3, 4096, bytes.len()] {
            let mut reader = StreamReader::default();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(step) {
                reader.push(chunk);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push((frame.kind, frame.payload.len()));
                }
            }
            let whole = [
                (StreamKind::Output, MAX_PAYLOAD),
                (StreamKind::Output, 10),
                (StreamKind::Input, 0),
                (StreamKind::Event, 2),
            ];
            assert_eq!(seen, whole, "in steps of {step}");
        }
    }

    #[test]
    fn an_unknown_kind_or_an_endless_frame_is_refused_before_it_is_held() {
        let mut reader = StreamReader::default();
        reader.push(&[9, 0, 0, 0, 0]);
        assert_eq!(reader.next_frame(), Err(StreamError::Kind(9)));
        let mut reader = StreamReader::default();
        reader.push(&[1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(reader.next_frame(), Err(StreamError::Length(0xffff_ffff)));
    }
}
