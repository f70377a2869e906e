//! A tree that the agent works on in place, listed before and after: names, sizes, times. One that is too large to be
//! listed before a start is looked through at the end for what the kernel says was changed since.
//!
//! **Trust:** the second look is at a tree that the agent had in its hands: no link is followed, nothing waits, only what
//! changed is read and kept, up to a bound. The agent can set when a file was modified, not when it was changed.
use super::{Changes, inside};
use bastle_contract::{ChangeSight, ChangeSort, FileChange, FileState};
use bastle_workspace::beneath::Dir;
use bastle_workspace::path::TreePath;
use rustix::fs::{FileType, Stat};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Names that are listed before a start: some tens of megabytes and about a second.
const MOST_BEFORE: usize = 200_000;
/// Names that are looked at after it.
const MOST_AFTER: usize = 5_000_000;
/// Changes of one sort that are kept; more are counted.
const MOST_KEPT: usize = 100_000;
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
    known: Known,
}

/// What is known of it.
#[derive(Debug)]
enum Known {
    /// Every name.
    Names(BTreeMap<TreePath, Look>),
    /// It has too many: the kernel's clock when the run began, as it stamps files.
    Since((i64, i64)),
    /// Nothing, and why.
    Nothing(String),
}

/// Whether to go on.
enum Walk {
    On,
    Enough,
}

impl Listing {
    /// Lists the tree, or remembers why it cannot.
    pub(crate) fn take(root: &Path) -> Self {
        Self::take_up_to(root, MOST_BEFORE)
    }

    pub(super) fn take_up_to(root: &Path, most: usize) -> Self {
        // Before the listing, so that nothing of the agent's is older.
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let mut names = BTreeMap::new();
        let listed = Dir::open(root).and_then(|dir| {
            walk(&dir, &mut |path, look| {
                names.insert(path, look);
                if names.len() > most {
                    Walk::Enough
                } else {
                    Walk::On
                }
            })
        });
        let known = match listed {
            Ok(Walk::On) => Known::Names(names),
            Ok(Walk::Enough) => Known::Since((clock.tv_sec, clock.tv_nsec)),
            Err(error) => Known::Nothing(error.to_string()),
        };
        Self {
            root: root.to_path_buf(),
            known,
        }
    }

    /// What is different now; the tree is shown inside as `shown`.
    pub(crate) fn compare(self, shown: &str) -> Changes {
        let (sight, gone, since) = match self.known {
            Known::Names(names) => (ChangeSight::Listing, names, None),
            Known::Since(since) => (ChangeSight::Times, BTreeMap::new(), Some(since)),
            Known::Nothing(why) => return Changes::unseen(why),
        };
        let mut finding = Finding {
            gone,
            since,
            found: Vec::new(),
            kept: [0; 2],
            more: 0,
        };
        let mut count = 0_usize;
        let walked = Dir::open(&self.root).and_then(|dir| {
            let end = walk(&dir, &mut |path, look| {
                count += 1;
                finding.look(path, look);
                if count > MOST_AFTER {
                    Walk::Enough
                } else {
                    Walk::On
                }
            })?;
            Ok((dir, end))
        });
        match walked {
            Ok((dir, Walk::On)) => finding.told(&dir, sight, shown),
            Ok((_, Walk::Enough)) => {
                Changes::unseen(format!("the workspace has more than {MOST_AFTER} names"))
            }
            Err(error) => Changes::unseen(error.to_string()),
        }
    }
}

/// A tree is being compared.
struct Finding {
    /// Names of the listing before that were not met yet.
    gone: BTreeMap<TreePath, Look>,
    /// Without such a listing: what was changed since counts.
    since: Option<(i64, i64)>,
    found: Vec<(TreePath, ChangeSort, Option<Look>, Look)>,
    /// How many are kept: created, changed.
    kept: [usize; 2],
    more: u64,
}

impl Finding {
    fn look(&mut self, path: TreePath, look: Look) {
        let before = self.gone.remove(&path);
        let sort = match (&before, self.since) {
            (Some(before), _) if before.differs(&look) => ChangeSort::Changed,
            (Some(_), _) => return,
            (None, None) => ChangeSort::Created,
            (None, Some(since)) if look.changed >= since => ChangeSort::Changed,
            (None, Some(_)) => return,
        };
        // Each sort has its own room: no number of new names pushes out what became of old ones.
        let kept = match sort {
            ChangeSort::Created => &mut self.kept[0],
            ChangeSort::Changed | ChangeSort::Deleted => &mut self.kept[1],
        };
        if *kept == MOST_KEPT {
            self.more += 1;
            return;
        }
        *kept += 1;
        self.found.push((path, sort, before, look));
    }

    fn told(self, dir: &Dir, sight: ChangeSight, shown: &str) -> Changes {
        let mut left = MOST_READ_IN_ALL;
        let mut list = Vec::with_capacity(self.found.len() + self.gone.len());
        for (path, sort, before, look) in self.found {
            let change = FileChange {
                sort,
                before: before.map(|before| before.state(None)),
                after: Some(look.state(digest(dir, &path, &look, &mut left))),
            };
            list.push((inside(shown, path.as_bytes()), change));
        }
        for (path, look) in self.gone {
            let change = FileChange {
                sort: ChangeSort::Deleted,
                before: Some(look.state(None)),
                after: None,
            };
            list.push((inside(shown, path.as_bytes()), change));
        }
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        Changes {
            sight,
            list,
            more: self.more,
        }
    }
}

/// Shows every name of the tree but git's own objects, whose names say nothing to anybody.
fn walk(root: &Dir, show: &mut dyn FnMut(TreePath, Look) -> Walk) -> io::Result<Walk> {
    let mut waiting: Vec<Option<TreePath>> = vec![None];
    while let Some(directory) = waiting.pop() {
        let dir = root.beneath(directory.as_ref());
        let listed = match dir.and_then(|dir| dir.list().map(|names| (dir, names))) {
            Ok(listed) => listed,
            Err(error) if directory.is_none() => return Err(error),
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
            let walked = path.as_bytes() != b".git/objects" && path.depth() < MOST_DEPTH;
            if look.kind == FileType::Directory && walked {
                waiting.push(Some(path.clone()));
            }
            if let Walk::Enough = show(path, look) {
                return Ok(Walk::Enough);
            }
        }
    }
    Ok(Walk::On)
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
        // One that grows while it is read is read no further than it was listed.
        io::copy(&mut file.take(look.size), &mut hasher)?;
        Ok(hasher.finalize().to_hex().to_string())
    };
    read().ok()
}
