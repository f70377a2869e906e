//! The reader of a model's response.
//!
//! **Trust:** see the module above. What it counts is the server's word where there is one, and never less than what
//! was seen to pass where there is none or the response was cut off.
use super::fields::{Fields, Found};
use super::{BYTES_PER_TOKEN, Prices, clean_name};
use bastle_contract::egress::{ModelUse, UsageBasis};
use bastle_policy::ModelPrice;
use flate2::write::MultiGzDecoder;
use serde::Deserialize;
use std::io::{self, Write};

/// Most bytes that are inflated of one response; a longer one is counted by its length.
const MAX_INFLATED: u64 = 256 * 1024 * 1024;

/// Reads a response body as it passes.
#[derive(Debug)]
pub(crate) struct UsageReader {
    source: Source,
    /// Bytes as they came, compressed or not.
    bytes: u64,
}

/// How the body is encoded.
#[derive(Debug)]
enum Source {
    Plain(Box<Core>),
    Gzip(Box<MultiGzDecoder<Core>>),
    /// Nothing can be read; every byte may stand for a token.
    Unreadable,
}

/// Reads the body as the server meant it.
#[derive(Debug)]
struct Core {
    framing: Framing,
    fields: Fields,
    seen: Seen,
    events: u64,
    bytes: u64,
}

/// How documents are framed.
#[derive(Debug)]
enum Framing {
    /// One JSON document, or a list of them.
    Json,
    /// Server-sent events, read line by line.
    Events(Line),
    /// One JSON document on each line.
    Lines,
}

/// Where in an event stream the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Matching the field name; how many of its bytes matched.
    Name(usize),
    /// In the value of a `data` field.
    Data,
    /// In any other line.
    Skip,
}

/// The name of the only field that matters, with its colon.
const DATA: &[u8] = b"data:";

/// The counts seen so far. Streams repeat them as running totals, so the largest of each holds.
#[derive(Debug, Default)]
struct Seen {
    model: String,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    any: bool,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As the server ended it.
    Whole,
    /// The connection ended before the server ended the response.
    Cut,
}

/// What is known beside the response when it is settled.
#[derive(Clone, Debug)]
pub(crate) struct Settlement<'a> {
    /// Bytes of the request body.
    pub(crate) sent: u64,
    /// How the response ended.
    pub(crate) ending: Ending,
    /// The model that was asked for.
    pub(crate) model: Option<&'a str>,
    /// The price that policy states.
    pub(crate) price: Option<ModelPrice>,
    /// Tokens out that are taken for used where the response tells nothing because its answer comes later.
    pub(crate) deferred: Option<u64>,
}

impl Settlement<'_> {
    /// Where nothing is known beside what was sent.
    pub(crate) fn unknown(sent: u64) -> Self {
        Self {
            sent,
            ending: Ending::Whole,
            model: None,
            price: None,
            deferred: None,
        }
    }
}

/// The vendors' usage objects in one: a field that is absent or of another kind counts as nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(alias = "inputTokens")]
    input_tokens: Option<u64>,
    #[serde(alias = "outputTokens")]
    output_tokens: Option<u64>,
    #[serde(alias = "cacheReadInputTokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(alias = "cacheWriteInputTokens")]
    cache_creation_input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    /// One vendor has an object within the object.
    tokens: Option<Tokens>,
    #[serde(rename = "promptTokenCount")]
    google_input: Option<u64>,
    #[serde(rename = "candidatesTokenCount")]
    google_output: Option<u64>,
    #[serde(rename = "thoughtsTokenCount")]
    google_thoughts: Option<u64>,
    #[serde(rename = "cachedContentTokenCount")]
    google_cached: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Option<f64>,
    output_tokens: Option<f64>,
}

impl UsageReader {
    /// A reader for a body of this `Content-Type` and these `Content-Encoding`s, joined by commas.
    pub(crate) fn new(content_type: Option<&str>, encoding: Option<&str>) -> Self {
        let core = Core::new(content_type);
        let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
        let source = match encoding.as_str() {
            "" | "identity" => Source::Plain(Box::new(core)),
            "gzip" | "x-gzip" => Source::Gzip(Box::new(MultiGzDecoder::new(core))),
            _ => Source::Unreadable,
        };
        Self { source, bytes: 0 }
    }

