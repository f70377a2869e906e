//! The trusted step: files of a run's layer become part of the shared cache, as a new generation.
//!
//! **Trust:** run by a person, or by a policy of theirs. Only regular files are taken, by copying their bytes; no name
//! that exists is touched; the new generation becomes visible at once or not at all.
use super::check::{Checking, Outcome, Stated, looks_secret, shared, stated};
use super::git_shapes::GitShapes;
use super::place::{CURRENT, Hold, Name, Place, has, make_dir, walk};
use super::unusable;
use crate::afterwards::{Change, local_person};
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::caches;
use bastle_workspace::beneath::Dir;
use bastle_workspace::path::TreePath;
use rustix::fs::{FileType, FlockOperation};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How much one merge may bring: a later run sees all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Largest file that is shared.
    pub(super) file: u64,
    /// Most bytes of the new files together, holes counted as bytes.
    pub(super) bytes: u64,
    /// Most names that the layer may have.
    pub(super) names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 2 << 30,
            bytes: 16 << 30,
            names: 500_000,
        }
    }
}

/// Bytes of zeros that become a hole.
const CHUNK: usize = 256 * 1024;

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeWish {
    /// Only say what would be merged.
    Nothing,
    /// Files whose content was checked.
    Checked,
    /// New files too whose content nothing can check.
    Everything,
}

/// What became of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Merged; its content is the one that was stated.
    Checked,
    /// Merged; nothing states its content.
    New,
    /// Left out: nothing states its content, and only checked files were wanted.
    Unchecked,
    /// Left out: the cache has that name, and it is never replaced.
    Exists,
    /// Left out: this part of the cache is made anew by each run.
    NotShared,
    /// Refused: its name is one under which credentials are kept.
    Secret,
    /// Refused: of a git repository, or git configuration.
    Git,
    /// Refused: a symlink.
    Symlink,
    /// Refused: neither file nor directory.
    Special,
    /// Refused: set-uid, set-gid or sticky.
    Mode,
    /// Refused: not the content that is stated.
    Mismatch,
    /// Refused: too large, or it cannot be read.
    Unreadable,
}

impl Fate {
    /// It is part of the cache now.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        matches!(self, Self::Checked | Self::New)
    }

    /// It is not what an honest tool leaves there.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Secret
            | Self::Git
            | Self::Symlink
            | Self::Special
            | Self::Mode
            | Self::Mismatch
            | Self::Unreadable => true,
            Self::Checked | Self::New | Self::Unchecked | Self::Exists | Self::NotShared => false,
        }
    }

    /// For people.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match self {
            Self::Checked => "its content is the one that is stated",
            Self::New => "new; nothing states its content",
            Self::Unchecked => "nothing states its content",
            Self::Exists => "the cache has it; never replaced",
            Self::NotShared => "made anew by each run",
            Self::Secret => "a name under which credentials are kept",
            Self::Git => {
                "of a git repository, or git configuration: git on the host would execute what it names"
            }
            Self::Symlink => "a symlink",
            Self::Special => "neither file nor directory",
            Self::Mode => "set-uid, set-gid or sticky",
            Self::Mismatch => "not the content that is stated",
            Self::Unreadable => "too large or not readable",
        }
    }
}

/// One name and what became of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Merged {
    /// Where, below the home directory inside.
    pub path: TreePath,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a run's layer above one cache.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Told {
    /// The cache.
    pub cache: String,
    /// Every name that is no directory.
    pub names: Vec<Merged>,
}

impl Told {
    /// How many names met a fate.
    pub fn count(&self, is: impl Fn(&Fate) -> bool) -> u64 {
        self.names.iter().filter(|merged| is(&merged.fate)).count() as u64
    }
}

/// Merges what a run left above every cache.
///
/// # Errors
/// When it left nothing, lives, or a cache cannot be read or written.
pub fn merge(state: &Path, run: &RunId, wish: MergeWish) -> Result<Vec<Told>, Fault> {
    let mut told = Vec::new();
    for cache in caches::all() {
        let place = Place::new(state, cache);
        if place.tree(run).is_dir() {
            let change = Change {
                run,
                by: "cache-merge",
                at: place.cache.name.clone(),
                names: Vec::new(),
                approvals: Vec::new(),
                principal: &local_person(),
            };
            told.push(match wish {
                MergeWish::Nothing => merge_one(&place, run, wish, Limits::default())?,
                MergeWish::Checked | MergeWish::Everything => {
                    change.make(state, || merge_one(&place, run, wish, Limits::default()))?
                }
            });
        }
    }
    if told.is_empty() {
        let what = format!("run {run} left nothing above a cache");
        return Err(Fault::new(Code::CacheMissing, what, "").help("bastle cache ls"));
    }
    Ok(told)
}

