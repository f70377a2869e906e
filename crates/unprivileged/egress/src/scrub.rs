//! Takes the real value of a secret out of whatever comes back, in the encodings in which a server would reflect it.
//!
//! **Trust:** reads a server's bytes. A value that arrives in pieces, over several lines or over several events of a stream
//! is found as well: bytes that could be the beginning of one are held back until the next piece decides, and nothing else
//! is, so that streams stay live. What this cannot find is a value that a server has changed in a way of its own
//! (reversed, encrypted, packed into an archive).
mod matching;

use matching::{Case, End, Fit, Shape, fit, starts};
use zeroize::Zeroizing;

/// Shortest text worth looking for. Shorter ones would be found everywhere by chance.
const MIN_NEEDLE: usize = 6;
/// So many characters of a value may pass at the end of an event before its stream is held back: an event that happens to
/// end with the first letter of a key must not wait for the next one. They are still counted as its beginning.
const LOOSE: usize = 3;
const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What to look for and what to put in its place. Shared by every response of a host.
#[derive(Default)]
pub(crate) struct Needles {
    /// Longest first.
    list: Vec<Needle>,
    /// Needles that may begin with a byte, in the order of the list.
    by_first: Vec<Vec<usize>>,
}

struct Needle {
    text: Zeroizing<Vec<u8>>,
    shape: Shape,
    phantom: Vec<u8>,
}

/// Scrubs one stream.
pub(crate) struct Scrubber {
    needles: std::sync::Arc<Needles>,
    /// What the next piece may complete, from the beginning of the first value that may be there.
    held: Zeroizing<Vec<u8>>,
    /// How much of it has been given out already.
    given: usize,
    hits: u32,
}

enum Look<'a> {
    Nothing,
    /// Held back until more is known.
    Perhaps,
    /// Remembered, but not held back.
    Loosely,
    Found(&'a Needle, usize),
}

impl Needles {
    /// Every spelling of each real value, paired with its phantom.
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = Vec::new();
        for (value, phantom) in secrets {
            for (text, shape) in spellings(value.as_bytes()) {
                if text.len() >= MIN_NEEDLE {
                    list.push(Needle {
                        text,
                        shape,
                        phantom: phantom.as_bytes().to_vec(),
                    });
                }
            }
        }
        list.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then(a.text.cmp(&b.text)));
        list.dedup_by(|a, b| a.text == b.text && a.shape == b.shape);
        let mut by_first = vec![Vec::new(); 256];
        for (index, needle) in list.iter().enumerate() {
            let first = needle.text.first().copied().unwrap_or_default();
            for byte in starts(first, needle.shape) {
                if let Some(slot) = by_first.get_mut(usize::from(byte))
                    && slot.last() != Some(&index)
                {
                    slot.push(index);
                }
            }
        }
        Self { list, by_first }
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
        self.stands_in(text, Case::Exact)
    }

    /// Whether any of them stands in a name whose case was folded.
    pub(crate) fn found_in_name(&self, name: &[u8]) -> bool {
        self.stands_in(name, Case::Folded)
    }

    fn stands_in(&self, text: &[u8], case: Case) -> bool {
        (0..text.len()).any(|at| {
            let rest = text.get(at..).unwrap_or_default();
            matches!(self.look(rest, case, End::Last), Look::Found(..))
        })
    }

    /// Scrubs a whole text, such as a header value; `None`: it was clean.
    pub(crate) fn scrub(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut clean = Vec::with_capacity(text.len());
        let passed = self.pass(text, 0, End::Last, &mut clean);
        (passed.hits > 0).then_some(clean)
    }

    /// Copies `input` from `given` on into `output` without the needles.
    fn pass(&self, input: &[u8], given: usize, end: End, output: &mut Vec<u8>) -> Passed {
        let (mut at, mut given, mut hits) = (0, given, 0u32);
        let mut keep = None;
        while let Some(byte) = input.get(at) {
            if self.may_begin(*byte).is_empty() {
                at += 1;
                continue;
            }
            match self.look(input.get(at..).unwrap_or_default(), Case::Exact, end) {
                Look::Nothing => at += 1,
                Look::Loosely => {
                    keep = keep.or(Some(at));
                    at += 1;
                }
                Look::Perhaps => {
                    output.extend_from_slice(input.get(given..at).unwrap_or_default());
                    return Passed {
                        hits,
                        keep: keep.unwrap_or(at),
                        given: given.max(at),
                    };
                }
                Look::Found(needle, length) => {
                    output.extend_from_slice(input.get(given..at).unwrap_or_default());
                    output.extend_from_slice(&needle.phantom);
                    hits = hits.saturating_add(1);
                    at += length;
                    given = given.max(at);
                    keep = None;
                }
            }
        }
        output.extend_from_slice(input.get(given..).unwrap_or_default());
        Passed {
            hits,
            keep: keep.unwrap_or(input.len()),
            given: input.len(),
        }
    }

    fn may_begin(&self, byte: u8) -> &[usize] {
        self.by_first.get(usize::from(byte)).map_or(&[], Vec::as_slice)
    }

    /// The longest needle wins; as long as a longer one is still possible the shorter one waits.
    fn look(&self, rest: &[u8], case: Case, end: End) -> Look<'_> {
        let first = rest.first().copied().unwrap_or_default();
        let mut loosely = false;
        for needle in self
            .may_begin(first)
            .iter()
            .filter_map(|index| self.list.get(*index))
        {
            match fit(&needle.text, needle.shape, case, rest, end) {
                Fit::No => {}
                Fit::Whole(length) => return Look::Found(needle, length),
                Fit::Part {
                    matched,
                    in_gap: true,
                } if matched < LOOSE => loosely = true,
                Fit::Part { .. } => return Look::Perhaps,
            }
        }
        if loosely { Look::Loosely } else { Look::Nothing }
    }
}