    /// Takes the next piece of the body.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match &mut self.source {
            Source::Plain(core) => core.feed(bytes),
            Source::Gzip(decoder) => {
                if decoder.write_all(bytes).is_err() {
                    self.source = Source::Unreadable;
                }
            }
            Source::Unreadable => {}
        }
    }

    /// Whether usage fields were seen.
    pub(crate) fn has_usage(&mut self) -> bool {
        match &mut self.source {
            Source::Plain(core) => core.finish(),
            Source::Gzip(decoder) => decoder.get_mut().finish(),
            Source::Unreadable => false,
        }
    }

    /// What the response used, with its price. Where the response carries no usage at all (some vendors leave it out
    /// of streams unless asked), tokens are estimated from the length of the request and from the number of events, one
    /// token each, or the length of what came; where it was cut off, the larger of both holds.
    pub(crate) fn finish(mut self, prices: &Prices, settled: &Settlement<'_>) -> ModelUse {
        let (mut seen, passed) = match self.source {
            Source::Plain(mut core) => {
                core.finish();
                let passed = core.passed();
                (core.seen, passed)
            }
            Source::Gzip(mut decoder) => {
                // A stream that was cut cannot be finished; what came out of it until then was read.
                let _cut = decoder.try_finish().is_err();
                let core = decoder.get_mut();
                core.finish();
                let passed = core.passed();
                (std::mem::take(&mut core.seen), passed)
            }
            Source::Unreadable => (Seen::default(), self.bytes),
        };
        self.bytes = 0;
        let mut basis = UsageBasis::Reported;
        if !seen.any {
            basis = UsageBasis::Estimated;
            seen.input = settled.sent / BYTES_PER_TOKEN;
            seen.output = passed.max(settled.deferred.unwrap_or(0));
        } else if settled.ending == Ending::Cut && passed > seen.output {
            basis = UsageBasis::Estimated;
            seen.output = passed;
        }
        let mut model = seen.model;
        if model.is_empty() {
            model = clean_name(settled.model.unwrap_or_default());
        }
        let mut used = ModelUse {
            model,
            input: seen.input,
            output: seen.output,
            cache_read: seen.cache_read,
            cache_write: seen.cache_write,
            cost_micro_usd: None,
            basis,
        };
        used.cost_micro_usd = match settled.price {
            Some(price) => Some(Prices::cost_at(price, &used)),
            // Some servers answer under another name than they were asked by.
            None => prices.cost(&used).or_else(|| {
                let model = clean_name(settled.model?);
                prices.cost(&ModelUse {
                    model,
                    ..used.clone()
                })
            }),
        };
        used
    }
}

impl Core {
    fn new(content_type: Option<&str>) -> Self {
        let kind = content_type.unwrap_or_default().to_ascii_lowercase();
        let framing = match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Framing::Events(Line::Name(0)),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Framing::Lines,
            // Whatever it is called, reading it as JSON does no harm.
            _ => Framing::Json,
        };
        Self {
            framing,
            fields: Fields::default(),
            seen: Seen::default(),
            events: 0,
            bytes: 0,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match self.framing {
            Framing::Json => self.fields.feed(bytes),
            Framing::Events(_) => self.feed_events(bytes),
            Framing::Lines => {
                for byte in bytes {
                    if *byte == b'\n' {
                        self.events = self.events.saturating_add(1);
                        self.collect();
                    } else {
                        self.fields.feed(std::slice::from_ref(byte));
                    }
                }
            }
        }
    }

