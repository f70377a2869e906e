//! Placeholders: what the agent sees instead of a secret. Same shape, so that clients which check it go on; random,
//! so that nothing of the value can be learned and the placeholder is recognised wherever it turns up.
use bastle_contract::{Code, Fault};

/// Beginnings that say what kind of token it is and nothing else. Longer ones first.
const KNOWN: &[&str] = &[
    "sk-ant-api03-",
    "sk-ant-oat01-",
    "sk-ant-",
    "sk-or-v1-",
    "sk-proj-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "sk-",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "dckr_pat_",
    "gsk_",
    "xai-",
    "hf_",
    "r8_",
    "AKIA",
    "ASIA",
    "AIza",
];
/// Random letters in every placeholder: 62^24 cannot be met by chance.
const LEAST: usize = 24;
/// Longest placeholder: a token with claims inside is longer, but nobody checks that.
const MOST: usize = 200;

/// A placeholder for `value`.
pub(super) fn make(value: &str) -> Result<String, Fault> {
    let prefix = KNOWN
        .iter()
        .find(|known| value.starts_with(**known))
        .copied()
        .unwrap_or_default();
    let length = value.len().clamp(prefix.len() + LEAST, MOST);
    let mut phantom = prefix.to_owned();
    while phantom.len() < length {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes)
            .map_err(|error| Fault::new(Code::SecretStore, "cannot make a placeholder", error.to_string()))?;
        // 248 is the largest multiple of 62 in a byte: beyond it some letters would be likelier than others.
        let letters = bytes
            .iter()
            .filter(|byte| **byte < 248)
            .map(|byte| letter(byte % 62));
        phantom.extend(letters.take(length - phantom.len()));
    }
    Ok(phantom)
}

fn letter(number: u8) -> char {
    char::from(match number {
        0..26 => b'a' + number,
        26..52 => b'A' + number - 26,
        _ => b'0' + number - 52,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_the_shape_of_the_value_and_nothing_else_of_it() {
        let real = format!("sk-ant-api03-{}", "Z".repeat(90));
        let phantom = make(&real).unwrap();
        assert!(phantom.starts_with("sk-ant-api03-"));
        assert_eq!(phantom.len(), real.len());
        assert!(!phantom.contains("ZZZZ"));
        assert_ne!(phantom, make(&real).unwrap());
        let words = make("correct-horse-battery-staple").unwrap();
        assert!(!words.contains("correct") && !words.contains('-'), "{words}");
        assert!(make("x").unwrap().len() >= LEAST);
        assert!(make(&"y".repeat(9000)).unwrap().len() <= MOST);
    }
}
