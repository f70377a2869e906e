//! Names of runs and digests of documents.
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names one run. Invariant: 1–64 bytes of `[a-z0-9-]`, not starting with `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// Why a run id was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run id {0:?} must be 1 to 64 characters of a-z, 0-9 and '-', not starting with '-'")]
pub struct RunIdError(String);

/// The BLAKE3 digest of a canonical document: 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Why a digest was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits, not {0:?}")]
pub struct DigestError(String);

impl RunId {
    /// Longest allowed id, in bytes.
    pub const MAX: usize = 64;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;

    fn try_from(text: String) -> Result<Self, RunIdError> {
        let bytes = text.as_bytes();
        let well_formed = !bytes.is_empty()
            && bytes.len() <= Self::MAX
            && bytes[0] != b'-'
            && bytes
                .iter()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if well_formed {
            Ok(Self(text))
        } else {
            Err(RunIdError(text))
        }
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Digest {
    /// The digest as hexadecimal text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        let well_formed = text.len() == 64 && text.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9'));
        if well_formed {
            Ok(Self(text))
        } else {
            Err(DigestError(text))
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_with_a_trailing_newline_or_any_other_stray_byte_is_refused() {
        let long = "a".repeat(65);
        for bad in [
            "",
            "-x",
            "A",
            "a\n",
            "a b",
            "../etc",
            "a;rm",
            "é",
            "１",
            "a/b",
            "a_b",
            "a\0",
            long.as_str(),
        ] {
            assert_eq!(
                RunId::try_from(bad.to_owned()),
                Err(RunIdError(bad.to_owned())),
                "{bad:?}"
            );
        }
        for good in ["a", "0", "calm-otter", "a-", &"a".repeat(64)] {
            assert!(RunId::try_from(good.to_owned()).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_digest_of_the_wrong_length_or_alphabet_is_refused() {
        assert!(Digest::try_from("0".repeat(64)).is_ok());
        for bad in ["0".repeat(63), "0".repeat(65), "G".repeat(64), "A".repeat(64)] {
            assert!(Digest::try_from(bad).is_err());
        }
    }
}
