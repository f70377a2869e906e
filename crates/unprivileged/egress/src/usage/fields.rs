//! Picks `usage` and `model` out of one JSON document that arrives in pieces, without keeping the document.
//!
//! **Trust:** reads a server's bytes. Whatever they are, memory stays below [`MAX_USAGE`] plus [`MAX_MODEL`], and a
//! document that is not JSON gives nothing.

/// Longest `usage` object kept. The fullest ones of today are below 1 KiB; sixteen times that leaves room.
pub(crate) const MAX_USAGE: usize = 16 * 1024;
/// Longest model name kept, quotes included; longer ones are dropped.
pub(crate) const MAX_MODEL: usize = 256;
/// Longest object key that can matter: `usageMetadata`, and some room.
const MAX_KEY: usize = 16;

/// Reads one document. All formats put `usage` and `model` (or `usageMetadata`, `modelVersion`) at the top, or one level below in `message` (the first
/// event of a stream of one vendor) or `response` (the last event of a stream of another).
#[derive(Debug, Default)]
pub(crate) struct Fields {
    depth: u32,
    text: Text,
    /// The key that was read last in the object at the current depth, while that is 1 or 2.
    key: Vec<u8>,
    /// Whether a string here would be a key.
    expects_key: bool,
    /// Whether the object at depth 2 is a `message` or a `response`.
    inside: bool,
    taking: Option<Taking>,
    usage: Option<Vec<u8>>,
    model: Option<Vec<u8>>,
}

/// Where the reader is with respect to strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    /// Between strings.
    #[default]
    Outside,
    /// In a string; whether the next byte is escaped.
    Inside { escaped: bool },
    /// In a key that may matter; whether the next byte is escaped.
    Key { escaped: bool },
}

/// A value that is being kept.
#[derive(Debug)]
struct Taking {
    what: Wanted,
    /// Depth of the object that holds it.
    depth: u32,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Usage,
    Model,
}

impl Fields {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// The last whole `usage` object and the last `model` string, as JSON.
    pub(crate) fn take(&mut self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let found = (self.usage.take(), self.model.take());
        *self = Self::default();
        found
    }

    fn byte(&mut self, byte: u8) {
        if let Some(taking) = &mut self.taking {
            let limit = match taking.what {
                Wanted::Usage => MAX_USAGE,
                Wanted::Model => MAX_MODEL,
            };
            if taking.bytes.len() >= limit {
                self.taking = None;
            } else {
                taking.bytes.push(byte);
            }
        }
        match self.text {
            Text::Inside { escaped: true } => self.text = Text::Inside { escaped: false },
            Text::Inside { escaped: false } => match byte {
                b'\\' => self.text = Text::Inside { escaped: true },
                b'"' => {
                    self.text = Text::Outside;
                    self.ended(Wanted::Model);
                }
                _ => {}
            },
            Text::Key { escaped: true } => {
                self.text = Text::Key { escaped: false };
                self.key_byte(byte);
            }
            Text::Key { escaped: false } => match byte {
                b'\\' => {
                    self.text = Text::Key { escaped: true };
                    self.key_byte(byte);
                }
                b'"' => self.text = Text::Outside,
                _ => self.key_byte(byte),
            },
            Text::Outside => self.structure(byte),
        }
    }

    fn key_byte(&mut self, byte: u8) {
        if self.key.len() < MAX_KEY {
            self.key.push(byte);
        }
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b'{' => {
                self.begin(Wanted::Usage, byte);
                if self.depth == 1 {
                    self.inside = matches!(self.key.as_slice(), b"message" | b"response");
                }
                self.depth = self.depth.saturating_add(1);
                self.expects_key = true;
                self.key.clear();
            }
            b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.expects_key = false;
                // An array at depth 2 is no object whose keys matter.
                if self.depth == 2 {
                    self.inside = false;
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.expects_key = false;
                if byte == b'}' {
                    self.ended(Wanted::Usage);
                }
            }
            b',' => self.expects_key = self.keys_matter(),
            b'"' if self.expects_key && self.keys_matter() => {
                self.key.clear();
                self.text = Text::Key { escaped: false };
                self.expects_key = false;
            }
            b'"' => {
                self.begin(Wanted::Model, byte);
                self.text = Text::Inside { escaped: false };
            }
            _ => {}
        }
    }

    fn keys_matter(&self) -> bool {
        self.depth == 1 || (self.depth == 2 && self.inside)
    }

    fn begin(&mut self, what: Wanted, byte: u8) {
        // The second of each is Google's.
        let named = match what {
            Wanted::Usage => matches!(self.key.as_slice(), b"usage" | b"usageMetadata"),
            Wanted::Model => matches!(self.key.as_slice(), b"model" | b"modelVersion"),
        };
        if self.taking.is_none() && self.keys_matter() && named {
            self.taking = Some(Taking {
                what,
                depth: self.depth,
                bytes: vec![byte],
            });
        }
    }

    fn ended(&mut self, what: Wanted) {
        let done = self
            .taking
            .take_if(|taking| taking.what == what && taking.depth == self.depth);
        if let Some(taking) = done {
            match what {
                Wanted::Usage => self.usage = Some(taking.bytes),
                Wanted::Model => self.model = Some(taking.bytes),
            }
        }
    }
}
