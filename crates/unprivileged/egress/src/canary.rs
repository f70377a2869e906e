//! The decoy credential: it lies where thieves look, nobody has a use for it, and whoever sends it is a thief.
//!
//! **Trust:** the value comes from control and is no secret; names, addresses, fields and bodies come from the agent. What
//! is looked through is bounded. A thief who compresses, encrypts or cuts it into pieces is not seen here: the rules
//! hold against him all the same.
use crate::denial::Grounds;
use crate::scrub::{Needles, unbase64};
use crate::secrets::basic_of;
use bastle_contract::Code;
use bastle_contract::egress::CANARY_REASON;
use http::HeaderMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Bytes of a body that are looked through.
pub(crate) const SCANNED: usize = 64 * 1024;

/// Where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// In a host name.
    Name,
    /// In a path or query.
    Address,
    /// In a header field.
    Field,
    /// In a body.
    Body,
}

/// The decoys of a run; none until it is armed.
#[derive(Default)]
pub(crate) struct Canary {
    armed: OnceLock<Armed>,
}

struct Armed {
    needles: Arc<Needles>,
    /// What would stand in a host name, where capitals and dots mean nothing.
    folded: Vec<Vec<u8>>,
}

/// Looks through the beginning of one body as it passes.
pub(crate) struct Watch {
    needles: Arc<Needles>,
    /// The end of what has passed: a value may lie across two pieces.
    tail: Vec<u8>,
    left: usize,
}

impl Canary {
    /// Looks for these from now on. Only the first call counts.
    pub(crate) fn arm(&self, values: &[String]) {
        if values.is_empty() {
            return;
        }
        let backwards = |value: &String| value.chars().rev().collect::<String>();
        let texts: Vec<String> = values.iter().flat_map(|v| [v.clone(), backwards(v)]).collect();
        let folded = texts
            .iter()
            .flat_map(|text| {
                [
                    fold(text.as_bytes()),
                    hex(text.as_bytes()),
                    base32(text.as_bytes()),
                ]
            })
            .collect();
        let needles = Needles::new(texts.iter().map(|text| (text.as_str(), "")));
        self.armed.get_or_init(|| Armed {
            needles: Arc::new(needles),
            folded,
        });
    }

    /// Whether it stands in a host name, spread over labels or not.
    pub(crate) fn in_name(&self, name: &str) -> bool {
        self.armed
            .get()
            .is_some_and(|armed| armed.in_name(name.as_bytes()))
    }

    /// Where it stands in a request, its body left out.
    pub(crate) fn in_request(
        &self,
        host: &str,
        address: (&str, Option<&str>),
        fields: &HeaderMap,
    ) -> Option<Seen> {
        let armed = self.armed.get()?;
        if armed.in_name(host.as_bytes()) {
            return Some(Seen::Name);
        }
        let (path, query) = address;
        if armed.in_text(path.as_bytes()) || query.is_some_and(|query| armed.in_text(query.as_bytes())) {
            return Some(Seen::Address);
        }
        for (name, value) in fields {
            let inside = || {
                let bearer = value.to_str().ok().and_then(|text| text.rsplit(' ').next());
                basic_of(value).or_else(|| bearer.and_then(unbase64))
            };
            if armed.in_name(name.as_str().as_bytes())
                || armed.in_text(value.as_bytes())
                || inside().is_some_and(|text| armed.in_text(&text))
            {
                return Some(Seen::Field);
            }
        }
        None
    }

    /// Whether it stands in the beginning of a body.
    pub(crate) fn in_body(&self, body: &[u8]) -> bool {
        let beginning = body.get(..SCANNED).unwrap_or(body);
        self.armed.get().is_some_and(|armed| armed.in_text(beginning))
    }

    /// For a body of which `passed` bytes were looked through.
    pub(crate) fn watch(&self, passed: usize) -> Option<Watch> {
        let left = SCANNED.checked_sub(passed).filter(|left| *left > 0)?;
        Some(Watch {
            needles: Arc::clone(&self.armed.get()?.needles),
            tail: Vec::new(),
            left,
        })
    }

    /// Whether there is anything to look for.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.get().is_some()
    }
}

impl Armed {
    fn in_name(&self, name: &[u8]) -> bool {
        let folded = fold(name);
        self.folded
            .iter()
            .any(|needle| folded.windows(needle.len()).any(|window| window == needle))
    }

    fn in_text(&self, text: &[u8]) -> bool {
        self.needles.found_in(text) || (text.contains(&b'%') && self.needles.found_in(&unpercent(text)))
    }
}

impl Watch {
    /// Takes the next piece; whether it ends a value.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> bool {
        let piece = piece.get(..self.left).unwrap_or(piece);
        if piece.is_empty() {
            return false;
        }
        self.left -= piece.len();
        self.tail.extend_from_slice(piece);
        let found = self.needles.found_in(&self.tail);
        let kept = self.needles.longest().saturating_sub(1);
        let gone = self.tail.len().saturating_sub(kept);
        self.tail.drain(..gone);
        found
    }
}

impl Seen {
    /// Why what carries it is refused.
    pub(crate) fn grounds(self) -> Grounds {
        Grounds {
            rule: Some("audit.canary".to_owned()),
            ..Grounds::own(Code::NetCanary, self.reason())
        }
    }

    /// The same as a sentence.
    pub(crate) fn reason(self) -> String {
        let place = match self {
            Self::Name => "a host name",
            Self::Address => "the address",
            Self::Field => "a header field",
            Self::Body => "the body",
        };
        format!("{CANARY_REASON}{place}")
    }
}

/// Without what host names do not keep: capitals, and the places of dots and dashes.
fn fold(text: &[u8]) -> Vec<u8> {
    text.iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect()
}

fn hex(text: &[u8]) -> Vec<u8> {
    text.iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect()
}

/// Base32 in small letters, without the last letter where it is not full.
fn base32(text: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut bits, mut count, mut out) = (0u32, 0u32, Vec::new());
    for byte in text {
        bits = (bits << 8 | u32::from(*byte)) & 0xffff;
        count += 8;
        while count >= 5 {
            count -= 5;
            out.push(LETTERS[(bits >> count & 31) as usize]);
        }
    }
    out
}

/// `%41` and the like read; what is none stays.
fn unpercent(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let read = match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        out.push(read.unwrap_or(*byte));
        at += if read.is_some() { 3 } else { 1 };
    }
    out
}

impl fmt::Debug for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canary").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
