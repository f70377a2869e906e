//! Untrusted text for eyes and terminals: nothing in it may move a cursor, reorder letters or end a line.
use std::fmt::Write;

/// Whether a character can act on a terminal, hide, reorder its neighbours or be taken for a line end.
pub(crate) fn is_hostile(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        | '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// `text` with every hostile character made visible: `\n`, `\x1b`, `\u{202e}`. The result is one line.
#[must_use]
pub fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_hostile(c) {
            out.push(c);
            continue;
        }
        let written = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\0'..='\x7f' => write!(out, "\\x{:02x}", u32::from(c)),
            _ => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    out
}

/// At most `most` bytes of `text`, cut between characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_bidi_controls_and_line_ends_never_reach_a_terminal() {
        assert_eq!(
            sanitize("a\x1b]0;x\x07\r\n\0\u{9b}31m\u{202e}gpj\u{2028}\u{e0041}é日"),
            "a\\x1b]0;x\\x07\\r\\n\\x00\\u{9b}31m\\u{202e}gpj\\u{2028}\\u{e0041}é日"
        );
    }

    proptest! {
        #[test]
        fn sanitized_text_is_one_line_without_hostile_characters(text in any::<String>()) {
            let clean = sanitize(&text);
            prop_assert!(!clean.chars().any(|c| c.is_control() || is_hostile(c)));
            prop_assert!(clean.lines().count() <= 1);
            prop_assert_eq!(sanitize(&clean), clean);
        }
    }
}
