//! Forms that name a method, looked through piece by piece.
//!
//! **Trust:** reads the agent's bytes; holds at most one name.
use super::parameter::{MAX_KEY, MAX_VALUE, is_blank, is_method, may_name_method, names_method};

/// Most blanks between `name=` and the name.
const MAX_BLANKS: usize = 16;
/// Longest head of a part in which a name was found whose value matters.
const MAX_HEAD: usize = 2048;

/// Looks through a form for parameters that name a method.
#[derive(Clone, Debug)]
pub(super) struct FormScan {
    kind: Kind,
    held: Vec<u8>,
    place: Place,
    decides: Decides,
}

/// Where in a pair the scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Key,
    /// In the value of a parameter that names a method where its value is one.
    Value,
    /// In any other value.
    Skip,
}

/// When a value is compared with the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// At its end: the whole body is there before anything is sent.
    AtEnd,
    /// At every byte: at its end, which may be that of the body, it would have been sent. `DELETED` counts as `DELETE` then.
    AtOnce,
}

/// What a name in the head of a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Other,
    Method,
    /// It names a method where its value is one.
    Bare,
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
            place: Place::Key,
            decides: Decides::AtEnd,
        }
    }

    /// Back to the beginning of a body that is sent while it is looked through.
    pub(super) fn passes(&mut self) {
        self.decides = Decides::AtOnce;
        self.next_pair();
    }

    fn next_pair(&mut self) {
        self.held.clear();
        self.place = Place::Key;
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
        match self.kind {
            Kind::Encoded => self.place == Place::Value && is_method(&self.held),
            Kind::Multipart => self.in_parts(b"\r\n\r\n"),
        }
    }

    fn in_pairs(&mut self, byte: u8) -> bool {
        match (byte, self.place) {
            (b'&' | b';', place) => {
                let found = place == Place::Value && is_method(&self.held);
                self.next_pair();
                return found;
            }
            (b'=', Place::Key) => {
                if names_method(&self.held) {
                    return true;
                }
                self.place = match may_name_method(&self.held) {
                    true => Place::Value,
                    false => Place::Skip,
                };
                self.held.clear();
            }
            (_, Place::Key) if self.held.len() <= MAX_KEY => self.held.push(byte),
            (_, Place::Value) => return self.in_value(byte),
            (_, Place::Key | Place::Skip) => {}
        }
        false
    }

    fn in_value(&mut self, byte: u8) -> bool {
        self.held.push(byte);
        if self.held.len() > MAX_VALUE {
            // The method may follow behind the blanks.
            let blank = is_blank(&self.held);
            self.place = Place::Skip;
            return blank;
        }
        self.decides == Decides::AtOnce && is_method(&self.held)
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
            match named(line.get(NAME.len()..).unwrap_or_default()) {
                Name::Method => return true,
                Name::Bare => match value_of(rest, self.decides) {
                    Some(true) => return true,
                    Some(false) => {}
                    None => break,
                },
                Name::Other => {}
            }
            at += 1;
        }
        self.held.drain(..at.min(self.held.len()));
        false
    }
}

/// Whether the value of a part whose head ends somewhere in `text` is a method; `None` where it is not there yet.
fn value_of(text: &[u8], decides: Decides) -> Option<bool> {
    let head = text.get(..MAX_HEAD).unwrap_or(text);
    let ends = |mark: &[u8]| {
        let at = head.windows(mark.len()).position(|four| four == mark)?;
        Some(at + mark.len())
    };
    let begins = [ends(b"\r\n\r\n"), ends(b"\n\n"), ends(b"\r\r")]
        .into_iter()
        .flatten()
        .min();
    let Some(begins) = begins else {
        // So long a head hides the value.
        return (head.len() == MAX_HEAD).then_some(true);
    };
    let value = text.get(begins..).unwrap_or_default();
    let value = value.get(..MAX_VALUE).unwrap_or(value);
    let end = value.iter().position(|b| matches!(b, b'\r' | b'\n'));
    let line = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
    let at_once = || (1..=line.len()).any(|length| line.get(..length).is_some_and(is_method));
    match (end, decides) {
        (_, Decides::AtOnce) if at_once() => Some(true),
        (Some(_), Decides::AtEnd | Decides::AtOnce) => Some(is_method(line)),
        (None, _) if line.len() == MAX_VALUE => Some(is_blank(line)),
        (None, Decides::AtEnd | Decides::AtOnce) => None,
    }
}

/// What `="…"` after a `name` in a multipart head is.
fn named(after: &[u8]) -> Name {
    let after = after.trim_ascii_start();
    let extended = after.strip_prefix(b"*");
    // A name in numbered pieces (RFC 2231), which some readers join.
    if extended.is_some_and(is_numbered) {
        return Name::Method;
    }
    let Some(value) = extended.unwrap_or(after).trim_ascii_start().strip_prefix(b"=") else {
        return Name::Other;
    };
    let blanks = value.len();
    let value = value.trim_ascii_start();
    // So many blanks that the name may lie behind what was kept.
    if blanks - value.len() > MAX_BLANKS {
        return Name::Method;
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
    if text.starts_with(b"=?") || names_method(&text) {
        return Name::Method;
    }
    match may_name_method(&text) {
        true => Name::Bare,
        false => Name::Other,
    }
}

/// Whether `0=` or `0*=` follows.
fn is_numbered(after: &[u8]) -> bool {
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = after.get(digits..).unwrap_or_default();
    digits > 0 && rest.strip_prefix(b"*").unwrap_or(rest).starts_with(b"=")
}
