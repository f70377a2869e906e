//! The life of a transaction: stage, record, exchange names, record again; and the way back from every point of it.
//!
//! **Trust:** decides nothing. Order and consequence: the journal names the staging areas before they exist; staged
//! objects and the journal are durable before the first exchange; originals stay in their slots until the new names are
//! durable. A kill or a power cut between any two of these leaves what [`super::recover`] can finish or undo.
use super::area;
use super::groups::group;
use super::journal::{Area, Journal, JournalState, Journals, Operation, Progress};
use super::plan::Plan;
use super::settle::{SettleError, moved};
use super::stage::{Originals, Source};
use super::transaction::Open;
use crate::blobs::{Blobs, Layered};
use crate::crew::by_piece;
use crate::durable::Durable;
use crate::faults::io_fault;
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::{Code, Fault};
use rustix::fs::FlockOperation;
use std::collections::BTreeSet;
use std::path::Path;

/// Where a journal keeps copies of what was replaced on another file system.
pub(super) const BACKUP: &str = "backup";

const AS_BEFORE: &str = "The host tree is as it was before; look at it and apply again.";

/// Where to write and where to keep the record.
#[derive(Clone)]
pub struct Target<'a> {
    /// The host tree.
    pub source: &'a Path,
    /// The run's directory of journals.
    pub journals: &'a Path,
    /// How state is made durable.
    pub durable: &'a Durable,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The number of the journal, for the record.
    pub number: u64,
    /// Paths that changed.
    pub paths: Vec<TreePath>,
    /// Directories that should have gone and hold other files.
    pub kept: Vec<TreePath>,
    /// Changed files that have other names (hard links); those keep the old content.
    pub linked: Vec<TreePath>,
}

/// Carries out a plan on the host tree.
///
/// # Errors
/// On conflicts, when another apply is under way, or when a step fails; the host tree is as before then.
pub fn apply(target: &Target<'_>, plan: &Plan, blobs: &dyn Blobs) -> Result<Applied, Fault> {
    if let Some(fault) = plan.conflict_fault() {
        return Err(fault);
    }
    let root = open_alone(target.source)?;
    super::recover::recover_with(target, &root.0, super::recover::Direction::Either)?;
    let layered = Layered {
        made: plan.made.clone(),
        under: blobs,
    };
    let source = Source::Contents(&layered);
    let mut applied = carry_out(target, &root.0, plan.groups(), &source, None)?;
    applied.kept = plan.kept().to_vec();
    Ok(applied)
}

/// Takes back the last apply that was not taken back.
///
/// # Errors
/// When there is none, or when the host tree changed since; nothing is written then.
pub fn undo(target: &Target<'_>) -> Result<Applied, Fault> {
    let root = open_alone(target.source)?;
    super::recover::recover_with(target, &root.0, super::recover::Direction::Either)?;
    let journals = Journals::new(target.journals);
    let last = last_applied(&journals)?;
    let operations: Vec<Operation> = last.0.operations().map(Operation::reversed).collect();
    let unreadable = |error| io_fault("list", target.source, error);
    let mut changed = by_piece(&operations, |piece| {
        let root = root.0.nearby().map_err(unreadable)?;
        let mut changed = Vec::new();
        for operation in piece {
            let now = root
                .kind_or_nothing(&operation.path)
                .map_err(|error| fault_of(&operation.path, &SettleError::Io(error)))?;
            if now != operation.before {
                changed.push(operation.path.to_string());
            }
        }
        Ok(changed)
    })?;
    let grouped = group(&root.0, operations).map_err(unreadable)?;
    changed.extend(grouped.blocked.iter().map(|group| format!("{}/", group[0].path)));
    if !changed.is_empty() {
        let more = changed.len().saturating_sub(20);
        changed.truncate(20);
        if more > 0 {
            changed.push(format!("and {more} more"));
        }
        return Err(Fault::new(
            Code::WorkspaceConflict,
            "undo the last apply",
            format!("changed since: {}", changed.join(", ")),
        ));
    }
    let originals = originals(&root.0, &journals, &last.0)?;
    let source = Source::Originals(&originals);
    let mut undone = carry_out(target, &root.0, &grouped.groups, &source, Some(&last))?;
    undone.kept = grouped.kept;
    Ok(undone)
}

fn last_applied(journals: &Journals) -> Result<(Journal, Progress), Fault> {
    // What takes an apply back comes after it, so that only the newest journals have to be read.
    let mut undone = BTreeSet::new();
    for read in journals.newest_first()? {
        let (journal, progress) = read?;
        match (progress.state, journal.undoes) {
            (JournalState::Done, Some(number)) => drop(undone.insert(number)),
            (JournalState::Done, None) if !undone.contains(&journal.number) => {
                return Ok((journal, progress));
            }
            _ => {}
        }
    }
    let why = "nothing of this run was applied that is not undone already";
    Err(Fault::new(Code::WorkspaceApply, "undo", why))
}

