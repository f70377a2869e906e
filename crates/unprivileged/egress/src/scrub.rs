//! Takes the real value of a secret out of whatever comes back, in the encodings in which a server would reflect it.
//!
//! **Trust:** reads a server's bytes. A value that arrives in pieces is found as well: a suffix that could be the
//! beginning of one is held back until the next piece decides, and nothing else is, so that streams stay live.
//! What this cannot find is a value that a server has changed in a way of its own (reversed, compressed, split).
use zeroize::Zeroizing;

/// Shortest text worth looking for. Shorter ones would be found everywhere by chance.
const MIN_NEEDLE: usize = 6;
const URL_SAFE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What to look for and what to put in its place. Shared by every response of a host.
#[derive(Default)]
pub(crate) struct Needles {
    /// Longest first.
    list: Vec<Needle>,
    /// Whether a needle starts with this byte.
    starts: Vec<bool>,
}

struct Needle {
    text: Zeroizing<Vec<u8>>,
    phantom: Vec<u8>,
}

/// Scrubs one stream.
pub(crate) struct Scrubber {
    needles: std::sync::Arc<Needles>,
    held: Zeroizing<Vec<u8>>,
    hits: u32,
}

impl Needles {
    /// Every spelling of each real value, paired with its phantom.
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = Vec::new();
        for (value, phantom) in secrets {
            for text in spellings(value.as_bytes()) {
                if text.len() >= MIN_NEEDLE {
                    list.push(Needle {
                        text,
                        phantom: phantom.as_bytes().to_vec(),
                    });
                }
            }
        }
        list.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then(a.text.cmp(&b.text)));
        list.dedup_by(|a, b| a.text == b.text);
        let mut starts = vec![false; 256];
        for first in list.iter().filter_map(|needle| needle.text.first()) {
            if let Some(slot) = starts.get_mut(usize::from(*first)) {
                *slot = true;
            }
        }
        Self { list, starts }
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The length of the longest.
    pub(crate) fn longest(&self) -> usize {
        self.list.first().map_or(0, |needle| needle.text.len())
    }

    /// Whether any of them stands in `text`.
    pub(crate) fn found_in(&self, text: &[u8]) -> bool {
        (0..text.len()).any(|at| {
            let rest = text.get(at..).unwrap_or_default();
            let first = rest.first().copied().map_or(0, usize::from);
            self.starts.get(first).copied().unwrap_or_default()
                && matches!(self.look(rest, End::Last), Look::Found(_))
        })
    }

    /// Scrubs a whole text, such as a header value; `None`: it was clean.
    pub(crate) fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut clean = Vec::with_capacity(text.len());
        let (hits, _) = self.pass(text, End::Last, &mut clean);
        (hits > 0).then_some(clean)
    }

    /// Copies `input` into `output` without the needles. Gives the number found and how much was used up.
    fn pass(&self, input: &[u8], end: End, output: &mut Vec<u8>) -> (u32, usize) {
        let (mut at, mut clean_from, mut hits) = (0, 0, 0u32);
        while let Some(byte) = input.get(at) {
            if !self.starts.get(usize::from(*byte)).copied().unwrap_or_default() {
                at += 1;
                continue;
            }
            let rest = input.get(at..).unwrap_or_default();
            match self.look(rest, end) {
                Look::Nothing => at += 1,
                Look::Perhaps => {
                    output.extend_from_slice(input.get(clean_from..at).unwrap_or_default());
                    return (hits, at);
                }
                Look::Found(needle) => {
                    output.extend_from_slice(input.get(clean_from..at).unwrap_or_default());
                    output.extend_from_slice(&needle.phantom);
                    hits = hits.saturating_add(1);
                    at += needle.text.len();
                    clean_from = at;
                }
            }
        }
        output.extend_from_slice(input.get(clean_from..).unwrap_or_default());
        (hits, input.len())
    }

    /// The longest needle wins; as long as a longer one is still possible the shorter one waits.
    fn look(&self, rest: &[u8], end: End) -> Look<'_> {
        for needle in &self.list {
            if rest.starts_with(&needle.text) {
                return Look::Found(needle);
            }
            if end == End::More && needle.text.starts_with(rest) {
                return Look::Perhaps;
            }
        }
        Look::Nothing
    }
}

/// Whether more may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    More,
    Last,
}

enum Look<'a> {
    Nothing,
    Perhaps,
    Found(&'a Needle),
}

impl Scrubber {
    /// A scrubber at the beginning of a stream.
    pub(crate) fn new(needles: std::sync::Arc<Needles>) -> Self {
        Self {
            needles,
            held: Zeroizing::new(Vec::new()),
            hits: 0,
        }
    }

    /// The clean part of everything so far that has not been given out yet.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.run(bytes, End::More)
    }

    /// What was held back, at the end of the stream.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.run(&[], End::Last)
    }

    /// How many values were taken out.
    pub(crate) fn hits(&self) -> u32 {
        self.hits
    }

    fn run(&mut self, bytes: &[u8], end: End) -> Vec<u8> {
        let mut output = Vec::with_capacity(bytes.len() + self.held.len());
        if self.held.is_empty() {
            let (hits, used) = self.needles.pass(bytes, end, &mut output);
            self.hits = self.hits.saturating_add(hits);
            self.held.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return output;
        }
        self.held.extend_from_slice(bytes);
        let (hits, used) = self.needles.pass(&self.held, end, &mut output);
        self.hits = self.hits.saturating_add(hits);
        let rest = Zeroizing::new(self.held.get(used..).unwrap_or_default().to_vec());
        self.held = rest;
        output
    }
}

/// The value as it is, escaped for JSON, percent-encoded, in hexadecimal, and in base64 at each of the three places
/// at which it can begin within a longer text.
fn spellings(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut all = vec![value.to_vec(), json(value), percent(value, b"0123456789ABCDEF")];
    all.push(percent(value, b"0123456789abcdef"));
    all.push(hex(value, b"0123456789abcdef"));
    all.push(hex(value, b"0123456789ABCDEF"));
    for alphabet in [STANDARD, URL_SAFE] {
        for shift in 0..3 {
            all.push(base64_core(value, shift, alphabet));
        }
    }
    all.into_iter().map(Zeroizing::new).collect()
}

fn json(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in value {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'/' => out.extend(*b"\\/"),
            _ => out.push(*byte),
        }
    }
    out
}

fn percent(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in value {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend(hex(&[*byte], digits));
        }
    }
    out
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or(b'0');
    value
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// The characters of the base64 of a text that depend on `value` alone when `shift` bytes stand before it.
fn base64_core(value: &[u8], shift: usize, alphabet: &[u8]) -> Vec<u8> {
    let mut padded = Zeroizing::new(vec![0u8; shift]);
    padded.extend_from_slice(value);
    let encoded = Zeroizing::new(base64(&padded, alphabet));
    // The first characters mix in what stands before; the last one, unless it is full, what comes after.
    let first = (shift * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    encoded.get(first..last).unwrap_or_default().to_vec()
}

/// Base64 without padding.
fn base64(bytes: &[u8], alphabet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..=group.len() {
            let six = (bits >> (18 - 6 * index)) & 63;
            out.push(alphabet.get(six as usize).copied().unwrap_or(b'A'));
        }
    }
    out
}

/// Standard base64 with padding, for headers.
pub(crate) fn base64_padded(bytes: &[u8]) -> String {
    let mut text = String::from_utf8(base64(bytes, STANDARD)).unwrap_or_default();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// Reads base64 of either alphabet, padded or not; `None` where it is none.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0u32);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests;
