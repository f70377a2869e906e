//! Many patterns, of which few concern a name: found by one component of each.
use crate::NamePattern;
use std::collections::HashMap;

/// Patterns by one component: by the whole of it where it has no wildcard, else by its first byte. Letter case is ignored, as
/// patterns do.
#[derive(Debug, Default)]
pub struct PatternIndex {
    literal: HashMap<Vec<u8>, Vec<usize>>,
    first: HashMap<u8, Vec<usize>>,
    any: Vec<usize>,
}

impl PatternIndex {
    /// Indexes patterns by their last component: what [`NamePattern::matches`] compares first.
    #[must_use]
    pub fn by_last(patterns: &[NamePattern]) -> Self {
        let last = |pattern: &NamePattern| {
            let text = pattern.as_str().as_bytes();
            text.rsplit(|byte| *byte == b'/').next().unwrap_or(text).to_vec()
        };
        Self::of(patterns.iter().map(last))
    }

    /// Indexes by the components given, in order.
    #[must_use]
    pub fn of(components: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut index = Self::default();
        for (at, component) in components.enumerate() {
            let component = component.to_ascii_lowercase();
            let wild = component.iter().any(|byte| matches!(byte, b'*' | b'?'));
            match component.first() {
                None | Some(b'*' | b'?') => index.any.push(at),
                Some(first) if wild => index.first.entry(*first).or_default().push(at),
                Some(_) => index.literal.entry(component).or_default().push(at),
            }
        }
        index
    }

    /// The patterns whose component could match this name.
    pub fn candidates<'i>(&'i self, name: &[u8]) -> impl Iterator<Item = usize> + use<'i> {
        let name = name.to_ascii_lowercase();
        let first = name.first().and_then(|first| self.first.get(first));
        let lists = [self.literal.get(&name), first, Some(&self.any)];
        lists.into_iter().flatten().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn no_pattern_that_matches_is_left_out() {
        let parts = ["a", "A", ".env", ".env*", "*", "?b", "a*", "**"];
        let texts = parts
            .iter()
            .flat_map(|one| parts.iter().map(move |two| format!("{one}/{two}")))
            .chain(parts.map(str::to_owned));
        let patterns: Vec<NamePattern> = texts
            .filter_map(|text| NamePattern::try_from(text).ok())
            .collect();
        let names = ["a", "B", "ab", ".env", ".ENV.local", "x"];
        for path in names
            .iter()
            .flat_map(|one| names.iter().map(move |two| format!("{one}/{two}")))
        {
            for pattern in &patterns {
                let index = PatternIndex::by_last(std::slice::from_ref(pattern));
                let last = path.rsplit('/').next().unwrap();
                let found = index.candidates(last.as_bytes()).count() > 0;
                assert!(found || !pattern.matches(path.as_bytes()), "{pattern} {path}");
            }
            let index = PatternIndex::by_last(&patterns);
            assert!(
                index.candidates(b"x").count() < patterns.len(),
                "control: some are left out"
            );
        }
    }
}
