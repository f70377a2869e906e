//! Named caches of tools: where a tool looks for its cache inside, and which of its files may be shared.
//!
//! **Trust:** data of this binary; a policy names entries of it and cannot add any.
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The home directory inside.
pub const HOME: &str = "/home/agent";

/// One tool's cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Its name.
    pub name: String,
    /// Variables that lead the tool to it; `~/` is the home directory inside.
    pub env: BTreeMap<String, String>,
    /// Directories that are the cache, below the home directory inside.
    pub places: Vec<String>,
    /// Settings beside the cache that a tool would miss where its variable led to the host's directory before.
    #[serde(default)]
    pub settings: Vec<String>,
    /// What of it may be shared; everything else is made anew by each run.
    pub merge: Vec<Shared>,
}

/// Files that may be shared.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Below this directory, relative to the home directory inside.
    pub below: String,
    /// How a file's content is checked.
    #[serde(default)]
    pub check: Check,
}

/// How a file's content is checked before it is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Not at all: only a new name is taken.
    #[default]
    None,
    /// `NAME-VERSION.crate` has the SHA-256 that the project's own lock file states.
    CargoLock,
    /// The path spells the SHA-512 of the content.
    Sha512Path,
}

/// What becomes of a run's layer above a cache when the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMerge {
    /// It is kept until a person merges it.
    Never,
    /// Files that are new and pass their check are merged at once.
    NewFiles,
}

static KNOWN: LazyLock<Vec<Cache>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../caches.json")).unwrap_or_default());

/// Every cache there is.
#[must_use]
pub fn all() -> &'static [Cache] {
    &KNOWN
}

/// The cache of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Cache> {
    KNOWN.iter().find(|cache| cache.name == name)
}

/// A path of the table inside the sandbox.
#[must_use]
pub fn inside(path: &str) -> String {
    path.strip_prefix("~/")
        .map_or_else(|| path.to_owned(), |rest| format!("{HOME}/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::{AbsPath, EnvName};

    #[test]
    fn the_table_is_readable_and_every_entry_stays_in_the_private_home() {
        assert!(all().len() >= 6);
        for cache in all() {
            assert!(!cache.places.is_empty() && !cache.merge.is_empty(), "{cache:?}");
            for place in &cache.places {
                let rest = place.strip_prefix("~/").unwrap();
                assert!(
                    rest.split('/').all(|part| !part.is_empty() && part != ".."),
                    "{place}"
                );
                AbsPath::new(inside(place)).unwrap();
            }
            for shared in &cache.merge {
                let home = |place: &String| place.strip_prefix("~/").map(str::to_owned);
                let held = cache.places.iter().filter_map(home);
                assert!(
                    held.into_iter()
                        .any(|place| shared.below == place || shared.below.starts_with(&format!("{place}/"))),
                    "{shared:?}"
                );
            }
            for name in cache.env.keys() {
                EnvName::try_from(name.clone()).unwrap();
            }
        }
    }
}
