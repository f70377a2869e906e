//! JSON for programs that a person may look at: what acts on a terminal stands there as an escape.
use serde_json::Value;
use std::fmt::Write;

/// The value on one line. Only characters that JSON strings may hold as they are differ from the usual form.
pub(crate) fn json(value: &Value) -> String {
    escaped(&value.to_string())
}

/// JSON text with every hostile character as `\uXXXX`. Outside of strings JSON has ASCII only, so the meaning stays.
pub(crate) fn escaped(text: &str) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut single, mut units) = ([0; 4], [0; 2]);
    for c in text.chars() {
        let hostile = c != '\n'
            && bastle_audit::sanitize(c.encode_utf8(&mut single)).as_bytes()
                != c.encode_utf8(&mut [0; 4]).as_bytes();
        if !hostile {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            let written = write!(out, "\\u{unit:04x}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_are_escaped_and_the_value_stays_the_same() {
        let value = serde_json::json!({ "a": "x\u{9b}31m\u{202e}\u{e0041}\x7f\x1b é日" });
        let text = json(&value);
        assert!(
            !text
                .chars()
                .any(|c| c.is_control() || c == '\u{202e}' || c == '\u{e0041}'),
            "{text:?}"
        );
        assert!(text.contains("é日"));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
