//! Just enough of Rust's lexis to tell code from comments and literals.

/// `text` with every comment and every string or character literal replaced by blanks; newlines stay, so
/// that line numbers hold.
pub(super) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skipped_until(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Blanking whole literals leaves every multi-byte character either whole or gone.
    String::from_utf8_lossy(&code).into_owned()
}

/// Line numbers (from 1) where `word` stands as an identifier of its own.
pub(super) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    code.lines()
        .enumerate()
        .filter(|(_, line)| {
            line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .any(|w| w == word)
        })
        .map(|(index, _)| index + 1)
        .collect()
}

/// Where a comment or literal that starts at `at` ends; `at` itself when none starts there.
fn skipped_until(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_identifier = at > 0 && is_identifier(bytes[at - 1]);
    if rest.starts_with(b"//") {
        return rest
            .iter()
            .position(|b| *b == b'\n')
            .map_or(bytes.len(), |n| at + n);
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return string_end(bytes, at + 1);
    }
    if rest[0] == b'\'' {
        return character_end(bytes, at);
    }
    if !after_identifier && let Some(end) = raw_string_end(bytes, at) {
        return end;
    }
    at
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A character literal's end, or `start` for a lifetime.
fn character_end(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes[(start + 3).min(bytes.len())..]
            .iter()
            .position(|b| *b == b'\'');
        return close.map_or(start, |n| start + 4 + n);
    }
    // One character of up to four bytes, then the quote. `'a` without it is a lifetime.
    (start + 2..=start + 5)
        .find(|end| {
            bytes.get(*end) == Some(&b'\'')
                && std::str::from_utf8(&bytes[start + 1..*end]).is_ok_and(|text| text.chars().count() == 1)
        })
        .map_or(start, |end| end + 1)
}

/// The end of `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`, if one starts here.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let prefix = [&b"br"[..], b"cr", b"r"]
        .into_iter()
        .find(|prefix| bytes[start..].starts_with(prefix))?;
    let hashes_from = start + prefix.len();
    let hashes = bytes[hashes_from..].iter().take_while(|b| **b == b'#').count();
    let open = hashes_from + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let found = bytes[open + 1..]
        .windows(close.len())
        .position(|window| window == close);
    Some(found.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        for (text, lines) in [
            ("unsafe { }", vec![1]),
            ("fn f() {\n  unsafe {}\n}", vec![2]),
            ("// unsafe\n/* unsafe /* unsafe */ unsafe */", vec![]),
            ("let s = \"unsafe \\\" unsafe\"; unsafe", vec![1]),
            ("let s = \"a\nunsafe\";\nunsafe", vec![3]),
            ("let s = r#\"unsafe \" unsafe\"#;", vec![]),
            ("let s = br\"unsafe\\\"; unsafe", vec![1]),
            ("#![forbid(unsafe_code)]", vec![]),
            ("fn f<'a>(x: &'a str) { unsafe {} }", vec![1]),
            ("let c = '\"'; unsafe {} let d = '\"';", vec![1]),
            ("let c = '\\''; unsafe {} let d = 'é';", vec![1]),
            ("let b = b'\"'; unsafe {} let d = b'\"';", vec![1]),
            ("let r#unsafe = 1;", vec![1]),
            ("/* never closed unsafe", vec![]),
        ] {
            assert_eq!(lines_with_word(&code_only(text), "unsafe"), lines, "{text}");
        }
    }

    #[test]
    fn this_file_speaks_of_it_in_literals_only() {
        let code = code_only(include_str!("lexer.rs"));
        assert_eq!(lines_with_word(&code, "unsafe"), Vec::<usize>::new());
        assert_eq!(code.lines().count(), include_str!("lexer.rs").lines().count());
    }
}
