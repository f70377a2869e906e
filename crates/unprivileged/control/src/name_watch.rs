//! Names of the host's own trees that are covered or protected by a mount: told when the host replaces one.
//!
//! A rename over a name, or its removal, takes every mount off it (`detach_mounts` in the kernel), so a saved `.env` or a
//! changed `.git/config` would be open to the agent from then on. inotify tells of it, and the relay freezes the run and
//! has the name covered again. Watched are the directories of such names, those above them up to the root of the tree, then
//! every other directory of the tree up to a limit, and directories that come into being in these.
//!
//! **Trust:** the agent changes names in the same directories. Every name is judged by the patterns of the plan, and a flood
//! of events costs a look at each; one that overflows the kernel's queue has every cover looked at again.
use crate::fileops::leave;
use bastle_contract::grants::{Cover, CoverKind, GRANTS};
use bastle_contract::{AbsPath, Access, Code, Fault, GuardedTree, LaunchPlan, MountKind, TreeKind};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Directories of covers, without which no run starts, at most.
const MOST: usize = 4096;
/// All directories that are watched, at most: each costs the kernel about a kilobyte, and a start some microseconds.
const MOST_ALL: usize = 16_384;
/// The share of `fs.inotify.max_user_watches` that one run takes: editors of the same user need some, too.
const SHARE: usize = 4;
/// How much the kernel's clock for times of files may lag behind.
const CLOCK_STEP: Duration = Duration::from_millis(50);
/// Names looked at in a directory that came into being.
const MOST_NAMES: usize = 20_000;
/// Bytes of events read at a time.
const BUFFER: usize = 16 << 10;

/// What the kernel is asked to tell.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

/// The watch of one run.
pub(crate) struct NameWatch {
    inotify: OwnedFd,
    trees: Vec<GuardedTree>,
    /// Covers of the plan, by place.
    covers: BTreeMap<AbsPath, CoverKind>,
    directories: BTreeMap<i32, AbsPath>,
    /// Found in directories that changed before they were watched.
    waiting: BTreeSet<AbsPath>,
    /// Directories that are watched at most.
    most: usize,
}

/// Directories that one run may watch.
pub(crate) fn most_watched() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let all = text.ok().and_then(|text| text.trim().parse::<usize>().ok());
    all.map_or(MOST, |all| all / SHARE).clamp(MOST, MOST_ALL)
}

impl NameWatch {
    /// Begins to watch what a plan holds by mounts in trees that the host works in; `None` where there is nothing of it.
    pub(crate) fn begin(plan: &LaunchPlan) -> Result<Option<Self>, Fault> {
        let live = |tree: &&GuardedTree| tree.kind == TreeKind::Live && tree.root.as_str() != GRANTS;
        let trees: Vec<GuardedTree> = plan.guard.trees.iter().filter(live).cloned().collect();
        if trees.is_empty() {
            return Ok(None);
        }
        let within = |at: &AbsPath| {
            trees
                .iter()
                .any(|tree| at.is_within(&tree.root) && *at != tree.root)
        };
        let kind = |kind: &MountKind| match kind {
            MountKind::Mask => Some(CoverKind::Hidden),
            MountKind::Bind {
                access: Access::ReadOnly,
                ..
            } => Some(CoverKind::ReadOnly),
            _ => None,
        };
        let covers = plan
            .mounts
            .iter()
            .filter(|mount| within(&mount.at))
            .filter_map(|mount| Some((mount.at.clone(), kind(&mount.kind)?)))
            .collect();
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?;
        let mut watch = Self {
            inotify,
            trees,
            covers,
            directories: BTreeMap::new(),
            waiting: BTreeSet::new(),
            most: most_watched(),
        };
        let wanted = watch.wanted();
        if wanted.len() > MOST {
            return Err(failed(Errno::NOSPC));
        }
        for directory in wanted {
            watch.add(&directory)?;
        }
        Ok(Some(watch))
    }

