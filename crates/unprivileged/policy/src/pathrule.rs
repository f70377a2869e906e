//! Paths as written in policies: `/x` absolute, `~/x` home, `./x` or `x` workspace, `**/x` anywhere.
use crate::layers::Surroundings;
use bastle_contract::{AbsPath, NamePattern};
use std::fmt;

/// What a path is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anchor {
    /// `/`.
    Root,
    /// The home directory of the person who starts bastle.
    Home,
    /// The workspace.
    Workspace,
    /// Every granted tree: the pattern starts with `**/`.
    Anywhere,
}

/// One path or pattern of a policy, in canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathRule {
    /// What it is relative to.
    pub anchor: Anchor,
    /// Canonical components below the anchor; empty for the anchor itself.
    pub below: String,
}

/// Whether a list takes patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Globs {
    /// `fs.hide`, `fs.protect`.
    Taken,
    /// `fs.read`, `fs.write`.
    Refused,
}

/// A path that was accepted, and what to tell about it.
pub(crate) struct Read {
    pub(crate) rule: PathRule,
    pub(crate) note: Option<String>,
}

impl PathRule {
    /// Longest path in a policy.
    pub(crate) const MAX: usize = 1024;

    /// Checks `text`.
    pub(crate) fn read(text: &str, globs: Globs) -> Result<Read, String> {
        if text.is_empty() || text.len() > Self::MAX {
            return Err(format!("a path has 1 to {} bytes", Self::MAX));
        }
        if text.chars().any(char::is_control) {
            return Err("a path has no control characters".to_owned());
        }
        let mut note = None;
        let (anchor, below) = if let Some(rest) = text.strip_prefix("//") {
            note = Some(format!(
                "{text:?} is read as \"/{rest}\"; one slash is enough here"
            ));
            (Anchor::Root, rest)
        } else if let Some(rest) = text.strip_prefix('/') {
            (Anchor::Root, rest)
        } else if let Some(rest) = text.strip_prefix("~/") {
            (Anchor::Home, rest)
        } else if text.starts_with('~') {
            return Err("only ~/ is known; other people's homes have no shorthand here".to_owned());
        } else if text == "." {
            (Anchor::Workspace, "")
        } else if let Some(rest) = text.strip_prefix("./") {
            (Anchor::Workspace, rest)
        } else if text.starts_with("**/") {
            (Anchor::Anywhere, text)
        } else {
            (Anchor::Workspace, text)
        };
        let below = below.strip_suffix('/').unwrap_or(below);
        check_components(below)?;
        check_globs(below, globs)?;
        Ok(Read {
            rule: Self {
                anchor,
                below: below.to_owned(),
            },
            note,
        })
    }

    /// The directory this rule is relative to; `None` for patterns that hold in every granted tree.
    pub(crate) fn root<'a>(&self, surroundings: &'a Surroundings, slash: &'a AbsPath) -> Option<&'a AbsPath> {
        match self.anchor {
            Anchor::Root => Some(slash),
            Anchor::Home => Some(&surroundings.home),
            Anchor::Workspace => Some(&surroundings.workspace),
            Anchor::Anywhere => None,
        }
    }

    /// The absolute path of a rule without wildcards.
    pub(crate) fn resolve(&self, surroundings: &Surroundings) -> Result<AbsPath, String> {
        let slash = AbsPath::root();
        let Some(root) = self.root(surroundings, &slash) else {
            return Err(format!("{self} is a pattern, not a path"));
        };
        if self.below.is_empty() {
            return Ok(root.clone());
        }
        root.join(&self.below).map_err(|e| e.to_string())
    }

    /// Whether it has wildcards.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.below.contains(['*', '?'])
    }
}

fn check_components(below: &str) -> Result<(), String> {
    if below.is_empty() {
        return Ok(());
    }
    if below.split('/').any(|part| part == "..") {
        return Err("'..' is refused: name the path itself".to_owned());
    }
    if below.split('/').any(|part| part.is_empty() || part == ".") {
        return Err("empty and '.' components are refused".to_owned());
    }
    Ok(())
}

fn check_globs(below: &str, globs: Globs) -> Result<(), String> {
    match globs {
        Globs::Refused if below.contains(['*', '?']) => {
            Err("wildcards are taken only in fs.hide and fs.protect: a grant names a real path".to_owned())
        }
        Globs::Refused => Ok(()),
        Globs::Taken if below.is_empty() => Err("a hidden or protected path needs a name".to_owned()),
        Globs::Taken => NamePattern::try_from(below.to_owned()).map(|_| ()).map_err(|_| {
            "a pattern uses only '*', '?' and '**' as a whole component (at most two), no brackets or backslashes".to_owned()
        }),
    }
}

impl fmt::Display for PathRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.anchor, self.below.as_str()) {
            (Anchor::Root, below) => write!(f, "/{below}"),
            (Anchor::Home, below) => write!(f, "~/{below}"),
            (Anchor::Workspace, "") => f.write_str("."),
            (Anchor::Workspace, below) => write!(f, "./{below}"),
            (Anchor::Anywhere, below) => f.write_str(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_climbs_or_has_two_spellings_is_refused() {
        for bad in [
            "", "..", "../x", "./../x", "/a/../b", "~/..", "a/..", "~root/x", "~", "a//b", "/a/./b", "./.",
            "a\0b", "a\nb", "///x",
        ] {
            assert!(PathRule::read(bad, Globs::Refused).is_err(), "{bad:?}");
            assert!(PathRule::read(bad, Globs::Taken).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn wildcards_grant_nothing() {
        for glob in ["**/x", "./src/*", "~/.c?"] {
            assert!(PathRule::read(glob, Globs::Refused).is_err(), "{glob}");
            assert!(PathRule::read(glob, Globs::Taken).is_ok(), "{glob}");
        }
        for bad in ["a**", "[a]", "{a,b}", "a\\b", "**/**/**/x", ".", "/", "~/"] {
            assert!(PathRule::read(bad, Globs::Taken).is_err(), "{bad}");
        }
        assert!(PathRule::read("app/[id]", Globs::Refused).is_ok());
    }

    #[test]
    fn the_doubled_slash_of_another_tool_is_taken_with_a_note() {
        let read = PathRule::read("//etc/hosts", Globs::Refused).unwrap();
        assert_eq!(read.rule.to_string(), "/etc/hosts");
        assert!(read.note.is_some());
    }
}
