//! Names of parameters that some framework takes for the method.
//!
//! **Trust:** reads the agent's bytes, of which whoever calls keeps a bounded number.

/// Parameters of a query, form or JSON object, with dots, dashes and spaces folded to `_` as PHP does. None has a letter
/// that a character outside ASCII folds to (`s`, `k`).
pub(super) const PARAMETERS: [&str; 8] = [
    "_method",
    "__method",
    "_http_method",
    "$httpmethod",
    "x_http_method_override",
    "x_http_method",
    "x_method_override",
    "http_method_override",
];
/// Longest parameter name that is compared, before decoding: every byte of the longest as an escape (`%u005F`), with room
/// for blanks before it. Of a longer one the beginning is compared.
pub(super) const MAX_KEY: usize = 160;

/// Whether a parameter is one that some server takes for the method.
pub(super) fn names_method(key: &[u8]) -> bool {
    let cut = key.get(..MAX_KEY).filter(|_| key.len() > MAX_KEY);
    let text = cut.unwrap_or(key);
    let mut folded = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        // The rest of this escape was cut off.
        if cut.is_some() && rest.len() < 6 && rest.starts_with(b"%") {
            break;
        }
        let (byte, length) = unescaped(rest);
        at += length;
        match byte {
            // `_method[]` is an array of that name; PHP reads a name up to a NUL.
            b'[' | 0 => return PARAMETERS.contains(&folded.as_str()),
            b'+' if folded.is_empty() => {}
            _ if byte.is_ascii_whitespace() && folded.is_empty() => {}
            b' ' | b'+' | b'.' | b'-' => folded.push('_'),
            _ => folded.push(char::from(byte.to_ascii_lowercase())),
        }
    }
    match cut {
        None => PARAMETERS.contains(&folded.as_str()),
        // Blanks that some servers drop may have pushed the name out of what was kept.
        Some(_) => PARAMETERS.iter().any(|name| name.starts_with(&folded)),
    }
}

/// The first character and how many bytes it takes: `%5F`, `%u005F` (ASP.NET), or itself. What is not ASCII is in no name.
fn unescaped(rest: &[u8]) -> (u8, usize) {
    let hex = |from: usize, count: usize| {
        rest.get(from..from + count)?.iter().try_fold(0_u32, |sum, byte| {
            Some(sum * 16 + char::from(*byte).to_digit(16)?)
        })
    };
    let narrow = |code: u32| u8::try_from(code).unwrap_or(u8::MAX);
    match rest {
        [b'%', b'u' | b'U', ..] if hex(2, 4).is_some() => (hex(2, 4).map_or(u8::MAX, narrow), 6),
        [b'%', ..] if hex(1, 2).is_some() => (hex(1, 2).map_or(u8::MAX, narrow), 3),
        [byte, ..] => (*byte, 1),
        [] => (u8::MAX, 1),
    }
}
