//! What a preset says about an agent besides policy: its program, its credentials, and files for its fresh home.
//!
//! **Trust:** only presets have such a section, never a file of a project or a request. It is data: control looks at
//! the host by it, and every path of it is checked here to stay below the two homes.
mod filter;
mod inner;
mod pick;
pub(crate) mod read;

pub use filter::{Filtered, filtered};
pub use inner::{Inner, Switched};
pub(crate) use pick::may_name;
pub use pick::{Pick, Way, behind, choosing_variable, is_assignment, pick};

use crate::document::Secret;
use serde_json::{Map, Value};

/// The `agent` section of a preset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agent {
    /// Its name for people.
    pub title: String,
    /// What its program is called.
    pub programs: Vec<String>,
    /// Packages that hold it, as npm or PyPI call them.
    pub packages: Vec<String>,
    /// Oldest and newest version that is known to work with this preset.
    pub versions: Option<(String, String)>,
    /// Credentials that are injected, in the order of preference.
    pub credentials: Vec<Credential>,
    /// How many of them.
    pub take: Take,
    /// Files of the host's home that are copied, never shown.
    pub files: Vec<CopiedFile>,
    /// Files that are made where none was copied.
    pub make: Vec<MadeFile>,
    /// Its own sandbox, where it cannot be built inside.
    pub inner: Inner,
    /// What a person is told at every run: what is switched off inside.
    pub tells: Vec<String>,
    /// What a person should know who reads the preset.
    pub notes: Vec<String>,
}

/// How many of the credentials that exist are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// The first alone: they are ways to the same account.
    #[default]
    First,
    /// All: they are of different providers.
    All,
}

/// A credential and the places it may be kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its variable, hosts and header. `from` is the first place.
    pub secret: Secret,
    /// References, looked at in this order.
    pub from: Vec<String>,
}

/// A file, or files of one directory, copied from the host's home into the run's.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiedFile {
    /// Below the host's home; its last part may be `*.EXTENSION`.
    pub from: String,
    /// Below the run's home; a directory where `from` names several.
    pub to: String,
    /// Most bytes of one file.
    pub most: u64,
    /// Keys left out at any depth, of JSON and TOML files.
    pub without: Vec<String>,
    /// Keys set at the top, of JSON and TOML files.
    pub set: Map<String, Value>,
}

/// A file made for the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFile {
    /// Below the run's home.
    pub to: String,
    /// Its text.
    pub text: String,
}

impl Agent {
    /// What there is to say about a version; `None`: it is among those that are known to work.
    #[must_use]
    pub fn judge_version(&self, version: &str) -> Option<String> {
        let (oldest, newest) = self.versions.as_ref()?;
        let known = numbers(version)? >= numbers(oldest)? && numbers(version)? <= numbers(newest)?;
        (!known).then(|| {
            format!(
                "{} {version} is not among the versions known to work with this preset ({oldest} to {newest})",
                self.title
            )
        })
    }
}

/// `1.2.3-rc1` as numbers; `None` where it is no such version.
pub(crate) fn numbers(version: &str) -> Option<Vec<u64>> {
    let plain = version.split(['-', '+']).next()?;
    let parts: Option<Vec<u64>> = plain.split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| parts.len() <= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_outside_the_known_ones_is_said() {
        let agent = Agent {
            title: "X".to_owned(),
            versions: Some(("1.2.0".to_owned(), "1.10.3".to_owned())),
            ..Agent::default()
        };
        assert_eq!(agent.judge_version("1.9.9"), None);
        assert_eq!(agent.judge_version("1.10.3"), None);
        assert!(agent.judge_version("1.10.4").is_some());
        assert!(agent.judge_version("1.1.99").is_some());
        assert!(agent.judge_version("2.0.0-beta.1").is_some());
        assert_eq!(
            agent.judge_version("unknown"),
            None,
            "what cannot be compared is not judged"
        );
    }
}
