//! Applies that were interrupted: found at the start of every verb, finished or undone, and if that cannot be done,
//! ended in the way a person chooses.
//!
//! **Trust:** a marker in the state directory is durable before the first change of a project and goes when the journal
//! says that nothing is left to do; only where it stands are journals read. The project is changed under its lock.
use super::apply::JOURNALS;
use super::apply_lock::ApplyLock;
use super::choose::{Whereabouts, metas, open_interrupted};
use bastle_contract::{Code, Fault};
use bastle_workspace::apply::{self, Direction, Recovered, Target};
use bastle_workspace::durable::Durable;
use bastle_workspace::meta::Meta;
use bastle_workspace::path::{TreePath, visible};
use bastle_workspace::place::Place;
use bastle_workspace::reserve;
use bastle_workspace::workspace::Workspace;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of markers in the state directory.
const MARKERS: &str = "applying";
/// Paths that one note lists.
const MOST_LISTED: usize = 5;

/// A project that is being changed, by who has the lock.
pub(super) struct Marker<'a> {
    path: PathBuf,
    place: &'a Place,
    source: &'a Path,
}

impl<'a> Marker<'a> {
    fn path(state: &Path, source: &Path) -> PathBuf {
        let name = blake3::hash(source.as_os_str().as_bytes()).to_hex();
        state.join(MARKERS).join(name.as_str())
    }

    /// Durable before anything else happens. The lock outlives the marker.
    pub(super) fn set(place: &'a Place, source: &'a Path, _: &'a ApplyLock) -> Result<Self, Fault> {
        let path = Self::path(place.state(), source);
        let durable = Durable::default();
        durable.make_dir(&place.state().join(MARKERS))?;
        durable.write_file(&path, source.as_os_str().as_bytes())?;
        Ok(Self { path, place, source })
    }

    /// The change is over: the marker goes unless a journal of the project has something left to finish or undo.
    pub(super) fn settle(self) {
        let is_over = |meta: &Meta| {
            let journals = self.place.run(&meta.run).join(JOURNALS);
            matches!(apply::is_interrupted(&journals), Ok(false))
        };
        if metas(self.place).is_ok_and(|metas| of(&metas, self.source).all(is_over)) {
            clear(&self.path);
        }
    }
}

/// Removes a marker; only under the lock. One that stays costs a look at the next verb.
fn clear(marker: &Path) {
    drop(std::fs::remove_file(marker));
}

/// The runs on a project.
fn of<'a>(metas: &'a [Meta], source: &'a Path) -> impl Iterator<Item = &'a Meta> {
    metas.iter().filter(move |meta| meta.source.as_path() == source)
}

/// What was done about an interrupted apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The run whose work was applied.
    pub run: String,
    /// Whether the interrupted apply was finished or undone.
    pub done: Recovered,
}

impl Repaired {
    /// For people.
    #[must_use]
    pub fn note(&self) -> String {
        let run = &self.run;
        match &self.done {
            Recovered::Finished(_) => {
                format!(
                    "{run}: an interrupted change of the project was finished: it is as the change wanted it"
                )
            }
            Recovered::Undone { kept, .. } if kept.is_empty() => {
                format!("{run}: an interrupted change of the project was undone: it is as it was before")
            }
            Recovered::Undone { kept, .. } => format!(
                "{run}: an interrupted change of the project was undone, except where somebody wrote meanwhile: {}; \
                 what was there before: bastle recover {run} --extract DIR",
                listed(kept)
            ),
            Recovered::SetAside { at, .. } => format!(
                "{run}: an interrupted change of the project was neither finished nor undone, the project stays as it is; \
                 its journal is now {}; what it keeps: bastle recover {run} --extract DIR",
                visible(at.as_os_str().as_bytes())
            ),
        }
    }
}

fn listed(paths: &[TreePath]) -> String {
    let mut text: Vec<String> = paths.iter().take(MOST_LISTED).map(ToString::to_string).collect();
    if paths.len() > MOST_LISTED {
        text.push(format!("and {} more", paths.len() - MOST_LISTED));
    }
    text.join(", ")
}

/// Finishes or undoes changes of a project that were interrupted, whichever run they were of: until then its tree may be
/// neither old nor new. One that is under way in another process is left to it.
///
/// # Errors
/// When it can be neither finished nor undone: nothing may be built on such a tree.
pub fn repair_project(place: &Place, source: &Path) -> Result<Vec<String>, Fault> {
    if !Marker::path(place.state(), source).exists() {
        return Ok(Vec::new());
    }
    let lock = ApplyLock::try_now(place.state());
    notes_of(repair_as(place, source, (Direction::Either, None), lock.as_ref()))
}

/// The same for who applies.
pub(super) fn repair_project_alone(
    place: &Place,
    source: &Path,
    alone: &ApplyLock,
) -> Result<Vec<String>, Fault> {
    if !Marker::path(place.state(), source).exists() {
        return Ok(Vec::new());
    }
    notes_of(repair_as(place, source, (Direction::Either, None), Some(alone)))
}

fn notes_of(repaired: Result<Vec<Repaired>, Fault>) -> Result<Vec<String>, Fault> {
    Ok(repaired?.iter().map(Repaired::note).collect())
}

/// As [`repair_project`], and also where the marker is missing and the run's own journals say that it was interrupted.
pub(super) fn repair_of(space: &Workspace, place: &Place) -> Result<Vec<String>, Fault> {
    // One that cannot be read is told by the verbs that need it.
    if !matches!(apply::is_interrupted(&space.path(JOURNALS)), Ok(true)) {
        return repair_project(place, space.source());
    }
    let lock = ApplyLock::try_now(place.state());
    notes_of(repair_as(
        place,
        space.source(),
        (Direction::Either, None),
        lock.as_ref(),
    ))
}