    fn feed_events(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let Framing::Events(line) = &mut self.framing else {
                return;
            };
            // A line end of any kind ends the line; CR LF ends an empty one besides, which changes nothing.
            if matches!(byte, b'\n' | b'\r') {
                let was = std::mem::replace(line, Line::Name(0));
                if was == Line::Data {
                    self.events = self.events.saturating_add(1);
                    self.collect();
                }
                continue;
            }
            match *line {
                Line::Name(matched) if DATA.get(matched) == Some(byte) => {
                    *line = if matched + 1 == DATA.len() {
                        Line::Data
                    } else {
                        Line::Name(matched + 1)
                    };
                }
                Line::Name(_) | Line::Skip => *line = Line::Skip,
                Line::Data => self.fields.feed(std::slice::from_ref(byte)),
            }
        }
    }

    /// Reads what is left; says whether usage was seen.
    fn finish(&mut self) -> bool {
        self.collect();
        self.seen.any
    }

    /// Tokens that what passed stands for, where nobody says.
    fn passed(&self) -> u64 {
        match self.framing {
            Framing::Events(_) | Framing::Lines => self.events,
            Framing::Json => self.bytes / BYTES_PER_TOKEN,
        }
    }

    fn collect(&mut self) {
        let Found {
            usage,
            model,
            input,
            output,
            ..
        } = self.fields.take();
        if let Some(name) = model.and_then(|text| serde_json::from_slice::<String>(&text).ok()) {
            self.seen.model = clean_name(&name);
        }
        let usage = usage.and_then(|text| serde_json::from_slice::<Usage>(&text).ok());
        if let Some(usage) = usage {
            self.seen.add(&usage);
        }
        if input.is_some() || output.is_some() {
            self.seen.add(&Usage {
                input_tokens: input,
                output_tokens: output,
                ..Usage::default()
            });
        }
    }
}

/// What comes out of a decoder is read at once and kept nowhere.
impl Write for Core {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes > MAX_INFLATED {
            return Err(io::Error::other("the response inflates to too much"));
        }
        self.feed(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seen {
    fn add(&mut self, usage: &Usage) {
        let whole = |number: Option<f64>| number.map(|number| number.ceil() as u64);
        let inner = usage.tokens.as_ref();
        let (inner_in, inner_out) = (
            inner.and_then(|tokens| whole(tokens.input_tokens)),
            inner.and_then(|tokens| whole(tokens.output_tokens)),
        );
        let said_in = usage
            .input_tokens
            .or(usage.prompt_tokens)
            .or(usage.google_input)
            .or(inner_in);
        let said_out = usage
            .output_tokens
            .or(usage.completion_tokens)
            .or(usage.google_output)
            .or(inner_out);
        // A usage object without any count (`{}`) says nothing.
        if said_in.is_none() && said_out.is_none() {
            return;
        }
        let details = usage
            .prompt_tokens_details
            .as_ref()
            .or(usage.input_tokens_details.as_ref());
        let included = details.and_then(|d| d.cached_tokens).or(usage.google_cached);
        let included = included.unwrap_or_default();
        // Where cached tokens are a detail of the input they are part of its count; as a field of their own they are not.
        self.input = self
            .input
            .max(said_in.unwrap_or_default().saturating_sub(included));
        let read = usage.cache_read_input_tokens.unwrap_or(included);
        self.cache_read = self.cache_read.max(read);
        let written = usage.cache_creation_input_tokens.unwrap_or_default();
        self.cache_write = self.cache_write.max(written);
        // Google counts what it thinks apart from what it says, and takes the same price for both.
        let thought = usage.google_thoughts.unwrap_or_default();
        self.output = self
            .output
            .max(said_out.unwrap_or_default().saturating_add(thought));
        self.any = true;
    }
}

/// Entry for fuzzing: any bytes, split anywhere, give a use and no panic.
pub(crate) fn fuzz_usage(bytes: &[u8]) {
    let prices = Prices::built_in();
    for (kind, coding) in [
        ("text/event-stream", ""),
        ("application/json", ""),
        ("application/x-ndjson", ""),
        ("text/plain", "gzip"),
        ("text/plain", "br"),
    ] {
        let mut reader = UsageReader::new(Some(kind), Some(coding));
        let (first, second) = bytes.split_at(bytes.len() / 3);
        reader.feed(first);
        reader.feed(second);
        let settled = Settlement {
            ending: Ending::Cut,
            ..Settlement::unknown(bytes.len() as u64)
        };
        let used = reader.finish(&prices, &settled);
        assert!(used.model.len() <= super::MAX_NAME);
    }
}
