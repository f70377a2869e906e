//! Picks what models use, or are asked for, out of one JSON document that arrives in pieces, without keeping it.
//!
//! **Trust:** reads a server's or the agent's bytes. Whatever they are, memory stays below [`MAX_USAGE`] plus [`MAX_MODEL`], and a
//! document that is not JSON gives nothing.

/// Longest `usage` object kept. The fullest ones of today are below 1 KiB; sixteen times that leaves room.
pub(crate) const MAX_USAGE: usize = 16 * 1024;
/// Longest model name kept, quotes included; longer ones are dropped.
pub(crate) const MAX_MODEL: usize = 256;
/// Longest object key that can matter: `max_completion_tokens`, each of its characters written as an escape of six.
const MAX_KEY: usize = 21 * 6;

/// Reads one document. All formats put `usage` and `model` (or `usageMetadata`, `modelVersion`) at the top, or one level below in `message` (the first
/// event of a stream of one vendor) or `response` (the last event of a stream of another).
#[derive(Clone, Debug, Default)]
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
    number: Option<(Number, u64)>,
    found: Found,
}

/// What was found in one document. Of several values of one name the last holds, as in most readers of JSON; of what a
/// request asks for the largest does, whichever name and whichever of several the server follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The `usage` object, as JSON.
    pub(crate) usage: Option<Vec<u8>>,
    /// The name of the model, as a JSON string.
    pub(crate) model: Option<Vec<u8>>,
    /// Tokens in, where they are no part of a `usage` object.
    pub(crate) input: Option<u64>,
    /// Tokens out, likewise.
    pub(crate) output: Option<u64>,
    /// Most tokens that a request asks for in one answer.
    pub(crate) most: Option<u64>,
    /// How many answers it asks for.
    pub(crate) choices: Option<u64>,
    /// Whether a request asks for an answer that comes later.
    pub(crate) background: bool,
}

/// Numbers that stand by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Input,
    Output,
    Most,
    Choices,
}

impl Number {
    fn named(key: &[u8]) -> Option<Self> {
        match key {
            b"prompt_eval_count" | b"tokens_evaluated" => Some(Self::Input),
            b"eval_count" | b"tokens_predicted" => Some(Self::Output),
            b"max_tokens"
            | b"max_completion_tokens"
            | b"max_output_tokens"
            | b"maxOutputTokens"
            | b"maxTokens"
            | b"max_tokens_to_sample"
            | b"num_predict"
            | b"n_predict"
            | b"max_new_tokens"
            | b"maxTokenCount" => Some(Self::Most),
            b"n" | b"best_of" | b"candidateCount" | b"candidate_count" | b"num_generations" => {
                Some(Self::Choices)
            }
            _ => None,
        }
    }
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
#[derive(Clone, Debug)]
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
    /// Text where `true` is meant: some servers take it for that.
    Background,
}

impl Wanted {
    /// What the text under this key is.
    fn text(key: &[u8]) -> Option<Self> {
        match key {
            // The second is Google's.
            b"model" | b"modelVersion" => Some(Self::Model),
            key if is_background(key) => Some(Self::Background),
            _ => None,
        }
    }
}

/// Keys by which a request asks for an answer that comes later: of the Responses API, and of xAI's chat completions.
fn is_background(key: &[u8]) -> bool {
    matches!(key, b"background" | b"deferred")
}

