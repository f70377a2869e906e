//! The tokens of a GraphQL document.
//!
//! **Trust:** reads the agent's text. Every byte is looked at once; whatever is no token of the language is an error.

/// A token. Values do not matter to operations, so numbers and strings carry nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or keyword.
    Name(&'a str),
    /// `...`
    Spread,
    /// One of `! $ & ( ) : = @ [ ] { | }`.
    Mark(u8),
    /// A number or a string.
    Value,
}

/// Splits a document; `None` where it is not one.
pub(super) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at..)?;
        let (token, length) = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => (None, 1),
            // The byte order mark is white space to the language.
            0xef if rest.starts_with(&[0xef, 0xbb, 0xbf]) => (None, 3),
            b'#' => (
                None,
                rest.iter().take_while(|b| !matches!(b, b'\n' | b'\r')).count(),
            ),
            b'!' | b'$' | b'&' | b'(' | b')' | b':' | b'=' | b'@' | b'[' | b']' | b'{' | b'|' | b'}' => {
                (Some(Token::Mark(*byte)), 1)
            }
            b'.' if rest.starts_with(b"...") => (Some(Token::Spread), 3),
            b'_' | b'A'..=b'Z' | b'a'..=b'z' => {
                let length = rest
                    .iter()
                    .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
                    .count();
                (Some(Token::Name(text.get(at..at + length)?)), length)
            }
            b'-' | b'0'..=b'9' => {
                let number = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-');
                (Some(Token::Value), rest.iter().take_while(number).count())
            }
            b'"' if rest.starts_with(b"\"\"\"") => (Some(Token::Value), block_string(rest)?),
            b'"' => (Some(Token::Value), string(rest)?),
            _ => return None,
        };
        found.extend(token);
        at += length.max(1);
    }
    Some(found)
}

/// Length of a string with its quotes.
fn string(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match rest.get(at)? {
            b'"' => return Some(at + 1),
            b'\n' | b'\r' => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Length of a block string with its quotes; `\"""` does not end it.
fn block_string(rest: &[u8]) -> Option<usize> {
    let mut at = 3;
    loop {
        let tail = rest.get(at..)?;
        if tail.is_empty() {
            return None;
        }
        if tail.starts_with(b"\"\"\"") {
            return Some(at + 3);
        }
        at += if tail.starts_with(b"\\\"\"\"") { 4 } else { 1 };
    }
}
