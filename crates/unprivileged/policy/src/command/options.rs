//! Reading of options the way `getopt_long` does: clusters, glued values, abbreviations. Trusts no word.

use super::word::{UNKNOWN, Word};

/// The options a program knows before its own command starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    /// Short options without a value.
    pub(super) flags: &'static str,
    /// Short options with a value, glued or as the next word.
    pub(super) valued: &'static str,
    /// Short options whose value, if any, is glued.
    pub(super) optional: &'static str,
    /// Long options without a value (or with a glued, optional one).
    pub(super) long_flags: &'static [&'static str],
    /// Long options with a value, after `=` or as the next word.
    pub(super) long_valued: &'static [&'static str],
}

/// An option as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its full name: one letter, or a long name without dashes.
    pub(super) name: String,
    /// Its value.
    pub(super) value: Option<Word>,
}

/// Options that precede the first plain word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    /// In order.
    pub(super) options: Vec<Found>,
    /// Index of the first word that is no option.
    pub(super) rest: usize,
}

/// Reads options up to the first plain word or `--`. `Err`: the word that is not understood.
pub(super) fn parse(words: &[Word], spec: &Spec) -> Result<Parsed, String> {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if !word.may_be_option() || word.text == "-" {
            break;
        }
        let Some(text) = option_text(word) else {
            return Err(word.shown());
        };
        at += 1;
        if text == "--" {
            break;
        }
        let found = match text.strip_prefix("--") {
            Some(long) => long_option(long, spec).ok_or_else(|| word.shown())?,
            None => short_options(text, spec, &mut options).ok_or_else(|| word.shown())?,
        };
        match found {
            Pending::None => {}
            Pending::Complete(found) => options.push(found),
            Pending::NeedsValue(name) => {
                let value = words.get(at).cloned().ok_or_else(|| word.shown())?;
                at += 1;
                options.push(Found {
                    name,
                    value: Some(value),
                });
            }
        }
    }
    Ok(Parsed { options, rest: at })
}

enum Pending {
    None,
    Complete(Found),
    NeedsValue(String),
}

/// The text when at least the option itself is known; the value may not be.
fn option_text(word: &Word) -> Option<&str> {
    let name = word.text.split('=').next().unwrap_or("");
    let known =
        word.known().is_some() || (name.starts_with("--") && name.len() > 2 && !name.contains(UNKNOWN));
    known.then_some(word.text.as_str())
}

fn long_option(text: &str, spec: &Spec) -> Option<Pending> {
    let (given, value) = match text.split_once('=') {
        Some((given, value)) => (given, Some(value)),
        None => (text, None),
    };
    let all = || {
        spec.long_flags
            .iter()
            .map(|n| (n, false))
            .chain(spec.long_valued.iter().map(|n| (n, true)))
    };
    let exact = all().find(|(name, _)| **name == given);
    let mut near = all().filter(|(name, _)| name.starts_with(given));
    let (name, valued) = match (exact, near.next(), near.next()) {
        (Some(hit), _, _) | (None, Some(hit), None) => hit,
        _ => return None,
    };
    let name = (*name).to_owned();
    Some(match (valued, value) {
        (_, Some(value)) => Pending::Complete(Found {
            name,
            value: Some(value_word(value)),
        }),
        (true, None) => Pending::NeedsValue(name),
        (false, None) => Pending::Complete(Found { name, value: None }),
    })
}

fn short_options(text: &str, spec: &Spec, options: &mut Vec<Found>) -> Option<Pending> {
    let letters = text.strip_prefix('-')?;
    for (at, letter) in letters.char_indices() {
        let rest = letters.get(at + letter.len_utf8()..)?;
        let name = letter.to_string();
        if spec.flags.contains(letter) {
            options.push(Found { name, value: None });
        } else if spec.valued.contains(letter) {
            if rest.is_empty() {
                return Some(Pending::NeedsValue(name));
            }
            return Some(Pending::Complete(Found {
                name,
                value: Some(value_word(rest)),
            }));
        } else if spec.optional.contains(letter) {
            let value = (!rest.is_empty()).then(|| value_word(rest));
            return Some(Pending::Complete(Found { name, value }));
        } else {
            return None;
        }
    }
    Some(Pending::None)
}

fn value_word(text: &str) -> Word {
    if text.contains(UNKNOWN) {
        Word::unknown(text.to_owned())
    } else {
        Word::fixed(text)
    }
}

/// Whether a word may be this long option, by name or by an abbreviation of at least two letters.
pub(super) fn is_long(word: &str, name: &str) -> bool {
    let Some(given) = word.strip_prefix("--").map(|w| w.split('=').next().unwrap_or(w)) else {
        return false;
    };
    !name.is_empty() && given == name || (given.len() >= 2 && name.starts_with(given))
}

/// Whether a word is a cluster of short options with one of these letters in it.
pub(super) fn has_short(word: &str, letters: &str) -> Option<char> {
    let cluster = word.strip_prefix('-').filter(|c| !c.starts_with('-'))?;
    cluster
        .chars()
        .take_while(|c| *c != '=')
        .find(|c| letters.contains(*c))
}
