//! Keys of JSON objects that readers with other ideas of case could take for one another.
//!
//! **Trust:** reads the agent's text. Go's `encoding/json` folds U+017F to `s` and U+212A to `k` and lets the last key
//! win; Java's `equalsIgnoreCase` folds U+0130 and U+0131 to `i` as well.
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// The key as a reader sees it that ignores case: by Unicode's simple case folding where that leads to ASCII.
pub(super) fn folded(key: &str) -> String {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(fold).collect()
}

/// Whether some reader takes `key` for `known`, which it is not.
pub(super) fn poses_as(key: &str, known: &str) -> bool {
    key != known && folded(key) == folded(known)
}

/// Whether a key can be compared where keys are words of a protocol: no such word has a character beyond ASCII, and how
/// one is folded differs from reader to reader.
pub(super) fn is_word(key: &str) -> bool {
    key.is_ascii()
}

/// The text of one key of an object, where no reader could find another under that name.
pub(crate) fn only_text(body: &[u8], key: &'static str) -> Option<String> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let found = source.deserialize_map(OnlyText(key)).ok()?;
    source.end().ok()?;
    found
}

struct OnlyText(&'static str);

impl<'de> Visitor<'de> for OnlyText {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let mut found = None;
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(folded(&key)) {
                return Err(A::Error::custom("a key stands twice"));
            }
            if key == self.0 {
                found = Some(map.next_value::<String>()?);
            } else if !is_word(&key) || poses_as(&key, self.0) {
                return Err(A::Error::custom("ambiguous key"));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_character_that_becomes_an_ascii_letter_in_another_case_is_folded_to_it() {
        for character in '\0'..=char::MAX {
            let cases = character.to_lowercase().take(1).chain(
                character
                    .to_uppercase()
                    .filter(|_| character.to_uppercase().count() == 1),
            );
            for other in cases.filter(char::is_ascii_alphabetic) {
                let expected = other.to_ascii_lowercase().to_string();
                assert_eq!(folded(&character.to_string()), expected, "{character:?}");
            }
        }
    }

    #[test]
    fn a_key_that_some_reader_takes_for_the_one_asked_for_gives_no_answer() {
        let operation = |body: &str| only_text(body.as_bytes(), "operation");
        assert_eq!(
            operation(r#"{"operation":"download","objects":[]}"#),
            Some("download".to_owned())
        );
        for body in [
            r#"{"operation":"download","Operation":"upload"}"#,
            "{\"operation\":\"download\",\"operat\u{131}on\":\"upload\"}",
            r#"{"operation":"download","operation":"upload"}"#,
            r#"{"operation":7}"#,
            r#"{"operation":"download"}{}"#,
            "[]",
            "{}",
        ] {
            assert_eq!(operation(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn a_key_in_another_case_poses_as_the_key_and_no_other_does(
            word in "[a-z]{1,8}",
            other in "[a-z]{1,8}",
            cases in proptest::collection::vec(0usize..4, 8),
        ) {
            let respell = |(letter, case): (char, &usize)| match (letter, case) {
                ('s', 1) => '\u{17f}',
                ('k', 1) => '\u{212a}',
                ('i', 1) => '\u{130}',
                ('i', 2) => '\u{131}',
                (letter, 0) => letter,
                (letter, _) => letter.to_ascii_uppercase(),
            };
            let respelled: String = word.chars().zip(&cases).map(respell).collect();
            prop_assert_eq!(poses_as(&respelled, &word), respelled != word);
            prop_assert_eq!(poses_as(&respelled, &other), word == other && respelled != other);
            prop_assert_eq!(folded(&folded(&respelled)), folded(&word));
        }
    }
}