pub(super) fn merge_one(place: &Place, run: &RunId, wish: MergeWish, limits: Limits) -> Result<Told, Fault> {
    let alone = place.hold(Hold::Alone)?;
    let tree = place.tree(run);
    let Some(layer) = place.take(run)? else {
        let what = format!("run {run} left nothing above cache {}", place.cache.name);
        return Err(Fault::new(Code::CacheMissing, what, ""));
    };
    let root = Dir::open_own(&tree).map_err(|error| unusable("open", &tree, error))?;
    let checks = place.checks(run);
    let lines = fs::read_to_string(&checks).map_err(|error| unusable("read", &checks, error))?;
    let current = place.open_current()?;
    let mut merging = Merging {
        place,
        root: &root,
        current: current.as_ref(),
        git: GitShapes::new(&root, current.as_ref()),
        stated: stated(&lines),
        wish,
        limits,
        into: None,
        bytes: 0,
    };
    let mut names = Vec::new();
    let mut walked = walk(&root);
    // The same layer is refused for the same name each time.
    walked.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(beyond) = walked.get(limits.names) {
        let why = format!(
            "it has more than {} names: {} is the first beyond",
            limits.names, beyond.path
        );
        return Err(too_much(place, run, &why));
    }
    for name in walked.into_iter().filter(|name| name.kind != FileType::Directory) {
        let fate = merging.name(&name)?;
        if merging.bytes > limits.bytes {
            merging.abandon()?;
            let why = format!(
                "its new files have more than {} bytes together: {} is the first beyond",
                limits.bytes, name.path
            );
            return Err(too_much(place, run, &why));
        }
        names.push(Merged {
            path: name.path,
            fate,
        });
    }
    merging.publish()?;
    names.sort_by(|a, b| a.path.cmp(&b.path));
    let told = Told {
        cache: place.cache.name.clone(),
        names,
    };
    // What could still be merged by another wish stays.
    if wish != MergeWish::Nothing && told.count(|fate| *fate == Fate::Unchecked) == 0 {
        layer.discard()?;
    }
    drop(alone);
    Ok(told)
}

struct Merging<'a> {
    place: &'a Place,
    root: &'a Dir,
    current: Option<&'a Dir>,
    git: GitShapes<'a>,
    stated: Stated,
    wish: MergeWish,
    limits: Limits,
    /// Bytes of what was copied or judged so far.
    bytes: u64,
    /// The new generation, once something belongs to it.
    into: Option<PathBuf>,
}

impl Merging<'_> {
    fn name(&mut self, name: &Name) -> Result<Fate, Fault> {
        let path = &name.path;
        match name.kind {
            FileType::RegularFile => {}
            FileType::Symlink => return Ok(Fate::Symlink),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(Fate::Special),
        }
        if looks_secret(path) {
            return Ok(Fate::Secret);
        }
        if self.git.is_git(path) {
            return Ok(Fate::Git);
        }
        let Some(rule) = shared(self.place.cache, path) else {
            return Ok(Fate::NotShared);
        };
        if self.current.is_some_and(|current| has(current, path)) {
            return Ok(Fate::Exists);
        }
        let opened = self
            .root
            .beneath(path.parent().as_ref())
            .and_then(|dir| dir.open_regular(path.name()));
        let Ok((file, stat)) = opened else {
            return Ok(Fate::Unreadable);
        };
        if stat.st_mode & 0o7000 != 0 {
            return Ok(Fate::Mode);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > self.limits.file {
            return Ok(Fate::Unreadable);
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.bytes {
            return Ok(Fate::Unreadable);
        }
        let checking = Checking::new(rule.check, path, &self.stated);
        match self.wish {
            // The content is judged all the same: what is told is what would be.
            MergeWish::Nothing => judge(&file, checking, size).map_or(Ok(Fate::Unreadable), Ok),
            MergeWish::Checked | MergeWish::Everything => self.copy(path, &file, checking, size),
        }
    }

    /// Judges a copy and lets it stay, so that what was judged is what is shared.
    fn copy(
        &mut self,
        path: &TreePath,
        file: &File,
        checking: Option<Checking>,
        size: u64,
    ) -> Result<Fate, Fault> {
        let generation = self.generation()?;
        let to = generation.join(path.as_path());
        let above = to.parent().unwrap_or(&generation);
        if fs::create_dir_all(above).is_err() {
            // A file of the cache stands where a directory would have to be.
            return Ok(Fate::Exists);
        }
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&to);
        let mut made = made.map_err(|error| unusable("make", &to, error))?;
        let fate =
            copied(file, Some(&mut made), checking, size).map_err(|error| unusable("copy to", &to, error))?;
        let keep = match (fate, self.wish) {
            (Fate::New, MergeWish::Checked) => return discard(&to, Fate::Unchecked),
            (fate, _) => fate.is_merged(),
        };
        if keep { Ok(fate) } else { discard(&to, fate) }
    }

    /// The new generation: what is shared already, by other names for the same files. Nobody ever writes to those.
    fn generation(&mut self) -> Result<PathBuf, Fault> {
        if let Some(into) = &self.into {
            return Ok(into.clone());
        }
        let root = self.place.root();
        let old = fs::read_link(self.place.current()).ok();
        let number = |name: &Path| name.to_str()?.strip_prefix('g')?.parse::<u64>().ok();
        let next = old.as_deref().and_then(number).map_or(1, |number| number + 1);
        let into = root.join(format!("g{next}"));
        sweep(root, old.as_deref())?;
        make_dir(&into)?;
        if let Some(current) = self.current {
            let from = self.place.current();
            for name in walk(current) {
                let (old, new) = (from.join(name.path.as_path()), into.join(name.path.as_path()));
                let linked = match name.kind {
                    FileType::Directory => fs::create_dir_all(&new),
                    _ => fs::create_dir_all(new.parent().unwrap_or(&into))
                        .and_then(|()| fs::hard_link(&old, &new)),
                };
                linked.map_err(|error| unusable("link", &new, error))?;
            }
        }
        self.into = Some(into.clone());
        Ok(into)
    }

    /// Removes what was copied of a generation that nobody is led to.
    fn abandon(&mut self) -> Result<(), Fault> {
        if self.into.take().is_none() {
            return Ok(());
        }
        let current = fs::read_link(self.place.current()).ok();
        sweep(self.place.root(), current.as_deref())
    }

    /// Makes the new generation the shared one.
    fn publish(&mut self) -> Result<(), Fault> {
        let Some(into) = self.into.take() else {
            return Ok(());
        };
        let root = self.place.root();
        let fresh = root.join("current.new");
        let swap = || -> io::Result<()> {
            let dir = File::open(&into)?;
            // Everything of it is on disk before anybody is led to it.
            rustix::fs::syncfs(&dir)?;
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            std::os::unix::fs::symlink(into.file_name().unwrap_or_default(), &fresh)?;
            fs::rename(&fresh, root.join(CURRENT))?;
            File::open(root)?.sync_all()
        };
        swap().map_err(|error| unusable("publish", &into, error))?;
        sweep(root, into.file_name().map(Path::new))
    }
}

