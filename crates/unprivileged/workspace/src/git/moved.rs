//! What a repository would check out or commit, before and after an agent worked in it: references, heads and indexes.
//!
//! **Trust:** before, the repository is the user's; afterwards the agent wrote in it. It is read by our own parsers and by
//! hardened git in a repository of ours, which takes trees and an index from it and nothing else.
use super::history::raw_paths;
use super::tips::{self, Named};
use super::{Call, HostGit, HostRepo, ObjectId, Scratch};
use bastle_contract::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// References that are compared; a run that moves more is told so.
const MOST_MOVED: usize = 64;

/// The state of a repository as far as git checks out and commits by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoState {
    /// What the checked-out branch, or the detached head, names.
    head: Option<ObjectId>,
    refs: BTreeMap<String, ObjectId>,
    indexes: BTreeMap<PathBuf, Option<Stamp>>,
}

/// What no program sets at will: a file with another content has another time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok()?;
        Some(Self {
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// Paths that differ from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Where each differs: in `index`, or in what a reference names.
    pub paths: BTreeMap<Vec<u8>, BTreeSet<String>>,
    /// What could not be compared, with the reason.
    pub unclear: Vec<String>,
}

impl RepoState {
    /// Reads it; `None` where the project is no repository.
    ///
    /// # Errors
    /// When there is one that cannot be used safely.
    pub fn read(source: &Path) -> Result<Option<Self>, Fault> {
        let Some(repo) = HostRepo::open(source)? else {
            return Ok(None);
        };
        let Named { refs, indexes } = tips::named(&repo)?;
        let indexes = indexes.into_iter().map(|path| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        });
        Ok(Some(Self {
            head: repo.head.commit().cloned(),
            refs,
            indexes: indexes.collect(),
        }))
    }

    /// Every path that an index, or a reference that moved, has otherwise than the start. Costs one look at the references
    /// where nothing moved.
    ///
    /// # Errors
    /// When the repository cannot be read any more.
    pub fn moved(
        &self,
        git: &HostGit,
        source: &Path,
        scratch: &Path,
        limit: Duration,
    ) -> Result<Moved, Fault> {
        let after = Self::read(source)?;
        let Some(after) = after.filter(|after| after != self) else {
            return Ok(Moved::default());
        };
        let Some(repo) = HostRepo::open(source)? else {
            return Ok(Moved::default());
        };
        let scratch = Scratch::new(scratch, repo.format, &[repo.objects()])?;
        let empty = repo.format.empty_tree();
        let base = self.head.as_ref().map_or(empty, ObjectId::as_str);
        let mut moved = Moved::default();
        let mut compare = |place: String, arguments: Vec<&str>, index: Option<&Path>| {
            let variables = index.map(|file| ("GIT_INDEX_FILE", file.to_owned()));
            let call = Call {
                arguments,
                variables: variables.into_iter().collect(),
                limit: Some(limit),
                ..Call::default()
            };
            match git.run(&scratch, call) {
                Ok(listed) => {
                    for path in raw_paths(&listed) {
                        moved.paths.entry(path).or_default().insert(place.clone());
                    }
                }
                Err(fault) => moved.unclear.push(format!("{place}: {fault}")),
            }
        };
        for (index, stamp) in &after.indexes {
            if stamp.is_some() && self.indexes.get(index) != Some(stamp) {
                let arguments = vec!["diff-index", "--cached", "--raw", "-z", "--no-renames", base];
                compare("index".to_owned(), arguments, Some(index.as_path()));
            }
        }
        let other = after
            .refs
            .iter()
            .filter(|(name, id)| self.refs.get(*name) != Some(*id));
        let mut other: Vec<(&str, &str, &ObjectId)> = other
            .map(|(name, id)| {
                (
                    name.as_str(),
                    self.refs.get(name).map_or(base, ObjectId::as_str),
                    id,
                )
            })
            .collect();
        if let Some(head) = after
            .head
            .as_ref()
            .filter(|head| self.head.as_ref() != Some(head))
        {
            other.insert(0, ("HEAD", base, head));
        }
        for (name, base, id) in other.iter().take(MOST_MOVED) {
            let arguments = vec![
                "diff-tree",
                "-r",
                "--raw",
                "-z",
                "--no-renames",
                base,
                id.as_str(),
            ];
            compare((*name).to_owned(), arguments, None);
        }
        if other.len() > MOST_MOVED {
            let more = other.len() - MOST_MOVED;
            moved.unclear.push(format!("{more} more references that moved"));
        }
        Ok(moved)
    }
}
