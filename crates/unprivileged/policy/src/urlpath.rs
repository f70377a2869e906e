//! Paths of requests: patterns in rules, and which spellings of a path two servers could read differently.
//!
//! **Trust:** paths come from the agent. An ambiguous one satisfies no allow rule and hits every deny rule with a path.
use std::borrow::Cow;

/// Most segments that are matched: `**` tries every one, twice at most. Longer paths count as ambiguous.
const MAX_SEGMENTS: usize = 256;

/// Longest pattern.
const MAX_PATTERN: usize = 1024;

/// Checks a path pattern: `*` within a segment, `**` as a whole one.
pub(crate) fn check_path(path: &str) -> Result<String, String> {
    let odd = path
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#'));
    let doubled = path.split('/').any(|part| part.contains("**") && part != "**");
    if odd || doubled || is_ambiguous(path) || path.len() > MAX_PATTERN || path.matches("**").count() > 2 {
        return Err(format!(
            "path {path:?} must be plain: no query, no '..', no percent-escaped dots or slashes, '**' only as a whole segment"
        ));
    }
    Ok(path.to_owned())
}

/// Whether two servers could read this path differently.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    path.contains(['\\', ';'])
        || path.contains("//")
        || path.chars().any(char::is_control)
        || path.split('/').any(|part| matches!(part, "." | ".."))
        || path.bytes().filter(|b| *b == b'/').count() > MAX_SEGMENTS
        || (path.contains('%') && escapes_are_odd(path))
}

/// Whether an escape is malformed, or hides what gives a path its shape.
fn escapes_are_odd(path: &str) -> bool {
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        match escaped(rest) {
            Some(b'.' | b'/' | b'\\' | b'%' | b';' | 0..=0x1f | 0x7f) | None => return true,
            Some(_) => {}
        }
    }
    false
}

/// The byte that two hexadecimal digits at the start stand for.
fn escaped(text: &str) -> Option<u8> {
    let digits = text.get(..2)?;
    digits
        .bytes()
        .all(|b| b.is_ascii_hexdigit())
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Whether a plain path fits a pattern; escapes of plain characters are read as those characters in both.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (decoded(pattern), decoded(path));
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    segments_match(&pattern, &path)
}

/// One spelling of every escape: printable ASCII as itself, the rest with upper-case digits. `*` and `?` stay
/// escaped, because in a pattern they mean something else.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match escaped(rest) {
            Some(byte @ b'!'..=b'~') if !matches!(byte, b'*' | b'?') => out.push(char::from(byte)),
            Some(byte) => out.push_str(&format!("%{byte:02X}")),
            None => {
                out.push('%');
                continue;
            }
        }
        rest = &rest[2..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn segments_match(pattern: &[&str], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((&"**", rest)) => (0..=path.len()).any(|skipped| segments_match(rest, &path[skipped..])),
        Some((first, rest)) => path.split_first().is_some_and(|(segment, below)| {
            crate::names::glob(first.as_bytes(), segment.as_bytes()) && segments_match(rest, below)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_in_disguise_is_ambiguous_or_read_as_what_it_says() {
        for odd in [
            "/a/../b",
            "/a/./b",
            "/a//b",
            "/a/%2e%2e/b",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a;b",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a%00",
            "/a%252e",
            "/a\u{7f}",
            "/%0a",
        ] {
            assert!(is_ambiguous(odd), "{odd}");
        }
        assert!(is_ambiguous(&"/a".repeat(MAX_SEGMENTS + 1)));
        for (pattern, path, fits) in [
            ("/admin/**", "/%61dmin/x", true),
            ("/admin/**", "/%41dmin/x", false),
            ("/caf%C3%A9", "/caf%c3%a9", true),
            ("/a%2Ab", "/axxb", false),
            ("/a:b", "/a%3Ab", true),
            ("/**/x", "/a/b/x", true),
            ("/*/x", "/a/b/x", false),
        ] {
            assert_eq!(path_matches(pattern, path), fits, "{pattern} {path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_panic(text in "[/a%.;2eéF*]{0,40}", pattern in "/[a*/%2é]{0,20}") {
            prop_assert!(check_path(&text).is_err() || !is_ambiguous(&text));
            let below = format!("/{text}");
            prop_assert!(path_matches("/**", &below));
            prop_assert_eq!(path_matches(&pattern, &text), path_matches(&pattern, &text));
        }

        #[test]
        fn escaping_a_plain_letter_changes_no_answer(name in "[a-z]{1,8}", at in any::<prop::sample::Index>(), pattern in "[a-z*]{1,8}") {
            let index = at.index(name.len());
            let byte = name.as_bytes()[index];
            let hidden = format!("{}%{byte:02x}{}", &name[..index], &name[index + 1..]);
            let pattern = format!("/{pattern}");
            prop_assert_eq!(path_matches(&pattern, &format!("/{name}")), path_matches(&pattern, &format!("/{hidden}")));
        }
    }
}
