//! The catalogue of names that the host executes, indexed so that only changed paths cost anything.
//!
//! **Trust:** entries come from the policy crate as values; names are folded before they are looked up.
use bastle_contract::HostExecuted;
use std::collections::HashMap;

/// The entries and where to look for each.
#[derive(Clone, Debug)]
pub(super) struct Catalogue {
    entries: &'static [HostExecuted],
    /// By the last component of the pattern, where that is a literal.
    by_name: HashMap<Vec<u8>, Vec<usize>>,
    /// By the directory that a pattern ending in `/**` names, where that is a literal.
    by_directory: HashMap<Vec<u8>, Vec<usize>>,
    /// The rest.
    others: Vec<usize>,
}

impl Catalogue {
    pub(super) fn new(entries: &'static [HostExecuted]) -> Self {
        let mut catalogue = Self {
            entries,
            by_name: HashMap::new(),
            by_directory: HashMap::new(),
            others: Vec::new(),
        };
        for (at, entry) in entries.iter().enumerate() {
            let pattern = entry.pattern.as_str().to_ascii_lowercase();
            let literal = |name: &str| !name.contains(['*', '?']);
            let name = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
            match pattern.strip_suffix("/**") {
                Some(directory) if literal(&name(directory)) => catalogue
                    .by_directory
                    .entry(name(directory).into_bytes())
                    .or_default()
                    .push(at),
                None if literal(&name(&pattern)) => catalogue
                    .by_name
                    .entry(name(&pattern).into_bytes())
                    .or_default()
                    .push(at),
                Some(_) | None => catalogue.others.push(at),
            }
        }
        catalogue
    }

    /// The entries that name a folded path, the most specific pattern first.
    pub(super) fn find(&self, folded: &[u8]) -> Vec<&'static HostExecuted> {
        let last = folded.rsplit(|byte| *byte == b'/').next().unwrap_or(folded);
        let named = self.by_name.get(last).into_iter().flatten();
        let below = folded
            .split(|byte| *byte == b'/')
            .filter_map(|part| self.by_directory.get(part))
            .flatten();
        let mut found: Vec<usize> = named
            .chain(below)
            .chain(&self.others)
            .copied()
            .filter(|at| self.entries[*at].pattern.matches(folded))
            .collect();
        found.sort_unstable();
        found.dedup();
        let mut found: Vec<&HostExecuted> = found.into_iter().map(|at| &self.entries[at]).collect();
        found.sort_by_key(|entry| std::cmp::Reverse(entry.pattern.as_str().len()));
        found
    }
}
