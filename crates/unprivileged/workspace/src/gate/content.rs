//! What a text says that its path does not: hosts, credentials, deceptive characters.
//!
//! **Trust:** any bytes, at most [`MAX_SCANNED`] of them; every scan is linear and none keeps a secret it found.
use super::rules::{Alphabet, SecretRule, SecretRules};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Contents up to this size are read whole; larger ones are classed by size and never as plain text.
pub(super) const MAX_SCANNED: u64 = 8 << 20;
/// A value with at least this many bits per character is not a word or a path; English has about 4.1 over a
/// long text but short identifiers stay below 3.5, random base64 of 20 characters is above 3.8.
const SECRET_ENTROPY: f64 = 3.6;
/// Shorter values are names.
const SECRET_LENGTH: usize = 20;
/// Hosts kept of one text; a lock file names a handful.
const MAX_HOSTS: usize = 1_000;

/// Whether bytes are not text: a NUL near the start as git decides it, or not UTF-8.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(8_000)].contains(&0) || std::str::from_utf8(bytes).is_err()
}

/// Whether the kernel or a loader would run these bytes as a program.
pub(super) fn is_program(bytes: &[u8]) -> bool {
    const MAGIC: [&[u8]; 8] = [
        b"\x7fELF",
        b"MZ",
        b"\xca\xfe\xba\xbe",
        b"\xfe\xed\xfa\xce",
        b"\xfe\xed\xfa\xcf",
        b"\xce\xfa\xed\xfe",
        b"\xcf\xfa\xed\xfe",
        b"\0asm",
    ];
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

/// Whether text holds characters that reorder or hide what a reviewer reads.
pub(super) fn is_deceptive(text: &str) -> bool {
    // Most texts are ASCII, which is judged by the vector; the pieces end the search early.
    let visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | b'\x0c');
    let mut pieces = text.as_bytes().chunks(256);
    if pieces.all(|piece| piece.iter().fold(true, |all, byte| all & visible(byte))) {
        return false;
    }
    text.chars().any(|c| {
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{e0000}'..='\u{e007f}')
            || (c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}'))
    })
}

/// The hosts that URLs of a text name, with local schemes as hosts of their own.
pub(super) fn hosts(bytes: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("://") {
        let rest = &text[at + 3..];
        let end = rest
            .find(|c: char| c.is_whitespace() || "/?#\"'`<>|\\,;)}]".contains(c))
            .unwrap_or(rest.len());
        let authority = rest[..end].rsplit('@').next().unwrap_or_default();
        let scheme = text[..at]
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '+')
            .next()
            .unwrap_or_default();
        let host = if authority.is_empty() {
            format!("{scheme}:")
        } else {
            authority.to_ascii_lowercase()
        };
        found.insert(crate::path::visible(
            host.chars().take(255).collect::<String>().as_bytes(),
        ));
        if found.len() == MAX_HOSTS {
            break;
        }
    }
    // Shorthands that name no scheme: `git@host:path`, `github:a/b`, `file:../x`.
    for mark in [
        "git@",
        "github:",
        "gitlab:",
        "bitbucket:",
        "gist:",
        "file:",
        "link:",
        "portal:",
    ] {
        for (at, _) in text.match_indices(mark) {
            let rest = &text[at + mark.len()..];
            if rest.starts_with("//") {
                continue;
            }
            let name: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/' | '_'))
                .take(255)
                .collect();
            if !name.is_empty() && found.len() < MAX_HOSTS {
                found.insert(format!("{mark}{name}"));
            }
        }
    }
    found
}

/// A credential found: the rule, its reason and the line, never the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secret {
    pub(super) rule: String,
    pub(super) why: String,
    pub(super) line: usize,
}

/// The first credential of `after` on a line that `before` does not have.
pub(super) fn new_secret(rules: &SecretRules, before: Option<&[u8]>, after: &[u8]) -> Option<Secret> {
    let before = before.unwrap_or_default();
    if before == after {
        return None;
    }
    let changed = changed_lines(before, after);
    let first = after[..changed.start]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1;
    // Few texts have a secret at all: what the lines were is sorted for those only.
    let known: OnceCell<BTreeSet<&[u8]>> = OnceCell::new();
    let is_known = |line| {
        let lines = || before.split(|byte| *byte == b'\n').collect();
        known.get_or_init(lines).contains(line)
    };
    let lines = after[changed].split(|byte| *byte == b'\n').enumerate();
    lines
        .filter_map(|(number, line)| Some((number, line, secret_in(rules, &String::from_utf8_lossy(line))?)))
        .find(|(_, line, _)| !is_known(*line))
        .map(|(number, _, (rule, why))| Secret {
            rule,
            why,
            line: first + number,
        })
}

/// Where `after` has other lines than `before`: without the whole lines that both begin with and that both end with.
fn changed_lines(before: &[u8], after: &[u8]) -> Range<usize> {
    let is_end = |byte: &u8| *byte == b'\n';
    let head = &after[..common_start(before, after)];
    let start = head.iter().rposition(is_end).map_or(0, |end| end + 1);
    let tail = after.len() - common_end(&before[start..], &after[start..]);
    let end = after[tail..].iter().position(is_end);
    start..end.map_or(after.len(), |end| tail + end)
}

/// Bytes compared at once.
const STEP: usize = 64;

