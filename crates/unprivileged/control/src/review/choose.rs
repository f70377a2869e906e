//! Which run a person means: a name, the unique beginning of one, or the last run of the project they stand in.
//!
//! **Trust:** names are typed by the user; what is recorded about runs is bastle's own. Opening a run finishes or
//! undoes what an interrupted process left, so that every verb starts from a whole state.
use super::alive::settle_state;
use super::recover::repair_of;
use bastle_contract::{Code, Fault, RunId};
use bastle_workspace::meta::{Meta, State};
use bastle_workspace::path::visible;
use bastle_workspace::place::Place;
use bastle_workspace::retention::{self, Recovered};
use bastle_workspace::workspace::Workspace;
use std::path::{Path, PathBuf};

/// Runs that one message lists.
const MOST_LISTED: usize = 10;

/// Where copies are, and which project a run without a name belongs to.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The state directory.
    pub state: PathBuf,
    /// The project the caller stands in, links resolved.
    pub project: Option<PathBuf>,
}

/// A run's copy, and what had to be repaired on the way to it.
pub struct Opened {
    /// The copy.
    pub space: Workspace,
    /// For people.
    pub notes: Vec<String>,
}

impl Whereabouts {
    /// The copies of this state directory.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::new(self.state.clone())
    }
}

/// Opens the run that `name` means; nothing and `@last` are the last run of the project.
///
/// # Errors
/// `WorkspaceMissing` with what there is; `UsageArgument` when several begin so.
pub fn open(at: &Whereabouts, name: Option<&str>) -> Result<Opened, Fault> {
    let place = at.place();
    let mut notes = repair(&place)?;
    let run = choose(&place, at.project.as_deref(), name)?;
    let space = Workspace::open(&place, &run)?;
    settle_state(&space)?;
    notes.extend(repair_of(&space, &place)?);
    Ok(Opened { space, notes })
}

/// The same for a removal: what a copy holds alone is judged without the project, so that an interrupted apply that cannot
/// be ended is told and stops nothing. Of the run itself it counts as work.
///
/// # Errors
/// As [`open`].
pub fn open_to_remove(at: &Whereabouts, name: Option<&str>) -> Result<Opened, Fault> {
    let place = at.place();
    let mut notes = repair(&place)?;
    let run = choose(&place, at.project.as_deref(), name)?;
    let space = Workspace::open(&place, &run)?;
    settle_state(&space)?;
    match repair_of(&space, &place) {
        Ok(repaired) => notes.extend(repaired),
        Err(fault) => notes.push(fault.to_string()),
    }
    Ok(Opened { space, notes })
}

/// Opens the run that `name` means and leaves an interrupted apply as it is: for the verb that ends it.
///
/// # Errors
/// When there is no such run or its records cannot be read.
pub(super) fn open_interrupted(at: &Whereabouts, name: Option<&str>) -> Result<Workspace, Fault> {
    let place = at.place();
    let run = choose(&place, at.project.as_deref(), name)?;
    Workspace::open(&place, &run)
}

/// Finishes what was cut off in the directory of copies.
///
/// # Errors
/// When the kernel refuses one of the calls; the error is the kernel's own.
pub fn repair(place: &Place) -> Result<Vec<String>, Fault> {
    if !place.work().exists() {
        return Ok(Vec::new());
    }
    let told = |one| match one {
        Recovered::Unmade(run) => format!("{run}: a copy that was never finished is removed"),
        Recovered::Removed(run) => format!("{run}: a removal that was cut off is finished"),
        Recovered::RolledBack(run) => format!("{run}: a rollback that was cut off is finished"),
        Recovered::Failed(run, fault) => format!("{run}: {fault}"),
    };
    Ok(retention::recover(place)?.into_iter().map(told).collect())
}

/// What is recorded about every run that has a whole copy, newest first; damaged records are passed over.
///
/// # Errors
/// When the directory of copies cannot be listed.
pub fn metas(place: &Place) -> Result<Vec<Meta>, Fault> {
    let mut metas: Vec<Meta> = place
        .runs()?
        .iter()
        .filter_map(|run| place.meta(run).ok())
        .filter(|meta| meta.state != State::Making)
        .collect();
    metas.sort_by(|a, b| (b.created, &b.run).cmp(&(a.created, &a.run)));
    Ok(metas)
}

fn choose(place: &Place, project: Option<&Path>, name: Option<&str>) -> Result<RunId, Fault> {
    let name = match name {
        None | Some("@last") => return last(place, project),
        Some(name) => name,
    };
    let runs = place.runs()?;
    if let Some(exact) = runs.iter().find(|run| run.as_str() == name) {
        return Ok(exact.clone());
    }
    let mut fitting = runs
        .iter()
        .filter(|run| !name.is_empty() && run.as_str().starts_with(name));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(first), Some(second)) => Err(Fault::new(
            Code::UsageArgument,
            format!("{} names more than one run", shown(name)),
            format!("{first} and {second} begin so"),
        )),
        (None, _) => {
            let what = format!("no run called {} has a copy", shown(name));
            Err(listed(
                place,
                Fault::new(Code::WorkspaceMissing, what, in_place(name)),
            ))
        }
    }
}

/// A run that worked in place is recorded and has no copy.
fn in_place(name: &str) -> &'static str {
    if name.contains(['/', '.']) || Path::new(name).symlink_metadata().is_ok() {
        "the first word after the verb is a run; paths come after it"
    } else {
        "runs that worked in place have none: what they changed is in the project already"
    }
}

fn last(place: &Place, project: Option<&Path>) -> Result<RunId, Fault> {
    let of_project = |meta: &&Meta| project.is_some_and(|project| meta.source.as_path() == project);
    if let Some(meta) = metas(place)?.iter().find(of_project) {
        return Ok(meta.run.clone());
    }
    let what = match project {
        Some(project) => format!("no run has a copy of {}", shown(&project.to_string_lossy())),
        None => "this directory is no project".to_owned(),
    };
    Err(listed(place, Fault::new(Code::WorkspaceMissing, what, "")))
}

/// The fault with the runs that there are.
fn listed(place: &Place, mut fault: Fault) -> Fault {
    let Ok(metas) = metas(place) else { return fault };
    for meta in metas.iter().take(MOST_LISTED) {
        let source = shown(&meta.source.as_path().to_string_lossy());
        fault = fault.help(format!("{} of {source}", meta.run));
    }
    if metas.is_empty() {
        fault = fault.help("bastle run --workspace copy -- CMD");
    }
    fault
}

fn shown(text: &str) -> String {
    visible(text.chars().take(200).collect::<String>().as_bytes())
}
