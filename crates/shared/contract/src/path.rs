//! Lexically canonical paths and name patterns.
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

/// A glob over file names and paths below one tree: `*` and `?` within a component, `**` across components.
///
/// Components are separated by `/`. A pattern without a leading `**/` is anchored at the tree's root.
/// Matching ignores ASCII case, so that `.ENV` on a case-insensitive file system is the protected name too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pattern {0:?} must be relative, canonical, at most 1024 bytes and use only '*', '?' and '**' as wildcards"
)]
pub struct NamePatternError(String);

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

impl NamePattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `relative` (a path below the tree's root, bytes as the kernel gave them) is named by this pattern.
    #[must_use]
    pub fn matches(&self, relative: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        // Whole trees are judged by dozens of patterns, and the last component tells most of them.
        let last = last_component(pattern);
        (last == b"**" || name_matches(last, last_component(relative)))
            && components_match(Some(pattern), Some(relative))
    }

    /// Whether `relative` or one of its parent directories is named by this pattern.
    #[must_use]
    pub fn covers(&self, relative: &[u8]) -> bool {
        let ends = relative
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'/')
            .map(|(i, _)| i);
        ends.chain([relative.len()])
            .any(|end| self.matches(&relative[..end]))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = NamePatternError;

    fn try_from(text: String) -> Result<Self, NamePatternError> {
        if is_well_formed(&text) {
            Ok(Self(text))
        } else {
            Err(NamePatternError(text))
        }
    }
}

/// One pass: a plan carries a thousand patterns, and three processes read them at every start.
fn is_well_formed(text: &str) -> bool {
    let mut doubled = 0;
    let parts_are = text
        .as_bytes()
        .split(|byte| *byte == b'/')
        .all(|part| match part {
            b"" | b"." | b".." => false,
            b"**" => {
                doubled += 1;
                doubled <= 2
            }
            _ => {
                let mut before = 0;
                part.iter().all(|byte| {
                    // `**` inside a longer component would mean different things to different readers: only alone.
                    let twice = *byte == b'*' && before == b'*';
                    before = *byte;
                    !twice && !matches!(byte, 0 | b'[' | b']' | b'{' | b'}' | b'\\')
                })
            }
        });
    parts_are && text.len() <= 1024
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The first of a list of components, and the others; no components are `None`.
fn split_first(list: Option<&[u8]>) -> Option<(&[u8], Option<&[u8]>)> {
    let list = list?;
    Some(match list.iter().position(|byte| *byte == b'/') {
        Some(at) => (&list[..at], Some(&list[at + 1..])),
        None => (list, None),
    })
}

fn components_match(pattern: Option<&[u8]>, mut path: Option<&[u8]>) -> bool {
    match split_first(pattern) {
        None => path.is_none(),
        Some((b"**", rest)) => loop {
            if components_match(rest, path) {
                return true;
            }
            match split_first(path) {
                Some((_, below)) => path = below,
                None => return false,
            }
        },
        Some((first, rest)) => match split_first(path) {
            Some((name, below)) => name_matches(first, name) && components_match(rest, below),
            None => false,
        },
    }
}

/// Linear-time wildcard match of one component: on a mismatch, the last `*` takes one more byte.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p].eq_ignore_ascii_case(&name[n])) {
            p += 1;
            n += 1;
        } else if let Some((star_at, taken)) = star {
            p = star_at + 1;
            n = taken + 1;
            star = Some((star_at, taken + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn pattern(text: &str) -> NamePattern {
        NamePattern::try_from(text.to_owned()).unwrap()
    }

    /// What a pattern means, in the plainest words.
    fn means(pattern: &[&str], path: &[&str]) -> bool {
        match pattern {
            [] => path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|skipped| means(rest, &path[skipped..])),
            [first, rest @ ..] => match path {
                [name, below @ ..] => name_matches(first.as_bytes(), name.as_bytes()) && means(rest, below),
                [] => false,
            },
        }
    }

    #[test]
    fn every_short_pattern_matches_every_short_path_as_its_components_say() {
        let lists = |words: &[&'static str]| {
            let mut all: Vec<Vec<&'static str>> = vec![Vec::new()];
            let mut last = all.clone();
            for _ in 0..4 {
                last = last
                    .iter()
                    .flat_map(|list| words.iter().map(|word| [list.as_slice(), &[*word]].concat()))
                    .collect();
                all.extend(last.iter().cloned());
            }
            all.into_iter()
                .filter(|list| !list.is_empty())
                .collect::<Vec<_>>()
        };
        let paths = lists(&["a", "ab", "b"]);
        let (mut hits, mut misses) = (0, 0);
        for parts in lists(&["a", "a*", "?", "**"]) {
            let Ok(pattern) = NamePattern::try_from(parts.join("/")) else {
                continue;
            };
            for path in &paths {
                let found = pattern.matches(path.join("/").as_bytes());
                assert_eq!(found, means(&parts, path), "{pattern} {path:?}");
                *(if found { &mut hits } else { &mut misses }) += 1;
            }
        }
        assert!(hits > 1000 && misses > 1000, "control: {hits} {misses}");
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

    #[test]
    fn a_pattern_names_files_at_every_depth_and_in_every_case() {
        let env = pattern("**/.env*");
        for hit in [".env", ".env.local", "a/b/.ENV", "x/.envrc"] {
            assert!(env.matches(hit.as_bytes()), "{hit}");
        }
        for miss in ["env", "a/env", ".en", ".env/x"] {
            assert!(!env.matches(miss.as_bytes()), "{miss}");
        }
        assert!(env.covers(b".env/x"));
        assert!(!pattern(".git/hooks").matches(b"sub/.git/hooks"));
        assert!(pattern("**/.git/hooks").covers(b"sub/.git/hooks/pre-commit"));
        assert!(pattern("a/**/z").matches(b"a/z") && pattern("a/**/z").matches(b"a/b/c/z"));
    }

    #[test]
    fn every_short_text_is_a_pattern_exactly_where_the_rules_say_so() {
        let rules = |text: &str| {
            !text.is_empty()
                && text.len() <= 1024
                && !text.contains(['\0', '[', ']', '{', '}', '\\'])
                && text
                    .split('/')
                    .all(|part| !matches!(part, "" | "." | "..") && (part == "**" || !part.contains("**")))
                && text.split('/').filter(|part| *part == "**").count() <= 2
        };
        let letters = ["a", ".", "*", "?", "/", "[", "\\", "\0", "**/", "ü"];
        let mut texts = vec![String::new(), "a".repeat(1024), "a".repeat(1025)];
        let mut last = vec![String::new()];
        for _ in 0..5 {
            last = last
                .iter()
                .flat_map(|text| letters.iter().map(move |letter| format!("{text}{letter}")))
                .collect();
            texts.extend(last.iter().cloned());
        }
        let good = texts.iter().filter(|text| rules(text)).count();
        assert!(good > 1000, "control: {good}");
        for text in texts {
            assert_eq!(
                NamePattern::try_from(text.clone()).is_ok(),
                rules(&text),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_pattern_with_a_stray_wildcard_or_climb_is_refused() {
        for bad in ["", "/abs", "a/../b", "a**b", "[a]", "{a,b}", "a/", "\\x"] {
            assert!(NamePattern::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_star_storm_ends_quickly() {
        let storm = pattern(&format!("{}b", "*a".repeat(200)));
        assert!(!storm.matches("a".repeat(4000).as_bytes()));
    }
}
