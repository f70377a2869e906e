//! Copies that were removed, until they are old: whole, and taken back by one rename.
//!
//! ```text
//! STATE/trash/NANOSECONDS-RUN/   the directory of the copy as it was, with the run's record beside it where it had one
//! STATE/trash/.gone-…            one that is being emptied
//! ```
//! **Trust:** the time of the removal is in the name, so that a removal writes nothing: it works on a full disk, and there
//! is no moment in which a copy is in neither place. The store keeps what copies in the trash need.
use crate::beneath::Dir;
use crate::discard::Discard;
use crate::durable::Step;
use crate::faults::io_fault;
use crate::meta::HostPath;
use crate::place::{Place, Wait};
use crate::retention::{GONE, Prune, collect_for_gone, list};
use crate::seen::now;
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault, RunId};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The record of a run in the background, within its copy in the trash.
const RECORD: &str = "record";

/// A copy in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    /// Whose copy it was.
    pub run: RunId,
    /// When it was removed, in nanoseconds since the epoch.
    pub removed: i64,
    /// Its directory.
    pub path: PathBuf,
}

impl Trashed {
    fn parse(trash: &Path, name: &str) -> Option<Self> {
        let (removed, run) = name.split_once('-')?;
        Some(Self {
            run: RunId::try_from(run.to_owned()).ok()?,
            removed: removed.parse().ok()?,
            path: trash.join(name),
        })
    }

    /// Bytes on disk; what cannot be looked at counts nothing.
    #[must_use]
    pub fn size(&self) -> u64 {
        let mut paths = Vec::new();
        list(&self.path, &mut paths);
        let blocks = |path: &PathBuf| {
            let found = path.symlink_metadata().ok()?;
            Some(std::os::unix::fs::MetadataExt::blocks(&found))
        };
        paths.iter().filter_map(blocks).sum::<u64>().saturating_mul(512)
    }

    /// The project it was a copy of; `None` when its record cannot be read.
    #[must_use]
    pub fn source(&self, place: &Place) -> Option<HostPath> {
        let meta = place.in_trash(self.path.clone()).meta(&self.run).ok()?;
        Some(meta.source)
    }

    /// Where the record of the run lies, in the trash, when it has one.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.path.join(RECORD)
    }
}

/// Everything in the trash, the newest first.
///
/// # Errors
/// When the kernel refuses one of the calls; the error is the kernel's own.
pub fn trashed(place: &Place) -> Result<Vec<Trashed>, Fault> {
    let trash = place.trash();
    let mut found: Vec<Trashed> = Place::names_in(&trash)?
        .iter()
        .filter_map(|name| Trashed::parse(&trash, name))
        .collect();
    found.sort_by(|a, b| (b.removed, &b.run).cmp(&(a.removed, &a.run)));
    Ok(found)
}

impl Workspace {
    /// Moves the copy to the trash; returns every path that went. Nothing is written and no room is freed.
    ///
    /// # Errors
    /// See [`Self::check_removable`]; the kernel's.
    pub fn move_to_trash(self, discard: Option<&Discard>) -> Result<Vec<PathBuf>, Fault> {
        let _all = self.place.hold_all()?;
        let _held = self.hold()?;
        self.check_held(discard)?;
        let dir = self.place.run(&self.run);
        let mut paths = Vec::new();
        list(&dir, &mut paths);
        let trash = self.place.trash();
        let durable = self.place.durable();
        durable.make_dir(&trash)?;
        durable.rename(&dir, &trash.join(format!("{}-{}", now().max(0), self.run)))?;
        // The new name first: after a power cut the copy is in one of the two at least.
        durable.sync_dir(&trash)?;
        durable.sync_dir(&self.place.work())?;
        Ok(paths)
    }
}

