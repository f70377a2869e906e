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
        || (path.contains('%') && (escapes_are_odd(path) || unreserved(path).is_err()))
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

/// How a path is written, once escapes of unreserved characters are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathForm {
    /// Every server reads it alike.
    Plain,
    /// An encoded slash, an empty segment or path parameters: servers split it into segments differently.
    Split(&'static str),
    /// Dot segments, backslashes, control characters, malformed, doubled or overlong escapes: no client needs these,
    /// and servers resolve them differently.
    Deceptive(&'static str),
}

/// Which forms of a path a host's rules can judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathDemand {
    /// Any: nothing about the path decides.
    Any,
    /// Nothing deceptive.
    Honest,
    /// Only plain paths: a rule or a secret names paths.
    Plain,
}

/// A request path in the one form that is judged and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalPath {
    /// Unreserved characters unescaped, other escapes with upper-case digits (RFC 3986, 6.2.2). A deceptive path stays as
    /// it was sent.
    pub text: String,
    /// How it is written.
    pub form: PathForm,
}

impl CanonicalPath {
    /// Reads a path as it was sent: without query, beginning with a slash.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let raw = |why| Self {
            text: path.to_owned(),
            form: PathForm::Deceptive(why),
        };
        if path.bytes().any(|b| !(0x21..=0x7e).contains(&b)) {
            return raw("a character that must be percent-encoded");
        }
        if path.contains('\\') {
            return raw("a backslash");
        }
        let text = match unreserved(path) {
            Ok(text) => text,
            Err(why) => return raw(why),
        };
        let separated = text.replace("%2F", "/");
        if separated.split('/').any(is_dots) {
            return raw("a dot segment");
        }
        let form = if text.matches('/').count() > MAX_SEGMENTS {
            PathForm::Split("too many segments")
        } else if text.contains("//") {
            PathForm::Split("an empty segment")
        } else if text.contains("%2F") {
            PathForm::Split("an encoded slash")
        } else if text.contains(';') || text.contains("%3B") {
            PathForm::Split("path parameters (;)")
        } else {
            PathForm::Plain
        };
        Self { text, form }
    }

    /// Why this path cannot be judged where `demand` holds.
    #[must_use]
    pub fn refused(&self, demand: PathDemand) -> Option<&'static str> {
        match (self.form, demand) {
            (PathForm::Plain, _) | (_, PathDemand::Any) | (PathForm::Split(_), PathDemand::Honest) => None,
            (PathForm::Split(why), PathDemand::Plain)
            | (PathForm::Deceptive(why), PathDemand::Honest | PathDemand::Plain) => Some(why),
        }
    }
}

/// `.`, `..`, and the same before path parameters, which some servers cut off first.
fn is_dots(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default();
    let name = name.split("%3B").next().unwrap_or_default();
    matches!(name, "." | "..")
}

/// Escapes in their canonical form; an error names what two decoders would read differently.
fn unreserved(path: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(path.len());
    // Runs of escaped bytes above ASCII must be UTF-8 in its shortest form.
    let mut run: Vec<u8> = Vec::new();
    let mut rest = path;
    loop {
        let at = rest.find('%');
        let plain = &rest[..at.unwrap_or(rest.len())];
        if !plain.is_empty() || at.is_none() {
            end_run(&mut run)?;
        }
        out.push_str(plain);
        let Some(at) = at else { return Ok(out) };
        rest = &rest[at + 1..];
        let Some(byte) = escaped(rest) else {
            return Err("a malformed escape");
        };
        rest = &rest[2..];
        if byte >= 0x80 {
            run.push(byte);
            out.push_str(&format!("%{byte:02X}"));
            continue;
        }
        end_run(&mut run)?;
        match byte {
            0..=0x1f | 0x7f => return Err("an encoded control character"),
            b'\\' => return Err("an encoded backslash"),
            b'%' => return Err("a doubled escape"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Checks one run of escaped bytes above ASCII.
fn end_run(run: &mut Vec<u8>) -> Result<(), &'static str> {
    let text = std::str::from_utf8(run).map_err(|_| "an escape that is not UTF-8 (overlong or broken)")?;
    // Servers that fold to ASCII (best-fit code pages, NFKC) read these as dots, slashes and percent signs.
    let folds = |c: char| matches!(c, '\u{2024}'..='\u{2026}' | '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{29f5}' | '\u{29f8}' | '\u{fe50}'..='\u{fe6f}' | '\u{ff01}'..='\u{ff5e}');
    if text.chars().any(folds) {
        return Err("an encoded character that some servers read as a dot or slash");
    }
    run.clear();
    Ok(())
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
            "/a/%c0%ae%c0%ae/b",
            "/a%ef%bc%8fb",
            "/a%ff",
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

    #[test]
    fn a_path_has_one_canonical_form_or_says_why_it_has_none() {
        for (sent, text) in [
            ("/%61dmin/%7Ex", "/admin/~x"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a%2Erb", "/a.rb"),
            ("/a%3ab", "/a%3Ab"),
            ("/", "/"),
        ] {
            let path = CanonicalPath::new(sent);
            assert_eq!((path.text.as_str(), path.form), (text, PathForm::Plain), "{sent}");
        }
        for deceptive in [
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/.%2e/b",
            "/a%2f..%2Fb",
            "/a/..;x/b",
            "/a/..%3bx/b",
            "/a\\b",
            "/a%5Cb",
            "/a%00",
            "/a%0d%0a",
            "/a%252e%252e",
            "/a%",
            "/a%4",
            "/a%u002e",
            "/%c0%ae%c0%ae/a",
            "/%e0%80%af",
            "/%ef%bc%8e%ef%bc%8e/a",
            "/\u{e9}",
            "/a b",
        ] {
            let path = CanonicalPath::new(deceptive);
            assert!(
                matches!(path.form, PathForm::Deceptive(_)),
                "{deceptive}: {path:?}"
            );
            assert!(path.refused(PathDemand::Honest).is_some() && path.refused(PathDemand::Any).is_none());
        }
        for split in ["/a//b", "/a%2fb", "/a;b", "/a%3Bb"] {
            let path = CanonicalPath::new(split);
            assert!(matches!(path.form, PathForm::Split(_)), "{split}: {path:?}");
            assert!(path.refused(PathDemand::Plain).is_some() && path.refused(PathDemand::Honest).is_none());
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_of_a_canonical_path_is_itself(text in "/([a-z./;~é]|%[0-9a-fA-F]{2}|%2[eEfF]|%c3%a9){0,24}") {
            let once = CanonicalPath::new(&text);
            let twice = CanonicalPath::new(&once.text);
            prop_assert_eq!(&twice, &once);
            if once.form == PathForm::Plain {
                prop_assert!(!is_ambiguous(&once.text));
                prop_assert_eq!(decoded(&once.text), decoded(&text));
            }
        }

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
