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
}
