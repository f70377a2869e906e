//! Names of parameters that some framework takes for the method.
//!
//! **Trust:** reads the agent's bytes, of which whoever calls keeps a bounded number.

/// Parameters of a query, form or JSON object, with dots, dashes and spaces folded to `_` as PHP does. None has a letter
/// that a character outside ASCII folds to (`s`, `k`).
pub(super) const PARAMETERS: [&str; 10] = [
    "_method",
    "__method",
    "_http_method",
    "_httpmethod",
    "httpmethod",
    "$httpmethod",
    "x_http_method_override",
    "x_http_method",
    "x_method_override",
    "http_method_override",
];
/// A parameter of a query or form that is one only where its value is a method: many APIs have one of this name for
/// something else, and JSON-RPC has it in every body.
const BARE: [&str; 1] = ["method"];
/// Methods that the value of such a parameter may name: RFC 9110, WebDAV and its kin, and what caches understand.
const METHODS: [&str; 36] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "TRACK",
    "PATCH",
    "QUERY",
    "ACL",
    "BIND",
    "REBIND",
    "UNBIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "UNLINK",
    "LOCK",
    "UNLOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "REPORT",
    "SEARCH",
    "UPDATE",
];
/// Longest value that is compared, before decoding: every byte of the longest method as an escape, with room for blanks.
pub(super) const MAX_VALUE: usize = 160;

/// Longest parameter name that is compared, before decoding: every byte of the longest as an escape (`%u005F`), with room
/// for blanks before it. Of a longer one the beginning is compared.
pub(super) const MAX_KEY: usize = 160;

/// Whether a parameter is one that some server takes for the method.
pub(super) fn names_method(key: &[u8]) -> bool {
    is_named(key, &PARAMETERS)
}

/// Whether a parameter of a query or form is one where its value [`is_method`].
pub(super) fn may_name_method(key: &[u8]) -> bool {
    is_named(key, &BARE)
}

/// Whether a value is a method, in any case and with blanks around it.
pub(super) fn is_method(value: &[u8]) -> bool {
    let text = decoded(value);
    let text = text.trim_matches(|c: char| c == '+' || c.is_ascii_whitespace() || c == '\0');
    METHODS.iter().any(|method| text.eq_ignore_ascii_case(method))
}

/// Whether a value has nothing but blanks so far.
pub(super) fn is_blank(value: &[u8]) -> bool {
    decoded(value)
        .bytes()
        .all(|byte| byte == b'+' || byte.is_ascii_whitespace())
}

fn decoded(value: &[u8]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while let Some(rest) = value.get(at..).filter(|rest| !rest.is_empty()) {
        let (byte, length) = unescaped(rest);
        at += length;
        text.push(char::from(byte));
    }
    text
}

fn is_named(key: &[u8], names: &[&str]) -> bool {
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
            b'[' | 0 => return names.contains(&folded.as_str()),
            b'+' if folded.is_empty() => {}
            _ if byte.is_ascii_whitespace() && folded.is_empty() => {}
            b' ' | b'+' | b'.' | b'-' => folded.push('_'),
            _ => folded.push(char::from(byte.to_ascii_lowercase())),
        }
    }
    match cut {
        None => names.contains(&folded.as_str()),
        // Blanks that some servers drop may have pushed the name out of what was kept.
        Some(_) => names.iter().any(|name| name.starts_with(&folded)),
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
