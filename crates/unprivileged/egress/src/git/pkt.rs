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