/// Removes generations that nobody is led to.
fn sweep(root: &Path, current: Option<&Path>) -> Result<(), Fault> {
    let dir = Dir::open_own(root).map_err(|error| unusable("open", root, error))?;
    let listed = dir.list().map_err(|error| unusable("list", root, error))?;
    for name in listed {
        let generation = name.name.first() == Some(&b'g') && name.name[1..].iter().all(u8::is_ascii_digit);
        let kept = current.is_some_and(|current| {
            std::os::unix::ffi::OsStrExt::as_bytes(current.as_os_str()) == name.name.as_slice()
        });
        if generation && !kept && !is_used(&root.join(OsStr::from_bytes(&name.name))) {
            dir.remove_all(&name.name)
                .map_err(|error| unusable("remove a generation of", root, error))?;
        }
    }
    Ok(())
}

/// Whether a living run lies above a generation. What is left because of it goes with a later merge.
fn is_used(generation: &Path) -> bool {
    match File::open(generation) {
        Ok(held) => rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).is_err(),
        Err(_) => true,
    }
}

fn discard(path: &Path, fate: Fate) -> Result<Fate, Fault> {
    fs::remove_file(path).map_err(|error| unusable("remove", path, error))?;
    Ok(fate)
}

fn too_much(place: &Place, run: &RunId, why: &str) -> Fault {
    Fault::new(
        Code::CacheUnusable,
        format!(
            "what run {run} left above cache {} is not merged",
            place.cache.name
        ),
        why,
    )
    .help(format!(
        "leave it out: bastle cache rm {} --run {run}",
        place.cache.name
    ))
}

fn judge(file: &File, checking: Option<Checking>, size: u64) -> Option<Fate> {
    copied(file, None, checking, size).ok()
}

/// Feeds a file to its check and to a copy. Zeros become a hole there: a file that is mostly holes takes no more room shared
/// than it took before.
fn copied(
    file: &File,
    mut to: Option<&mut File>,
    mut checking: Option<Checking>,
    most: u64,
) -> io::Result<Fate> {
    // No more than was counted, whoever makes it longer meanwhile.
    let mut input = file.take(most);
    let mut buffer = vec![0; CHUNK];
    let mut size = 0_u64;
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Some(checking) = &mut checking {
            checking.feed(&buffer[..count]);
        }
        size += count as u64;
        let Some(to) = to.as_deref_mut() else { continue };
        if buffer[..count].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Current(i64::try_from(count).unwrap_or(0)))?;
        } else {
            to.write_all(&buffer[..count])?;
        }
    }
    if let Some(to) = to {
        // A hole at the end has no byte that would have set the length.
        to.set_len(size)?;
    }
    Ok(match checking.map_or(Outcome::Unknown, Checking::outcome) {
        Outcome::Good => Fate::Checked,
        Outcome::Bad => Fate::Mismatch,
        Outcome::Unknown => Fate::New,
    })
}
