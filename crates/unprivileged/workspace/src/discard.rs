//! The word with which a person agrees to lose work.
//!
//! **Trust:** it names a digest of everything that would be lost, so that what is added or changed afterwards is not lost with it.
use crate::path::visible;
use crate::unsaved::{Unsaved, digest};
use bastle_contract::{Code, Digest, Fault};
use std::fmt;

/// Fewest digits that name what may be lost.
const FEWEST_DIGITS: usize = 8;

/// What a person agrees to lose: the digest of [`digest`], or its beginning.
/// Invariant: 8 to 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard(String);

impl TryFrom<String> for Discard {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits && (FEWEST_DIGITS..=64).contains(&text.len()) {
            return Ok(Self(text));
        }
        let shown: String = text.chars().take(80).collect();
        Err(Fault::new(
            Code::UsageArgument,
            format!("{} names nothing to discard", visible(shown.as_bytes())),
            format!("it takes {FEWEST_DIGITS} to 64 digits (0-9, a-f) of the digest that the refusal prints"),
        )
        .help("bastle rm RUN"))
    }
}

impl From<&Digest> for Discard {
    fn from(digest: &Digest) -> Self {
        Self(digest.as_str().to_owned())
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Discard {
    /// Whether it names exactly this.
    #[must_use]
    pub fn names(&self, lost: &[Unsaved]) -> bool {
        digest(lost).to_string().starts_with(&self.0)
    }
}