/// Does the same for every project that a marker names, for the start of a verb or a daemon. Answers what to tell; what
/// cannot be repaired is told with the ways out, and stops the verbs that open such a run.
#[must_use]
pub fn repair_marked(state: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let Ok(markers) = std::fs::read_dir(state.join(MARKERS)) else {
        return notes;
    };
    let place = Place::new(state.to_owned());
    for marker in markers.flatten() {
        let Ok(source) = std::fs::read(marker.path()) else {
            continue;
        };
        let source = Path::new(OsStr::from_bytes(&source));
        // A marker that was cut off while it was written names nothing; nothing was changed yet.
        if Marker::path(state, source) != marker.path() {
            continue;
        }
        match repair_project(&place, source) {
            Ok(done) => notes.extend(done),
            Err(fault) => notes.push(fault.to_string()),
        }
    }
    notes
}

/// Without the lock the marker stays: an apply may be between it and its first journal.
fn repair_as(
    place: &Place,
    source: &Path,
    (direction, only): (Direction, Option<&str>),
    lock: Option<&ApplyLock>,
) -> Result<Vec<Repaired>, Fault> {
    let durable = Durable::default();
    let mut repaired = Vec::new();
    let mut all = true;
    for meta in of(&metas(place)?, source) {
        let journals = place.run(&meta.run).join(JOURNALS);
        if only.is_some_and(|run| run != meta.run.as_str()) {
            all &= !apply::is_interrupted(&journals)?;
            continue;
        }
        let target = Target {
            source,
            journals: &journals,
            durable: &durable,
        };
        let mut ended = apply::recover_to(&target, direction);
        if ended.is_err() && reserve::is_full(place.state()) && reserve::give_up(place.state()) {
            // Its records are small, and the room that was set aside is for what must be possible on a full disk.
            ended = apply::recover_to(&target, direction);
        }
        match ended {
            Ok(done) => repaired.extend(done.into_iter().map(|done| Repaired {
                run: meta.run.to_string(),
                done,
            })),
            Err(fault) if fault.code == Code::WorkspaceBusy => all = false,
            Err(_) if is_gone(source) => all = false,
            Err(fault) => return Err(ways_out(fault, meta, direction)),
        }
    }
    if all && lock.is_some() {
        clear(&Marker::path(place.state(), source));
    }
    Ok(repaired)
}

/// A project that was removed or moved cannot be repaired, and nothing can be built on it.
fn is_gone(source: &Path) -> bool {
    matches!(source.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

fn ways_out(fault: Fault, meta: &Meta, direction: Direction) -> Fault {
    let run = &meta.run;
    let damaged = fault.code == Code::WorkspaceDamaged;
    let fault = match direction {
        // Neither is possible without the record.
        _ if damaged => fault,
        Direction::Either => fault
            .help(format!(
                "bastle recover {run} --back      undoes the interrupted change"
            ))
            .help(format!("bastle recover {run} --forward   finishes it")),
        Direction::Forward => fault.help(format!("bastle recover {run} --back")),
        Direction::Back => fault,
    };
    let fault = fault.help(format!(
        "bastle recover {run} --extract DIR   writes what it replaced to a new directory"
    ));
    match damaged {
        true => fault.help(format!(
            "bastle recover {run} --abandon   leaves the project as it is and sets the journal aside"
        )),
        false => fault,
    }
}

/// Ends an interrupted change of the run's project in a direction.
///
/// # Errors
/// When the tree does not allow it; what is in the way is named.
pub fn recover(
    at: &Whereabouts,
    name: Option<&str>,
    direction: Direction,
) -> Result<(String, Vec<Repaired>), Fault> {
    let space = open_interrupted(at, name)?;
    let run = space.run().to_string();
    let place = at.place();
    let lock = ApplyLock::try_now(place.state());
    let only = name.map(|_| run.as_str());
    let repaired = repair_as(&place, space.source(), (direction, only), lock.as_ref())?;
    Ok((run, repaired))
}

/// Ends the run's interrupted changes where that is possible, and sets their journals aside where it is not.
///
/// # Errors
/// When another apply is under way, or a journal cannot be renamed.
pub fn abandon(at: &Whereabouts, name: Option<&str>) -> Result<(String, Vec<Repaired>), Fault> {
    let space = open_interrupted(at, name)?;
    let place = at.place();
    let lock = ApplyLock::wait(place.state())?;
    let durable = Durable::default();
    let journals = space.path(JOURNALS);
    let target = Target {
        source: space.source(),
        journals: &journals,
        durable: &durable,
    };
    let run = space.run().to_string();
    let ended = apply::abandon(&target)?.into_iter().map(|done| Repaired {
        run: run.clone(),
        done,
    });
    let ended = ended.collect();
    let marker = Marker {
        path: Marker::path(place.state(), space.source()),
        place: &place,
        source: space.source(),
    };
    marker.settle();
    drop(lock);
    Ok((run, ended))
}

/// Writes everything of the project that the run's journals keep into a new directory.
///
/// # Errors
/// When the directory exists or cannot be written.
pub fn extract(at: &Whereabouts, name: Option<&str>, into: &Path) -> Result<(String, Vec<PathBuf>), Fault> {
    let space = open_interrupted(at, name)?;
    let durable = Durable::default();
    let journals = space.path(JOURNALS);
    let target = Target {
        source: space.source(),
        journals: &journals,
        durable: &durable,
    };
    Ok((space.run().to_string(), apply::extract(&target, into)?))
}
