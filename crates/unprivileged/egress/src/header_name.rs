//! Header names, compared as servers compare them that hand headers to programs as variables.
//!
//! **Trust:** reads names that the agent chose. CGI, WSGI and Rack make one variable of `X-Api-Key` and `X_Api_Key`, PHP of
//! `X.Api.Key` too. A comparison with a known name that did not fold them would miss what such a server sees.
use http::{HeaderMap, HeaderName, HeaderValue};

fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte.to_ascii_lowercase()
    } else {
        b'-'
    }
}

/// The name in lower case, with `-` for everything that is neither a letter nor a digit.
pub(crate) fn folded(name: &str) -> String {
    name.bytes().map(|byte| char::from(fold(byte))).collect()
}

/// Whether some server takes one name for the other.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.bytes().map(fold).eq(other.bytes().map(fold))
}

/// The fields that some server takes for `known`.
pub(crate) fn fields<'h>(
    headers: &'h HeaderMap,
    known: &'h str,
) -> impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)> {
    headers.iter().filter(move |(name, _)| same(name.as_str(), known))
}

/// Whether there is a field that some server takes for `known`.
pub(crate) fn contains(headers: &HeaderMap, known: &str) -> bool {
    headers.keys().any(|name| same(name.as_str(), known))
}

/// Takes out every field that some server takes for `known`.
pub(crate) fn remove(headers: &mut HeaderMap, known: &str) {
    let spellings: Vec<HeaderName> = headers
        .keys()
        .filter(|name| same(name.as_str(), known))
        .cloned()
        .collect();
    for name in spellings {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What CGI (RFC 3875, 4.1.18) makes of a name, with PHP's fold of dots.
    fn variable(name: &str) -> String {
        format!("HTTP_{}", name.to_ascii_uppercase().replace(['-', '.'], "_"))
    }

    proptest! {
        #[test]
        fn names_that_become_one_variable_are_one_name(
            one in "[a-zA-Z0-9_.-]{1,8}",
            other in "[a-zA-Z0-9_.-]{1,8}",
            separators in "[-_.]{8}",
        ) {
            let mut marks = separators.chars();
            let respelled: String = one
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { marks.next().unwrap_or('-') })
                .collect();
            for name in [&other, &respelled] {
                prop_assert_eq!(same(&one, name), variable(&one) == variable(name));
                prop_assert_eq!(same(&one, name), folded(&one) == folded(name));
            }
            prop_assert!(same(&one, &respelled));
            let again = folded(&one);
            prop_assert_eq!(folded(&again), again);
        }

        #[test]
        fn what_is_taken_out_is_there_in_no_spelling_and_nothing_else_is_missing(
            names in proptest::collection::vec("[xyk]([_.-][xyk]){0,2}", 0..12),
            known in "[xyk](-[xyk]){0,2}",
        ) {
            let mut headers = HeaderMap::new();
            for name in &names {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("v"));
            }
            prop_assert_eq!(contains(&headers, &known), fields(&headers, &known).next().is_some());
            remove(&mut headers, &known);
            prop_assert!(!contains(&headers, &known));
            let left = names.iter().filter(|name| variable(name) != variable(&known)).count();
            prop_assert_eq!(headers.len(), left);
        }
    }
}
