//! Commits that the agent left on references and that its files do not show: other branches, tags, stashes, the heads of
//! work trees.
//!
//! **Trust:** references and objects are the agent's. They are read from recorded contents by parsers of our own and by
//! hardened git in a repository of bastle's own; its configuration, hooks, indexes and attributes are never read.
mod objects;
mod read;
mod tree;

pub use tree::RefTree;

use crate::beneath::Dir;
use crate::contents::not_kept;
use crate::faults::io_fault;
use crate::git::{BranchName, HostRepo, ObjectId};
use crate::manifest::{Content, Kind, Manifest};
use crate::path::TreePath;
use crate::place::{read_record, write_record};
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use objects::AgentObjects;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

/// Most references that are counted; of more only the names are told.
const MOST_COUNTED: usize = 500;

/// A reference with commits that are in no file of the agent's tree, in no reference of the project, and not saved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftRef {
    /// A branch by its short name; others as `tags/v1`, `stash@{0}`, `worktrees/NAME/HEAD`.
    pub name: String,
    /// What it names; none where that cannot be read.
    pub commit: Option<String>,
    /// How many commits; none where they cannot be counted.
    pub commits: Option<u64>,
}

/// A reference whose commits are elsewhere by now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    name: String,
    commit: String,
}

/// A name of a reference as one word of a shell command.
#[must_use]
pub fn word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | '+' | '@');
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

impl LeftRef {
    /// A branch name that git takes, made from this one.
    #[must_use]
    pub fn branch_name(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | '+');
        let words: String = self
            .name
            .chars()
            .map(|c| if plain(c) { c } else { '-' })
            .collect();
        let words = words.trim_end_matches('-').replace("@-", "-").replace("--", "-");
        match BranchName::new(words.clone()) {
            Ok(_) => words,
            Err(_) => "agent/left".to_owned(),
        }
    }

    /// The name as one word of a shell command: git lets a name hold quotes, semicolons and dollar signs.
    #[must_use]
    pub fn word(&self) -> String {
        word(&self.name)
    }

    /// The reference with its number of commits, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self.commits {
            Some(1) => format!("{} (1 commit)", self.name),
            Some(count) => format!("{} ({count} commits)", self.name),
            None => format!("{} (cannot be read)", self.name),
        }
    }
}

impl Workspace {
    /// References with work that is nowhere else, in a state of the tree; also for somebody who holds the copy.
    ///
    /// # Errors
    /// When the tree cannot be read, or git fails.
    pub fn left_refs_in(&self, now: &Manifest) -> Result<Vec<LeftRef>, Fault> {
        let base = self.base()?;
        let first = read::references(&base, self)?;
        let refs = read::references(now, self)?;
        let saved = self.saved_refs()?;
        let old: BTreeSet<&String> = first.all.values().collect();
        let candidates: Vec<(&String, &String)> = refs
            .all
            .iter()
            .filter(|(name, id)| !old.contains(id) && !name.starts_with("refs/remotes/"))
            // The files of the tree stand for the checked-out commit.
            .filter(|(_, id)| refs.head.as_ref() != Some(id))
            .filter(|(name, id)| {
                !saved.contains(&Saved {
                    name: read::short(name),
                    commit: (*id).clone(),
                })
            })
            .collect();
        let mut left = Vec::new();
        if !candidates.is_empty() {
            let remotes = refs
                .all
                .iter()
                .filter(|(name, _)| name.starts_with("refs/remotes/"));
            let known = old.into_iter().chain(refs.head.as_ref());
            let known: BTreeSet<&String> = known.chain(remotes.map(|(_, id)| id)).collect();
            // On a full disk they cannot be counted, and are named all the same.
            let objects = AgentObjects::open(self, now, &base, candidates[0].1).ok();
            for (at, (name, id)) in candidates.iter().enumerate() {
                let commits = match &objects {
                    Some(objects) if at < MOST_COUNTED => objects.count(id, &known)?,
                    Some(_) | None => None,
                };
                if commits != Some(0) {
                    left.push(LeftRef {
                        name: read::short(name),
                        commit: Some((*id).clone()),
                        commits,
                    });
                }
            }
        }
        left.extend(refs.unreadable.into_iter().map(|name| LeftRef {
            name,
            commit: None,
            commits: None,
        }));
        Ok(left)
    }

