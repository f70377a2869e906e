//! Approvals bound to content: a hash approves one change, or one set of changes, and nothing else.
use super::{Assessed, Tier};
use crate::audit_delta::Change;
use crate::manifest::{Content, Kind};
use std::collections::BTreeSet;

/// Sixteen digits: 64 bits, enough that an agent cannot make a second change with the same beginning while
/// the first is being read (it would need 2^64 tries).
const LEAST_DIGITS: usize = 16;

/// The hashes that a person approved.
#[derive(Clone, Debug, Default)]
pub struct Approvals {
    beginnings: BTreeSet<String>,
}

/// Why a text is no approval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an approval: 16 to 64 lower-case hexadecimal digits, as bastle diff prints them")]
pub struct ApprovalError(String);

impl Approvals {
    /// Adds a hash or its beginning.
    ///
    /// # Errors
    /// When it is too short or not hexadecimal.
    pub fn add(&mut self, text: &str) -> Result<(), ApprovalError> {
        let hexadecimal = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !hexadecimal || !(LEAST_DIGITS..=64).contains(&text.len()) {
            return Err(ApprovalError(crate::path::visible(text.as_bytes())));
        }
        self.beginnings.insert(text.to_owned());
        Ok(())
    }

    /// Whether a change may be applied: below tier 3, or approved by its own hash or by that of `all`.
    #[must_use]
    pub fn allow(&self, change: &Assessed, all: &Content) -> bool {
        match change.tier() {
            Tier::Note | Tier::Flag => true,
            Tier::Approve => self.names(&change.approval) || self.names(all),
            Tier::Refuse => false,
        }
    }

    fn names(&self, hash: &Content) -> bool {
        let hash = hash.to_string();
        self.beginnings
            .iter()
            .any(|beginning| hash.starts_with(beginning.as_str()))
    }
}

/// The hash of one change: its path and what it becomes.
pub(super) fn change_hash(change: &Change) -> Content {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bastle approval 1\n");
    put(&mut hasher, change.path.as_bytes());
    for side in [&change.before, &change.after] {
        match side {
            None => put(&mut hasher, b"-"),
            Some(Kind::File {
                digest,
                size,
                mode,
                attributes,
            }) => {
                put(&mut hasher, b"file");
                put(&mut hasher, digest.as_bytes());
                put(&mut hasher, &size.to_le_bytes());
                put(&mut hasher, &[u8::from(mode.executable), u8::from(mode.special)]);
                if let Some(attributes) = attributes {
                    put(&mut hasher, attributes.as_bytes());
                }
            }
            Some(Kind::Symlink { target }) => {
                put(&mut hasher, b"link");
                put(&mut hasher, &target.0);
            }
            Some(Kind::Dir) => put(&mut hasher, b"dir"),
            Some(Kind::Submodule { commit }) => {
                put(&mut hasher, b"module");
                put(&mut hasher, commit.as_bytes());
            }
            Some(Kind::Opaque { .. }) => put(&mut hasher, b"opaque"),
        }
    }
    Content::from_bytes(*hasher.finalize().as_bytes())
}

/// The hash of all changes that need approval, in the order of their paths: one answer for one exact set.
#[must_use]
pub fn set_hash(changes: &[Assessed]) -> Content {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bastle approvals 1\n");
    let mut held: Vec<&Assessed> = changes
        .iter()
        .filter(|change| change.tier() == Tier::Approve)
        .collect();
    held.sort_by(|a, b| a.change.path.cmp(&b.change.path));
    for change in held {
        hasher.update(change.approval.as_bytes());
    }
    Content::from_bytes(*hasher.finalize().as_bytes())
}

/// Length before bytes, so that no two lists of fields hash alike.
fn put(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
