//! Where caches lie below the state directory: one shared generation each, and the layers of runs.
//!
//! **Trust:** everything but the inside of a layer's tree is made here. A generation holds directories and files only.
use super::check::lock_file;
use super::{relative, unusable};
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::caches::{self, Cache};
use bastle_workspace::beneath::Dir;
use bastle_workspace::copy::copy_tree;
use bastle_workspace::path::TreePath;
use rustix::fs::{FileType, FlockOperation};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name that leads to the shared generation.
pub(super) const CURRENT: &str = "current";
/// Where the layers of a run are, one for each place.
const OVER: &str = "over";

/// One cache on disk.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) cache: &'static Cache,
    root: PathBuf,
}

/// The layer of a run, held.
pub(super) struct Layer {
    dir: PathBuf,
    _held: File,
    /// The generation that it lies above, held so that nobody removes it meanwhile.
    below: Option<(PathBuf, File)>,
}

/// How a run has what is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As a copy.
    Copy,
    /// Below a layer, where there is something to share.
    Layers,
}

/// What is known about a cache.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CacheState {
    /// The name of the cache in the catalogue.
    pub cache: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Files that are shared.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Runs that left something to merge, or work with it now.
    pub candidates: Vec<Candidate>,
}

/// A run's layer.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Candidate {
    /// The run.
    pub run: String,
    /// Files in it.
    pub files: u64,
    /// The run lives.
    pub live: bool,
}

/// Who else may use the cache meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Others who only read.
    Shared,
    /// Nobody.
    Alone,
}

