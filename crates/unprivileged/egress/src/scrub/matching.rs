//! Whether one text stands at the beginning of some bytes, in any of the spellings in which servers repeat a value.
//!
//! **Trust:** reads a server's bytes. Every alternative is bounded: by the length of the pattern, by [`MAX_GAP`] between
//! two of its characters, and by [`longest_match`] in all.

/// Longest run of bytes between two characters of a value: line breaks, and the fields between two events of a stream.
const MAX_GAP: usize = 256;
/// Longest run of backslashes before an escape: JSON within JSON within JSON.
const MAX_BACKSLASHES: usize = 8;
/// Longest HTML character reference that is read.
const MAX_REFERENCE: usize = 10;

/// How the characters of a pattern are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As they are, or escaped for JSON, URLs, HTML or mail.
    Text,
    /// The same, and `+/` and `-_` are one alphabet.
    Base64,
    /// Digits of either case, with separators between them.
    Hex,
}

/// Whether case matters: names of header fields are folded to lower case on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Exact,
    Folded,
}

/// Whether more bytes may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    More,
    Last,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It does not stand here.
    No,
    /// It takes so many bytes.
    Whole(usize),
    /// It may, if the right bytes follow. `in_gap`: what was read ends between two characters of it.
    Part { matched: usize, in_gap: bool },
}

/// What the next character of a pattern looks like.
enum Token {
    Length(usize),
    Short,
    None,
}

/// Most bytes that a pattern of this length is looked for in.
fn longest_match(pattern: usize) -> usize {
    pattern.saturating_mul(16).saturating_add(4096)
}

/// Whether `pattern` stands at the beginning of `input`.
pub(super) fn fit(pattern: &[u8], shape: Shape, case: Case, input: &[u8], end: End) -> Fit {
    let input = input.get(..longest_match(pattern.len())).unwrap_or(input);
    let mut others: Vec<(usize, usize)> = Vec::new();
    let mut next = Some((0, 0));
    let mut part = Fit::No;
    // Every character, and a few steps between two of them; more are tried only for values full of escapes.
    let mut steps = pattern.len().saturating_mul(16).saturating_add(512);
    while let Some((mut index, mut at)) = next {
        let mut between = 0;
        loop {
            let Some(want) = pattern.get(index) else {
                return Fit::Whole(at);
            };
            steps = steps.saturating_sub(1);
            if steps == 0 {
                return part;
            }
            let rest = input.get(at..).unwrap_or_default();
            if rest.is_empty() {
                part = better(
                    part,
                    if between > 0 {
                        in_gap(index)
                    } else {
                        in_value(index)
                    },
                    end,
                );
                break;
            }
            let literal = same(*want, rest, shape, case);
            // The value may begin a line as the name of a field does.
            if between > 0 && literal {
                match gap(input, at, shape) {
                    Token::Length(length) => others.push((index, at + length)),
                    Token::Short => part = better(part, in_gap(index), end),
                    Token::None => {}
                }
            }
            match escaped(*want, shape, case, rest) {
                Token::Length(length) => {
                    if literal {
                        others.push((index + 1, at + 1));
                    }
                    (index, at, between) = (index + 1, at + length, 0);
                    continue;
                }
                Token::Short => part = better(part, in_value(index), end),
                Token::None => {}
            }
            if literal {
                (index, at, between) = (index + 1, at + 1, 0);
                continue;
            }
            if index == 0 || between > MAX_GAP {
                break;
            }
            match gap(input, at, shape) {
                Token::Length(length) => (at, between) = (at + length, between + length),
                Token::Short => {
                    part = better(part, in_gap(index), end);
                    break;
                }
                Token::None => break,
            }
        }
        next = others.pop();
    }
    part
}

fn in_gap(matched: usize) -> Fit {
    Fit::Part {
        matched,
        in_gap: true,
    }
}

fn in_value(matched: usize) -> Fit {
    Fit::Part {
        matched,
        in_gap: false,
    }
}

