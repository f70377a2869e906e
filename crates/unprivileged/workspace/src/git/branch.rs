//! Names of branches: git's own rules for references, checked before a name reaches a command line or a path.
use serde::{Deserialize, Serialize};
use std::fmt;

/// A branch name below `refs/heads/`, well-formed by git's rules and never an option (`-x`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BranchName(String);

/// Why a branch name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a branch name: {1}")]
pub struct BranchNameError(String, &'static str);

impl BranchName {
    /// A path component of a loose reference plus `.lock` must fit in 255 bytes, and the name in a path.
    pub const MAX: usize = 200;

    /// Checks and takes a name.
    pub fn new(text: impl Into<String>) -> Result<Self, BranchNameError> {
        Self::try_from(text.into())
    }

    /// `<agent>/<feature>`.
    pub fn of_agent(agent: &str, feature: &str) -> Result<Self, BranchNameError> {
        Self::new(format!("{agent}/{feature}"))
    }

    /// The short name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name, `refs/heads/…`.
    #[must_use]
    pub fn full(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl TryFrom<String> for BranchName {
    type Error = BranchNameError;

    fn try_from(text: String) -> Result<Self, BranchNameError> {
        match fault(&text) {
            Some(why) => Err(BranchNameError(text, why)),
            None => Ok(Self(text)),
        }
    }
}

impl From<BranchName> for String {
    fn from(name: BranchName) -> Self {
        name.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a name, if anything.
fn fault(text: &str) -> Option<&'static str> {
    if text.is_empty() || text.len() > BranchName::MAX {
        return Some("it must have 1 to 200 bytes");
    }
    if text.starts_with('-') || text == "HEAD" || text.starts_with("refs/") {
        return Some("it must not start with '-' or 'refs/' or be HEAD");
    }
    if crate::path::visible(text.as_bytes()) != text {
        return Some("it holds a control or invisible character");
    }
    if text.contains([' ', '~', '^', ':', '?', '*', '[', '\\'])
        || text.contains("..")
        || text.contains("@{")
        || text == "@"
    {
        return Some("it holds a character or sequence with a meaning of its own to git");
    }
    if text.ends_with('.') {
        return Some("it must not end with '.'");
    }
    let bad_part = |part: &str| {
        part.is_empty()
            || part.starts_with('.')
            || part.to_ascii_lowercase().ends_with(".lock")
            || part.starts_with('-')
    };
    if text.split('/').any(bad_part) {
        return Some("a component is empty, starts with '.' or '-', or ends with '.lock'");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_branch_name_that_is_an_option_a_climb_or_a_refspec_is_refused() {
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "../x",
            "a/../b",
            "+a:b",
            "a:b",
            "a b",
            "a\n",
            "a~1",
            "a^",
            "a@{1}",
            "@",
            "HEAD",
            "refs/heads/x",
            "a//b",
            "/a",
            "a/",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.LOCK",
            "a.",
            "a\\b",
            "a*",
            "a?",
            "[a",
            "a\u{202e}b",
            "claude/-x",
        ] {
            assert!(BranchName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["claude/fix-parser", "a", "a/b/c", "é", "x+y", "a@b"] {
            assert!(BranchName::new(good).is_ok(), "{good:?}");
        }
        assert!(BranchName::of_agent("claude", "x y").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_check_panic_or_passes_as_an_option(text: String) {
            if let Ok(name) = BranchName::new(text) {
                prop_assert!(!name.as_str().starts_with('-') && !name.as_str().contains(".."));
            }
        }
    }
}
