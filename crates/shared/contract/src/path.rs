//! Lexically canonical paths.
//!
//! An [`AbsPath`] is lexical only: it refuses `..`, but just opening beneath a directory descriptor
//! (`openat2`) and mounting that descriptor defeats symlinks. The spawner does so.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// An absolute path in one canonical spelling: no `.`/`..`/empty component, no NUL, no trailing slash, at most 4095 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AbsPath(String);

/// Why a path was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbsPathError {
    /// Does not start with a slash.
    #[error("path {0:?} is not absolute")]
    Relative(String),
    /// Contains `.`, `..`, an empty component or a trailing slash.
    #[error("path {0:?} is not canonical (it has an empty, '.' or '..' component)")]
    NotCanonical(String),
    /// Contains a NUL byte.
    #[error("path {0:?} contains a NUL byte")]
    Nul(String),
    /// Longer than the kernel accepts.
    #[error("path of {0} bytes is longer than 4095")]
    TooLong(usize),
    /// Is not UTF-8.
    #[error("path {0:?} is not UTF-8; rename it or choose another directory")]
    NotUtf8(String),
}

impl AbsPath {
    /// `/`.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Checks `text` and takes it as a path.
    pub fn new(text: impl Into<String>) -> Result<Self, AbsPathError> {
        Self::try_from(text.into())
    }

    /// Checks a path that came from the operating system.
    pub fn from_path(path: &Path) -> Result<Self, AbsPathError> {
        match path.to_str() {
            Some(text) => Self::new(text),
            None => Err(AbsPathError::NotUtf8(path.display().to_string())),
        }
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a [`Path`].
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// This path with one or more canonical components appended.
    pub fn join(&self, relative: &str) -> Result<Self, AbsPathError> {
        if self.0 == "/" {
            Self::new(format!("/{relative}"))
        } else {
            Self::new(format!("{}/{relative}", self.0))
        }
    }

    /// Whether this path is `ancestor` or lies below it, by whole components (`/srv/ws-evil` is not below `/srv/ws`).
    #[must_use]
    pub fn is_within(&self, ancestor: &Self) -> bool {
        self.relative_to(ancestor).is_some()
    }

    /// The rest of this path below `ancestor` (empty when equal), by whole components.
    #[must_use]
    pub fn relative_to(&self, ancestor: &Self) -> Option<&str> {
        if ancestor.0 == "/" {
            return Some(&self.0[1..]);
        }
        let rest = self.0.strip_prefix(&ancestor.0)?;
        if rest.is_empty() {
            Some("")
        } else {
            rest.strip_prefix('/')
        }
    }

    /// The parent directory; `None` for `/`.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (head, tail) = self.0.rsplit_once('/')?;
        if tail.is_empty() {
            return None;
        }
        Some(Self(if head.is_empty() {
            "/".to_owned()
        } else {
            head.to_owned()
        }))
    }

    /// The last component; empty for `/`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, tail)| tail)
    }
}

impl TryFrom<String> for AbsPath {
    type Error = AbsPathError;

    fn try_from(text: String) -> Result<Self, AbsPathError> {
        if text.len() > 4095 {
            return Err(AbsPathError::TooLong(text.len()));
        }
        if text.contains('\0') {
            return Err(AbsPathError::Nul(text));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(AbsPathError::Relative(text));
        };
        if !rest.is_empty() && rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(AbsPathError::NotCanonical(text));
        }
        Ok(Self(text))
    }
}

impl From<AbsPath> for String {
    fn from(path: AbsPath) -> Self {
        path.0
    }
}

impl fmt::Display for AbsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn a_path_that_climbs_or_is_spelled_twice_is_refused() {
        for bad in [
            "", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/..", "/a\0b",
        ] {
            assert!(AbsPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(AbsPath::new(format!("/{}", "a".repeat(4095))).is_err());
    }

    #[test]
    fn a_sibling_with_the_same_prefix_is_not_within() {
        assert!(!path("/srv/ws-evil").is_within(&path("/srv/ws")));
        assert!(path("/srv/ws/a").is_within(&path("/srv/ws")));
        assert!(path("/srv").is_within(&path("/")));
        assert_eq!(path("/srv/ws/a/b").relative_to(&path("/srv/ws")), Some("a/b"));
    }

    #[test]
    fn parents_end_at_the_root() {
        assert_eq!(path("/a/b").parent(), Some(path("/a")));
        assert_eq!(path("/a").parent(), Some(path("/")));
        assert_eq!(path("/").parent(), None);
    }
}