/// The longer one of two beginnings; at the end there is none.
fn better(part: Fit, found: Fit, end: End) -> Fit {
    let length = |fit: Fit| match fit {
        Fit::Part { matched, .. } => Some(matched),
        Fit::No | Fit::Whole(_) => None,
    };
    match end {
        End::Last => Fit::No,
        End::More if length(part).is_some() && length(part) >= length(found) => part,
        End::More => found,
    }
}

/// Bytes with which a pattern that begins with `first` may begin.
pub(super) fn starts(first: u8, shape: Shape) -> Vec<u8> {
    let mut all = vec![first.to_ascii_lowercase(), first.to_ascii_uppercase()];
    match shape {
        Shape::Hex => return all,
        Shape::Text => {}
        Shape::Base64 => all.extend([first, twin(first)]),
    }
    all.extend([first, b'\\', b'%', b'&', b'=']);
    all
}

/// The same sixth of a byte in the other alphabet of base64.
fn twin(byte: u8) -> u8 {
    match byte {
        b'+' => b'-',
        b'-' => b'+',
        b'/' => b'_',
        b'_' => b'/',
        other => other,
    }
}

fn is(found: u8, want: u8, shape: Shape, case: Case) -> bool {
    found == want
        || (shape == Shape::Base64 && found == twin(want))
        || ((case == Case::Folded || shape == Shape::Hex) && found.eq_ignore_ascii_case(&want))
}

fn same(want: u8, rest: &[u8], shape: Shape, case: Case) -> bool {
    rest.first().is_some_and(|found| is(*found, want, shape, case))
}

/// `want` behind an escape.
fn escaped(want: u8, shape: Shape, case: Case, rest: &[u8]) -> Token {
    if shape == Shape::Hex {
        return Token::None;
    }
    let (found, length) = match rest.first() {
        Some(b'\\') => match backslash(rest) {
            Ok(found) => found,
            Err(token) => return token,
        },
        Some(b'%') => {
            let mut at = 1;
            // A percent sign that was escaped itself, once or more often.
            while rest.get(at..at + 2) == Some(b"25") && at < 2 * MAX_BACKSLASHES {
                at += 2;
            }
            match pair(rest, at) {
                Ok(byte) => (byte, at + 2),
                // `%25` stood for a percent sign alone.
                Err(Token::None) if at > 1 => (b'%', at),
                Err(token) => return token,
            }
        }
        Some(b'=') => match pair(rest, 1) {
            Ok(byte) => (byte, 3),
            Err(token) => return token,
        },
        Some(b'&') => match reference(rest) {
            Ok(found) => found,
            Err(token) => return token,
        },
        Some(_) | None => return Token::None,
    };
    if is(found, want, shape, case) {
        Token::Length(length)
    } else {
        Token::None
    }
}

/// Two hexadecimal digits at `at`.
fn pair(rest: &[u8], at: usize) -> Result<u8, Token> {
    let digit = |i: usize| match rest.get(at + i) {
        Some(byte) => char::from(*byte).to_digit(16).ok_or(Token::None),
        None => Err(Token::Short),
    };
    let (high, low) = (digit(0)?, digit(1)?);
    Ok(u8::try_from(high * 16 + low).unwrap_or_default())
}

/// `\uXXXX`, `\xXX`, or a backslash before a character that is no letter, behind one backslash or several.
fn backslash(rest: &[u8]) -> Result<(u8, usize), Token> {
    let count = rest.iter().take_while(|b| **b == b'\\').count();
    if count > MAX_BACKSLASHES {
        return Err(Token::None);
    }
    match rest.get(count) {
        None => Err(Token::Short),
        Some(b'u') => match (pair(rest, count + 1)?, pair(rest, count + 3)) {
            (0, Ok(byte)) => Ok((byte, count + 5)),
            (_, Ok(_)) => Err(Token::None),
            (_, Err(token)) => Err(token),
        },
        Some(b'x') => pair(rest, count + 1).map(|byte| (byte, count + 3)),
        Some(_) if count > 1 && rest.get(count).is_some_and(u8::is_ascii_alphanumeric) => Ok((b'\\', 2)),
        Some(byte) if !byte.is_ascii_alphanumeric() => Ok((*byte, count + 1)),
        Some(_) => Err(Token::None),
    }
}

