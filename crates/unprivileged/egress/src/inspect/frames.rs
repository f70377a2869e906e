//! WebSocket frames of a server that was given a secret: its value is taken out of their payload.
//!
//! **Trust:** reads a server's frames (RFC 6455, 5.2). Extensions were not offered, so payloads are not compressed; a frame
//! that says otherwise ends the connection. A value that is split over two messages is not found.
use crate::scrub::{Needles, Scrubber};
use std::sync::Arc;

/// Longest payload of a control frame.
const MAX_CONTROL: usize = 125;

/// Scrubs the frames of one direction.
pub(super) struct FrameScrubber {
    needles: Arc<Needles>,
    scrub: Scrubber,
    input: Vec<u8>,
    open: Option<Open>,
    /// Of the next frame that is written: the kind of the message, then 0.
    opcode: u8,
}

/// A data frame of which the payload is being read.
struct Open {
    left: u64,
    last: bool,
}

/// The head of a frame.
struct Head {
    length: usize,
    payload: u64,
    opcode: u8,
    last: bool,
}

/// The bit of the last frame of a message (RFC 6455, 5.2), and its absence.
const FINAL: u8 = 0x80;
const CONTINUES: u8 = 0;

impl FrameScrubber {
    /// At the beginning of a connection.
    pub(super) fn new(needles: Arc<Needles>) -> Self {
        Self {
            scrub: Scrubber::new(Arc::clone(&needles)),
            needles,
            input: Vec::new(),
            open: None,
            opcode: 0,
        }
    }

    /// The clean frames that follow from these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        self.input.extend_from_slice(bytes);
        let mut out = Vec::new();
        loop {
            if let Some(mut open) = self.open.take() {
                let length = self
                    .input
                    .len()
                    .min(usize::try_from(open.left).unwrap_or(usize::MAX));
                let payload: Vec<u8> = self.input.drain(..length).collect();
                open.left -= payload.len() as u64;
                let mut clean = self.scrub.feed(&payload);
                if open.left > 0 {
                    self.open = Some(open);
                    if !clean.is_empty() {
                        self.write(&mut out, CONTINUES, &clean);
                    }
                    return Ok(out);
                }
                if open.last {
                    clean.extend(self.scrub.finish());
                }
                self.write(&mut out, if open.last { FINAL } else { CONTINUES }, &clean);
                continue;
            }
            let Some(head) = head(&self.input)? else {
                return Ok(out);
            };
            if head.opcode >= 8 {
                let payload = usize::try_from(head.payload).unwrap_or(usize::MAX);
                let Some(text) = self.input.get(head.length..head.length.saturating_add(payload)) else {
                    return Ok(out);
                };
                let mut clean = self.needles.scrub(text).unwrap_or_else(|| text.to_vec());
                clean.truncate(MAX_CONTROL);
                self.input.drain(..head.length + payload);
                frame(&mut out, 0x80 | head.opcode, &clean);
                continue;
            }
            if head.opcode != 0 {
                self.opcode = head.opcode;
            }
            self.input.drain(..head.length);
            self.open = Some(Open {
                left: head.payload,
                last: head.last,
            });
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, fin: u8, payload: &[u8]) {
        let first = fin | self.opcode;
        self.opcode = 0;
        frame(out, first, payload);
    }
}

fn head(input: &[u8]) -> Result<Option<Head>, &'static str> {
    let Some([first, second]) = input.get(..2) else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err("the server used an extension that was not offered");
    }
    if second & 0x80 != 0 {
        return Err("the server masked a frame");
    }
    let (opcode, last) = (first & 15, first & 0x80 != 0);
    let wide = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if opcode >= 8 && (wide > 0 || !last) {
        return Err("a control frame that is too long or in pieces");
    }
    let payload = match wide {
        0 => u64::from(second & 0x7f),
        _ => {
            let Some(digits) = input.get(2..2 + wide) else {
                return Ok(None);
            };
            digits.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        }
    };
    Ok(Some(Head {
        length: 2 + wide,
        payload,
        opcode,
        last,
    }))
}

fn frame(out: &mut Vec<u8>, first: u8, payload: &[u8]) {
    out.push(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend(length.to_be_bytes());
        }
        (_, Err(_)) => {
            out.push(127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "sk-real-0123456789";

    fn scrubber() -> FrameScrubber {
        FrameScrubber::new(Arc::new(Needles::new([(VALUE, "PHANTOM")].into_iter())))
    }

    /// Messages in a stream of frames.
    fn messages(mut bytes: &[u8]) -> Vec<(u8, String)> {
        let mut all: Vec<(u8, String)> = Vec::new();
        while let Some(head) = head(bytes).unwrap() {
            let end = head.length + usize::try_from(head.payload).unwrap();
            let text = String::from_utf8_lossy(&bytes[head.length..end]).into_owned();
            match (head.opcode, all.last_mut()) {
                (0, Some(last)) => last.1 += &text,
                (opcode, _) => all.push((opcode, text)),
            }
            bytes = &bytes[end..];
        }
        assert!(bytes.is_empty());
        all
    }

    #[test]
    fn a_value_in_a_message_does_not_pass_however_it_is_cut_into_frames_and_pieces() {
        let mut sent = Vec::new();
        frame(&mut sent, 0x81, format!("your key is {VALUE}!").as_bytes());
        frame(&mut sent, 0x01, &VALUE.as_bytes()[..5]);
        frame(&mut sent, 0x89, VALUE.as_bytes());
        frame(&mut sent, 0x80, &VALUE.as_bytes()[5..]);
        frame(&mut sent, 0x82, &vec![b'x'; 70_000]);
        for step in [1, 2, 7, 1_000, 100_000] {
            let mut scrubber = scrubber();
            let mut out = Vec::new();
            for piece in sent.chunks(step) {
                out.extend(scrubber.feed(piece).unwrap());
            }
            // The control frame stands within the second message.
            let got: Vec<String> = messages(&out).into_iter().map(|(_, text)| text).collect();
            assert!(!got.concat().contains("real-0123"), "{step}: {got:?}");
            assert_eq!(got[0], "your key is PHANTOM!", "{step}");
            assert_eq!(got.last().map(String::len), Some(70_000), "{step}");
        }
    }

    #[test]
    fn a_compressed_or_masked_frame_ends_the_connection() {
        assert!(scrubber().feed(&[0xc1, 0x01, b'a']).is_err());
        assert!(scrubber().feed(&[0x81, 0x81, 0, 0, 0, 0, b'a']).is_err());
        assert!(scrubber().feed(&[0x89, 0x7e, 0, 0xff]).is_err());
        assert_eq!(
            scrubber().feed(&[0x81, 0x01, b'a']).unwrap(),
            [0x81, 0x01, b'a'],
            "control"
        );
    }
}