fn common_start(a: &[u8], b: &[u8]) -> usize {
    let steps = a.chunks_exact(STEP).zip(b.chunks_exact(STEP));
    let whole = steps.take_while(|(a, b)| a == b).count() * STEP;
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(a, b)| a == b).count()
}

fn common_end(a: &[u8], b: &[u8]) -> usize {
    let steps = a.rchunks_exact(STEP).zip(b.rchunks_exact(STEP));
    let whole = steps.take_while(|(a, b)| a == b).count() * STEP;
    let (a, b) = (&a[..a.len() - whole], &b[..b.len() - whole]);
    let rest = a.iter().rev().zip(b.iter().rev());
    whole + rest.take_while(|(a, b)| a == b).count()
}

fn secret_in(rules: &SecretRules, line: &str) -> Option<(String, String)> {
    let known = rules.secrets.iter().find(|rule| {
        line.match_indices(rule.prefix.as_str())
            .any(|(at, _)| follows(rule, line, at))
    });
    if let Some(rule) = known {
        return Some((rule.id.clone(), rule.why.clone()));
    }
    let lower = line.to_ascii_lowercase();
    let named = rules
        .secret_names
        .iter()
        .filter_map(|name| lower.find(name.as_str()).map(|at| at + name.len()))
        .min()?;
    // The value follows the first `=` or `:` after the name; `to_ascii_lowercase` keeps all positions.
    let value = line
        .get(named..)?
        .split_once(['=', ':'])?
        .1
        .trim_start_matches(['=', ':', '>', ' ', '"', '\'', '`']);
    let value: &str = value
        .split(|c: char| !(c.is_ascii_alphanumeric() || "+/=_-.".contains(c)))
        .next()?;
    let mixed = value.bytes().any(|b| b.is_ascii_digit()) && value.bytes().any(|b| b.is_ascii_alphabetic());
    let random = value.len() >= SECRET_LENGTH && mixed && entropy(value.as_bytes()) >= SECRET_ENTROPY;
    random.then(|| {
        (
            "named-secret".to_owned(),
            "a random value with the name of a credential".to_owned(),
        )
    })
}

fn follows(rule: &SecretRule, line: &str, at: usize) -> bool {
    let bounded = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let rest = &line[at + rule.prefix.len()..];
    bounded
        && match rule.then {
            Alphabet::Word => {
                rest.bytes()
                    .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
                    .count()
                    >= rule.least
            }
            Alphabet::Upper => {
                rest.bytes()
                    .take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
                    .count()
                    >= rule.least
            }
            Alphabet::KeyHeader => rest
                .get(..80.min(rest.len()))
                .is_some_and(|head| head.contains("PRIVATE KEY-----")),
        }
}

/// Shannon entropy in bits per byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let total = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / total)
        .map(|share| -share * share.log2())
        .sum()
}

/// Feeds any bytes to every scan.
pub(crate) fn fuzz_content(bytes: &[u8]) {
    let cut = bytes.len() / 2;
    let (before, after) = bytes.split_at(cut);
    assert!(hosts(bytes).len() <= MAX_HOSTS);
    static MARKS: std::sync::OnceLock<Option<SecretRules>> = std::sync::OnceLock::new();
    if let Some(marks) = MARKS.get_or_init(|| SecretRules::builtin().ok()) {
        assert!(new_secret(marks, Some(bytes), bytes).is_none());
        let _found = new_secret(marks, Some(before), after);
    }
    let _program = (
        is_binary(bytes),
        is_program(bytes),
        is_deceptive(&String::from_utf8_lossy(bytes)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first secret of a line that the old text does not have, told without any short cut.
    fn plainly(rules: &SecretRules, before: &[u8], after: &[u8]) -> Option<Secret> {
        let known: BTreeSet<&[u8]> = before.split(|byte| *byte == b'\n').collect();
        let lines = after.split(|byte| *byte == b'\n').enumerate();
        lines
            .filter(|(_, line)| !known.contains(line))
            .find_map(|(number, line)| {
                let (rule, why) = secret_in(rules, &String::from_utf8_lossy(line))?;
                let line = number + 1;
                Some(Secret { rule, why, line })
            })
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            Just("a"),
            Just(""),
            Just("AKIAIOSFODNN7EXAMPLE"),
            Just("password = \"k3Jx9QpZ7mW2vR8tY5uB\""),
            Just(
                "words that fill more than the bytes which are compared at once, as most lines of a text do"
            ),
        ];
        proptest::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n").into_bytes())
    }

    #[test]
    fn each_of_the_secrets_is_one_alone() {
        let rules = SecretRules::builtin().unwrap();
        for secret in ["AKIAIOSFODNN7EXAMPLE", "password = \"k3Jx9QpZ7mW2vR8tY5uB\""] {
            assert!(secret_in(&rules, secret).is_some(), "{secret}");
        }
    }

    proptest! {
        #[test]
        fn a_secret_is_found_where_it_is_without_leaving_out_what_both_texts_begin_and_end_with(
            before in text(),
            after in text(),
        ) {
            let rules = SecretRules::builtin().unwrap();
            prop_assert_eq!(new_secret(&rules, Some(&before), &after), plainly(&rules, &before, &after));
        }

        #[test]
        fn text_is_deceptive_by_its_characters_alone(text in "[a-z\u{7f}\u{1}\u{85}\u{202e}é\t\r\n]{0,300}") {
            let by_character = text.chars().any(|c| {
                matches!(c, '\u{202e}') || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
            });
            prop_assert_eq!(is_deceptive(&text), by_character);
        }
    }
}