/// Texts that readers with types take for `true`.
fn means_true(text: &[u8]) -> bool {
    let text = serde_json::from_slice::<String>(text).unwrap_or_default();
    let words = ["1", "true", "t", "yes", "y", "on"];
    words.iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

impl Fields {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// What was found; the next byte begins another document.
    pub(crate) fn take(&mut self) -> Found {
        self.number_ends();
        std::mem::take(self).found
    }

    /// Whether what came so far asks for an answer that comes later.
    pub(crate) fn is_background(&self) -> bool {
        self.found.background
    }

    fn byte(&mut self, byte: u8) {
        if let Some(taking) = &mut self.taking {
            let limit = match taking.what {
                Wanted::Usage => MAX_USAGE,
                Wanted::Model | Wanted::Background => MAX_MODEL,
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
                    self.ended(&[Wanted::Model, Wanted::Background]);
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
                b'"' => {
                    self.text = Text::Outside;
                    self.key_ends();
                }
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

    /// An escape in a key hides no number: servers read it undone.
    fn key_ends(&mut self) {
        if !self.key.contains(&b'\\') {
            return;
        }
        let quoted = [b"\"", self.key.as_slice(), b"\""].concat();
        if let Ok(key) = serde_json::from_slice::<String>(&quoted) {
            self.key = key.into_bytes();
        }
    }

    /// A value that is neither text nor object: part of a number, or `true`.
    fn scalar(&mut self, byte: u8) {
        if self.expects_key || !self.keys_matter() {
            return;
        }
        match (byte, &mut self.number) {
            (b't' | b'1'..=b'9', _) if is_background(&self.key) => self.found.background = true,
            (b'0'..=b'9', Some((_, value))) => {
                *value = value.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
            }
            (b'0'..=b'9', None) => {
                self.number = Number::named(&self.key).map(|number| (number, u64::from(byte - b'0')));
            }
            // An exponent: whatever it is, the number may be very large.
            (b'e' | b'E', Some((Number::Most | Number::Choices, value))) => *value = u64::MAX,
            _ => {}
        }
    }

    fn number_ends(&mut self) {
        match self.number.take() {
            Some((Number::Input, value)) => self.found.input = Some(value),
            Some((Number::Output, value)) => self.found.output = Some(value),
            Some((Number::Most, value)) => self.found.most = self.found.most.max(Some(value)),
            Some((Number::Choices, value)) => self.found.choices = self.found.choices.max(Some(value)),
            None => {}
        }
    }

    fn structure(&mut self, byte: u8) {
        if matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b'"') {
            self.number_ends();
        }
        match byte {
            // A list of documents: each is read as if it came alone.
            b'[' if self.depth == 0 => {}
            b'{' => {
                // The second is Google's.
                let is_usage = matches!(self.key.as_slice(), b"usage" | b"usageMetadata");
                self.begin(is_usage.then_some(Wanted::Usage), byte);
                if self.depth == 1 {
                    self.inside = matches!(
                        self.key.as_slice(),
                        b"message"
                            | b"response"
                            | b"generationConfig"
                            | b"generation_config"
                            | b"inferenceConfig"
                            | b"textGenerationConfig"
                            | b"parameters"
                            | b"options"
                    );
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
                    self.ended(&[Wanted::Usage]);
                }
            }
            b',' => self.expects_key = self.keys_matter(),
            b'"' if self.expects_key && self.keys_matter() => {
                self.key.clear();
                self.text = Text::Key { escaped: false };
                self.expects_key = false;
            }
            b'"' => {
                self.begin(Wanted::text(&self.key), byte);
                self.text = Text::Inside { escaped: false };
            }
            _ => self.scalar(byte),
        }
    }

    fn keys_matter(&self) -> bool {
        self.depth == 1 || (self.depth == 2 && self.inside)
    }

    fn begin(&mut self, what: Option<Wanted>, byte: u8) {
        if let Some(what) = what
            && self.taking.is_none()
            && self.keys_matter()
        {
            self.taking = Some(Taking {
                what,
                depth: self.depth,
                bytes: vec![byte],
            });
        }
    }

    fn ended(&mut self, whats: &[Wanted]) {
        let done = self
            .taking
            .take_if(|taking| whats.contains(&taking.what) && taking.depth == self.depth);
        if let Some(taking) = done {
            match taking.what {
                Wanted::Usage => self.found.usage = Some(taking.bytes),
                Wanted::Model => self.found.model = Some(taking.bytes),
                Wanted::Background => self.found.background |= means_true(&taking.bytes),
            }
        }
    }
}