/// `&#65;`, `&#x41;` and the five named ones.
fn reference(rest: &[u8]) -> Result<(u8, usize), Token> {
    let text = rest.get(..MAX_REFERENCE).unwrap_or(rest);
    let Some(end) = text.iter().position(|b| *b == b';') else {
        let possible = text
            .iter()
            .skip(1)
            .all(|b| b.is_ascii_alphanumeric() || *b == b'#');
        return Err(if possible && rest.len() < MAX_REFERENCE {
            Token::Short
        } else {
            Token::None
        });
    };
    let name = std::str::from_utf8(text.get(1..end).unwrap_or_default()).unwrap_or_default();
    let number = match name.strip_prefix('#') {
        Some(digits) => match digits.strip_prefix(['x', 'X']) {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        },
        None => match name {
            "amp" => Some(b'&'),
            "lt" => Some(b'<'),
            "gt" => Some(b'>'),
            "quot" => Some(b'"'),
            "apos" => Some(b'\''),
            _ => None,
        },
    };
    number.map(|byte| (byte, end + 1)).ok_or(Token::None)
}

/// What may stand between two characters: line breaks in any spelling, the second byte of UTF-16, the fields between two
/// events of a stream, and separators between hexadecimal digits. One of them; the next is looked for after it.
fn gap(input: &[u8], at: usize, shape: Shape) -> Token {
    let here = input.get(at..).unwrap_or_default();
    let before = at.checked_sub(1).and_then(|before| input.get(before));
    match (one_break(here, shape), before) {
        (Token::None, Some(b'\n' | b'\r')) => field(here),
        (Token::None, Some(b' ' | b'\t')) if matches!(here.first(), Some(b' ' | b'\t')) => Token::Length(1),
        (taken, _) => taken,
    }
}

fn one_break(here: &[u8], shape: Shape) -> Token {
    let first = here.first().copied().unwrap_or_default();
    let second = here.get(1).copied();
    match (first, second) {
        (0 | b'\r' | b'\n', _) => Token::Length(1),
        (b'=' | b'\\' | b'%', None) => Token::Short,
        (b'=', Some(b'\r' | b'\n')) => Token::Length(2),
        (b'\\', Some(b'n' | b'r')) => Token::Length(2),
        (b'\\', Some(b'\\')) => match here.get(2) {
            None => Token::Short,
            Some(b'n' | b'r') => Token::Length(3),
            Some(_) => Token::None,
        },
        (b'%', Some(b'0')) => match here.get(2) {
            None => Token::Short,
            Some(b'a' | b'A' | b'd' | b'D') => Token::Length(3),
            Some(_) => Token::None,
        },
        (b':' | b'-' | b' ' | b',' | b'%', _) if shape == Shape::Hex => Token::Length(1),
        (b'\\' | b'0', Some(b'x')) if shape == Shape::Hex => Token::Length(2),
        _ => Token::None,
    }
}

/// A field of a stream of events at the beginning of a line: `data:` goes on, others are skipped whole.
fn field(here: &[u8]) -> Token {
    const DATA: &[u8] = b"data:";
    if matches!(here.first(), Some(b' ' | b'\t')) {
        return Token::Length(1);
    }
    let head = here.get(..DATA.len()).unwrap_or(here);
    if head == DATA {
        return match here.get(DATA.len()) {
            None => Token::Short,
            Some(b' ') => Token::Length(DATA.len() + 1),
            Some(_) => Token::Length(DATA.len()),
        };
    }
    for name in [DATA, &b"event:"[..], b"id:", b"retry:", b":"] {
        if here.len() < name.len() && name.starts_with(here) {
            return Token::Short;
        }
        if name != DATA && here.starts_with(name) {
            return match here.iter().take(MAX_GAP).position(|b| *b == b'\n') {
                Some(end) => Token::Length(end + 1),
                None if here.len() < MAX_GAP => Token::Short,
                None => Token::None,
            };
        }
    }
    Token::None
}
