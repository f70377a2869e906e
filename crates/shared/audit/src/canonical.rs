//! RFC 8785 form of a JSON value (what is hashed) and the line made from it (what is stored).
//!
//! Written here because the hot path needs it many thousand times a second; a property test holds it equal to
//! `serde_json_canonicalizer`, which also formats every number that is not a plain integer.
use crate::sanitize::is_hostile;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

/// Largest integer that every reader of JSON numbers holds exactly.
pub(crate) const MAX_SAFE: u64 = (1 << 53) - 1;

/// Deepest nesting of what an event carries. Readers stop at 128 levels; the record adds a few of its own.
pub(crate) const MAX_DEPTH: usize = 64;

/// Bounds integers to what survives the canonical form exactly. `false` if the value is nested too deeply.
pub(crate) fn tame(value: &mut Value, depth: usize) -> bool {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|n| n > MAX_SAFE) => {
            *value = Value::from(MAX_SAFE)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(items) => {
            return depth < MAX_DEPTH && items.iter_mut().all(|item| tame(item, depth + 1));
        }
        Value::Object(map) => {
            return depth < MAX_DEPTH && map.values_mut().all(|item| tame(item, depth + 1));
        }
    }
    true
}

/// The form of RFC 8785: what is signed of a JSON value. `None` where it has none.
#[must_use]
pub fn canonical(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    write(value, &mut out).ok()?;
    Some(out)
}

/// Appends the canonical form of `value`.
pub(crate) fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out)?,
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out)?;
            }
            out.push(b']');
        }
        Value::Object(map) => write_object(map, out)?,
    }
    Ok(())
}

/// Appends the canonical form of an object.
pub(crate) fn write_object(map: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by(|a, b| utf16_order(a.0, b.0));
    out.push(b'{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// RFC 8785 sorts keys by UTF-16 units, which differs from UTF-8 order beyond the basic plane.
fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

fn write_number(number: &Number, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match number.as_u64() {
        Some(value) if value <= MAX_SAFE => {
            let mut digits = [0; 20];
            let mut at = digits.len();
            let mut rest = value;
            loop {
                at -= 1;
                digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            out.extend_from_slice(&digits[at..]);
            Ok(())
        }
        Some(_) | None => serde_json_canonicalizer::to_writer(number, out),
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut clean_from = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..=0x1f => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[clean_from..index]);
        clean_from = index + 1;
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(&hex4(u16::from(byte)));
        }
    }
    out.extend_from_slice(&bytes[clean_from..]);
    out.push(b'"');
}

/// Appends a canonical text as it is stored: hostile characters that JSON would leave bare are escaped, so that no
/// tool takes one for a line end and no terminal obeys one. A function of its input: readers can demand it.
pub(crate) fn write_line(canonical: &str, out: &mut Vec<u8>) {
    if canonical.bytes().all(|b| b < 0x7f) {
        out.extend_from_slice(canonical.as_bytes());
        return;
    }
    let mut clean_from = 0;
    // Hostile ASCII other than DEL cannot stand bare in canonical JSON; outside strings there is only ASCII.
    for (index, c) in canonical
        .char_indices()
        .filter(|(_, c)| *c >= '\x7f' && is_hostile(*c))
    {
        out.extend_from_slice(&canonical.as_bytes()[clean_from..index]);
        clean_from = index + c.len_utf8();
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.extend_from_slice(b"\\u");
            out.extend_from_slice(&hex4(*unit));
        }
    }
    out.extend_from_slice(&canonical.as_bytes()[clean_from..]);
}

fn hex4(unit: u16) -> [u8; 4] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [12, 8, 4, 0].map(|shift| DIGITS[usize::from(unit >> shift & 0xf)])
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let written = write!(text, "{byte:02x}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
            text
        })
}

/// Bytes from exactly `N` pairs of lower-case hexadecimal digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes();
    if pairs.len() != N * 2 {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(pairs.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[\u{0}-\u{7f}\u{2020}-\u{2070}\u{e000}-\u{f000}\u{10000}-\u{10010}]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(
                    "[a-c\u{e000}-\u{e002}\u{10000}-\u{10002}\"\u{1}]{0,3}",
                    inner,
                    0..5
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_the_one_of_rfc_8785(value in any_value()) {
            let mut ours = Vec::new();
            write(&value, &mut ours).unwrap();
            prop_assert_eq!(String::from_utf8(ours).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
        }

        #[test]
        fn a_stored_line_has_no_line_end_in_any_reading_and_parses_back_to_the_same_value(value in any_value()) {
            let mut canonical = Vec::new();
            write(&value, &mut canonical).unwrap();
            let mut line = Vec::new();
            write_line(std::str::from_utf8(&canonical).unwrap(), &mut line);
            let line = String::from_utf8(line).unwrap();
            prop_assert!(!line.chars().any(is_hostile));
            let mut again = Vec::new();
            write(&serde_json::from_str(&line).unwrap(), &mut again).unwrap();
            prop_assert_eq!(again, canonical);
        }
    }

    #[test]
    fn hexadecimal_with_capitals_or_of_another_length_is_refused() {
        assert_eq!(unhex::<2>("00ff"), Some([0, 255]));
        for bad in ["00FF", "00f", "00fff", "zz00", ""] {
            assert_eq!(unhex::<2>(bad), None, "{bad}");
        }
    }
}
