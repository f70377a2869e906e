//! Removing copies without losing work.
//!
//! **Trust:** a copy goes only when its tree is the base, or its work is elsewhere, or the caller names the very state
//! it throws away. The commit point is one rename; what follows is cleaning up.
use crate::beneath::Dir;
use crate::discard::Discard;
use crate::durable::Step;
use crate::faults::io_fault;
use crate::manifest::{Content, Entry, Kind, Manifest};
use crate::meta::{Meta, State};
use crate::path::TreePath;
use crate::place::{Place, Wait};
use crate::seen::now;
use crate::store::Store;
use crate::trash::{self, trashed};
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault, RunId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the directories of removed copies begin; no run can have such a name.
pub(crate) const GONE: &str = ".gone-";
/// Most paths that one removal lists.
const MAX_LISTED: usize = 1_000_000;

/// Whether to remove or to show what would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Only list.
    DryRun,
    /// Move to the trash.
    Remove,
    /// Remove for good: the only way to room on a full disk.
    AtOnce,
}

/// What went, or would go.
#[derive(Clone, Debug, Default)]
pub struct Pruned {
    /// The runs.
    pub runs: Vec<RunId>,
    /// Every path.
    pub paths: Vec<PathBuf>,
    /// Runs that stay, and why.
    pub kept: Vec<(RunId, Fault)>,
}

impl Workspace {
    /// Removes the copy at once and what only it needed of the store; returns every path that went.
    ///
    /// # Errors
    /// See [`Self::check_removable`]; the kernel's.
    pub fn remove(self, discard: Option<&Discard>) -> Result<Vec<PathBuf>, Fault> {
        let all = self.place.hold_all()?;
        let held = self.hold()?;
        self.check_held(discard)?;
        let dir = self.place.run(&self.run);
        let mut paths = Vec::new();
        list(&dir, &mut paths);
        let gone = self.place.work().join(format!("{GONE}{}", self.run));
        // A removal that was interrupted may have left one of the same name.
        remove_dir(&self.place, &gone)?;
        self.place.durable().rename(&dir, &gone)?;
        self.place.durable().sync_dir(&self.place.work())?;
        drop(held);
        // The directory goes last: recovery of an interrupted removal reads from it which store to clean.
        paths.extend(collect(&self.place, &self.source, &self.store)?);
        remove_dir(&self.place, &gone)?;
        drop(all);
        Ok(paths)
    }
}

/// Removes, or shows, all copies that have ended, are older than `age` and hold nothing that is not elsewhere.
///
/// # Errors
/// The kernel's, on the directory of copies; a copy that cannot be judged is kept and told.
pub fn prune(place: &Place, age: Duration, what: Prune) -> Result<Pruned, Fault> {
    let mut pruned = Pruned::default();
    let oldest = now().saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
    for run in place.runs()? {
        let space = match Workspace::open(place, &run) {
            Ok(space) => space,
            Err(fault) => {
                pruned.kept.push((run, fault));
                continue;
            }
        };
        match space.meta() {
            Ok(meta) if meta.created > oldest || meta.state == State::Running => continue,
            Ok(_) => {}
            Err(fault) => {
                pruned.kept.push((run, fault));
                continue;
            }
        }
        let went = match what {
            Prune::DryRun => space.check_removable(None).map(|()| {
                let mut paths = Vec::new();
                list(&place.run(&run), &mut paths);
                paths
            }),
            Prune::Remove => space.move_to_trash(None),
            Prune::AtOnce => space.remove(None),
        };
        match went {
            Ok(paths) => {
                pruned.paths.extend(paths);
                pruned.runs.push(run);
            }
            Err(fault) => pruned.kept.push((run, fault)),
        }
    }
    Ok(pruned)
}

/// Removes what no run on this source refers to any more.
fn collect(place: &Place, source: &Path, store: &Store) -> Result<Vec<PathBuf>, Fault> {
    let alone = store.lock_alone()?;
    let mut keep = BTreeSet::new();
    let in_use = place.runs()?.into_iter().map(|run| (place.clone(), run));
    let removed = trashed(place)?.into_iter();
    // What is in the trash can be taken back whole.
    let removed = removed.map(|one| (place.in_trash(one.path), one.run));
    for (place, run) in in_use.chain(removed) {
        let meta = match place.meta(&run) {
            Ok(meta) => meta,
            // A run that cannot be read may need anything: nothing is collected.
            Err(_) => return Ok(Vec::new()),
        };
        if meta.source.as_path() != source {
            continue;
        }
        if meta.state == State::Making {
            return Ok(Vec::new());
        }
        needs_of(&Workspace::of(&place, &meta)?, &meta, store, &mut keep)?;
    }
    store.collect(&alone, &keep)
}

