//! The second reading of single tokens: does the shell itself see this text as the token the grammar says it is?
//! Trusts nothing of the tree. A wrong answer here must err towards "no".

use tree_sitter::Node;

/// Anonymous tokens that may appear. Any other (`<&-` with text, `$[`, …) makes the line unreadable.
const TOKENS: &[&str] = &[
    "!", "!=", "\"", "#", "##", "$", "$(", "$((", "${", "%", "%%", "%=", "&", "&&", "&=", "&>", "&>>", "(",
    "((", ")", "))", "*", "**", "*=", "+", "++", "+=", ",", ",,", "-", "--", "-=", "-a", "-o", "..", "/",
    "/#", "/%", "//", "/=", ":", ":+", ":-", ":=", ":?", ";", ";&", ";;", ";;&", "<", "<&", "<&-", "<(",
    "<<", "<<-", "<<<", "<<=", "<=", "=", "==", "=~", ">", ">&", ">&-", ">(", ">=", ">>", ">>=", ">|", "?",
    "@", "A", "E", "K", "L", "Q", "U", "[", "[[", "]", "]]", "^", "^=", "^^", "`", "a", "case", "declare",
    "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if", "in", "k", "local",
    "readonly", "select", "then", "typeset", "u", "unset", "until", "while", "{", "|", "|&", "|=", "||", "}",
    "~",
];

/// Whether a leaf reads the same to the shell. The parent decides what a gap may hold, see `reading`.
pub(super) fn agrees(node: Node<'_>, source: &str) -> bool {
    let Some(text) = source.get(node.byte_range()) else {
        return false;
    };
    if !node.is_named() {
        // The scanner may take a skipped backslash into a token.
        return text == node.kind() && TOKENS.contains(&text);
    }
    match node.kind() {
        "word" => word(text),
        "raw_string" => quoted_by(text, '\''),
        "ansi_c_string" => ansi_c(text).is_some(),
        "string_content" => escapes_are_whole(text) && !has_unescaped(text, &['"', '`', '$']),
        "number" => text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'#'),
        "variable_name" => text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "special_variable_name" => matches!(text, "*" | "@" | "?" | "!" | "#" | "-" | "$" | "_"),
        "file_descriptor" => text.bytes().all(|b| b.is_ascii_digit()),
        "test_operator" => text.bytes().all(|b| b == b'-' || b.is_ascii_alphanumeric()),
        "comment" => text.starts_with('#') && !text.contains('\n') && starts_a_word(node, source),
        "regex" => plain_pattern(text, "()|$^+*?.[]{}\\/-_:,=%@~!#"),
        "extglob_pattern" => plain_pattern(text, "*?.[]/-_:,+=%@~!^\\"),
        // An assignment without a value has an invisible child; a program may be empty.
        "program" => true,
        // `heredoc` reads these with their delimiter.
        "heredoc_start" | "heredoc_body" | "heredoc_content" | "heredoc_end" => true,
        _ => false,
    }
}

/// A bare word: no character the shell would give a meaning to, unless escaped.
fn word(text: &str) -> bool {
    // A word that starts with `#` is a comment to the shell; in the middle it is an ordinary character.
    !text.starts_with('#')
        && escapes_are_whole(text)
        && !has_unescaped(
            text,
            &[
                ' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')', '`', '$', '"', '\'',
            ],
        )
}

fn quoted_by(text: &str, quote: char) -> bool {
    text.len() >= 2 && text.starts_with(quote) && text.ends_with(quote) && text.matches(quote).count() == 2
}

fn escapes_are_whole(text: &str) -> bool {
    text.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 0
}

/// Whether one of `wanted` occurs without a backslash before it.
pub(super) fn has_unescaped(text: &str, wanted: &[char]) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if wanted.contains(&c) {
            return true;
        }
    }
    false
}

/// Letters, digits and `extra` only; a `$` may only end the text or a group (an anchor, never an expansion).
fn plain_pattern(text: &str, extra: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let anchor = c != '$' || matches!(chars.peek(), None | Some(')' | '|'));
        if !(anchor && (c.is_alphanumeric() || extra.contains(c))) {
            return false;
        }
    }
    escapes_are_whole(text)
}

/// Whether the node starts where the shell would start a new word.
fn starts_a_word(node: Node<'_>, source: &str) -> bool {
    let before = source.get(..node.start_byte()).unwrap_or("x");
    match before.bytes().next_back() {
        None => true,
        Some(b' ' | b'\t' | b'\n') => {
            !before.ends_with("\\ ") && !before.ends_with("\\\t") && !before.ends_with("\\\n")
        }
        Some(b';' | b'&' | b'|' | b'(' | b')') => before.bytes().rev().nth(1) != Some(b'\\'),
        Some(_) => false,
    }
}

/// Decodes `$'…'`. `None` when the shell would end it elsewhere, or when the result is not plain text.
pub(super) fn ansi_c(text: &str) -> Option<String> {
    let inner = text.strip_prefix("$'")?.strip_suffix('\'')?;
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => return None,
            '\\' => out.push(ansi_escape(&mut chars)?),
            other => out.push(other),
        }
    }
    Some(out)
}

fn ansi_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    let c = chars.next()?;
    Some(match c {
        'n' => '\n',
        't' => '\t',
        '\\' | '\'' | '"' | '?' => c,
        'x' => ascii(digits(chars, 16, 2)?)?,
        'u' => printable(digits(chars, 16, 4)?)?,
        'U' => printable(digits(chars, 16, 8)?)?,
        '0'..='7' => {
            let mut value = c.to_digit(8)?;
            for _ in 0..2 {
                let Some(next) = chars.peek().and_then(|d| d.to_digit(8)) else {
                    break;
                };
                chars.next();
                value = value * 8 + next;
            }
            ascii(value)?
        }
        // `\a`, `\b`, `\e`, `\cX`…: control bytes have no place in a command that is to be judged.
        _ => return None,
    })
}

fn digits(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, radix: u32, most: usize) -> Option<u32> {
    let mut value: Option<u32> = None;
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else {
            break;
        };
        chars.next();
        value = Some(value.unwrap_or(0).checked_mul(radix)?.checked_add(digit)?);
    }
    value
}

/// One byte written by number: above ASCII it may be part of a character, or of none.
fn ascii(value: u32) -> Option<char> {
    if value < 0x80 { printable(value) } else { None }
}

fn printable(value: u32) -> Option<char> {
    char::from_u32(value).filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
}
