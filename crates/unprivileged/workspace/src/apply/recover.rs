//! After a kill or a power cut: a transaction is finished or undone, whichever the tree allows, and what it replaced can
//! be had from its journal.
//!
//! **Trust:** where each object is, is read from the file system and not from a counter; every step can be repeated.
use super::area;
use super::damaged;
use super::execute::{Target, fault_of, open_alone, originals};
use super::journal::{Area, Journal, JournalState, Journals, Progress};
use super::settle::{Position, SettleError, Side};
use super::stage::copy;
use super::transaction::Open;
use crate::faults::io_fault;
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::{Code, Fault};
use std::path::{Path, PathBuf};

/// Which way an interrupted transaction is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Forwards where nothing changed in the meantime, else backwards.
    Either,
    /// Only forwards.
    Forward,
    /// Only backwards.
    Back,
}

/// What recovery did with a transaction that was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It was finished: the host tree is new.
    Finished(u64),
    /// It was undone: the host tree is old.
    Undone {
        /// The number of its journal.
        number: u64,
        /// Paths that somebody changed after the interruption: theirs stay, what was there before is in the journal.
        kept: Vec<TreePath>,
    },
    /// It could be neither, and a person said to leave it: the host tree is as it was found.
    SetAside {
        /// The number of its journal.
        number: u64,
        /// Where the journal is now, with what it keeps.
        at: PathBuf,
    },
}

/// Finishes or undoes what was interrupted. Runs before every apply and at the start of every verb.
///
/// # Errors
/// When a journal cannot be read or the host tree cannot be written.
pub fn recover(target: &Target<'_>) -> Result<Vec<Recovered>, Fault> {
    recover_to(target, Direction::Either)
}

/// As [`recover`], in a direction that a person chose.
///
/// # Errors
/// As [`recover`]; with one direction also when the tree does not allow it.
pub fn recover_to(target: &Target<'_>, direction: Direction) -> Result<Vec<Recovered>, Fault> {
    if Journals::new(target.journals).unfinished()?.is_empty() {
        return Ok(Vec::new());
    }
    recover_with(target, &open_alone(target.source)?.0, direction)
}

/// Finishes or undoes what can be, and sets the journals aside that can be neither.
///
/// # Errors
/// When another apply is under way, or a journal cannot be renamed.
pub fn abandon(target: &Target<'_>) -> Result<Vec<Recovered>, Fault> {
    let journals = Journals::new(target.journals);
    let numbers = journals.unfinished()?;
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let root = open_alone(target.source)?;
    let mut ended = Vec::new();
    for number in numbers {
        let done = match journals.read(number) {
            Ok(Some(read)) => recover_one(target, &root.0, &journals, read, Direction::Either),
            Ok(None) => Err(journals.missing(number)),
            Err(fault) => Err(fault),
        };
        ended.push(match done {
            Ok(done) => done,
            Err(_) => Recovered::SetAside {
                number,
                at: journals.set_aside(number, target.durable)?,
            },
        });
    }
    Ok(ended)
}

/// Whether a transaction of these journals was interrupted. Reads only small records.
///
/// # Errors
/// When a record cannot be read.
pub fn is_interrupted(journals: &Path) -> Result<bool, Fault> {
    Ok(!Journals::new(journals).unfinished()?.is_empty())
}

pub(super) fn recover_with(
    target: &Target<'_>,
    root: &Root,
    direction: Direction,
) -> Result<Vec<Recovered>, Fault> {
    let journals = Journals::new(target.journals);
    let mut recovered = Vec::new();
    let mut unreadable = None;
    for number in journals.unfinished()? {
        match journals.read(number) {
            Ok(Some(read)) => recovered.push(recover_one(target, root, &journals, read, direction)?),
            Ok(None) => unreadable = Some(journals.missing(number)),
            // The others are ended first.
            Err(fault) => unreadable = Some(fault),
        }
    }
    unreadable.map_or(Ok(recovered), Err)
}

