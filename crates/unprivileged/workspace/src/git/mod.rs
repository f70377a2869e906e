//! Git without trust: the host's repository is read by our own parsers, and git itself runs only hardened.
//!
//! **Trust:** the host's repository is the user's; nothing the agent wrote is ever a repository to host-side
//! git. Every git process goes through [`HostGit`], which gives it a repository of ours.
mod branch;
mod commit;
mod config;
mod convert;
mod handover;
mod history;
mod host;
mod ignored;
#[cfg(test)]
mod layouts;
mod moved;
#[cfg(test)]
mod moved_tests;
mod objects;
mod prepare;
mod remotes;
mod repo;
#[cfg(test)]
mod tests;
mod tips;
mod unreachable;
#[cfg(test)]
mod unreachable_tests;

pub use branch::{BranchName, BranchNameError};
pub use commit::{Commit, CommitRequest, Contents, commit_to_branch};
pub use config::{Config, Identity};
pub use history::{HiddenHistory, History, hidden_history};
pub use host::{Call, HostGit, Scratch};
pub use ignored::ignored_paths;
pub use moved::{Moved, RepoState};
pub use prepare::{GitBind, Prepare, Prepared, prepare};
pub use repo::{Head, HostRepo, ObjectFormat, ObjectId};
pub use unreachable::{Unreachable, unreachable_contents};

pub(crate) use config::fuzz_config;
pub(crate) use convert::{own_attributes, settings};
pub(crate) use history::remove_from_index;
pub(crate) use host::Attributes;
pub(crate) use repo::fuzz_refs;

use bastle_contract::{Code, Fault};
use std::path::Path;

/// Whether one path component is, on some file system or to some git, the name `.git`.
///
/// Case folds on many file systems; NTFS answers to `git~1` and to trailing dots, spaces and streams; HFS+ drops
/// some invisible characters. A change with such a component is never carried to the host.
#[must_use]
pub fn is_git_name(component: &[u8]) -> bool {
    let visible: String = String::from_utf8_lossy(component)
        .chars()
        .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
        .collect();
    let stem = visible.split([':', '\\']).next().unwrap_or_default();
    let stem = stem.trim_end_matches(['.', ' ']);
    stem.eq_ignore_ascii_case(".git") || stem.eq_ignore_ascii_case("git~1")
}

fn unusable(path: &Path, why: impl Into<String>) -> Fault {
    Fault::new(
        Code::WorkspaceGit,
        format!(
            "git repository at {}",
            crate::path::visible(path.as_os_str().as_encoded_bytes())
        ),
        why,
    )
}
