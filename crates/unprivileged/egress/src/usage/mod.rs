//! Reads what a model response cost from its own usage fields, streamed or not.
//!
//! **Trust:** the bytes come from a server that a rule allows; they may be anything. Memory is bounded whatever they
//! are. A response without usage fields is counted by an estimate, so that leaving them out is no way around a budget.
mod fields;
mod prices;
#[cfg(test)]
mod tests;

pub(crate) use prices::Prices;

use bastle_contract::egress::ModelUse;
use fields::Fields;
use serde::Deserialize;

/// Longest model name in a record, by the contract.
const MAX_NAME: usize = 128;
/// Bytes of request text per token where a response does not say: the usual rule of thumb for English and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Whether `path` is one at which models answer. Only there is a missing usage field worth an estimate.
pub(crate) fn is_model_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    [
        "/messages",
        "/chat/completions",
        "/completions",
        "/responses",
        ":generateContent",
        ":streamGenerateContent",
    ]
    .iter()
    .any(|end| path.ends_with(end))
}

/// Reads a response body as it passes.
#[derive(Debug)]
pub(crate) struct UsageReader {
    framing: Framing,
    fields: Fields,
    seen: Seen,
    events: u64,
    bytes: u64,
}

/// How the body is framed.
#[derive(Debug)]
enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events, read line by line.
    Events(Line),
    /// Neither: nothing can be read.
    Other,
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

/// The vendors' usage objects in one: a field that is absent or of another kind counts as nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
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

impl UsageReader {
    /// A reader for a body of this `Content-Type`.
    pub(crate) fn new(content_type: Option<&str>) -> Self {
        let kind = content_type.unwrap_or_default().to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let framing = match kind {
            "text/event-stream" => Framing::Events(Line::Name(0)),
            "application/json" => Framing::Json,
            other if other.ends_with("+json") => Framing::Json,
            _ => Framing::Other,
        };
        Self {
            framing,
            fields: Fields::default(),
            seen: Seen::default(),
            events: 0,
            bytes: 0,
        }
    }

    /// Takes the next piece of the body.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match &mut self.framing {
            Framing::Json => self.fields.feed(bytes),
            Framing::Events(_) => self.feed_events(bytes),
            Framing::Other => {}
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

    fn collect(&mut self) {
        let (usage, model) = self.fields.take();
        if let Some(name) = model.and_then(|text| serde_json::from_slice::<String>(&text).ok()) {
            self.seen.model = clean_name(&name);
        }
        let usage = usage.and_then(|text| serde_json::from_slice::<Usage>(&text).ok());
        if let Some(usage) = usage {
            self.seen.add(&usage);
        }
    }

    /// What the response used, with its price. `sent` is the length of the request body: where the response carries
    /// no usage at all (some vendors leave it out of streams unless asked), tokens are estimated from it and from
    /// the number of events, one token each, or the length of what came.
    pub(crate) fn finish(mut self, prices: &Prices, sent: u64) -> ModelUse {
        match self.framing {
            Framing::Json | Framing::Events(_) => self.collect(),
            Framing::Other => {}
        }
        let Seen {
            model,
            mut input,
            mut output,
            cache_read,
            cache_write,
            any,
        } = self.seen;
        if !any {
            input = sent / BYTES_PER_TOKEN;
            output = match self.framing {
                Framing::Events(_) => self.events,
                Framing::Json | Framing::Other => self.bytes / BYTES_PER_TOKEN,
            };
        }
        let mut used = ModelUse {
            model,
            input,
            output,
            cache_read,
            cache_write,
            cost_micro_usd: None,
        };
        used.cost_micro_usd = prices.cost(&used);
        used
    }
}

impl Seen {
    fn add(&mut self, usage: &Usage) {
        // A usage object without any count (`{}`) says nothing.
        let said = [
            usage.input_tokens,
            usage.output_tokens,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.google_input,
            usage.google_output,
        ];
        if said.iter().all(Option::is_none) {
            return;
        }
        let details = usage
            .prompt_tokens_details
            .as_ref()
            .or(usage.input_tokens_details.as_ref());
        let included = details.and_then(|d| d.cached_tokens).or(usage.google_cached);
        let included = included.unwrap_or_default();
        let whole = usage.input_tokens.or(usage.prompt_tokens).or(usage.google_input);
        let whole = whole.unwrap_or_default();
        // Where cached tokens are a detail of the input they are part of its count; as a field of their own they are not.
        self.input = self.input.max(whole.saturating_sub(included));
        let read = usage.cache_read_input_tokens.unwrap_or(included);
        self.cache_read = self.cache_read.max(read);
        let written = usage.cache_creation_input_tokens.unwrap_or_default();
        self.cache_write = self.cache_write.max(written);
        let out = usage
            .output_tokens
            .or(usage.completion_tokens)
            .or(usage.google_output);
        // Google counts what it thinks apart from what it says, and takes the same price for both.
        let thought = usage.google_thoughts.unwrap_or_default();
        self.output = self.output.max(out.unwrap_or_default().saturating_add(thought));
        self.any = true;
    }
}

fn clean_name(name: &str) -> String {
    let mut clean: String = name.chars().filter(|c| c.is_ascii_graphic()).collect();
    clean.truncate(MAX_NAME);
    clean
}

/// Entry for fuzzing: any bytes, split anywhere, give a use and no panic.
pub(crate) fn fuzz_usage(bytes: &[u8]) {
    let prices = Prices::built_in();
    for kind in ["text/event-stream", "application/json", "text/plain"] {
        let mut reader = UsageReader::new(Some(kind));
        let (first, second) = bytes.split_at(bytes.len() / 3);
        reader.feed(first);
        reader.feed(second);
        let used = reader.finish(&prices, bytes.len() as u64);
        assert!(used.model.len() <= MAX_NAME);
    }
}
