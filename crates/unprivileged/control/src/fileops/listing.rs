//! A tree that the agent works on in place, listed before and after: names, sizes, times.
//!
//! **Trust:** the second listing is of a tree that the agent had in its hands: no link is followed, nothing waits, and
//! only what changed is read, up to a bound.
use super::{Changes, inside};
use bastle_contract::{ChangeSight, ChangeSort, FileChange, FileState};
use bastle_workspace::beneath::Dir;
use bastle_workspace::path::TreePath;
use rustix::fs::{FileType, Stat};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Names that are listed before a start: more would delay it noticeably.
const MOST_BEFORE: usize = 20_000;
/// Names that are listed after it.
const MOST_AFTER: usize = 200_000;
/// Deepest nesting that is walked.
const MOST_DEPTH: usize = 100;
/// Largest file that is read for its digest, and how much is read in all.
const MOST_READ: u64 = 64 << 20;
const MOST_READ_IN_ALL: u64 = 512 << 20;

/// What a listing knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    kind: FileType,
    size: u64,
    inode: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    fn of(stat: &Stat) -> Self {
        let nanoseconds = |value| i64::try_from(value).unwrap_or(0);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            mode: stat.st_mode,
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// A directory is another whenever a name in it is: that is told by the name.
    fn differs(&self, other: &Self) -> bool {
        if self.kind == FileType::Directory && other.kind == FileType::Directory {
            return false;
        }
        self != other
    }

    fn state(&self, digest: Option<String>) -> FileState {
        let (word, size) = match self.kind {
            FileType::RegularFile => ("file", Some(self.size)),
            FileType::Directory => ("dir", None),
            FileType::Symlink => ("symlink", None),
            FileType::Fifo => ("fifo", None),
            FileType::Socket => ("socket", None),
            FileType::CharacterDevice | FileType::BlockDevice => ("device", None),
            FileType::Unknown => ("other", None),
        };
        FileState {
            kind: word.to_owned(),
            size,
            digest,
        }
    }
}

/// A tree before a run.
#[derive(Debug)]
pub(crate) struct Listing {
    root: PathBuf,
    names: Result<BTreeMap<TreePath, Look>, String>,
}

impl Listing {
    /// Lists the tree, or remembers why it cannot.
    pub(crate) fn take(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            names: Dir::open(root)
                .map_err(|error| error.to_string())
                .and_then(|dir| names(&dir, MOST_BEFORE)),
        }
    }

    /// What is different now; the tree is shown inside as `shown`.
    pub(crate) fn compare(self, shown: &str) -> Changes {
        let after = Dir::open(&self.root).map_err(|error| error.to_string());
        let (before, dir) = match (self.names, after) {
            (Ok(before), Ok(dir)) => (before, dir),
            (Err(why), _) | (_, Err(why)) => return Changes::unseen(why),
        };
        let after = match names(&dir, MOST_AFTER) {
            Ok(after) => after,
            Err(why) => return Changes::unseen(why),
        };
        let mut left = MOST_READ_IN_ALL;
        let mut list = Vec::new();
        for (path, look) in &after {
            let known = before.get(path);
            if known.is_some_and(|known| !known.differs(look)) {
                continue;
            }
            let sort = if known.is_some() {
                ChangeSort::Changed
            } else {
                ChangeSort::Created
            };
            let change = FileChange {
                sort,
                before: known.map(|known| known.state(None)),
                after: Some(look.state(digest(&dir, path, look, &mut left))),
            };
            list.push((inside(shown, path.as_bytes()), change));
        }
        for (path, look) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
            let change = FileChange {
                sort: ChangeSort::Deleted,
                before: Some(look.state(None)),
                after: None,
            };
            list.push((inside(shown, path.as_bytes()), change));
        }
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        Changes {
            sight: ChangeSight::Listing,
            list,
        }
    }
}

/// Every name of the tree but git's own objects, whose names say nothing to anybody.
fn names(root: &Dir, most: usize) -> Result<BTreeMap<TreePath, Look>, String> {
    let mut found = BTreeMap::new();
    let mut waiting: Vec<Option<TreePath>> = vec![None];
    while let Some(directory) = waiting.pop() {
        let dir = root.beneath(directory.as_ref());
        let listed = match dir.and_then(|dir| dir.list().map(|names| (dir, names))) {
            Ok(listed) => listed,
            Err(error) if directory.is_none() => return Err(error.to_string()),
            // Locked, or another thing by now.
            Err(_) => continue,
        };
        for name in listed.1 {
            let Ok(path) = TreePath::join(directory.as_ref(), &name.name) else {
                continue;
            };
            let Ok(stat) = listed.0.stat(&name.name) else {
                continue;
            };
            let look = Look::of(&stat);
            if found.len() >= most {
                return Err(format!("the workspace has more than {most} names"));
            }
            let walked = path.as_bytes() != b".git/objects" && path.depth() < MOST_DEPTH;
            if look.kind == FileType::Directory && walked {
                waiting.push(Some(path.clone()));
            }
            found.insert(path, look);
        }
    }
    Ok(found)
}

/// Of a file that changed; `None` where it is none, is too large, or cannot be read.
fn digest(root: &Dir, path: &TreePath, look: &Look, left: &mut u64) -> Option<String> {
    if look.kind != FileType::RegularFile || look.size > MOST_READ || look.size > *left {
        return None;
    }
    *left -= look.size;
    let read = || -> io::Result<String> {
        let dir = root.beneath(path.parent().as_ref())?;
        let (file, _) = dir.open_regular(path.name())?;
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut file.take(MOST_READ), &mut hasher)?;
        Ok(hasher.finalize().to_hex().to_string())
    };
    read().ok()
}
