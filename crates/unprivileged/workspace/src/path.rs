//! Names inside a tree: bytes, relative, bounded.
//!
//! **Trust:** built from directory listings of the agent's tree and from stored files; a value that exists is
//! relative, has no `.`/`..`/empty component and no NUL, so joining it below a directory cannot leave that
//! directory by its text (links are the business of the opening calls).
use crate::base64;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest path in bytes: the kernel's own bound for one call (`PATH_MAX` with its NUL).
pub const MAX_PATH: usize = 4095;
/// Longest component in bytes (`NAME_MAX`).
pub const MAX_NAME: usize = 255;
/// Deepest nesting. 4095 bytes could hold 2048 one-letter directories; no project comes near, and walks and
/// removals may keep one descriptor per level, which must stay below the usual limit of 1024.
pub const MAX_DEPTH: usize = 200;

/// A path inside a tree. Invariant: relative, clean, bounded; see the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why bytes are not a path inside a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreePathError {
    /// No bytes at all.
    #[error("a path inside a tree is not empty")]
    Empty,
    /// Longer than the kernel can open in one call.
    #[error("a path inside a tree has at most {MAX_PATH} bytes and components of at most {MAX_NAME}")]
    TooLong,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("a path inside a tree has at most {MAX_DEPTH} components")]
    TooDeep,
    /// Absolute, `.`, `..`, an empty component or a NUL.
    #[error("a path inside a tree is relative, without empty, '.' or '..' components and without NUL")]
    Malformed,
}

impl TreePath {
    /// Checks the bytes.
    ///
    /// # Errors
    /// When they do not hold the invariant.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, TreePathError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(TreePathError::Empty);
        }
        if bytes.len() > MAX_PATH {
            return Err(TreePathError::TooLong);
        }
        let mut depth = 0_usize;
        for part in bytes.split(|b| *b == b'/') {
            check_name(part)?;
            depth += 1;
        }
        if depth > MAX_DEPTH {
            return Err(TreePathError::TooDeep);
        }
        Ok(Self(bytes))
    }

    /// The path of a name in a directory; `None` is the root of the tree.
    ///
    /// # Errors
    /// When the result would be malformed, too long or too deep.
    pub fn join(directory: Option<&Self>, name: &[u8]) -> Result<Self, TreePathError> {
        check_name(name)?;
        let Some(directory) = directory else {
            return Ok(Self(name.to_vec()));
        };
        let mut bytes = Vec::with_capacity(directory.0.len() + 1 + name.len());
        bytes.extend_from_slice(&directory.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        if bytes.len() > MAX_PATH {
            return Err(TreePathError::TooLong);
        }
        if directory.depth() >= MAX_DEPTH {
            return Err(TreePathError::TooDeep);
        }
        Ok(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// For calls of the system; relative.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The components, first one first.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// How many components it has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(slash) => &self.0[slash + 1..],
            None => &self.0,
        }
    }

    /// The directory that holds it; `None` is the root of the tree.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let slash = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..slash].to_vec()))
    }

    /// Whether it is, or lies below, the `.git` at the root of the tree: bastle's own repository for the copy.
    #[must_use]
    pub fn in_git(&self) -> bool {
        self.components().next() == Some(b".git")
    }

    /// Whether it is `directory` or lies below it.
    #[must_use]
    pub fn starts_with(&self, directory: &Self) -> bool {
        self.0
            .strip_prefix(directory.0.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }
}

/// A name of a directory entry that may become part of a path.
fn check_name(name: &[u8]) -> Result<(), TreePathError> {
    if name.len() > MAX_NAME {
        return Err(TreePathError::TooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&0) || name.contains(&b'/') {
        return Err(TreePathError::Malformed);
    }
    Ok(())
}

impl fmt::Display for TreePath {
    /// For people: control characters, bidirectional marks and bytes that are not UTF-8 come out as escapes, so
    /// that a name can neither move the cursor nor read differently from what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.0))
    }
}

/// Bytes made harmless for a terminal and a log line.
#[must_use]
pub fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_harmless(c) {
                text.push(c);
            } else {
                text.extend(c.escape_unicode());
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn is_harmless(c: char) -> bool {
    let formats = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !formats
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Shape {
    Text(String),
    Bytes { b64: String },
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_bytes(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(deserialize_bytes(deserializer)?).map_err(D::Error::custom)
    }
}

/// Writes bytes as a string when they are UTF-8, otherwise as `{"b64": …}`.
pub(crate) fn serialize_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => Shape::Bytes {
            b64: base64::encode(bytes),
        }
        .serialize(serializer),
    }
}

/// Reads what [`serialize_bytes`] wrote.
pub(crate) fn deserialize_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    match Shape::deserialize(deserializer)? {
        Shape::Text(text) => Ok(text.into_bytes()),
        Shape::Bytes { b64 } => base64::decode(&b64).ok_or_else(|| D::Error::custom("not base64")),
    }
}
