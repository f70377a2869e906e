//! Many patterns, of which few concern a name: found by one component of each.
use crate::NamePattern;

/// Patterns by one component: by the whole of it where it has no wildcard, else by its first byte. Letter case is ignored, as
/// patterns do. A launch makes one of a thousand patterns, so there is one list and no allocation for each.
#[derive(Debug, Default)]
pub struct PatternIndex {
    /// Keys with the pattern they stand for, sorted. Two components with one key only make a candidate more.
    keyed: Vec<(u64, usize)>,
    any: Vec<usize>,
}

/// What a key was made of: two kinds never have one key by the same bytes.
#[derive(Clone, Copy)]
enum KeyKind {
    Whole = 1,
    FirstByte = 2,
}

impl PatternIndex {
    /// Indexes patterns by their last component: what [`NamePattern::matches`] compares first.
    #[must_use]
    pub fn by_last(patterns: &[NamePattern]) -> Self {
        let texts = patterns.iter().map(NamePattern::as_str);
        Self::of(texts.map(|text| text.rsplit('/').next().unwrap_or(text).as_bytes()))
    }

    /// Indexes by the components given, in order.
    #[must_use]
    pub fn of<'c>(components: impl Iterator<Item = &'c [u8]>) -> Self {
        let mut index = Self::default();
        for (at, component) in components.enumerate() {
            let wild = component.iter().any(|byte| matches!(byte, b'*' | b'?'));
            match component.first() {
                None | Some(b'*' | b'?') => index.any.push(at),
                Some(first) if wild => index.keyed.push((key(KeyKind::FirstByte, &[*first]), at)),
                Some(_) => index.keyed.push((key(KeyKind::Whole, component), at)),
            }
        }
        index.keyed.sort_unstable();
        index
    }

    /// The patterns whose component could match this name.
    pub fn candidates<'i>(&'i self, name: &[u8]) -> impl Iterator<Item = usize> + use<'i> {
        let whole = self.with_key(key(KeyKind::Whole, name));
        let first = self.with_key(key(KeyKind::FirstByte, name.get(..1).unwrap_or_default()));
        let keyed = whole.iter().chain(first).map(|(_, at)| *at);
        keyed.chain(self.any.iter().copied())
    }

    fn with_key(&self, wanted: u64) -> &[(u64, usize)] {
        let from = self.keyed.partition_point(|(key, _)| *key < wanted);
        let rest = &self.keyed[from..];
        &rest[..rest.partition_point(|(key, _)| *key == wanted)]
    }
}

/// FNV-1a over the bytes in lower case. Patterns come from the plan, so nobody gains by a collision.
fn key(kind: KeyKind, bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.iter().fold(step(OFFSET, kind as u8), |hash, byte| {
        step(hash, byte.to_ascii_lowercase())
    })
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
