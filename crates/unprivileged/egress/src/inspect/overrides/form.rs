//! Forms that name a method, looked through piece by piece.
//!
//! **Trust:** reads the agent's bytes; holds at most one name.
use super::parameter::{MAX_KEY, names_method};

/// Most blanks between `name=` and the name.
const MAX_BLANKS: usize = 16;

/// Looks through a form for parameters that name a method.
#[derive(Clone, Debug)]
pub(super) struct FormScan {
    kind: Kind,
    held: Vec<u8>,
    in_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Encoded,
    Multipart,
}

impl FormScan {
    /// For `application/x-www-form-urlencoded`.
    pub(super) fn encoded() -> Self {
        Self::of(Kind::Encoded)
    }

    /// For `multipart/…`.
    pub(super) fn multipart() -> Self {
        Self::of(Kind::Multipart)
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            held: Vec::new(),
            in_key: true,
        }
    }

    /// Back to the beginning of a body.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.in_key = true;
    }

    /// Whether such a parameter ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        match self.kind {
            Kind::Encoded => bytes.iter().any(|byte| self.in_pairs(*byte)),
            Kind::Multipart => self.in_parts(bytes),
        }
    }

    /// Whether what was held back is one.
    pub(super) fn finish(&mut self) -> bool {
        self.kind == Kind::Multipart && self.in_parts(b"\r\n")
    }

    fn in_pairs(&mut self, byte: u8) -> bool {
        match byte {
            b'&' | b';' => self.reset(),
            b'=' if self.in_key => {
                self.in_key = false;
                return names_method(&self.held);
            }
            _ if self.in_key && self.held.len() <= MAX_KEY => self.held.push(byte),
            _ => {}
        }
        false
    }

    fn in_parts(&mut self, bytes: &[u8]) -> bool {
        const NAME: &[u8] = b"name";
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(rest) = self.held.get(at..) {
            let Some(word) = rest.get(..NAME.len()) else { break };
            if !word.eq_ignore_ascii_case(NAME) {
                at += 1;
                continue;
            }
            // The value ends within the line; a name longer than any of ours is none of them.
            let line = rest.get(..MAX_KEY + 16).unwrap_or(rest);
            let end = line.iter().position(|b| matches!(b, b'\r' | b'\n'));
            if end.is_none() && line.len() < MAX_KEY + 16 {
                break;
            }
            let line = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
            if named(line.get(NAME.len()..).unwrap_or_default()) {
                return true;
            }
            at += 1;
        }
        self.held.drain(..at.min(self.held.len()));
        false
    }
}

/// Whether `="…"` after a `name` in a multipart head is one of the parameters.
fn named(after: &[u8]) -> bool {
    let after = after.trim_ascii_start();
    let extended = after.strip_prefix(b"*");
    // A name in numbered pieces (RFC 2231), which some readers join.
    if extended.is_some_and(is_numbered) {
        return true;
    }
    let Some(value) = extended.unwrap_or(after).trim_ascii_start().strip_prefix(b"=") else {
        return false;
    };
    let blanks = value.len();
    let value = value.trim_ascii_start();
    // So many blanks that the name may lie behind what was kept.
    if blanks - value.len() > MAX_BLANKS {
        return true;
    }
    let quoted = value.first().copied().filter(|b| matches!(b, b'"' | b'\''));
    let text: Vec<u8> = match quoted {
        Some(mark) if extended.is_none() => value
            .iter()
            .skip(1)
            .copied()
            .filter(|b| *b != b'\\')
            .take_while(|b| *b != mark)
            .collect(),
        _ => value
            .iter()
            .copied()
            .take_while(|b| !matches!(b, b';' | b' ' | b'"'))
            .collect(),
    };
    let text = match extended {
        // RFC 8187: character set, language and text, separated by apostrophes.
        Some(_) => text.rsplit(|b| *b == b'\'').next().unwrap_or_default().to_vec(),
        None => text,
    };
    // An encoded word (RFC 2047), which some readers decode.
    text.starts_with(b"=?") || names_method(&text)
}

/// Whether `0=` or `0*=` follows.
fn is_numbered(after: &[u8]) -> bool {
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = after.get(digits..).unwrap_or_default();
    digits > 0 && rest.strip_prefix(b"*").unwrap_or(rest).starts_with(b"=")
}
