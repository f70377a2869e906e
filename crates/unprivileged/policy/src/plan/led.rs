//! Names that a link leads to. The write guard judges where a path leads, not how it was spelt: what a pattern says about
//! `LINK/x` must be said about `TARGET/x`, too.
use super::facts::{FsFacts, LedAs};
use crate::names::{relative_to, remainders};
use bastle_contract::{AbsPath, NamePattern, PatternIndex};
use std::collections::BTreeSet;

/// Patterns by their components, to find those that a link at a path is on the way of.
#[derive(Debug)]
pub struct Ways {
    patterns: Vec<String>,
    index: PatternIndex,
    /// The pattern of each component in the index.
    keyed: Vec<usize>,
    /// Patterns with a `**` between names: it takes any component.
    across: Vec<usize>,
}

impl Ways {
    /// Indexes these patterns; those of one component need no way and are left out.
    pub fn of<'p>(patterns: impl Iterator<Item = &'p NamePattern>) -> Self {
        let patterns: Vec<String> = patterns
            .map(|pattern| pattern.as_str().to_owned())
            .filter(|text| text.trim_start_matches("**/").contains('/'))
            .collect();
        let (mut components, mut keyed, mut across) = (Vec::new(), Vec::new(), Vec::new());
        for (at, text) in patterns.iter().enumerate() {
            let inner = text.trim_start_matches("**/");
            if inner.split('/').any(|part| part == "**") {
                across.push(at);
            }
            let above = inner.rsplit_once('/').map_or("", |(above, _)| above);
            for part in above.split('/').filter(|part| *part != "**") {
                components.push(part);
                keyed.push(at);
            }
        }
        let index = PatternIndex::of(components.into_iter().map(str::as_bytes));
        Self {
            patterns,
            index,
            keyed,
            across,
        }
    }

    /// What the patterns say about names below a link.
    #[must_use]
    pub fn below(&self, link: &str) -> Vec<String> {
        let name = link.rsplit('/').next().unwrap_or(link);
        let keyed = self.index.candidates(name.as_bytes());
        let candidates: BTreeSet<usize> = keyed
            .filter_map(|at| self.keyed.get(at).copied())
            .chain(self.across.iter().copied())
            .collect();
        let path: Vec<&str> = link.split('/').collect();
        let mut found = Vec::new();
        for text in candidates.into_iter().filter_map(|at| self.patterns.get(at)) {
            let parts: Vec<&str> = text.split('/').collect();
            let mut rests = Vec::new();
            remainders(&parts, &path, &mut rests);
            // Whole, it has nothing in common with the link, and holds where the link leads by itself.
            found.extend(rests.into_iter().filter(|rest| !rest.is_empty() && rest != text));
        }
        found.sort();
        found.dedup();
        found
    }
}

/// What links lead to below `root`, as patterns.
pub(super) fn patterns(fs: &FsFacts, root: &AbsPath, held: LedAs) -> Vec<NamePattern> {
    let meant = fs.led.iter().filter(|led| led.held == held);
    let found = meant.flat_map(|led| match (&led.rest, led.at.parent()) {
        (Some(rest), _) => relative_to(root, Some(&led.at), rest),
        (None, Some(above)) => {
            let name = led.at.as_str().rsplit('/').next().unwrap_or_default();
            let name = name.replace(['*', '[', ']', '{', '}', '\\'], "?");
            relative_to(root, Some(&above), &name)
        }
        (None, None) => Vec::new(),
    });
    let mut all: Vec<NamePattern> = found.flatten().collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_says_below_a_link_is_what_is_left_of_it() {
        let texts = [
            "**/.env*",
            "**/.github/workflows",
            "a/b/c",
            "**/.git/modules/**/hooks",
        ];
        let patterns: Vec<NamePattern> = texts
            .iter()
            .map(|text| NamePattern::try_from((*text).to_owned()).unwrap())
            .collect();
        let ways = Ways::of(patterns.iter());
        assert_eq!(ways.below(".github"), ["workflows"]);
        assert_eq!(ways.below("x/.GitHub"), ["workflows"]);
        assert_eq!(ways.below("a"), ["b/c"]);
        assert_eq!(ways.below("a/b"), ["c"]);
        assert_eq!(ways.below(".git/modules/x"), ["**/hooks"]);
        for free in ["src", "b", ".env", ".github/workflows", "x/a"] {
            assert!(ways.below(free).is_empty(), "{free}: {:?}", ways.below(free));
        }
    }
}
