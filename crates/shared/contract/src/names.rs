//! Names that are guarded below a root, and the exceptions that were stated on the command line.
//!
//! Patterns ignore ASCII case so that no spelling gets past them; an exception names one file as it is spelt, so that it
//! opens nothing else.
use crate::{AbsPath, BuiltInNames, NamePattern};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far an exception reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenScope {
    /// One file.
    File,
    /// A directory with everything in it.
    Tree,
}

/// A path that `--unprotect` opens: `FILE`, or `DIRECTORY/**`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opening {
    /// The file or directory.
    pub path: AbsPath,
    /// How far it reaches.
    pub scope: OpenScope,
}

/// An exception, relative to the root of a [`NameList`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenName {
    /// Path below the root; empty for the root itself.
    pub below: String,
    /// How far it reaches.
    pub scope: OpenScope,
}

/// Patterns below a root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameList {
    /// Patterns without an exception.
    #[serde(with = "crate::name_pattern::list")]
    pub always: Vec<NamePattern>,
    /// Patterns that the names in `open` are excepted from.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        with = "crate::name_pattern::list"
    )]
    pub unless_open: Vec<NamePattern>,
    /// Names of this program, which the names in `open` are excepted from, too.
    #[serde(default, skip_serializing_if = "is_none")]
    pub built_in: BuiltInNames,
    /// What was opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenName>,
}

/// Serde asks by reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none(list: &BuiltInNames) -> bool {
    list.is_empty()
}

impl Opening {
    /// Reads `FILE` or `DIRECTORY/**`; any other wildcard is refused, because it would open names nobody has seen.
    pub fn parse(text: &AbsPath) -> Result<Self, String> {
        let (path, scope) = match text.as_str().strip_suffix("/**") {
            Some(directory) if !directory.is_empty() => {
                let path = AbsPath::new(directory).map_err(|error| error.to_string())?;
                (path, OpenScope::Tree)
            }
            Some(_) => return Err("the root directory is never opened as a whole".to_owned()),
            None => (text.clone(), OpenScope::File),
        };
        if path.as_str().contains(['*', '?']) {
            return Err("it takes one path, not a pattern".to_owned());
        }
        Ok(Self { path, scope })
    }

    /// Whether it opens `path`.
    #[must_use]
    pub fn opens(&self, path: &AbsPath) -> bool {
        match self.scope {
            OpenScope::File => *path == self.path,
            OpenScope::Tree => path.is_within(&self.path),
        }
    }

    /// The same below `root`; `None` when it says nothing about what is there.
    #[must_use]
    pub fn below(&self, root: &AbsPath) -> Option<OpenName> {
        let below = match self.path.relative_to(root) {
            Some(below) => below.to_owned(),
            None if self.scope == OpenScope::Tree && root.is_within(&self.path) => String::new(),
            None => return None,
        };
        Some(OpenName {
            below,
            scope: self.scope,
        })
    }
}

impl OpenName {
    /// Whether it opens a path below the root.
    #[must_use]
    pub fn opens(&self, relative: &[u8]) -> bool {
        let below = self.below.as_bytes();
        match self.scope {
            OpenScope::File => relative == below,
            OpenScope::Tree => {
                below.is_empty()
                    || relative
                        .strip_prefix(below)
                        .is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
            }
        }
    }
}

