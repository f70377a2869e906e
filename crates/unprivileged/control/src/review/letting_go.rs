//! Letting go: removal to the trash or for good, the way back, and what goes by age.
//!
//! **Trust:** a removal refuses while work is nowhere else, and a run that lives is never removed. What a person removes is
//! on record before it goes. On a full disk nothing is written before room was made.
use super::alive::settle_state;
use super::choose::{Whereabouts, metas, repair};
use super::keep::refuse_living;
use crate::afterwards::Change;
use crate::runs::RunDir;
use bastle_contract::{Code, Fault, RunId};
use bastle_workspace::discard::Discard;
use bastle_workspace::path::visible;
use bastle_workspace::reserve;
use bastle_workspace::retention::{self, Prune, Pruned};
use bastle_workspace::trash::{self, Emptied, Trashed};
use bastle_workspace::unsaved::Unsaved;
use bastle_workspace::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long removed copies stay in the trash unless somebody says otherwise.
pub const TRASH_AGE: Duration = Duration::from_secs(7 * 86_400);

/// Where a copy goes that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// To the trash, from which it can be taken back.
    Trash,
    /// Nowhere: its room is free at once.
    AtOnce,
}

/// Removes a run's copy; gives every path that went.
///
/// # Errors
/// While the run lives, or work is nowhere else and `discard` does not name exactly that.
pub fn remove(
    state: &Path,
    space: Workspace,
    (discard, fate): (Option<&Discard>, Fate),
    principal: &str,
) -> Result<Vec<PathBuf>, Fault> {
    refuse_living(&space)?;
    let run = space.run().clone();
    // What is thrown away is on record by its places.
    let names = match discard {
        Some(_) => space.unsaved()?.iter().map(Unsaved::told).collect(),
        None => Vec::new(),
    };
    let change = Change {
        run: &run,
        by: "rm",
        at: shown(&space.tree()),
        names,
        approvals: discard.iter().map(ToString::to_string).collect(),
        principal,
    };
    if reserve::is_full(state) {
        // Before the room that was set aside is used up for the record of a refusal.
        space.check_removable(discard)?;
    }
    change.make_freeing(state, || match fate {
        Fate::Trash => space.move_to_trash(discard),
        Fate::AtOnce => space.remove(discard),
    })
}

/// Lets go of what is kept of a run in the background: it follows its copy to the trash.
///
/// # Errors
/// While it has a keeper.
pub fn remove_record(state: &Path, dir: RunDir) -> Result<PathBuf, Fault> {
    let at = dir.path().to_path_buf();
    let place = bastle_workspace::place::Place::new(state.to_path_buf());
    let copies = trash::trashed(&place)?;
    let copy = copies.iter().find(|one| one.run == *dir.name());
    match copy.map(Trashed::record).filter(|record| !record.exists()) {
        Some(record) => dir.move_to(&record)?,
        None => dir.remove()?,
    }
    Ok(at)
}

/// What came out of the trash.
pub struct Restored {
    /// The run.
    pub run: RunId,
    /// Its tree.
    pub tree: PathBuf,
    /// Whether the record of a run in the background came back with it.
    pub record: bool,
}

/// Takes a removed run back: its copy, and what was kept of it in the background.
///
/// # Errors
/// When there is none of that name in the trash, or its name is in use.
pub fn restore(at: &Whereabouts, name: &str, principal: &str) -> Result<Restored, Fault> {
    let place = at.place();
    repair(&place)?;
    let found = choose(trash::trashed(&place)?, name)?;
    let change = Change {
        run: &found.run,
        by: "restore",
        at: shown(&found.path),
        names: Vec::new(),
        approvals: Vec::new(),
        principal,
    };
    let mut record = false;
    // The record first: a run whose copy is still in the trash can be restored again.
    let space = change.make(&at.state, || {
        trash::restore(&place, &found.run, |found| {
            record = RunDir::take_back(&at.state, &found.run, &found.record())?;
            Ok(())
        })
    })?;
    Ok(Restored {
        run: found.run.clone(),
        tree: space.tree(),
        record,
    })
}

/// The removed copy that a name or the unique beginning of one means; of several with one name, the newest.
fn choose(trashed: Vec<Trashed>, name: &str) -> Result<Trashed, Fault> {
    let exact = trashed.iter().find(|one| one.run.as_str() == name);
    if let Some(exact) = exact {
        return Ok(exact.clone());
    }
    let mut fitting: Vec<&Trashed> = trashed
        .iter()
        .filter(|one| !name.is_empty() && one.run.as_str().starts_with(name))
        .collect();
    fitting.dedup_by(|a, b| a.run == b.run);
    let shown = visible(name.chars().take(200).collect::<String>().as_bytes());
    match fitting.as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let what = format!("no removed run called {shown} is in the trash");
            Err(Fault::new(Code::WorkspaceMissing, what, "").help("bastle ls --trash"))
        }
        [first, second, ..] => {
            let what = format!("{shown} names more than one removed run");
            let why = format!("{} and {} begin so", first.run, second.run);
            Err(Fault::new(Code::UsageArgument, what, why).help("bastle ls --trash"))
        }
    }
}

/// What goes by age.
#[derive(Clone, Copy, Debug)]
pub struct PruneWish {
    /// Copies that are older than this.
    pub age: Duration,
    /// What has been in the trash for longer than this.
    pub trash_age: Duration,
    /// To the trash, for good, or only listed.
    pub what: Prune,
}

