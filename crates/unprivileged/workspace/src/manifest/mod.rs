//! What a tree holds: a sorted list of names with their kinds and the digests of their contents.
//!
//! **Trust:** built from untrusted listings and decoded from stored files. A `Manifest` that exists is sorted,
//! without duplicates, and every entry's directory is itself an entry, so that no consumer meets a file that is
//! also a directory.
mod codec;
#[cfg(test)]
mod tests;

use crate::path::{TreePath, deserialize_bytes, serialize_bytes};
use bastle_contract::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;

pub use codec::{ManifestError, decode, encode};

/// Most entries of one tree. Ten times the largest public monorepos; 2 000 000 entries of about 150 bytes are
/// 300 MB of memory, the most a comparison of two should cost.
pub const MAX_ENTRIES: usize = 2_000_000;

/// The BLAKE3 digest of a file's bytes, or of a manifest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content([u8; 32]);

impl Content {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// From a finished hash.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = hex(pair[0])? << 4 | hex(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digest = Digest::deserialize(deserializer)?;
        Self::parse(digest.as_str()).ok_or_else(|| D::Error::custom("not a digest"))
    }
}

impl From<&Digest> for Content {
    fn from(digest: &Digest) -> Self {
        // A `Digest` is 64 hexadecimal digits by construction; the fallback matches no content.
        Self::parse(digest.as_str()).unwrap_or(Self([0; 32]))
    }
}

/// The target of a symlink: any bytes without NUL, kept as they are and never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget(pub Vec<u8>);

impl Serialize for LinkTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_bytes(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for LinkTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_bytes(deserializer).map(Self)
    }
}

/// The mode bits that a manifest knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// The owner may execute it.
    pub executable: bool,
    /// It carries setuid, setgid or sticky; told to the reviewer, never restored or applied.
    pub special: bool,
}

impl Mode {
    /// From the bits of `stat`.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self {
            executable: bits & 0o100 != 0,
            special: bits & 0o7000 != 0,
        }
    }

    /// The mode with which a file is made; the umask takes the rest away.
    #[must_use]
    pub fn create_bits(self) -> u32 {
        if self.executable { 0o777 } else { 0o666 }
    }
}

/// Why an entry's content is not part of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opaque {
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
    /// Larger than bastle reads.
    TooLarge,
    /// A directory nested deeper than bastle walks.
    TooDeep,
    /// The kernel refused the reading of it.
    Unreadable,
}

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File {
        /// Digest of its bytes.
        digest: Content,
        /// Its length.
        size: u64,
        /// Its mode bits.
        mode: Mode,
        /// Digest of its `user.*` attributes, where it has any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attributes: Option<Content>,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as written.
        target: LinkTarget,
    },
    /// A directory.
    Dir,
    /// A git submodule that is not part of the copy.
    Submodule {
        /// The commit it is pinned to, in hexadecimal, as far as known.
        commit: String,
    },
    /// Something whose content is not kept.
    Opaque {
        /// Why.
        why: Opaque,
    },
}

/// One name of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub path: TreePath,
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What a tree holds. Invariant: see the module.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Manifest {
    entries: Vec<Entry>,
}

impl Manifest {
    /// Sorts and checks the entries.
    ///
    /// # Errors
    /// On duplicates, on an entry whose directory is missing or is no directory, on too many entries.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, ManifestError> {
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        codec::check(&entries)?;
        Ok(Self { entries })
    }

    /// The entries in the order of their paths' bytes; a directory comes before what is in it.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The place of a path in [`Self::entries`].
    #[must_use]
    pub fn position(&self, path: &TreePath) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.path.cmp(path)).ok()
    }

    /// What stands under a path.
    #[must_use]
    pub fn get(&self, path: &TreePath) -> Option<&Kind> {
        self.position(path).map(|at| &self.entries[at].kind)
    }

    /// The digest that names this state of a tree.
    #[must_use]
    pub fn id(&self) -> Content {
        Content::of(&encode(self))
    }

    /// Number of files and bytes in them.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        self.entries
            .iter()
            .fold((0, 0), |(files, bytes), entry| match &entry.kind {
                Kind::File { size, .. } => (files + 1, bytes.saturating_add(*size)),
                Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => {
                    (files, bytes)
                }
            })
    }
}
