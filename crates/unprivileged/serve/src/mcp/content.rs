//! What an agent printed, named or wrote, on its way to a client: bounded, and without anything that acts on a terminal or
//! turns the direction of text.
use bastle_contract::Fault;
use serde_json::{Map, Value, json};

/// Largest result of a tool, as JSON.
const MOST: usize = 256 * 1024;
/// Longest text within it.
const MOST_TEXT: usize = 128 * 1024;

/// Whether a letter does something else than being shown.
fn acts(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Text that only is shown.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if acts(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Whether text can be shown as it is.
pub(super) fn is_clean(text: &str) -> bool {
    !text.chars().any(acts)
}

/// A value whose texts are only shown, within the bounds; whether something was cut is said in it.
pub(super) fn bounded(value: Value) -> Value {
    let mut cut = false;
    let mut left = MOST;
    let mut value = walk(value, &mut left, &mut cut);
    if let (true, Value::Object(members)) = (cut, &mut value) {
        members.insert("truncated".to_owned(), Value::Bool(true));
    }
    value
}

fn walk(value: Value, left: &mut usize, cut: &mut bool) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(&text, left, cut)),
        Value::Array(items) => {
            let mut kept = Vec::new();
            for item in items {
                if *left < 256 {
                    *cut = true;
                    break;
                }
                *left = left.saturating_sub(2);
                kept.push(walk(item, left, cut));
            }
            Value::Array(kept)
        }
        Value::Object(members) => {
            // Names come from us, except where a path or a label is one.
            let mut kept = Map::new();
            for (name, value) in members {
                *left = left.saturating_sub(name.len() + 4);
                kept.insert(clean(&name), walk(value, left, cut));
            }
            Value::Object(kept)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            *left = left.saturating_sub(8);
            value
        }
    }
}

fn shortened(text: &str, left: &mut usize, cut: &mut bool) -> String {
    let most = MOST_TEXT.min(*left);
    let mut out = clean(text);
    if out.len() > most {
        let mut end = most;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
        *cut = true;
    }
    *left = left.saturating_sub(out.len() + 2);
    out
}

/// The result of a tool.
pub(super) fn result(value: Value) -> Value {
    let value = bounded(value);
    json!({
        "content": [{ "type": "text", "text": value.to_string() }],
        "structuredContent": value,
        "isError": false,
    })
}

/// A refusal that the model can read and act upon.
pub(super) fn refused(faults: &[Fault]) -> Value {
    let mut text = String::new();
    for fault in faults.iter().take(8) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}: {}", fault.code, fault.what));
        if !fault.why.is_empty() {
            text.push_str(&format!(": {}", fault.why));
        }
        for help in &fault.help {
            text.push_str(&format!("\nhelp: {help}"));
        }
    }
    failed(&text)
}

/// Any other reason why a tool did nothing.
pub(super) fn failed(text: &str) -> Value {
    let (mut left, mut cut) = (8 * 1024, false);
    let text = shortened(text, &mut left, &mut cut);
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// Text for a path of the address: everything but plain letters is escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_passes_and_no_result_is_larger_than_the_bound() {
        let hostile = "\u{1b}[2J\u{7}\u{9b}1m\u{202e}evil\u{2066}\r\nok\ttab";
        let seen = bounded(json!({ "a\u{1b}": [hostile, { "b": hostile }] })).to_string();
        for bad in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert!(!seen.contains(bad), "{bad:?}");
            assert!(!seen.contains(&format!("\\u{:04x}", u32::from(bad))), "{seen}");
        }
        assert!(seen.contains("ok\\ttab"));

        let many = json!({ "items": vec!["x".repeat(1000); 5000], "text": "\u{e9}".repeat(1_000_000) });
        let seen = bounded(many);
        assert_eq!(seen["truncated"], true);
        assert!(seen.to_string().len() < 3 * MOST, "{}", seen.to_string().len());
        let small = json!({ "items": [1, "a", null] });
        assert_eq!(bounded(small.clone()), small);
    }

    #[test]
    fn no_name_of_a_worker_leads_to_another_address() {
        assert_eq!(escaped("../tokens?x=1#"), "..%2Ftokens%3Fx%3D1%23");
        assert_eq!(escaped("calm-otter"), "calm-otter");
    }
}
