//! Git repositories and configuration in what a run left above a cache. Git on the host executes what they name
//! (`core.fsmonitor`, `core.sshCommand`, hooks) when somebody works in or below such a directory, so none of it is shared.
//!
//! **Trust:** names and contents are the agent's. A repository is recognised by its shape, also where the cache has one half of
//! it already and the run brings the other.
use super::place::has;
use bastle_workspace::beneath::Dir;
use bastle_workspace::git::is_git_name;
use bastle_workspace::path::TreePath;
use std::collections::BTreeMap;
use std::io::Read;

/// Names of git's own configuration outside a repository.
const SETTINGS: &[&str] = &[".gitconfig", ".gitmodules", ".gitattributes", ".gitignore_global"];
/// What git looks for to take a directory for a repository; with two of them a run can bring the third.
const SHAPE: &[&[u8]] = &[b"HEAD", b"objects", b"refs", b"commondir", b"gitdir"];
/// Bytes of a file that are looked at for sections of configuration.
const MOST_LOOKED: u64 = 64 * 1024;

/// Looks at the names of one run and of the cache it would become part of.
pub(super) struct GitShapes<'a> {
    layer: &'a Dir,
    current: Option<&'a Dir>,
    /// Directories that were looked at, and whether they are repositories.
    known: BTreeMap<Vec<u8>, bool>,
}

impl<'a> GitShapes<'a> {
    pub(super) fn new(layer: &'a Dir, current: Option<&'a Dir>) -> Self {
        Self {
            layer,
            current,
            known: BTreeMap::new(),
        }
    }

    /// Whether a path is git's, or in a directory that git would take for a repository.
    pub(super) fn is_git(&mut self, path: &TreePath) -> bool {
        let named = |part: &[u8]| {
            let lower = String::from_utf8_lossy(part).to_ascii_lowercase();
            is_git_name(part) || SETTINGS.contains(&lower.as_str())
        };
        if path.components().any(named) {
            return true;
        }
        let mut above = path.parent();
        while let Some(directory) = above {
            if self.is_repository(&directory) {
                return true;
            }
            above = directory.parent();
        }
        is_config_name(path.name()) && self.has_sections(path)
    }

    fn is_repository(&mut self, directory: &TreePath) -> bool {
        if let Some(known) = self.known.get(directory.as_bytes()) {
            return *known;
        }
        let there = |name: &&&[u8]| {
            TreePath::join(Some(directory), name).is_ok_and(|path| {
                has(self.layer, &path) || self.current.is_some_and(|current| has(current, &path))
            })
        };
        let found = SHAPE.iter().filter(there).count() >= 2;
        self.known.insert(directory.as_bytes().to_vec(), found);
        found
    }

    /// Whether a file has sections of git's configuration that execute or include something. One that cannot be read is
    /// refused elsewhere.
    fn has_sections(&self, path: &TreePath) -> bool {
        let opened = self
            .layer
            .beneath(path.parent().as_ref())
            .and_then(|dir| dir.open_regular(path.name()));
        let Ok((file, _)) = opened else { return false };
        let mut bytes = Vec::new();
        if file.take(MOST_LOOKED).read_to_end(&mut bytes).is_err() {
            return false;
        }
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        text.lines().any(|line| {
            let line = line.trim_start();
            [
                "[core",
                "[include",
                "[filter",
                "[diff",
                "[merge",
                "[alias",
                "[credential",
            ]
            .iter()
            .any(|section| line.starts_with(section))
        })
    }
}

fn is_config_name(name: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    lower == "config" || lower == "config.worktree" || lower.ends_with("gitconfig")
}