    /// Watches the rest of the directories that were searched at `since`, those near the root first; gives how many are not
    /// watched. The sandbox is built meanwhile.
    pub(crate) fn watch_rest(
        &mut self,
        mut directories: Vec<AbsPath>,
        since: SystemTime,
    ) -> Result<usize, Fault> {
        let known: BTreeSet<AbsPath> = self.directories.values().cloned().collect();
        let mine = |at: &AbsPath| self.trees.iter().any(|tree| at.is_within(&tree.root));
        directories.retain(|at| mine(at) && !known.contains(at));
        directories.sort_by_key(|at| at.as_str().bytes().filter(|byte| *byte == b'/').count());
        let since = since.checked_sub(CLOCK_STEP).unwrap_or(SystemTime::UNIX_EPOCH);
        let (total, most) = (directories.len(), self.most);
        let (mut found, mut left) = (BTreeSet::new(), 0);
        for (done, directory) in directories.iter().enumerate() {
            if self.directories.len() >= most {
                left = total - done;
                break;
            }
            match add_watch(&self.inotify, directory.as_path(), CHANGES) {
                Ok(number) => drop(self.directories.insert(number, directory.clone())),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => continue,
                // Other programs of the user have the rest.
                Err(Errno::NOSPC) => {
                    left = total - done;
                    break;
                }
                Err(error) => return Err(failed(error)),
            }
            // Changed between the look-up and now: no event tells of that.
            let meta = directory.as_path().symlink_metadata();
            if meta
                .and_then(|meta| meta.modified())
                .is_ok_and(|changed| changed >= since)
            {
                self.look_into(directory, &mut found)?;
            }
        }
        found.retain(|path| !self.covers.contains_key(path));
        self.waiting = found;
        Ok(left)
    }

    /// Whether there is something to take without an event.
    pub(crate) fn is_due(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends it without waiting: the last close of an instance waits for SRCU grace periods in `fsnotify_destroy_group`, up to
    /// 20 ms, and so would the end of this process.
    pub(crate) fn close(self) {
        leave([self.inotify]);
    }

    /// Every cover, for when it is not known what happened.
    pub(crate) fn all(&self) -> Vec<Cover> {
        self.covers.iter().map(|(at, kind)| cover(at, *kind)).collect()
    }

    /// The descriptor to poll: readable when a watched name changed.
    pub(crate) fn waits_for(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Names that must be covered now.
    pub(crate) fn take(&mut self) -> Result<Vec<Cover>, Fault> {
        let mut found = std::mem::take(&mut self.waiting);
        let (mut came, mut lost) = (Vec::new(), false);
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed(error)),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            let named = self.directories.get(&event.wd()).zip(event.file_name());
            // A name that no plan can carry is no mount point either.
            let Some(path) = named.and_then(|(at, name)| at.join(name.to_str().ok()?).ok()) else {
                continue;
            };
            if event.events().contains(ReadFlags::ISDIR) {
                came.push(path.clone());
            }
            found.insert(path);
        }
        for directory in came {
            self.look_into(&directory, &mut found)?;
        }
        let mut covers: Vec<Cover> = found
            .iter()
            .filter_map(|path| Some(cover(path, self.kind(path)?)))
            .collect();
        if lost {
            covers.extend(self.all());
        }
        for Cover { at, kind } in &covers {
            self.covers.insert(at.clone(), *kind);
        }
        Ok(covers)
    }

    /// How a name is to be covered, if it is.
    fn kind(&self, path: &AbsPath) -> Option<CoverKind> {
        if let Some(kind) = self.covers.get(path) {
            return Some(*kind);
        }
        self.trees.iter().find_map(|tree| {
            let below = path.relative_to(&tree.root)?.as_bytes();
            if tree.hide.matches(below) {
                Some(CoverKind::Hidden)
            } else if tree.protect.matches(below) {
                Some(CoverKind::ReadOnly)
            } else {
                None
            }
        })
    }

    /// The directories of the covers, and those above them.
    fn wanted(&self) -> BTreeSet<AbsPath> {
        let mut wanted: BTreeSet<AbsPath> = self.trees.iter().map(|tree| tree.root.clone()).collect();
        for at in self.covers.keys() {
            let Some(tree) = self.trees.iter().find(|tree| at.is_within(&tree.root)) else {
                continue;
            };
            let above = std::iter::successors(at.parent(), AbsPath::parent);
            wanted.extend(above.take_while(|directory| directory.is_within(&tree.root)));
        }
        wanted
    }

