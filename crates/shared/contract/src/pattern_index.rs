//! Many patterns, of which few concern a name: found by one component of each.
use crate::NamePattern;
use std::borrow::Cow;

/// Patterns by one component: by the whole of it where it has no wildcard, else by its first byte. Letter case is ignored, as
/// patterns do. A launch needs one of a thousand patterns, so it is a chained hash table in two arrays: no allocation for
/// each pattern, nothing is sorted, and that of constants is a constant.
#[derive(Debug, Default)]
pub struct PatternIndex {
    /// The newest entry of each chain.
    heads: Cow<'static, [u32]>,
    /// An entry for each pattern, in order.
    entries: Cow<'static, [Entry]>,
}

/// A pattern in the index. Its number is its place.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Two components with one key only make a candidate more.
    key: u64,
    /// The next of its chain, or [`END`].
    next: u32,
}

/// The end of a chain.
const END: u32 = u32::MAX;
const NO_ENTRY: Entry = Entry { key: 0, next: END };

/// What a key was made of: two kinds never have one key by the same bytes.
#[derive(Clone, Copy)]
enum KeyKind {
    Whole = 1,
    FirstByte = 2,
    /// The component can be any name.
    Any = 3,
}

/// By which component.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// The last: what [`NamePattern::matches`] compares first.
    Last,
    /// The first that is not `**`.
    First,
}

/// An index of constants.
pub(crate) struct Table<const N: usize> {
    heads: [u32; N],
    entries: [Entry; N],
}

impl<const N: usize> Table<N> {
    pub(crate) const fn of(texts: &[&str; N], part: Part) -> Self {
        let mut table = Self {
            heads: [END; N],
            entries: [NO_ENTRY; N],
        };
        let mut at = 0;
        while at < N {
            table.entries[at].key = component_key(component(texts[at].as_bytes(), part));
            at += 1;
        }
        chain(&mut table.heads, &mut table.entries);
        table
    }

    pub(crate) fn index(&'static self) -> PatternIndex {
        PatternIndex {
            heads: Cow::Borrowed(&self.heads),
            entries: Cow::Borrowed(&self.entries),
        }
    }
}

impl PatternIndex {
    /// Indexes patterns by their last component: what [`NamePattern::matches`] compares first.
    #[must_use]
    pub fn by_last(patterns: &[NamePattern]) -> Self {
        let texts = patterns.iter().map(|pattern| pattern.as_str().as_bytes());
        Self::of(texts.map(|text| component(text, Part::Last)))
    }

    /// Indexes patterns by their first component that is not `**`.
    #[must_use]
    pub fn by_first<'p>(patterns: impl Iterator<Item = &'p NamePattern>) -> Self {
        Self::of(patterns.map(|pattern| component(pattern.as_str().as_bytes(), Part::First)))
    }

    /// Indexes by the components given, in order.
    #[must_use]
    pub fn of<'c>(components: impl Iterator<Item = &'c [u8]>) -> Self {
        let entry = |component| Entry {
            key: component_key(component),
            next: END,
        };
        let mut entries: Vec<Entry> = components.map(entry).collect();
        let mut heads = vec![END; entries.len()];
        chain(&mut heads, &mut entries);
        Self {
            heads: Cow::Owned(heads),
            entries: Cow::Owned(entries),
        }
    }

    /// The patterns whose component could match this name.
    pub fn candidates<'i>(&'i self, name: &[u8]) -> impl Iterator<Item = usize> + use<'i> {
        let whole = self.with_key(key(KeyKind::Whole, name));
        let first = self.with_key(key(KeyKind::FirstByte, name.split_at(name.len().min(1)).0));
        whole.chain(first).chain(self.with_key(key(KeyKind::Any, b"")))
    }

    fn with_key(&self, wanted: u64) -> impl Iterator<Item = usize> + use<'_> {
        let mut next = match self.heads.len() {
            0 => END,
            slots => self.heads[slot(wanted, slots)],
        };
        std::iter::from_fn(move || {
            loop {
                let at = next as usize;
                let entry = self.entries.get(at)?;
                next = entry.next;
                if entry.key == wanted {
                    return Some(at);
                }
            }
        })
    }
}

const fn chain(heads: &mut [u32], entries: &mut [Entry]) {
    let slots = heads.len();
    let mut at = 0;
    // As many as a `u32` counts: what is beyond would be found by no name, and a plan is not that long.
    assert!(entries.len() < END as usize, "too many patterns for an index");
    while at < entries.len() {
        let slot = slot(entries[at].key, slots);
        entries[at].next = heads[slot];
        heads[slot] = at as u32;
        at += 1;
    }
}

const fn slot(key: u64, slots: usize) -> usize {
    // The upper half: the lowest bits of FNV-1a depend on few bits of the text.
    (key >> 32) as usize % slots
}

const fn component(text: &[u8], part: Part) -> &[u8] {
    match part {
        Part::Last => {
            let mut start = text.len();
            while start > 0 && text[start - 1] != b'/' {
                start -= 1;
            }
            text.split_at(start).1
        }
        Part::First => {
            let mut rest = text;
            while let [b'*', b'*', b'/', below @ ..] = rest {
                rest = below;
            }
            let mut end = 0;
            while end < rest.len() && rest[end] != b'/' {
                end += 1;
            }
            rest.split_at(end).0
        }
    }
}

const fn component_key(component: &[u8]) -> u64 {
    let mut wild = false;
    let mut at = 0;
    while at < component.len() {
        wild |= matches!(component[at], b'*' | b'?');
        at += 1;
    }
    match component {
        [] | [b'*' | b'?', ..] => key(KeyKind::Any, b""),
        [first, ..] if wild => key(KeyKind::FirstByte, &[*first]),
        _ => key(KeyKind::Whole, component),
    }
}

/// FNV-1a over the bytes in lower case. Patterns come from the plan, so nobody gains by a collision.
const fn key(kind: KeyKind, bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = (OFFSET ^ kind as u64).wrapping_mul(PRIME);
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at].to_ascii_lowercase() as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
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
