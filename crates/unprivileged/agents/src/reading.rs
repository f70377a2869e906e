//! Picking single values out of what an agent said: bounded, and absent where they are not of the kind.
use crate::driver::Said;
use serde_json::{Value, json};

/// Longest text that is handed on from one message.
const MOST_TEXT: usize = 64 * 1024;
/// Largest structured value that is handed on.
const MOST_VALUE: usize = 16 * 1024;
/// Longest id.
const MOST_ID: usize = 256;

/// A text at a place, cut to what is handed on.
pub(crate) fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(cut)
}

/// A short name; one that is too long is none.
pub(crate) fn id(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer)?.as_str()?;
    (!text.is_empty() && text.len() <= MOST_ID).then(|| text.to_owned())
}

/// A number at a place.
pub(crate) fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// A structured value, or its size where it is too large.
pub(crate) fn bounded(value: Option<&Value>) -> Value {
    let Some(value) = value else { return Value::Null };
    let length = value.to_string().len();
    if length > MOST_VALUE {
        json!({ "left_out": length })
    } else {
        value.clone()
    }
}

/// The text, cut at a character.
pub(crate) fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MOST_TEXT);
    text[..end].to_owned()
}

/// A line that is no message.
pub(crate) fn noise(bytes: &[u8]) -> Said {
    let end = bytes.len().min(4096);
    Said::Noise {
        text: String::from_utf8_lossy(&bytes[..end]).into_owned(),
    }
}

/// A line that was too long.
pub(crate) fn dropped(length: usize) -> Said {
    Said::Trouble {
        text: format!("a line of {length} bytes was left out"),
    }
}

/// One JSON object on one line.
pub(crate) fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