/// The objects that a transaction replaced, where its journal keeps them.
pub(super) fn originals(root: &Root, journals: &Journals, journal: &Journal) -> Result<Originals, Fault> {
    let folder = journals.folder(journal.number);
    let fail = |error| io_fault("open", &folder, error);
    let mut found = Originals {
        areas: Vec::new(),
        at: std::collections::BTreeMap::new(),
    };
    let mut opened = Vec::new();
    for (number, area) in journal.areas.iter().enumerate() {
        let open = match area {
            Area::Journal => area::open(root, &folder, area).map_err(fail)?,
            Area::Tree { .. } => Root::open(&folder.join(format!("{BACKUP}-{number}"))).ok(),
        };
        let open = open.map(|open| open.nearby()).transpose().map_err(fail)?;
        opened.push(open.map(|open| {
            found.areas.push(open);
            found.areas.len() - 1
        }));
    }
    for swap in &journal.swaps {
        let Some(area) = opened.get(swap.area).copied().flatten() else {
            continue;
        };
        for operation in swap.operations.iter().filter(|one| one.before.is_some()) {
            let at = moved(&operation.path, swap.path(), &swap.slot)
                .map_err(|error| fault_of(&operation.path, &error))?;
            found.at.insert(operation.path.clone(), (area, at));
        }
    }
    Ok(found)
}

fn carry_out(
    target: &Target<'_>,
    root: &Root,
    groups: &[Vec<Operation>],
    source: &Source<'_>,
    undoes: Option<&(Journal, Progress)>,
) -> Result<Applied, Fault> {
    let journals = Journals::new(target.journals);
    let number = journals.next()?;
    target.durable.make_dir(&journals.folder(number))?;
    let mut open = Open {
        target,
        root,
        journals,
        journal: Journal::new(number, undoes.map(|(journal, _)| journal.number)),
        areas: Vec::new(),
    };
    let linked = match open.prepare(groups, source) {
        Ok(linked) => linked,
        Err(fault) => {
            open.give_up()?;
            return Err(fault);
        }
    };
    let committing = Progress::at(JournalState::Committing);
    if let Err(fault) = open.advance(&committing) {
        // No name has changed. The record may be on disk all the same, so that it is replaced before what was staged goes.
        open.abandon(Vec::new())?;
        return Err(fault.help(AS_BEFORE));
    }
    let before = open.times_now();
    if let Err((at, fault)) = open.commit() {
        open.take_back(&before, at)?;
        return Err(fault.help(AS_BEFORE));
    }
    if let Some((journal, progress)) = undoes {
        open.restore_parents(journal, progress, &before);
    }
    let exchanged = match open.record_exchanged() {
        Ok(exchanged) => exchanged,
        Err(fault) => {
            // The record may say that names are exchanged. Only when it says otherwise may they go back.
            open.advance(&committing)?;
            open.take_back(&before, None)?;
            return Err(fault.help(AS_BEFORE));
        }
    };
    open.finish_recorded(exchanged)?;
    Ok(Applied {
        number,
        paths: open.journal.operations().map(|one| one.path.clone()).collect(),
        kept: Vec::new(),
        linked,
    })
}

/// The host tree, locked. Unlocks by itself: a child that was being started at that moment may still hold the
/// descriptor for an instant, and with it the lock.
pub(super) struct Alone(pub(super) Root);

impl Drop for Alone {
    fn drop(&mut self) {
        // The lock goes with the last descriptor in any case.
        let unlocked = rustix::fs::flock(self.0.handle(), FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok());
    }
}

/// The host tree, with nobody else applying to it: the lock is on the directory itself and leaves no trace.
pub(super) fn open_alone(source: &Path) -> Result<Alone, Fault> {
    let root = Root::open(source).map_err(|error| io_fault("open", source, error))?;
    match rustix::fs::flock(root.handle(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Alone(root)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::new(
            Code::WorkspaceBusy,
            "apply to the project",
            "another apply to it is under way",
        )),
        Err(errno) => Err(io_fault("lock", source, errno)),
    }
}

pub(super) fn fault_of(path: &TreePath, error: &SettleError) -> Fault {
    match error {
        SettleError::Drift => Fault::new(
            Code::WorkspaceConflict,
            format!("apply {path}"),
            error.to_string(),
        ),
        SettleError::Content(fault) => fault.clone(),
        SettleError::Damaged | SettleError::NoRoom | SettleError::Io(_) => {
            Fault::new(Code::WorkspaceApply, format!("apply {path}"), error.to_string())
        }
    }
}