    /// The files of what a reference names, beside those that the copy began with.
    ///
    /// # Errors
    /// When there is no such reference, or its objects cannot be read.
    pub fn ref_tree(&self, name: &str) -> Result<RefTree, Fault> {
        let (_, now) = self.current()?;
        let base = self.base()?;
        let refs = read::references(&now, self)?;
        let found = refs
            .all
            .iter()
            .find(|(full, _)| *full == name || read::short(full) == name);
        let Some((full, id)) = found else {
            let shown: String = name.chars().take(200).collect();
            let what = format!(
                "run {} has no branch {}",
                self.run,
                crate::path::visible(shown.as_bytes())
            );
            let why = "no reference of the agent's repository has that name";
            return Err(Fault::new(Code::WorkspaceMissing, what, why)
                .help(format!("bastle diff {} --stat", self.run)));
        };
        let first = read::references(&base, self)?;
        let own = self
            .meta()?
            .agent_branch
            .map(|branch| format!("refs/heads/{branch}"));
        let began = own.and_then(|own| first.all.get(&own).cloned());
        let objects = AgentObjects::open(self, &now, &base, id)?;
        tree::read(objects, read::short(full), id, began.as_deref())
    }

    /// Records that the work of a reference is elsewhere.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn mark_ref_saved(&self, name: &str, commit: &str) -> Result<(), Fault> {
        let _held = self.hold()?;
        let mut saved = self.saved_refs()?;
        saved.insert(Saved {
            name: name.to_owned(),
            commit: commit.to_owned(),
        });
        write_record(self.place.durable(), &self.saved_path(), &saved)
    }

    /// What the references named whose work is elsewhere.
    pub(crate) fn saved_commits(&self) -> Result<BTreeSet<ObjectId>, Fault> {
        let saved = self.saved_refs()?;
        Ok(saved
            .iter()
            .filter_map(|one| ObjectId::parse(&one.commit))
            .collect())
    }

    fn saved_path(&self) -> PathBuf {
        self.path("saved-refs.json")
    }

    fn saved_refs(&self) -> Result<BTreeSet<Saved>, Fault> {
        let path = self.saved_path();
        match path.symlink_metadata() {
            Ok(_) => read_record(&path),
            Err(_) => Ok(BTreeSet::new()),
        }
    }

    /// A content of the copy's repository; checked by whoever copies it. Needs no hold of the copy.
    fn git_content(&self, digest: &Content, path: &TreePath) -> Result<File, Fault> {
        if let Ok(file) = self.store.open_object(digest) {
            return Ok(file);
        }
        self.contents().open(digest, path).or_else(|missing| {
            // A removal judges the tree without recording it, so no lender knows what is new.
            let dir = Dir::open_own(&self.tree()).and_then(|tree| tree.beneath(path.parent().as_ref()));
            let opened = dir.and_then(|dir| dir.open_regular(path.name()));
            opened.map(|(file, _)| file).map_err(|_| missing)
        })
    }

    /// A small file of the copy's repository.
    fn git_file(&self, tree: &Manifest, path: &TreePath, most: u64) -> Result<Option<Vec<u8>>, Fault> {
        let Some(Kind::File { digest, size, .. }) = tree.get(path) else {
            return Ok(None);
        };
        if *size > most {
            return Ok(None);
        }
        let file = self.git_content(digest, path)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, most), &mut bytes)
            .map_err(|error| io_fault("read", path.as_path(), error))?;
        if Content::of(&bytes) != *digest {
            return Err(not_kept(std::slice::from_ref(path)));
        }
        Ok(Some(bytes))
    }

    fn host_repo(&self) -> Option<HostRepo> {
        HostRepo::open(&self.source).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_names_what_the_agent_named_is_one_word_and_a_branch_that_git_takes() {
        for name in [
            "x';reboot;'y",
            "a$(id)",
            "stash@{0}",
            "-x",
            "a`b`",
            "\u{e9}",
            "feature/one",
            "",
        ] {
            let left = LeftRef {
                name: name.to_owned(),
                commit: None,
                commits: None,
            };
            let script = format!("printf %s {}", left.word());
            let said = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), name, "{script}");
            let branch = left.branch_name();
            assert!(BranchName::new(branch.clone()).is_ok(), "{branch}");
            assert!(
                branch
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/_-.+".contains(&b))
            );
        }
    }
}
