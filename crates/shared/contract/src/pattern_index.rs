//! Many patterns, of which few concern a name: found by one component of each.
use crate::NamePattern;

/// Patterns by one component: by the whole of it where it has no wildcard, else by its first byte. Letter case is ignored, as
/// patterns do. A launch makes one of a thousand patterns, so it is a chained hash table in two arrays: no allocation for
/// each pattern, and nothing is sorted.
#[derive(Debug, Default)]
pub struct PatternIndex {
    /// The newest entry of each chain; as many as a power of two.
    heads: Vec<u32>,
    /// Keys with the pattern they stand for. Two components with one key only make a candidate more.
    entries: Vec<Entry>,
    any: Vec<usize>,
}

/// A pattern with a key.
#[derive(Debug)]
struct Entry {
    key: u64,
    pattern: u32,
    /// The next of its chain, or [`END`].
    next: u32,
}

/// The end of a chain.
const END: u32 = u32::MAX;

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
        index.entries.reserve(components.size_hint().0);
        for (at, component) in components.enumerate() {
            let wild = component.iter().any(|byte| matches!(byte, b'*' | b'?'));
            let key = match component.first() {
                None | Some(b'*' | b'?') => None,
                Some(first) if wild => Some(key(KeyKind::FirstByte, &[*first])),
                Some(_) => Some(key(KeyKind::Whole, component)),
            };
            match (key, u32::try_from(at)) {
                (Some(key), Ok(pattern)) => index.entries.push(Entry {
                    key,
                    pattern,
                    next: END,
                }),
                (None, _) | (_, Err(_)) => index.any.push(at),
            }
        }
        index.chain();
        index
    }

    fn chain(&mut self) {
        self.heads = vec![END; self.entries.len().next_power_of_two()];
        for at in 0..self.entries.len() {
            let slot = self.slot(self.entries[at].key);
            self.entries[at].next = self.heads[slot];
            // As many entries as a `u32` counts: each has a pattern number of that type.
            self.heads[slot] = u32::try_from(at).unwrap_or(END);
        }
    }

    fn slot(&self, key: u64) -> usize {
        // The upper half: the lowest bits of FNV-1a depend on few bits of the text.
        (key >> 32) as usize & (self.heads.len() - 1)
    }

    /// The patterns whose component could match this name.
    pub fn candidates<'i>(&'i self, name: &[u8]) -> impl Iterator<Item = usize> + use<'i> {
        let whole = self.with_key(key(KeyKind::Whole, name));
        let first = self.with_key(key(KeyKind::FirstByte, name.get(..1).unwrap_or_default()));
        whole.chain(first).chain(self.any.iter().copied())
    }

    fn with_key(&self, wanted: u64) -> impl Iterator<Item = usize> + use<'_> {
        let mut at = match self.entries.is_empty() {
            true => END,
            false => self.heads[self.slot(wanted)],
        };
        std::iter::from_fn(move || {
            loop {
                let entry = self.entries.get(at as usize)?;
                at = entry.next;
                if entry.key == wanted {
                    return Some(entry.pattern as usize);
                }
            }
        })
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
