//! JSON whose object at the top level names a method, looked through piece by piece.
//!
//! **Trust:** reads the agent's bytes; holds at most one name and no value. Where a lenient reader could see another
//! key than this one (comments, single quotes, bare names), the text is no JSON.
use super::parameter::{MAX_KEY, names_method};

/// What becomes of a body that is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It counts as one that names a method: it was said to be JSON.
    Refused,
    /// It is something else.
    Passes,
}

/// Looks through JSON for keys at the top level that name a method.
#[derive(Clone, Debug)]
pub(super) struct JsonScan {
    malformed: Malformed,
    place: Place,
    outer: Outer,
    depth: u64,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first value; of a byte order mark, this many bytes were there.
    Start(u8),
    /// Where a key of the outermost object stands.
    BeforeKey,
    /// In such a key.
    Key(Escape),
    /// In any other string.
    Text(Escape),
    /// Outside of strings.
    Between,
    /// In what is no JSON.
    Over,
}

/// How much of an escape was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// Digits seen, and their value.
    Hex(u8, u32),
}

/// The outermost value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    Object,
    List,
}

impl JsonScan {
    pub(super) fn new(malformed: Malformed) -> Self {
        Self {
            malformed,
            place: Place::Start(0),
            outer: Outer::List,
            depth: 0,
            key: Vec::new(),
        }
    }

    /// Back to the beginning of a body.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.malformed);
    }

    /// Whether such a key ends in `bytes`, or the body stops being JSON there and must be.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| self.next(*byte))
    }

    fn next(&mut self, byte: u8) -> bool {
        match self.place {
            Place::Over => false,
            Place::Start(marks) => self.start(byte, marks),
            Place::BeforeKey => match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => false,
                b'"' => {
                    self.key.clear();
                    self.place = Place::Key(Escape::None);
                    false
                }
                b'}' => self.close(),
                _ => self.no_json(),
            },
            Place::Key(escape) => self.in_key(byte, escape),
            Place::Text(Escape::None) if byte == b'"' => self.go(Place::Between),
            Place::Text(Escape::None) if byte == b'\\' => self.go(Place::Text(Escape::Begun)),
            Place::Text(_) => self.go(Place::Text(Escape::None)),
            Place::Between => self.between(byte),
        }
    }

    fn start(&mut self, byte: u8, marks: u8) -> bool {
        match (byte, marks) {
            (0xef, 0) | (0xbb, 1) | (0xbf, 2) => self.go(Place::Start(marks + 1)),
            (_, 1 | 2) => self.no_json(),
            (b' ' | b'\t' | b'\r' | b'\n' | 0x1e, _) => false,
            (b'{', _) => self.between(byte),
            // No object, and no other value has keys.
            _ if self.malformed == Malformed::Passes => self.go(Place::Over),
            _ => self.between(byte),
        }
    }

    fn between(&mut self, byte: u8) -> bool {
        match byte {
            b'"' => self.go(Place::Text(Escape::None)),
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth > 1 {
                    return self.go(Place::Between);
                }
                self.outer = if byte == b'{' { Outer::Object } else { Outer::List };
                self.go(match self.outer {
                    Outer::Object => Place::BeforeKey,
                    Outer::List => Place::Between,
                })
            }
            b'}' | b']' => self.close(),
            b',' if self.depth == 1 && self.outer == Outer::Object => self.go(Place::BeforeKey),
            // The record separator of RFC 7464 among the blanks; numbers and words are not told apart.
            b' ' | b'\t' | b'\r' | b'\n' | 0x1e | b',' | b':' | b'+' | b'-' | b'.' => self.go(Place::Between),
            _ if byte.is_ascii_alphanumeric() => self.go(Place::Between),
            _ => self.no_json(),
        }
    }

    fn in_key(&mut self, byte: u8, escape: Escape) -> bool {
        let (character, next) = match (escape, byte) {
            (Escape::None, b'"') => {
                self.place = Place::Between;
                return names_method(&self.key);
            }
            (Escape::None, b'\\') => (None, Escape::Begun),
            (Escape::None, _) => (Some(byte), Escape::None),
            (Escape::Begun, b'u') => (None, Escape::Hex(0, 0)),
            (Escape::Begun, b'b') => (Some(0x08), Escape::None),
            (Escape::Begun, b'f') => (Some(0x0c), Escape::None),
            (Escape::Begun, b'n') => (Some(b'\n'), Escape::None),
            (Escape::Begun, b'r') => (Some(b'\r'), Escape::None),
            (Escape::Begun, b't') => (Some(b'\t'), Escape::None),
            (Escape::Begun, _) => (Some(byte), Escape::None),
            (Escape::Hex(seen, value), _) => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return self.no_json();
                };
                let value = value * 16 + digit;
                if seen < 3 {
                    (None, Escape::Hex(seen + 1, value))
                } else {
                    (Some(u8::try_from(value).unwrap_or(u8::MAX)), Escape::None)
                }
            }
        };
        if self.key.len() <= MAX_KEY {
            self.key.extend(character);
        }
        self.go(Place::Key(next))
    }

    fn close(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        self.go(Place::Between)
    }

    fn go(&mut self, place: Place) -> bool {
        self.place = place;
        false
    }

    fn no_json(&mut self) -> bool {
        self.place = Place::Over;
        self.malformed == Malformed::Refused
    }
}