impl Place {
    pub(super) fn new(state: &Path, cache: &'static Cache) -> Self {
        Self {
            cache,
            root: state.join("cache").join(&cache.name),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn layer(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    /// What the run sees.
    pub(super) fn tree(&self, run: &RunId) -> PathBuf {
        self.layer(run).join("tree")
    }

    /// The layer above one place of the cache.
    pub(super) fn over(&self, run: &RunId, index: usize) -> PathBuf {
        self.layer(run).join(OVER).join(index.to_string())
    }

    /// The digests that the project's own lock file stated before the run.
    pub(super) fn checks(&self, run: &RunId) -> PathBuf {
        self.layer(run).join("checks")
    }

    /// The shared generation.
    pub(super) fn current(&self) -> PathBuf {
        self.root.join(CURRENT)
    }

    pub(super) fn hold(&self, hold: Hold) -> Result<File, Fault> {
        make_dir(&self.root.join("runs"))?;
        let how = match hold {
            Hold::Shared => FlockOperation::LockShared,
            Hold::Alone => FlockOperation::LockExclusive,
        };
        lock(&self.root.join("lock"), how)
    }

    /// The generation's directory, open; `None` while nothing was ever merged.
    pub(super) fn open_current(&self) -> Result<Option<Dir>, Fault> {
        let current = match fs::canonicalize(self.current()) {
            Ok(current) => current,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable("open", &self.current(), error)),
        };
        Dir::open(&current)
            .map(Some)
            .map_err(|error| unusable("open", &current, error))
    }

    /// Makes the run's layer: everything that is shared, below it or copied.
    pub(super) fn lend(&self, run: &RunId, project: &Path, way: Way) -> Result<(Layer, u64), Fault> {
        let shared = self.hold(Hold::Shared)?;
        let dir = self.layer(run);
        if dir.exists() {
            return Err(Fault::new(
                Code::CacheUnusable,
                format!("run {run} has a layer of cache {} already", self.cache.name),
                "names of runs are used once",
            )
            .help(format!("bastle cache merge {run}")));
        }
        make_dir(&self.tree(run))?;
        let held = lock(&dir.join("lock"), FlockOperation::NonBlockingLockExclusive)?;
        let mut layer = Layer {
            dir,
            _held: held,
            below: None,
        };
        let filled = match way {
            Way::Copy => self.copy(run),
            Way::Layers => self.lay(run, &mut layer),
        };
        match filled.and_then(|files| self.finish(run, project).map(|()| files)) {
            Ok(files) => {
                drop(shared);
                Ok((layer, files))
            }
            Err(fault) => {
                layer.discard()?;
                Err(fault)
            }
        }
    }

    fn copy(&self, run: &RunId) -> Result<u64, Fault> {
        let tree = self.tree(run);
        let Some(current) = self.open_current()? else {
            return Ok(0);
        };
        let to = Dir::open_own(&tree).map_err(|error| unusable("open", &tree, error))?;
        let copied = copy_tree(&current, &to, &self.current(), &|_| false, &mut |_| {})?;
        Ok(copied.manifest.totals().0)
    }

    /// Nothing is copied: what is shared stays where it is, held until the run is over.
    fn lay(&self, run: &RunId, layer: &mut Layer) -> Result<u64, Fault> {
        let Some(current) = self.open_current()? else {
            return Ok(0);
        };
        let generation =
            fs::canonicalize(self.current()).map_err(|error| unusable("open", &self.current(), error))?;
        let held = File::open(&generation).map_err(|error| unusable("open", &generation, error))?;
        rustix::fs::flock(&held, FlockOperation::LockShared)
            .map_err(|error| unusable("hold", &generation, error))?;
        for (index, place) in self.cache.places.iter().enumerate() {
            if generation.join(relative(place)).is_dir() {
                let over = self.over(run, index);
                make_dir(&over.join("upper"))?;
                make_dir(&over.join("work"))?;
            }
        }
        layer.below = Some((generation, held));
        Ok(walk(&current)
            .iter()
            .filter(|name| name.kind == FileType::RegularFile)
            .count() as u64)
    }

    fn finish(&self, run: &RunId, project: &Path) -> Result<(), Fault> {
        for (index, place) in self.cache.places.iter().enumerate() {
            if !self.over(run, index).is_dir() {
                make_dir(&self.tree(run).join(relative(place)))?;
            }
        }
        // Before the agent can write it, should the project be its workspace.
        let digests = lock_file(project);
        let checks = self.checks(run);
        fs::write(&checks, digests).map_err(|error| unusable("write", &checks, error))
    }

    /// Puts what a run left in its layers where what it left in a copy is. Nobody works with them any more; done twice, or
    /// after a crash in the middle, it comes to the same.
    fn gather(&self, run: &RunId) -> Result<(), Fault> {
        let over = self.layer(run).join(OVER);
        if !over.is_dir() {
            return Ok(());
        }
        for (index, place) in self.cache.places.iter().enumerate() {
            let (upper, to) = (
                self.over(run, index).join("upper"),
                self.tree(run).join(relative(place)),
            );
            if !upper.is_dir() {
                continue;
            }
            // The agent may have locked it: a directory that moves is written to.
            fs::set_permissions(&upper, fs::Permissions::from_mode(0o700))
                .map_err(|error| unusable("open", &upper, error))?;
            make_dir(to.parent().unwrap_or(&to))?;
            fs::rename(&upper, &to).map_err(|error| unusable("gather", &upper, error))?;
        }
        let layer = self.layer(run);
        Dir::open_own(&layer)
            .and_then(|dir| dir.remove_all(OVER.as_bytes()))
            .map_err(|error| unusable("remove", &over, error))
    }

    /// Takes hold of a layer that no run works with.
    pub(super) fn take(&self, run: &RunId) -> Result<Option<Layer>, Fault> {
        let dir = self.layer(run);
        if !dir.is_dir() {
            return Ok(None);
        }
        let held = lock(&dir.join("lock"), FlockOperation::NonBlockingLockExclusive)?;
        self.gather(run)?;
        Ok(Some(Layer {
            dir,
            _held: held,
            below: None,
        }))
    }

    fn runs(&self) -> Vec<RunId> {
        let listing = fs::read_dir(self.root.join("runs"))
            .into_iter()
            .flatten()
            .flatten();
        let mut runs: Vec<RunId> = listing
            .filter_map(|entry| RunId::try_from(entry.file_name().into_string().ok()?).ok())
            .collect();
        runs.sort();
        runs
    }
}

impl Layer {
    /// What it lies above, if it is one.
    pub(super) fn generation(&self) -> Option<&Path> {
        self.below.as_ref().map(|(path, _)| path.as_path())
    }

    /// Removes it.
    pub(super) fn discard(self) -> Result<(), Fault> {
        let name = self.dir.file_name().unwrap_or_default();
        let above = self.dir.parent().unwrap_or(&self.dir);
        Dir::open_own(above)
            .and_then(|dir| dir.remove_all(std::os::unix::ffi::OsStrExt::as_bytes(name)))
            .map_err(|error| unusable("remove", &self.dir, error))
    }

    /// Takes out what the cache has already, whatever became of it here; says how many files are left.
    pub(super) fn reduce(&self, place: &Place, run: &RunId) -> Result<u64, Fault> {
        place.gather(run)?;
        let tree = self.dir.join("tree");
        let shared = place.hold(Hold::Shared)?;
        let root = Dir::open_own(&tree).map_err(|error| unusable("open", &tree, error))?;
        let current = place.open_current()?;
        let found = walk(&root);
        let mut left = 0;
        for name in found.iter().filter(|name| name.kind != FileType::Directory) {
            let known = current.as_ref().is_some_and(|current| has(current, &name.path));
            if known {
                remove_name(&root, &name.path).map_err(|error| unusable("reduce", &tree, error))?;
            } else {
                left += 1;
            }
        }
        // From the bottom; one that still holds something stays.
        for name in found.iter().rev().filter(|name| name.kind == FileType::Directory) {
            remove_name(&root, &name.path).map_err(|error| unusable("reduce", &tree, error))?;
        }
        drop(shared);
        Ok(left)
    }
}

/// A name of a layer.
pub(super) struct Name {
    pub(super) path: TreePath,
    pub(super) kind: FileType,
}

/// Every name, a directory before what is in it. What cannot be listed is passed over: it is not merged either.
pub(super) fn walk(root: &Dir) -> Vec<Name> {
    const MOST: usize = 1_000_000;
    let mut found = Vec::new();
    let mut waiting: Vec<Option<TreePath>> = vec![None];
    while let Some(directory) = waiting.pop() {
        let Ok(dir) = root.beneath(directory.as_ref()) else {
            continue;
        };
        for listed in dir.list().unwrap_or_default() {
            let path = TreePath::join(directory.as_ref(), &listed.name);
            let (Ok(path), Ok(stat)) = (path, dir.stat(&listed.name)) else {
                continue;
            };
            if found.len() == MOST {
                return found;
            }
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Directory {
                waiting.push(Some(path.clone()));
            }
            found.push(Name { path, kind });
        }
    }
    found
}

/// Whether a tree has something under that name.
pub(super) fn has(root: &Dir, path: &TreePath) -> bool {
    root.beneath(path.parent().as_ref())
        .is_ok_and(|dir| dir.stat(path.name()).is_ok())
}

fn remove_name(root: &Dir, path: &TreePath) -> std::io::Result<()> {
    let dir = root.beneath(path.parent().as_ref())?;
    dir.make_writable()?;
    dir.remove_one(path.name()).map(|_| ())
}

pub(super) fn make_dir(path: &Path) -> Result<(), Fault> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| unusable("make", path, error))
}

