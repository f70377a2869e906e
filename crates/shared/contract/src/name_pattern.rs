//! Globs over file names below a tree, and the compact form in which a plan carries a list of them.
//!
//! A plan names about a thousand patterns, three processes parse it at every start, and most patterns are constants of the
//! program. So a pattern borrows: from the program, or from the one text in which its list arrived.
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Between two patterns of a list. No pattern contains it, because none has an empty component.
const SEPARATOR: &str = "//";
/// Longest pattern in bytes.
const MOST: usize = 1024;

/// A glob over file names and paths below one tree: `*` and `?` within a component, `**` across components.
///
/// Components are separated by `/`. A pattern without a leading `**/` is anchored at the tree's root.
/// Matching ignores ASCII case, so that `.ENV` on a case-insensitive file system is the protected name too.
#[derive(Clone)]
pub struct NamePattern(Text);

/// Where the characters of a pattern are.
#[derive(Clone)]
enum Text {
    /// In the program.
    Static(&'static str),
    /// In a text that other patterns share.
    Shared { whole: Arc<str>, start: u32, end: u32 },
}

/// Why a pattern was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pattern {0:?} must be relative, canonical, at most 1024 bytes and use only '*', '?' and '**' as wildcards"
)]
pub struct NamePatternError(String);

impl NamePattern {
    /// Takes a constant of the program as a pattern, without a copy of it.
    pub fn from_static(text: &'static str) -> Result<Self, NamePatternError> {
        if is_well_formed(text) {
            Ok(Self(Text::Static(text)))
        } else {
            Err(NamePatternError(text.to_owned()))
        }
    }

    /// A constant that a test checks.
    pub(crate) fn constant(text: &'static str) -> Self {
        Self(Text::Static(text))
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            // The range was made with the text and is inside it.
            Text::Shared { whole, start, end } => {
                whole.get(*start as usize..*end as usize).unwrap_or_default()
            }
        }
    }

    /// Whether `relative` (a path below the tree's root, bytes as the kernel gave them) is named by this pattern.
    #[must_use]
    pub fn matches(&self, relative: &[u8]) -> bool {
        text_matches(self.as_str(), relative)
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
        match u32::try_from(text.len()) {
            Ok(end) if is_well_formed(&text) => Ok(Self(Text::Shared {
                whole: text.into(),
                start: 0,
                end,
            })),
            Ok(_) | Err(_) => Err(NamePatternError(text)),
        }
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for NamePattern {}

impl PartialOrd for NamePattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamePattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for NamePattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamePattern").field(&self.as_str()).finish()
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for NamePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for NamePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Serde's `with` for a list of patterns: one text, with `//` between two.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, NamePattern, Serializer, de, parse};

    pub(crate) fn serialize<S: Serializer>(list: &[NamePattern], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::joined(list))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<NamePattern>, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

fn joined(list: &[NamePattern]) -> String {
    let length = list
        .iter()
        .map(|pattern| pattern.as_str().len() + SEPARATOR.len());
    let mut text = String::with_capacity(length.sum());
    for (at, pattern) in list.iter().enumerate() {
        if at > 0 {
            text.push_str(SEPARATOR);
        }
        text.push_str(pattern.as_str());
    }
    text
}

/// The patterns of a list, all of which share its text.
fn parse(text: &str) -> Result<Vec<NamePattern>, NamePatternError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let whole: Arc<str> = text.into();
    let bytes = whole.as_bytes();
    // Most patterns are a dozen characters long.
    let mut list = Vec::with_capacity(bytes.len() / 12 + 1);
    let mut start = 0;
    while start <= bytes.len() {
        let rest = &bytes[start..];
        let length = first_length(rest).ok_or_else(|| NamePatternError(lossy(rest)))?;
        let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(start + length)) else {
            return Err(NamePatternError(lossy(rest)));
        };
        list.push(NamePattern(Text::Shared {
            whole: Arc::clone(&whole),
            start: from,
            end: to,
        }));
        start += length + SEPARATOR.len();
    }
    Ok(list)
}

/// The beginning of what was refused.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned()
}

fn is_well_formed(text: &str) -> bool {
    first_length(text.as_bytes()) == Some(text.len())
}

/// What a byte means in a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Plain,
    Slash,
    Star,
    Refused,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Plain; 256];
    classes[b'/' as usize] = Class::Slash;
    classes[b'*' as usize] = Class::Star;
    let refused = b"\0[]{}\\";
    let mut at = 0;
    while at < refused.len() {
        classes[refused[at] as usize] = Class::Refused;
        at += 1;
    }
    classes
};

/// The length of the pattern at the front of `bytes`, which reaches to their end or to a [`SEPARATOR`]; `None` where there is
/// none. One pass: three processes check a thousand patterns at every start.
fn first_length(bytes: &[u8]) -> Option<usize> {
    // How many `**` a component is, one or none; `None` where it is not allowed.
    let component = |bytes: &[u8], twice: bool| match bytes {
        b"" | b"." | b".." => None,
        b"**" => Some(1),
        _ if twice => None,
        _ => Some(0),
    };
    let (mut start, mut twice, mut doubled) = (0, false, 0);
    let mut end = bytes.len();
    for (at, byte) in bytes.iter().enumerate() {
        match CLASSES[usize::from(*byte)] {
            Class::Plain => {}
            Class::Refused => return None,
            // `**` inside a longer component would mean different things to different readers: only alone.
            Class::Star => twice |= at > start && bytes[at - 1] == b'*',
            Class::Slash if at == start => {
                // The second slash of a separator; the component before it was counted at the first.
                end = at.checked_sub(1)?;
                break;
            }
            Class::Slash => {
                doubled += component(&bytes[start..at], twice)?;
                (start, twice) = (at + 1, false);
            }
        }
    }
    if end == bytes.len() {
        doubled += component(&bytes[start..], twice)?;
    }
    (doubled <= 2 && end <= MOST).then_some(end)
}

/// Whether a well-formed pattern names a path below the tree's root.
pub(crate) fn text_matches(pattern: &str, relative: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    // Whole trees are judged by dozens of patterns, and the last component tells most of them.
    let last = last_component(pattern);
    (last == b"**" || name_matches(last, last_component(relative)))
        && components_match(Some(pattern), Some(relative))
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

    #[test]
    fn a_list_is_one_text_and_comes_back_as_it_was() {
        let list = ["**/.env*", "a", "a/**/z"].map(pattern).to_vec();
        for list in [Vec::new(), list[..1].to_vec(), list] {
            let text = joined(&list);
            assert_eq!(parse(&text).unwrap(), list, "{text:?}");
        }
    }

    #[test]
    fn a_list_with_anything_in_it_that_is_no_pattern_is_refused_as_a_whole() {
        assert!(parse("a//b").is_ok(), "control");
        for bad in [
            "//", "a//", "//a", "a///b", "a////b", "a//../b", "a//[b]", "/a", "a//b\0",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&"a".repeat(1025)).is_err());
    }

    #[test]
    fn a_pattern_is_the_same_wherever_its_text_is() {
        use std::collections::HashSet;
        let all = [
            NamePattern::from_static("b/*").unwrap(),
            pattern("b/*"),
            parse("a//b/*//c").unwrap().swap_remove(1),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 1);
        assert!(
            all.iter()
                .all(|one| one.to_string() == "b/*" && one.matches(b"b/x"))
        );
        assert!(NamePattern::from_static("/b").is_err());
    }
}
