//! DNS queries from their bytes, and our answers.
//!
//! **Trust:** reads the agent's bytes; bounded, total. Compression has no place in a question and is refused.
use crate::limits::MAX_QUERY;
use std::net::Ipv4Addr;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    /// Identifier, to be repeated.
    pub id: u16,
    /// Flags that are repeated: opcode and "recursion desired".
    flags: u16,
    /// The question's bytes, to be repeated.
    question: Vec<u8>,
    /// The name, labels joined by dots, bytes that have no place in a name escaped.
    pub name: String,
    /// The type.
    pub kind: Kind,
    /// Largest answer the client takes over UDP; `None` without EDNS.
    pub edns: Option<u16>,
}

/// Types that are answered differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Anything else.
    Other(u16),
}

/// Why a packet is not a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAsking {
    /// It cannot even be answered: dropped.
    Noise,
    /// It has an identifier: answered with FORMERR.
    Malformed(u16),
    /// Something else than a plain query: answered with NOTIMP.
    Unsupported(u16),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// One address.
    Address(Ipv4Addr),
    /// The name exists, nothing of this type does.
    Empty,
    /// Denied: no such name, with words for who can read them.
    Denied(&'a str),
    /// Not now.
    Failed,
}

/// Seconds that an answer may be kept: short, so that a changed table is felt.
const TTL: u32 = 5;
const HEADER: usize = 12;
const OPT: u16 = 41;
/// Extended error option and its code for "Blocked".
const EDE: u16 = 15;
const EDE_BLOCKED: u16 = 15;
/// Longest text in an extended error: an answer must fit into what every client takes.
const MAX_TEXT: usize = 160;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

/// A query from its packet.
pub(crate) fn parse_query(bytes: &[u8]) -> Result<Asking, NotAsking> {
    let (Some(id), Some(flags)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
        return Err(NotAsking::Noise);
    };
    let response = flags & 0x8000 != 0;
    if response || bytes.len() < HEADER {
        return Err(NotAsking::Noise);
    }
    if bytes.len() > MAX_QUERY {
        return Err(NotAsking::Malformed(id));
    }
    if flags & 0x7800 != 0 {
        return Err(NotAsking::Unsupported(id));
    }
    let counts = [4, 6, 8, 10].map(|at| u16_at(bytes, at).unwrap_or(0));
    if counts[0] != 1 || counts[1] != 0 || counts[2] != 0 || counts[3] > 2 {
        return Err(NotAsking::Malformed(id));
    }
    let parsed = parse_question(bytes).and_then(|(name, end)| {
        let kind = u16_at(bytes, end)?;
        let class = u16_at(bytes, end + 2)?;
        let edns = find_edns(bytes, end + 4, counts[3])?;
        Some((name, end + 4, kind, class, edns))
    });
    let Some((name, end, kind, class, edns)) = parsed else {
        return Err(NotAsking::Malformed(id));
    };
    if class != 1 {
        return Err(NotAsking::Unsupported(id));
    }
    let kind = match kind {
        1 => Kind::A,
        28 => Kind::Aaaa,
        other => Kind::Other(other),
    };
    Ok(Asking {
        id,
        flags: flags & 0x0100,
        question: bytes[HEADER..end].to_vec(),
        name,
        kind,
        edns,
    })
}

/// The name and where it ends.
fn parse_question(bytes: &[u8]) -> Option<(String, usize)> {
    let mut at = HEADER;
    let mut name = String::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        // Two high bits are a compression pointer; a name has at most 255 bytes.
        if length > 63 || at + length > HEADER + 255 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for &byte in bytes.get(at..at + length)? {
            // A dot inside a label, or a byte that is no character, must not become another name.
            if byte.is_ascii_graphic() && byte != b'.' && byte != b'\\' {
                name.push(char::from(byte));
            } else {
                name.push_str(&format!("\\{byte:03}"));
            }
        }
        at += length;
    }
}

/// The largest answer of an OPT record behind the question; `Some(None)` without one.
fn find_edns(bytes: &[u8], start: usize, records: u16) -> Option<Option<u16>> {
    let mut at = start;
    let mut edns = None;
    for _ in 0..records {
        let root = bytes.get(at)?;
        let kind = u16_at(bytes, at + 1)?;
        if *root != 0 || kind != OPT || edns.is_some() {
            return None;
        }
        edns = u16_at(bytes, at + 3);
        let length = usize::from(u16_at(bytes, at + 9)?);
        at = at + 11 + length;
        if at > bytes.len() {
            return None;
        }
    }
    Some(edns)
}

/// An answer to a query.
pub(crate) fn answer(asking: &Asking, reply: &Reply<'_>) -> Vec<u8> {
    let rcode: u16 = match reply {
        Reply::Address(_) | Reply::Empty => 0,
        Reply::Denied(_) => 3,
        Reply::Failed => 2,
    };
    // Response, recursion available (libraries complain otherwise), and what the client wanted.
    let mut bytes = header(asking.id, 0x8080 | asking.flags | rcode, 1);
    bytes.extend_from_slice(&asking.question);
    if let Reply::Address(address) = reply {
        bytes[7] = 1;
        // Name: a pointer to the question.
        bytes.extend_from_slice(&[0xc0, HEADER as u8, 0, 1, 0, 1]);
        bytes.extend_from_slice(&TTL.to_be_bytes());
        bytes.extend_from_slice(&[0, 4]);
        bytes.extend_from_slice(&address.octets());
    }
    if asking.edns.is_some() {
        bytes[11] = 1;
        let option = match reply {
            Reply::Denied(text) => extended_error(text),
            Reply::Address(_) | Reply::Empty | Reply::Failed => Vec::new(),
        };
        bytes.push(0);
        bytes.extend_from_slice(&OPT.to_be_bytes());
        bytes.extend_from_slice(&(MAX_QUERY as u16).to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(option.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&option);
    }
    bytes
}

fn extended_error(text: &str) -> Vec<u8> {
    let cut = (0..=text.len().min(MAX_TEXT))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    let text = &text.as_bytes()[..cut];
    let mut option = EDE.to_be_bytes().to_vec();
    option.extend_from_slice(&(text.len() as u16 + 2).to_be_bytes());
    option.extend_from_slice(&EDE_BLOCKED.to_be_bytes());
    option.extend_from_slice(text);
    option
}

/// An answer to something that is not a query.
pub(crate) fn complaint(why: NotAsking) -> Option<Vec<u8>> {
    match why {
        NotAsking::Noise => None,
        NotAsking::Malformed(id) => Some(header(id, 0x8081, 0)),
        NotAsking::Unsupported(id) => Some(header(id, 0x8084, 0)),
    }
}

fn header(id: u16, flags: u16, questions: u8) -> Vec<u8> {
    let [id_high, id_low] = id.to_be_bytes();
    let [flags_high, flags_low] = flags.to_be_bytes();
    vec![
        id_high, id_low, flags_high, flags_low, 0, questions, 0, 0, 0, 0, 0, 0,
    ]
}