fn recover_one(
    target: &Target<'_>,
    root: &Root,
    journals: &Journals,
    (journal, progress): (Journal, Progress),
    direction: Direction,
) -> Result<Recovered, Fault> {
    let number = journal.number;
    let mut open = Open {
        target,
        root,
        journals: journals.clone(),
        journal,
        areas: Vec::new(),
    };
    match progress.state {
        JournalState::Done => Ok(Recovered::Finished(number)),
        JournalState::Abandoned => {
            let kept = progress.kept;
            Ok(Recovered::Undone { number, kept })
        }
        JournalState::Abandoning => {
            let kept = progress.kept.clone();
            open.finish_abandoning(progress)?;
            Ok(Recovered::Undone { number, kept })
        }
        JournalState::Preparing => {
            open.give_up()?;
            let kept = Vec::new();
            Ok(Recovered::Undone { number, kept })
        }
        JournalState::Settling => {
            open.settle(&progress)?;
            let state = JournalState::Done;
            open.advance(&Progress { state, ..progress })?;
            Ok(Recovered::Finished(number))
        }
        JournalState::Committing => {
            open.areas = open_areas(&open)?;
            let forward = match direction {
                Direction::Either => can_go_forward(&open)?,
                Direction::Forward => true,
                Direction::Back => false,
            };
            if forward {
                match open.commit() {
                    Ok(()) => {
                        open.restore_times_of_undone()?;
                        open.finish()?;
                        return Ok(Recovered::Finished(number));
                    }
                    Err((_, fault)) if direction == Direction::Forward => return Err(fault),
                    // Somebody writes at this very moment, or the disk refuses: the way back needs neither.
                    Err(_) => {}
                }
            }
            let kept = open.roll_back()?;
            open.restore_times(&open.times_before(), &kept);
            open.abandon(kept.clone())?;
            Ok(Recovered::Undone { number, kept })
        }
    }
}

fn open_areas(open: &Open<'_>) -> Result<Vec<Root>, Fault> {
    let folder = open.folder();
    let mut areas = Vec::new();
    for area in &open.journal.areas {
        let opened = area::open(open.root, &folder, area)
            .map_err(|error| io_fault("open the staging area of", open.target.source, error))?;
        areas.push(opened.ok_or_else(|| {
            let at = match area {
                Area::Journal => folder.join(area::SLOTS),
                Area::Tree { directory, name } => {
                    let within = directory.as_ref().map_or(Path::new(""), TreePath::as_path);
                    open.target.source.join(within).join(name)
                }
            };
            let what = format!("{} of an interrupted apply is gone", at.display());
            Fault::new(Code::WorkspaceDamaged, what, "somebody removed it")
        })?);
    }
    Ok(areas)
}

/// Whether every path that is not exchanged yet is as the plan saw it.
fn can_go_forward(open: &Open<'_>) -> Result<bool, Fault> {
    for one in open.exchanges() {
        let failed = |error: SettleError| fault_of(one.swap.path(), &error);
        if one.position().map_err(failed)? == Position::Staged
            && !one.host_holds(Side::Before).map_err(failed)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Paths whose only other copy is in a journal: of interrupted transactions, and of those that were undone where
/// somebody wrote meanwhile. What an unreadable journal keeps is named by its path there.
///
/// # Errors
/// When the directory of journals cannot be read.
pub fn kept_originals(journals: &Path) -> Result<Vec<TreePath>, Fault> {
    let all = Journals::new(journals).read_all()?;
    let mut kept = damaged::kept(&all.unreadable)?;
    for (journal, progress) in all.readable {
        match progress.state {
            JournalState::Done | JournalState::Preparing => {}
            JournalState::Abandoning | JournalState::Abandoned => kept.extend(progress.kept),
            JournalState::Committing | JournalState::Settling => {
                let replaced = journal.operations().filter(|one| one.before.is_some());
                kept.extend(replaced.map(|one| one.path.clone()));
            }
        }
    }
    Ok(kept)
}

/// Writes everything that the journals keep of the project into a directory, in one subdirectory for each transaction.
/// Answers what was written.
///
/// # Errors
/// When the directory exists or cannot be written.
pub fn extract(target: &Target<'_>, into: &Path) -> Result<Vec<PathBuf>, Fault> {
    let journals = Journals::new(target.journals);
    let failed = |error| io_fault("write", into, error);
    std::fs::create_dir(into).map_err(failed)?;
    // The project itself may be gone; what lies in the journals is had without it.
    let root = Root::open(target.source)
        .or_else(|_| Root::open(target.journals))
        .map_err(failed)?;
    let all = journals.read_all()?;
    let mut written = damaged::extract(target, into, &all.unreadable)?;
    for (journal, _) in all.readable {
        let kept = originals(&root, &journals, &journal)?;
        let mut into_this = None;
        for (path, (area, at)) in &kept.at {
            let from = &kept.areas[*area];
            if from.stat(at).map_err(failed)?.is_none() {
                continue;
            }
            let folder = into.join(format!("{:06}", journal.number));
            let to = match &into_this {
                Some(to) => to,
                None => {
                    std::fs::create_dir(&folder).map_err(failed)?;
                    &*into_this.insert(Root::open(&folder).map_err(failed)?)
                }
            };
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(folder.join(parent.as_path())).map_err(failed)?;
            }
            if to.type_of(path).map_err(failed)?.is_none() {
                copy(from, at, to, path).map_err(|error| fault_of(path, &error))?;
            }
            written.push(folder.join(path.as_path()));
        }
    }
    Ok(written)
}
