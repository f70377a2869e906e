//! Which trace something belongs to, as W3C Trace Context writes it: `00-TRACE-SPAN-FLAGS`.
//!
//! **Trust:** it comes from whoever asks and goes into an agent's environment, so it is nothing but lower-case hex digits of a
//! fixed length.
use serde::{Deserialize, Serialize};
use std::fmt;

/// The variable in which an agent finds it.
pub const TRACE_VARIABLE: &str = "TRACEPARENT";

/// A trace, the span within it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// The flags; the lowest bit says that somebody records it.
    pub flags: u8,
}

/// What is wrong with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a traceparent is 00-TRACE-SPAN-FLAGS in lower-case hex digits, and neither number is zero")]
pub struct TraceError;

impl TraceParent {
    /// Reads one. A later version may say more after the flags, and that is not looked at; version `ff` is none.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let bytes = text.as_bytes();
        if bytes.len() < 55 || bytes.len() > 512 || !text.is_ascii() {
            return Err(TraceError);
        }
        let version: [u8; 1] = hex(&bytes[..2])?;
        let exact = bytes.len() == 55;
        if version == [0xff] || (version == [0] && !exact) || (!exact && bytes[55] != b'-') {
            return Err(TraceError);
        }
        if [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return Err(TraceError);
        }
        let found = Self {
            trace: hex(&bytes[3..35])?,
            span: hex(&bytes[36..52])?,
            flags: hex::<1>(&bytes[53..55])?[0],
        };
        if found.trace == [0; 16] || found.span == [0; 8] {
            return Err(TraceError);
        }
        Ok(found)
    }

    /// The trace as hex digits.
    #[must_use]
    pub fn trace_hex(&self) -> String {
        shown(&self.trace)
    }

    /// The span as hex digits.
    #[must_use]
    pub fn span_hex(&self) -> String {
        shown(&self.span)
    }
}

fn shown(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], TraceError> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(TraceError),
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return Err(TraceError);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? * 16 + value(pair[1])?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{}-{}-{:02x}",
            self.trace_hex(),
            self.span_hex(),
            self.flags
        )
    }
}

impl TryFrom<String> for TraceParent {
    type Error = TraceError;

    fn try_from(text: String) -> Result<Self, TraceError> {
        Self::parse(&text)
    }
}

impl From<TraceParent> for String {
    fn from(trace: TraceParent) -> Self {
        trace.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_the_published_form_is_read_and_it_is_written_as_it_was() {
        assert_eq!(
            TraceParent::parse(GOOD).map(|found| found.to_string()),
            Ok(GOOD.to_owned())
        );
        // A later version with more at its end.
        assert!(TraceParent::parse(&GOOD.replacen("00", "01", 1)).is_ok());
        assert!(TraceParent::parse(&format!("{}-more", GOOD.replacen("00", "cc", 1))).is_ok());
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace('-', "_"),
            &format!("{GOOD}-more"),
            &format!("{GOOD} "),
            &format!("{}more", GOOD.replacen("00", "01", 1)),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            &"0".repeat(600),
        ] {
            assert!(TraceParent::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whatever_single_character_is_changed_nothing_but_digits_is_read() {
        for at in 0..GOOD.len() {
            for other in 0..=127_u8 {
                let mut bytes = GOOD.as_bytes().to_vec();
                bytes[at] = other;
                let text = String::from_utf8(bytes).unwrap();
                if let Ok(found) = TraceParent::parse(&text) {
                    assert_eq!(found.to_string()[2..], text[2..], "{text}");
                    assert!(text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()));
                }
            }
        }
    }
}
