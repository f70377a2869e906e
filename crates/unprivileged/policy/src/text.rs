//! Small text helpers: nearest spelling for "did you mean", and text that is safe to print.

/// The candidate nearest to `word`, if near enough to be a slip of the finger.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are no slips, and the distance costs the product of the lengths.
    if word.len() > 64 {
        return None;
    }
    let most = (word.chars().count() / 3).max(1) + 1;
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(d, _)| *d <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits between two words (insert, remove, replace, swap of neighbours), ignoring ASCII case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// `text` with control characters and direction overrides shown as escapes, so that it cannot act on a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let acts = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if acts {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// A path as a shell reads it back.
pub(crate) fn quoted(path: &bastle_contract::AbsPath) -> String {
    crate::request::shell_line(&[shown(path.as_str())])
}

/// A directory with all that is in it, as `--unprotect` takes it and a shell reads it back.
pub(crate) fn quoted_tree(path: &bastle_contract::AbsPath) -> String {
    crate::request::shell_line(&[format!("{}/**", shown(path.as_str()))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_word_and_a_stranger_does_not() {
        let keys = ["read", "write", "hide", "protect"];
        assert_eq!(nearest("raed", keys), Some("read"));
        assert_eq!(nearest("Write", keys), Some("write"));
        assert_eq!(nearest("protekt", keys), Some("protect"));
        assert_eq!(nearest("secrets", keys), None);
        assert_eq!(nearest(&"x".repeat(10_000), keys), None);
    }

    #[test]
    fn escape_sequences_and_direction_overrides_are_not_printed() {
        let text = shown("a\x1b[2J\u{202e}b\r\n");
        assert!(!text.contains(['\x1b', '\u{202e}', '\r', '\n']), "{text}");
        assert!(text.starts_with('a') && text.contains('b'));
    }
}
