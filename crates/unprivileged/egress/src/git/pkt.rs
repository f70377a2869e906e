//! pkt-line: the framing of git's smart protocol.
//!
//! **Trust:** reads the agent's bytes. Every packet is at most [`MAX_PACKET`] long by its own four digits.

/// Largest packet, its length included, by the protocol.
pub(crate) const MAX_PACKET: usize = 65_520;

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// `0000`: the end of a section.
    Flush,
    /// Some bytes.
    Data(&'a [u8]),
}

/// Why bytes are no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The first packet of `bytes` and its length; `None` where more bytes are needed.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some(digits) = bytes.get(..4) else {
        return if bytes.iter().all(u8::is_ascii_hexdigit) {
            Ok(None)
        } else {
            Err(Malformed)
        };
    };
    let mut length = 0usize;
    for digit in digits {
        let value = char::from(*digit).to_digit(16).ok_or(Malformed)?;
        length = length * 16 + value as usize;
    }
    match length {
        0 => Ok(Some((Packet::Flush, 4))),
        // 1 and 2 end sections of another version of the protocol, which has no push; 3 is shorter than itself.
        1..=3 => Err(Malformed),
        _ if length > MAX_PACKET => Err(Malformed),
        _ => Ok(bytes.get(4..length).map(|data| (Packet::Data(data), length))),
    }
}

/// Follows packets piece by piece and says when a section has ended, so that a section is read once, when it is whole.
/// Looks at every byte at most once, however the stream is cut.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    /// Digits of a length that is not whole yet.
    digits: Vec<u8>,
    /// Bytes of a packet that are still to come.
    left: usize,
    /// Bytes that were looked at.
    scanned: u64,
}

/// What a piece brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing ended.
    Inside,
    /// At least one section ended.
    Ended,
    /// These are no packets.
    Malformed,
}

impl Sections {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Progress {
        let mut progress = Progress::Inside;
        while let Some((&first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            self.scanned += 1;
            self.digits.push(first);
            bytes = rest;
            if self.digits.len() < 4 {
                continue;
            }
            let mut length = 0;
            for digit in self.digits.drain(..) {
                let Some(value) = char::from(digit).to_digit(16) else {
                    return Progress::Malformed;
                };
                length = length * 16 + value as usize;
            }
            match length {
                0 => progress = Progress::Ended,
                1..=3 => return Progress::Malformed,
                _ => self.left = length - 4,
            }
        }
        progress
    }

    #[cfg(test)]
    pub(crate) fn scanned(&self) -> u64 {
        self.scanned
    }
}

/// Writes one packet. Longer data is cut at what a packet holds.
pub(crate) fn write(out: &mut Vec<u8>, data: &[u8]) {
    let data = data.get(..MAX_PACKET - 4).unwrap_or(data);
    out.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.extend_from_slice(data);
}

/// Writes the end of a section.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}