/// Takes the copy of a run that was removed last back out of the trash; `before` sees it first and may refuse.
///
/// # Errors
/// When there is none, or a copy of that name.
pub fn restore(
    place: &Place,
    run: &RunId,
    before: impl FnOnce(&Trashed) -> Result<(), Fault>,
) -> Result<Workspace, Fault> {
    let _all = place.hold_all()?;
    let found = trashed(place)?.into_iter().find(|one| one.run == *run);
    let Some(found) = found else {
        let what = format!("no removed run called {run} is in the trash");
        return Err(Fault::new(Code::WorkspaceMissing, what, "").help("bastle ls --trash"));
    };
    let dir = place.run(run);
    if dir.exists() {
        let what = format!("run {run} cannot be restored");
        let why = "another copy has its name";
        return Err(Fault::new(Code::WorkspaceBusy, what, why)
            .help(format!("bastle rm {run} --now && bastle restore {run}"))
            .help(format!("the removed copy lies in {}", found.path.display())));
    }
    // What cannot be opened stays where it is.
    let meta = place.in_trash(found.path.clone()).meta(run)?;
    before(&found)?;
    let durable = place.durable();
    durable.rename(&found.path, &dir)?;
    durable.sync_dir(&place.work())?;
    durable.sync_dir(&place.trash())?;
    Workspace::of(place, &meta)
}

/// What left the trash, or would leave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// The runs.
    pub runs: Vec<RunId>,
    /// Every path.
    pub paths: Vec<PathBuf>,
    /// Those that stay because they cannot be removed, and why.
    pub kept: Vec<(RunId, Fault)>,
}

/// Removes, or lists, what has been in the trash for longer than `age`, and what only that needed of the stores.
///
/// # Errors
/// The kernel's, on the directory.
pub fn empty(place: &Place, age: Duration, what: Prune) -> Result<Emptied, Fault> {
    let mut emptied = Emptied::default();
    if !place.trash().is_dir() {
        return Ok(emptied);
    }
    let _all = place.hold_all()?;
    let oldest = now().saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
    for one in trashed(place)?.into_iter().filter(|one| one.removed <= oldest) {
        let mut paths = Vec::new();
        list(&one.path, &mut paths);
        let gone = match what {
            Prune::DryRun => Ok(()),
            Prune::Remove | Prune::AtOnce => drop_one(place, &one).map(|freed| paths.extend(freed)),
        };
        match gone {
            Ok(()) => {
                emptied.runs.push(one.run);
                emptied.paths.extend(paths);
            }
            Err(fault) => emptied.kept.push((one.run, fault)),
        }
    }
    Ok(emptied)
}

fn drop_one(place: &Place, one: &Trashed) -> Result<Vec<PathBuf>, Fault> {
    let own = place.in_trash(one.path.clone());
    // One whose lock somebody holds is being looked at.
    let held = own.hold(&one.run, Wait::No)?;
    let name = one.path.file_name().unwrap_or_default().to_string_lossy();
    let trash = place.trash();
    let gone = trash.join(format!("{GONE}{name}"));
    place.durable().rename(&one.path, &gone)?;
    place.durable().sync_dir(&trash)?;
    drop(held);
    let freed = collect_for_gone(place, &gone, one.run.as_str())?;
    clear(place, &gone)?;
    Ok(freed)
}

/// Removes a directory of the trash that is on its way out.
fn clear(place: &Place, path: &Path) -> Result<(), Fault> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    place.durable().show(Step::Remove(path));
    let trash = place.trash();
    let dir = Dir::open_own(&trash).map_err(|e| io_fault("open", &trash, e))?;
    dir.remove_all(name.as_encoded_bytes())
        .map_err(|e| io_fault("remove", path, e))
}

/// Finishes what was being emptied; gives the names.
pub(crate) fn recover(place: &Place) -> Result<Vec<String>, Fault> {
    let mut done = Vec::new();
    for name in Place::names_in(&place.trash())? {
        if let Some(entry) = name.strip_prefix(GONE) {
            let run = entry.split_once('-').map_or(entry, |(_, run)| run);
            let gone = place.trash().join(&name);
            collect_for_gone(place, &gone, run)?;
            clear(place, &gone)?;
            done.push(run.to_owned());
        }
    }
    Ok(done)
}