fn lock(path: &Path, how: FlockOperation) -> Result<File, Fault> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| unusable("open", path, error))?;
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::new(
            Code::CacheUnusable,
            format!("{} is in use", path.parent().unwrap_or(path).display()),
            "its run lives",
        )
        .help("bastle ps")),
        Err(errno) => Err(unusable("lock", path, errno)),
    }
}

/// Every cache that exists.
///
/// # Errors
/// When one cannot be opened.
pub fn list(state: &Path) -> Result<Vec<CacheState>, Fault> {
    let mut states = Vec::new();
    for cache in caches::all() {
        let place = Place::new(state, cache);
        if !place.root.is_dir() {
            continue;
        }
        let (mut files, mut bytes) = (0, 0);
        if let Some(current) = place.open_current()? {
            for name in walk(&current)
                .iter()
                .filter(|name| name.kind == FileType::RegularFile)
            {
                let dir = current.beneath(name.path.parent().as_ref());
                let stat = dir.and_then(|dir| dir.stat(name.path.name()));
                files += 1;
                bytes += stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            }
        }
        let candidates = place
            .runs()
            .into_iter()
            .map(|run| candidate(&place, &run))
            .collect();
        states.push(CacheState {
            cache: cache.name.clone(),
            path: place.root.clone(),
            files,
            bytes,
            candidates,
        });
    }
    Ok(states)
}

fn candidate(place: &Place, run: &RunId) -> Candidate {
    let live = place.take(run).is_err();
    let tree = Dir::open(&place.tree(run));
    let files = tree.map_or(0, |tree| {
        walk(&tree)
            .iter()
            .filter(|name| name.kind != FileType::Directory)
            .count() as u64
    });
    Candidate {
        run: run.to_string(),
        files,
        live,
    }
}

/// Removes a cache with everything that runs left above it, or only what one run left. Says what went.
///
/// # Errors
/// When there is none, a living run works with it, or it cannot be removed.
pub fn remove(state: &Path, name: &str, run: Option<&RunId>) -> Result<Vec<PathBuf>, Fault> {
    let missing =
        || Fault::new(Code::CacheMissing, format!("there is no cache {name:?}"), "").help("bastle cache ls");
    let place = Place::new(state, caches::find(name).ok_or_else(missing)?);
    if !place.root.is_dir() {
        return Err(missing());
    }
    let alone = place.hold(Hold::Alone)?;
    let runs = match run {
        Some(run) => vec![run.clone()],
        None => place.runs(),
    };
    let mut layers = Vec::new();
    for one in &runs {
        match place.take(one)? {
            Some(layer) => layers.push(layer),
            None if run.is_some() => {
                let what = format!("run {one} left nothing above cache {name}");
                return Err(Fault::new(Code::CacheMissing, what, "").help("bastle cache ls"));
            }
            None => {}
        }
    }
    let mut gone = Vec::new();
    for layer in layers {
        gone.push(layer.dir.clone());
        layer.discard()?;
    }
    if run.is_none() {
        let above = place.root.parent().unwrap_or(&place.root);
        Dir::open_own(above)
            .and_then(|dir| dir.remove_all(name.as_bytes()))
            .map_err(|error| unusable("remove", &place.root, error))?;
        gone.push(place.root.clone());
    }
    drop(alone);
    Ok(gone)
}