/// What went by age, or would go.
pub struct PrunedAll {
    /// Copies.
    pub copies: Pruned,
    /// What left the trash.
    pub trash: Emptied,
    /// What was really done: on a full disk nothing goes to the trash.
    pub what: Prune,
    /// What was repaired before, and what could not be looked at.
    pub notes: Vec<String>,
}

/// Removes, or lists, every copy that has ended, is older than asked and holds nothing that is not elsewhere, and what has
/// been in the trash for long.
///
/// # Errors
/// The kernel's, on the directory of copies.
pub fn prune(at: &Whereabouts, wish: PruneWish) -> Result<PrunedAll, Fault> {
    let place = at.place();
    // Before anything else: the way to room on a full disk, needing none itself.
    let trash = trash::empty(&place, wish.trash_age, wish.what)?;
    let mut notes = repair(&place)?;
    for meta in metas(&place)? {
        if let Ok(space) = Workspace::open(&place, &meta.run)
            && let Err(fault) = settle_state(&space)
        {
            notes.push(format!("{}: {fault}", meta.run));
        }
    }
    let what = match wish.what {
        Prune::Remove if reserve::is_full(&at.state) => Prune::AtOnce,
        what => what,
    };
    Ok(PrunedAll {
        copies: retention::prune(&place, wish.age, what)?,
        trash,
        what,
        notes,
    })
}

fn shown(path: &Path) -> String {
    visible(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_workspace::copy::Progress;
    use bastle_workspace::workspace::{CreateRequest, GitMade};
    use serde_json::json;

    struct Ground {
        root: tempfile::TempDir,
        at: Whereabouts,
    }

    /// A run in the background that has ended, with a copy.
    fn ground() -> (Ground, Workspace, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("README"), "read me").unwrap();
        let at = Whereabouts {
            state: root.path().join("state"),
            project: None,
        };
        let run = RunId::try_from("one".to_owned()).unwrap();
        let request = CreateRequest {
            run,
            source: &source,
            hidden: &|_| false,
            git: &mut |_| Ok(GitMade::default()),
            progress: &mut |_: Progress| {},
        };
        let space = Workspace::create(&at.place(), request).unwrap();
        let spec = json!({"name": "one", "argv": ["true"], "workspace": source});
        let dir = RunDir::create(&at.state, &serde_json::from_value(spec).unwrap(), 1).unwrap();
        (Ground { root, at }, space, dir)
    }

    #[test]
    fn the_record_of_a_run_goes_to_the_trash_with_its_copy_and_comes_back_with_it() {
        let (ground, space, dir) = ground();
        let at = &ground.at;
        let (path, spec) = (dir.path().to_path_buf(), dir.spec().unwrap());
        remove(&at.state, space, (None, Fate::Trash), "me").unwrap();
        // Killed here: the copy comes back to its record.
        assert!(!restore(at, "one", "me").unwrap().record);
        let space = Workspace::open(&at.place(), dir.name()).unwrap();
        remove(&at.state, space, (None, Fate::Trash), "me").unwrap();
        assert_eq!(remove_record(&at.state, dir).unwrap(), path);
        assert!(!path.exists());

        // Its name is given again, and the copy stays where it is.
        std::fs::create_dir(&path).unwrap();
        assert_eq!(restore(at, "o", "me").err().unwrap().code, Code::UsageArgument);
        assert_eq!(trash::trashed(&at.place()).unwrap().len(), 1);
        std::fs::remove_dir(&path).unwrap();
        let restored = restore(at, "o", "me").unwrap();
        assert!(restored.record && restored.tree.join("README").exists());
        assert_eq!(
            RunDir::open(&at.state, &restored.run).unwrap().spec().unwrap(),
            spec
        );
        assert!(!ground.root.path().join("state/work/one/record").exists());
    }

    #[test]
    fn a_record_without_a_copy_in_the_trash_goes_for_good() {
        let (ground, space, dir) = ground();
        let path = dir.path().to_path_buf();
        remove(&ground.at.state, space, (None, Fate::AtOnce), "me").unwrap();
        remove_record(&ground.at.state, dir).unwrap();
        assert!(!path.exists());
        assert_eq!(
            restore(&ground.at, "one", "me").err().unwrap().code,
            Code::WorkspaceMissing
        );
    }

    #[test]
    fn what_goes_by_age_lies_in_the_trash_for_its_time_first() {
        let (ground, _, _) = ground();
        let wish = |trash_age, what| PruneWish {
            age: Duration::ZERO,
            trash_age,
            what,
        };
        let first = prune(&ground.at, wish(TRASH_AGE, Prune::Remove)).unwrap();
        assert_eq!((first.copies.runs.len(), first.trash.runs.len()), (1, 0));
        let shown = prune(&ground.at, wish(Duration::ZERO, Prune::DryRun)).unwrap();
        assert_eq!(shown.trash.runs.len(), 1);
        assert_eq!(trash::trashed(&ground.at.place()).unwrap().len(), 1);
        let second = prune(&ground.at, wish(Duration::ZERO, Prune::Remove)).unwrap();
        assert_eq!((second.copies.runs.len(), second.trash.runs.len()), (0, 1));
    }
}
