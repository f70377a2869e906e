//! The canonical form of a name: what a file system that folds case or normalises Unicode takes for the same name.
//!
//! **Trust:** any bytes. A fold never makes a decision weaker: names are compared with the catalogue in this form only,
//! so every spelling of a name gets the answer of its plain spelling.
use icu_normalizer::ComposingNormalizerBorrowed;

/// A path with every component folded: compatibility-normalised, without case, without characters that do not show,
/// and without the dots and blanks at its end that some file systems drop.
pub(super) fn fold(path: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(path);
    let parts: Vec<String> = text.split('/').map(component).collect();
    parts.join("/").into_bytes()
}

fn component(name: &str) -> String {
    let folded = if name.is_ascii() {
        name.to_ascii_lowercase()
    } else {
        let normalizer = ComposingNormalizerBorrowed::new_nfkc();
        let shown: String = normalizer.normalize(name).chars().filter(|c| shows(*c)).collect();
        // Upper case first: it joins letters that lower case alone keeps apart (`ß` and `ss`, long and short `s`).
        let caseless = shown.to_uppercase().to_lowercase();
        // A slash made by normalisation is part of the name, never a separator.
        normalizer.normalize(&caseless).replace('/', "\u{2215}")
    };
    let trimmed = folded.trim_end_matches(['.', ' ']);
    if trimmed.is_empty() {
        folded
    } else {
        trimmed.to_owned()
    }
}

fn shows(c: char) -> bool {
    !matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
        && !c.is_control()
}

/// Whether a word of a name mixes letters of scripts that look alike, so that it reads as another word.
pub(super) fn mixes_scripts(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    if name.is_ascii() {
        return false;
    }
    name.split(|c: char| !c.is_alphabetic()).any(|word| {
        let mut scripts = word.chars().map(script);
        let first = scripts.next().flatten();
        first.is_some() && scripts.any(|other| other.is_some() && other != first)
    })
}

/// The scripts whose letters are taken for Latin ones, and Latin itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Phonetic,
    Greek,
    Cyrillic,
    Other,
}

fn script(c: char) -> Option<Script> {
    match c {
        'a'..='z' | 'A'..='Z' | '\u{c0}'..='\u{24f}' => Some(Script::Latin),
        '\u{250}'..='\u{2af}' | '\u{1d00}'..='\u{1dbf}' => Some(Script::Phonetic),
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Some(Script::Greek),
        '\u{400}'..='\u{52f}' | '\u{2de0}'..='\u{2dff}' | '\u{a640}'..='\u{a69f}' => Some(Script::Cyrillic),
        // Armenian, Cherokee, Coptic, Lisu and the small letters of Cherokee.
        '\u{530}'..='\u{58f}'
        | '\u{13a0}'..='\u{13ff}'
        | '\u{2c80}'..='\u{2cff}'
        | '\u{a4d0}'..='\u{a4ff}'
        | '\u{ab70}'..='\u{abbf}' => Some(Script::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_folds_to_its_plain_spelling() {
        for (spelled, plain) in [
            ("Makefile", "makefile"),
            ("MAKEFILE. ", "makefile"),
            ("\u{ff2d}akefile", "makefile"),
            ("ma\u{212a}efile", "makefile"),
            (".git\u{200c}hub/Workflows/x", ".github/workflows/x"),
            (".clau\u{ad}de/\u{17f}ettings.json", ".claude/settings.json"),
            ("a/.env\u{fe0f}", "a/.env"),
            ("caf\u{65}\u{301}", "caf\u{e9}"),
            ("...", "..."),
        ] {
            assert_eq!(fold(spelled.as_bytes()), plain.as_bytes(), "{spelled:?}");
        }
        assert_ne!(fold(b"makefile2"), fold(b"makefile"));
    }

    #[test]
    fn a_word_of_two_scripts_is_seen_and_a_name_in_one_script_is_not() {
        for mixed in [
            "CL\u{410}UDE.md",
            "a/\u{441}laude.md",
            "\u{3bf}s.py",
            "pack\u{251}ge.txt",
        ] {
            assert!(mixes_scripts(mixed.as_bytes()), "{mixed:?}");
        }
        for plain in [
            "claude.md",
            "\u{43f}\u{440}\u{438}\u{432}\u{435}\u{442}.md",
            "api-\u{43f}\u{440}\u{438}.md",
            "\u{65e5}\u{672c}README.md",
            "\u{fc}ber.rs",
        ] {
            assert!(!mixes_scripts(plain.as_bytes()), "{plain:?}");
        }
    }
}