/// How far a pass came.
struct Passed {
    hits: u32,
    /// From where on the input is needed again.
    keep: usize,
    /// How much of the input was given out.
    given: usize,
}

impl Scrubber {
    /// A scrubber at the beginning of a stream.
    pub(crate) fn new(needles: std::sync::Arc<Needles>) -> Self {
        Self {
            needles,
            held: Zeroizing::new(Vec::new()),
            given: 0,
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
        let fresh = self.held.is_empty();
        if !fresh {
            self.held.extend_from_slice(bytes);
        }
        let input: &[u8] = if fresh { bytes } else { &self.held };
        let passed = self.needles.pass(input, self.given, end, &mut output);
        self.hits = self.hits.saturating_add(passed.hits);
        self.given = passed.given.saturating_sub(passed.keep);
        self.held = Zeroizing::new(input.get(passed.keep..).unwrap_or_default().to_vec());
        output
    }
}

/// The value as text, in hexadecimal, and in base64 at each of the three places at which it can begin within a longer
/// text. Escapes, alphabets and line breaks are the matter of the comparison.
fn spellings(value: &[u8]) -> Vec<(Zeroizing<Vec<u8>>, Shape)> {
    let mut all = vec![
        (Zeroizing::new(value.to_vec()), Shape::Text),
        (Zeroizing::new(hex(value, b"0123456789abcdef")), Shape::Hex),
    ];
    for shift in 0..3 {
        all.push((Zeroizing::new(base64_core(value, shift, STANDARD)), Shape::Base64));
    }
    all
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

/// Entry for fuzzing: whatever else an answer holds, a value in it as it is does not pass, and cutting changes nothing.
pub(crate) fn fuzz_scrub(bytes: &[u8]) {
    const VALUE: &str = "sk-Fuzz/0123456789";
    let (first, rest) = bytes.split_first().unwrap_or((&1, &[]));
    let needles = std::sync::Arc::new(Needles::new([(VALUE, "PHANTOM")].into_iter()));
    let scrubbed = |text: &[u8], step: usize| {
        let mut scrubber = Scrubber::new(std::sync::Arc::clone(&needles));
        let mut out = Vec::new();
        for piece in text.chunks(step.max(1)) {
            out.extend(scrubber.feed(piece));
        }
        out.extend(scrubber.finish());
        out
    };
    let middle = rest.len() / 2;
    let (before, after) = rest.split_at(middle);
    let planted = [before, VALUE.as_bytes(), after].concat();
    for text in [rest, &planted] {
        let out = scrubbed(text, usize::from(*first));
        let found = out.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
        assert!(!found, "a value passed");
    }
}

#[cfg(test)]
mod tests;
