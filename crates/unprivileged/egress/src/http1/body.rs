//! Bodies from their framing, piece by piece.
//!
//! **Trust:** reads the agent's bytes; holds nothing of them but the line it is in.
use super::head::{Framing, HeadError, parse_field};
use crate::limits::{MAX_CHUNK_EXTENSION, MAX_TRAILERS};
use bytes::{Buf, Bytes, BytesMut};

/// Where a body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodyDecoder {
    state: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// So many bytes are left, of the body or (`true`) of this chunk.
    Data { left: u64, chunk: bool },
    /// A chunk's size line.
    Size,
    /// CR LF after a chunk's data.
    ChunkEnd,
    /// Trailer lines, so many bytes of them seen.
    Trailers(usize),
    /// Nothing is left.
    Done,
}

/// What the decoder found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A piece of the body.
    Piece(Bytes),
    /// It needs more bytes.
    More,
    /// The body is complete.
    End,
}

impl BodyDecoder {
    /// A decoder for this framing.
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => Stage::Done,
            Framing::Length(left) => Stage::Data { left, chunk: false },
            Framing::Chunked => Stage::Size,
        };
        Self { state }
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == Stage::Done
    }

    /// Takes what belongs to the body from the front of `buffer`, at most `most` bytes as one piece.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut, most: usize) -> Result<Decoded, HeadError> {
        loop {
            match self.state {
                Stage::Done => return Ok(Decoded::End),
                Stage::Data { left, chunk } => {
                    if buffer.is_empty() {
                        return Ok(Decoded::More);
                    }
                    let n = usize::try_from(left)
                        .unwrap_or(usize::MAX)
                        .min(buffer.len())
                        .min(most);
                    let piece = buffer.split_to(n).freeze();
                    let left = left - n as u64;
                    self.state = match (left, chunk) {
                        (0, false) => Stage::Done,
                        (0, true) => Stage::ChunkEnd,
                        (left, chunk) => Stage::Data { left, chunk },
                    };
                    return Ok(Decoded::Piece(piece));
                }
                Stage::Size => {
                    let Some(line) = take_line(buffer, 8 + MAX_CHUNK_EXTENSION)? else {
                        return Ok(Decoded::More);
                    };
                    self.state = match chunk_size(&line)? {
                        0 => Stage::Trailers(0),
                        left => Stage::Data { left, chunk: true },
                    };
                }
                Stage::ChunkEnd => match buffer.get(..2) {
                    Some(b"\r\n") => {
                        buffer.advance(2);
                        self.state = Stage::Size;
                    }
                    Some(_) => return Err(HeadError::Malformed("a chunk longer than its size")),
                    None if buffer.first().is_some_and(|&b| b != b'\r') => {
                        return Err(HeadError::Malformed("a chunk longer than its size"));
                    }
                    None => return Ok(Decoded::More),
                },
                Stage::Trailers(seen) => {
                    let Some(line) = take_line(buffer, MAX_TRAILERS - seen)? else {
                        return Ok(Decoded::More);
                    };
                    if line.is_empty() {
                        self.state = Stage::Done;
                    } else {
                        // Trailers are read to find the end and then dropped: nobody upstream may take one for a header.
                        parse_field(&line)?;
                        self.state = Stage::Trailers((seen + line.len() + 2).min(MAX_TRAILERS));
                    }
                }
            }
        }
    }
}

/// A line without its CR LF, once it is complete.
fn take_line(buffer: &mut BytesMut, most: usize) -> Result<Option<BytesMut>, HeadError> {
    let Some(end) = buffer
        .iter()
        .take(most + 1)
        .position(|&b| b == b'\r' || b == b'\n')
    else {
        return if buffer.len() > most {
            Err(HeadError::TooLarge)
        } else {
            Ok(None)
        };
    };
    match buffer.get(end..end + 2) {
        Some(b"\r\n") => {
            let line = buffer.split_to(end);
            buffer.advance(2);
            Ok(Some(line))
        }
        None if buffer.get(end) == Some(&b'\r') => Ok(None),
        Some(_) | None => Err(HeadError::Malformed("a bare CR or LF")),
    }
}

/// Up to eight hexadecimal digits, then nothing or an extension without control bytes.
fn chunk_size(line: &[u8]) -> Result<u64, HeadError> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if !(1..=8).contains(&digits) {
        return Err(HeadError::Malformed("a malformed chunk size"));
    }
    let extension = &line[digits..];
    let fits = extension.is_empty()
        || (extension[0] == b';'
            && extension.len() <= MAX_CHUNK_EXTENSION
            && extension.iter().all(|&b| (0x20..0x7f).contains(&b) || b == b'\t'));
    if !fits {
        return Err(HeadError::Malformed("a malformed chunk size"));
    }
    Ok(line[..digits].iter().fold(0, |sum, &digit| {
        let value = (digit as char).to_digit(16).unwrap_or(0);
        sum * 16 + u64::from(value)
    }))
}
