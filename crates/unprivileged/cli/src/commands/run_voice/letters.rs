//! Marks of lines where only ASCII can be shown.
use crate::render::{Letters, Style};

/// Marks of this crate's lines and of other crates' texts, in ASCII where that is all there is.
pub(super) fn fit(style: Style, text: &str) -> String {
    let stand_in = |c: char| match c {
        '⊂' => "<",
        '−' | '─' => "-",
        '·' | '│' => "|",
        '╭' | '╰' => "+",
        '›' => ">",
        '→' => "->",
        '✓' => "ok",
        '✗' => "x",
        _ => "",
    };
    match style.letters() {
        Letters::Unicode => text.to_owned(),
        Letters::Ascii => {
            let letter = |c: char| match stand_in(c) {
                "" => c.to_string(),
                other => other.to_owned(),
            };
            text.chars().map(letter).collect()
        }
    }
}