impl NameList {
    /// Whether it names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.always.is_empty() && self.unless_open.is_empty() && self.built_in.is_empty()
    }

    /// Every pattern.
    pub fn patterns(&self) -> impl Iterator<Item = &NamePattern> {
        let own = self.always.iter().chain(&self.unless_open);
        own.chain(self.built_in.patterns())
    }

    /// Whether `relative`, a path below the root, is named.
    #[must_use]
    pub fn matches(&self, relative: &[u8]) -> bool {
        self.find(relative, NamePattern::matches, BuiltInNames::matches)
    }

    /// The first pattern that names `relative` itself.
    #[must_use]
    pub fn named(&self, relative: &[u8]) -> Option<&NamePattern> {
        let opened = self.open.iter().any(|open| open.opens(relative));
        let excepted = self.unless_open.iter().filter(|_| !opened);
        let mut all = self.always.iter().chain(excepted);
        all.find(|pattern| pattern.matches(relative))
            .or_else(|| (!opened).then(|| self.built_in.pattern_of(relative)).flatten())
    }

    /// Adds patterns to which the exceptions of this list apply.
    pub fn extend(&mut self, patterns: impl IntoIterator<Item = NamePattern>) {
        if self.open.is_empty() {
            self.always.extend(patterns);
        } else {
            self.unless_open.extend(patterns);
        }
    }

    /// Whether `relative` or a directory above it is named.
    #[must_use]
    pub fn covers(&self, relative: &[u8]) -> bool {
        self.find(relative, NamePattern::covers, BuiltInNames::covers)
    }

    fn find(
        &self,
        relative: &[u8],
        names: impl Fn(&NamePattern, &[u8]) -> bool,
        built_in: impl Fn(BuiltInNames, &[u8]) -> bool,
    ) -> bool {
        let excepted = || {
            self.unless_open.iter().any(|pattern| names(pattern, relative))
                || built_in(self.built_in, relative)
        };
        self.always.iter().any(|pattern| names(pattern, relative))
            || (excepted() && !self.open.iter().any(|open| open.opens(relative)))
    }
}

impl From<Vec<NamePattern>> for NameList {
    fn from(always: Vec<NamePattern>) -> Self {
        Self {
            always,
            ..Self::default()
        }
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            OpenScope::File => write!(f, "{}", self.path),
            OpenScope::Tree => write!(f, "{}/**", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn list(open: &str) -> NameList {
        let pattern = |text: &str| NamePattern::try_from(text.to_owned()).unwrap();
        NameList {
            always: vec![pattern("**/own")],
            unless_open: vec![pattern("**/.env*")],
            open: Opening::parse(&path(open))
                .unwrap()
                .below(&path("/w"))
                .into_iter()
                .collect(),
            built_in: BuiltInNames::None,
        }
    }

    #[test]
    fn names_of_the_program_are_protected_and_opened_like_patterns() {
        let mut list = list("/w/.npmrc");
        assert!(!list.matches(b"sub/.npmrc"), "control");
        list.built_in = BuiltInNames::Project;
        assert!(list.matches(b"sub/.npmrc") && list.covers(b".vscode/tasks.json"));
        assert_eq!(
            list.named(b"sub/.npmrc").map(NamePattern::as_str),
            Some("**/.npmrc")
        );
        assert!(!list.matches(b".npmrc") && list.named(b".npmrc").is_none());
        assert!(!list.matches(b"src/main.c"));
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<NameList>(&text).unwrap(), list);
    }

    #[test]
    fn an_opened_file_opens_no_other_name_that_its_pattern_matches() {
        let list = list("/w/a/.env.example");
        assert!(!list.matches(b"a/.env.example"));
        for named in [
            ".env",
            "a/.env",
            "b/.env.example",
            "a/.ENV.example",
            ".env.example",
        ] {
            assert!(list.matches(named.as_bytes()), "{named}");
        }
        assert!(
            list.covers(b"a/.env.example/x"),
            "a directory in its place opens nothing"
        );
    }

    #[test]
    fn an_opened_directory_opens_what_is_in_it_and_no_rule_of_another_layer() {
        let list = list("/w/a/**");
        for open in ["a/.env", "a/b/.env.x"] {
            assert!(
                !list.matches(open.as_bytes()) && !list.covers(open.as_bytes()),
                "{open}"
            );
        }
        for named in [".env", "ab/.env", "a/own", "a/own/.env"] {
            assert!(list.covers(named.as_bytes()), "{named}");
        }
    }

    #[test]
    fn patterns_and_the_root_are_never_opened() {
        for refused in ["/w/.env*", "/w/**/x", "/w/a?b", "/**", "/w/*/**"] {
            assert!(Opening::parse(&path(refused)).is_err(), "{refused}");
        }
        let tree = Opening::parse(&path("/w/a/**")).unwrap();
        assert_eq!(
            (tree.path.as_str(), tree.scope, tree.to_string().as_str()),
            ("/w/a", OpenScope::Tree, "/w/a/**")
        );
    }
}