/// What one copy needs of the store.
fn needs_of(
    space: &Workspace,
    meta: &Meta,
    store: &Store,
    keep: &mut BTreeSet<Content>,
) -> Result<(), Fault> {
    let known = space.known().map(|(manifest, _)| manifest);
    let snapshots = space.snapshots()?;
    for id in snapshots
        .iter()
        .map(|snapshot| snapshot.manifest)
        .chain(meta.base.manifest)
        .chain(meta.applied)
    {
        if keep.insert(id) {
            keep.extend(contents_of(&store.manifest(&id)?));
        }
    }
    // Only compared with: what was in them is elsewhere.
    keep.extend(meta.exported.iter().copied());
    if let Some(known) = known {
        keep.insert(known.id());
        keep.extend(contents_of(&known));
    }
    Ok(())
}

fn contents_of(manifest: &Manifest) -> impl Iterator<Item = Content> + '_ {
    let of = |entry: &Entry| match &entry.kind {
        Kind::File {
            digest, attributes, ..
        } => [Some(*digest), *attributes],
        Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => [None, None],
    };
    manifest.entries().iter().flat_map(of).flatten()
}

fn remove_dir(place: &Place, path: &Path) -> Result<(), Fault> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    place.durable().show(Step::Remove(path));
    let work = place.work();
    let dir = Dir::open_own(&work).map_err(|e| io_fault("open", &work, e))?;
    dir.remove_all(name.as_encoded_bytes())
        .map_err(|e| io_fault("remove", path, e))
}

/// Every path below a directory of ours, for telling; what cannot be listed is told by its directory.
pub(crate) fn list(dir: &Path, paths: &mut Vec<PathBuf>) {
    paths.push(dir.to_path_buf());
    let Ok(root) = Dir::open_own(dir) else { return };
    let mut open: Vec<Option<TreePath>> = vec![None];
    while let Some(at) = open.pop() {
        let Ok(names) = root.beneath(at.as_ref()).and_then(|inner| inner.list()) else {
            continue;
        };
        for listed in names {
            let Ok(path) = TreePath::join(at.as_ref(), &listed.name) else {
                continue;
            };
            if paths.len() >= MAX_LISTED {
                return;
            }
            paths.push(dir.join(path.as_path()));
            if listed.kind == rustix::fs::FileType::Directory {
                open.push(Some(path));
            }
        }
    }
}

/// What a start found unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// A copy that was being made; no agent had seen it. Removed.
    Unmade(String),
    /// A removal that was under way. Finished.
    Removed(String),
    /// A rollback that was under way. Finished.
    RolledBack(RunId),
    /// Something is wrong with this one; untouched.
    Failed(RunId, Fault),
}

/// Finishes or undoes what was under way when a process of bastle ended; copies in use are left alone.
///
/// # Errors
/// The kernel's, on the directory of copies.
pub fn recover(place: &Place) -> Result<Vec<Recovered>, Fault> {
    let _all = place.hold_all()?;
    let mut done: Vec<Recovered> = trash::recover(place)?
        .into_iter()
        .map(Recovered::Removed)
        .collect();
    for name in place.names()? {
        if let Some(run) = name.strip_prefix(GONE) {
            let gone = place.work().join(&name);
            collect_for_gone(place, &gone, run)?;
            remove_dir(place, &gone)?;
            done.push(Recovered::Removed(run.to_owned()));
            continue;
        }
        let Ok(run) = RunId::try_from(name) else { continue };
        let _held = match place.hold(&run, Wait::No) {
            Ok(held) => held,
            Err(_) => continue,
        };
        match recover_one(place, &run) {
            Ok(Some(what)) => done.push(what),
            Ok(None) => {}
            Err(fault) => done.push(Recovered::Failed(run, fault)),
        }
    }
    Ok(done)
}

/// Removes what only a copy needed that is on its way out. One whose record has gone with it had its turn before.
pub(crate) fn collect_for_gone(place: &Place, gone: &Path, run: &str) -> Result<Vec<PathBuf>, Fault> {
    let Ok(run) = RunId::try_from(run.to_owned()) else {
        return Ok(Vec::new());
    };
    match place.in_trash(gone.to_owned()).meta(&run) {
        Ok(meta) if meta.state != State::Making => {
            let source = meta.source.as_path();
            collect(place, source, &place.store(source)?)
        }
        Ok(_) | Err(_) => Ok(Vec::new()),
    }
}

fn recover_one(place: &Place, run: &RunId) -> Result<Option<Recovered>, Fault> {
    let unmade = match place.meta(run) {
        Ok(meta) => meta.state == State::Making,
        // The first record was not on disk yet: nothing was copied.
        Err(fault) if fault.code == Code::WorkspaceMissing => true,
        Err(fault) => return Err(fault),
    };
    if unmade {
        remove_dir(place, &place.run(run))?;
        return Ok(Some(Recovered::Unmade(run.to_string())));
    }
    let space = Workspace::open(place, run)?;
    crate::restore::sweep(&space.path("tmp"))?;
    Ok(space
        .resume_rollback()?
        .then(|| Recovered::RolledBack(run.clone())))
}