    fn add(&mut self, directory: &AbsPath) -> Result<(), Fault> {
        if self.directories.len() >= self.most {
            return Ok(());
        }
        match add_watch(&self.inotify, directory.as_path(), CHANGES) {
            Ok(number) => {
                self.directories.insert(number, directory.clone());
                Ok(())
            }
            // Gone, a link by now, or not to be listed: nothing in it is shown to the agent either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// A directory that came into being: names in it that are held, and its own directories. In one that is protected as a
    /// whole nothing can be written, and what is hidden there must be covered all the same.
    fn look_into(&mut self, directory: &AbsPath, found: &mut BTreeSet<AbsPath>) -> Result<(), Fault> {
        let whole = self.kind(directory);
        let mut open = vec![(directory.clone(), whole == Some(CoverKind::ReadOnly))];
        open.retain(|_| whole != Some(CoverKind::Hidden));
        let mut left = MOST_NAMES;
        while let Some((at, protected)) = open.pop() {
            // Before the look: what comes later is told.
            self.add(&at)?;
            for (name, is_directory) in names(at.as_path()) {
                let Some(path) = at.join(&name).ok().filter(|_| left > 0) else {
                    continue;
                };
                left -= 1;
                let kind = self.kind(&path);
                if kind == Some(CoverKind::Hidden) || (kind.is_some() && !protected) {
                    found.insert(path.clone());
                }
                if is_directory && kind != Some(CoverKind::Hidden) && name != ".git" {
                    open.push((path, protected || kind.is_some()));
                }
            }
        }
        Ok(())
    }
}

/// Names of a directory, and whether each is one; links are not followed.
fn names(directory: &Path) -> Vec<(String, bool)> {
    let Ok(listing) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    listing
        .flatten()
        .filter_map(|entry| {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            Some((entry.file_name().into_string().ok()?, is_directory))
        })
        .collect()
}

fn cover(at: &AbsPath, kind: CoverKind) -> Cover {
    Cover { at: at.clone(), kind }
}

fn failed(error: Errno) -> Fault {
    Fault::new(
        Code::FenceStep,
        "the project cannot be watched for names that the host replaces",
        error.to_string(),
    )
    .help("raise fs.inotify.max_user_watches and max_user_instances, or bastle run --workspace copy -- CMD")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::{NameList, NamePattern};

    fn watch(root: &Path, covers: &[&str]) -> NameWatch {
        let pattern = |text: &str| NamePattern::try_from(text.to_owned()).unwrap();
        let tree = GuardedTree {
            root: AbsPath::from_path(root).unwrap(),
            hide: vec![pattern("**/.env*")].into(),
            protect: NameList::from(vec![pattern("**/.git/config"), pattern("**/.vscode")]),
            pinned: NameList::default(),
            kind: TreeKind::Live,
        };
        let mut watch = NameWatch {
            inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap(),
            covers: covers
                .iter()
                .map(|name| (tree.root.join(name).unwrap(), CoverKind::Hidden))
                .collect(),
            trees: vec![tree],
            directories: BTreeMap::new(),
            waiting: BTreeSet::new(),
            most: most_watched(),
        };
        for directory in watch.wanted() {
            watch.add(&directory).unwrap();
        }
        watch
    }

    #[test]
    fn a_replaced_a_new_and_a_carried_in_name_are_told_and_others_are_not() {
        let stage = tempfile::tempdir().unwrap();
        let root = stage.path().canonicalize().unwrap().join("ws");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::write(root.join("a/b/.env"), "old").unwrap();
        let mut watch = watch(&root, &["a/b/.env", ".git/config"]);
        let told = |watch: &mut NameWatch| -> Vec<String> {
            let covers = watch.take().unwrap();
            covers
                .iter()
                .map(|cover| {
                    cover
                        .at
                        .as_path()
                        .strip_prefix(&root)
                        .unwrap()
                        .display()
                        .to_string()
                })
                .collect()
        };
        std::fs::write(root.join("plain"), "x").unwrap();
        std::fs::create_dir(root.join("dir")).unwrap();
        assert!(told(&mut watch).is_empty());
        std::fs::write(root.join("a/b/new"), "new").unwrap();
        std::fs::rename(root.join("a/b/new"), root.join("a/b/.env")).unwrap();
        assert_eq!(told(&mut watch), ["a/b/.env"]);
        std::fs::write(root.join(".env.local"), "x").unwrap();
        std::fs::write(root.join("dir/.env"), "x").unwrap();
        assert_eq!(told(&mut watch), [".env.local", "dir/.env"]);
        std::fs::create_dir_all(stage.path().join("other/deep")).unwrap();
        std::fs::write(stage.path().join("other/deep/.env"), "x").unwrap();
        std::fs::rename(stage.path().join("other"), root.join("other")).unwrap();
        assert_eq!(told(&mut watch), ["other/deep/.env"]);
        std::fs::create_dir_all(stage.path().join("ide/deep")).unwrap();
        std::fs::write(stage.path().join("ide/deep/.env"), "x").unwrap();
        std::fs::rename(stage.path().join("ide"), root.join(".vscode")).unwrap();
        assert_eq!(
            told(&mut watch),
            [".vscode", ".vscode/deep/.env"],
            "protection of a directory hides nothing in it"
        );
    }
}
