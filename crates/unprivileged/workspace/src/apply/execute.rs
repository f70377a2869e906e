//! Carrying out a plan: prepare beside, record, change the names; and the ways back from every point of it.
//!
//! **Trust:** decides nothing. Order and consequence: journal "preparing" before the first file beside; all files
//! and backups synced before "committing"; from then on the way is forward, or back as a whole.
use super::journal::{Journal, JournalState, Journals, Operation};
use super::plan::Plan;
use super::settle::{SettleError, clear_beside, copy_checked, lay_beside, permissions, settle};
use crate::attributes::{self, Has};
use crate::blobs::{Blobs, Layered};
use crate::durable::{Durable, Step};
use crate::faults::io_fault;
use crate::manifest::{Content, Kind};
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::{Code, Fault};
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

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
}

/// What recovery did with an apply that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It was finished: the host tree is new.
    Finished(u64),
    /// It was undone: the host tree is old.
    Undone(u64),
}

/// Contents kept beside a journal, by digest.
struct Backups(PathBuf);

impl Blobs for Backups {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        let path = self.0.join(digest.to_string());
        File::open(&path).map_err(|error| io_fault("open", &path, error))
    }
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
    recover_with(target, &root.0)?;
    let layered = Layered {
        made: plan.made.clone(),
        under: blobs,
    };
    carry_out(target, &root.0, plan.operations.clone(), &layered, None)
}

/// Takes back the last apply that was not taken back.
///
/// # Errors
/// When there is none, or when the host tree changed since; nothing is written then.
pub fn undo(target: &Target<'_>) -> Result<Applied, Fault> {
    let root = open_alone(target.source)?;
    recover_with(target, &root.0)?;
    let journals = Journals::new(target.journals);
    let all = journals.read_all()?;
    let undone: Vec<u64> = all
        .iter()
        .filter(|one| one.state == JournalState::Done)
        .filter_map(|one| one.undoes)
        .collect();
    let last = all
        .iter()
        .rev()
        .find(|one| one.state == JournalState::Done && one.undoes.is_none() && !undone.contains(&one.number));
    let Some(last) = last else {
        return Err(Fault::new(
            Code::WorkspaceApply,
            "undo",
            "nothing of this run was applied that is not undone already",
        ));
    };
    let operations: Vec<Operation> = last.operations.iter().map(Operation::reversed).collect();
    let mut changed = Vec::new();
    for operation in &operations {
        let now = root
            .0
            .kind_or_nothing(&operation.path)
            .map_err(|error| fault_of(&operation.path, &SettleError::Io(error)))?;
        // A directory that had to stay because it was not empty is no obstacle.
        let kept = operation.before.is_none() && now == Some(Kind::Dir) && operation.after == Some(Kind::Dir);
        if now != operation.before && !kept {
            changed.push(operation.path.to_string());
        }
    }
    if !changed.is_empty() {
        changed.truncate(20);
        return Err(Fault::new(
            Code::WorkspaceConflict,
            "undo the last apply",
            format!("changed since: {}", changed.join(", ")),
        ));
    }
    let backups = Backups(journals.folder(last.number).join("before"));
    carry_out(target, &root.0, operations, &backups, Some(last.number))
}

/// Finishes or undoes what a crash cut off. Runs before every apply and at start.
///
/// # Errors
/// When a journal cannot be read or the host tree cannot be written.
pub fn recover(target: &Target<'_>) -> Result<Vec<Recovered>, Fault> {
    if Journals::new(target.journals)
        .read_all()?
        .iter()
        .all(|one| is_settled(one.state))
    {
        return Ok(Vec::new());
    }
    recover_with(target, &open_alone(target.source)?.0)
}

fn is_settled(state: JournalState) -> bool {
    match state {
        JournalState::Done | JournalState::Abandoned => true,
        JournalState::Preparing | JournalState::Committing => false,
    }
}

fn recover_with(target: &Target<'_>, root: &Root) -> Result<Vec<Recovered>, Fault> {
    let journals = Journals::new(target.journals);
    let mut recovered = Vec::new();
    for mut journal in journals.read_all()? {
        match journal.state {
            JournalState::Done | JournalState::Abandoned => continue,
            JournalState::Preparing => {
                clear_all(target, root, &journal)?;
                journal.state = JournalState::Abandoned;
                recovered.push(Recovered::Undone(journal.number));
            }
            JournalState::Committing => match commit(target, root, &journal) {
                Ok(()) => {
                    journal.state = JournalState::Done;
                    recovered.push(Recovered::Finished(journal.number));
                }
                Err(_) => {
                    roll_back(target, root, &journals, &journal)?;
                    journal.state = JournalState::Abandoned;
                    recovered.push(Recovered::Undone(journal.number));
                }
            },
        }
        journals.write(&journal, target.durable)?;
    }
    Ok(recovered)
}

fn carry_out(
    target: &Target<'_>,
    root: &Root,
    operations: Vec<Operation>,
    blobs: &dyn Blobs,
    undoes: Option<u64>,
) -> Result<Applied, Fault> {
    let journals = Journals::new(target.journals);
    let number = journals.next()?;
    let operations = with_waiting_rooms(root, operations, number);
    let paths = operations
        .iter()
        .map(|operation| operation.path.clone())
        .collect();
    let mut journal = Journal {
        format: 1,
        number,
        state: JournalState::Preparing,
        undoes,
        operations,
    };
    journals.write(&journal, target.durable)?;
    if let Err(fault) = prepare(target, root, &journals, &journal, blobs) {
        clear_all(target, root, &journal)?;
        journal.state = JournalState::Abandoned;
        journals.write(&journal, target.durable)?;
        return Err(fault);
    }
    journal.state = JournalState::Committing;
    journals.write(&journal, target.durable)?;
    if let Err(fault) = commit(target, root, &journal) {
        roll_back(target, root, &journals, &journal)?;
        journal.state = JournalState::Abandoned;
        journals.write(&journal, target.durable)?;
        return Err(fault.help("The host tree is as it was before; look at it and apply again."));
    }
    journal.state = JournalState::Done;
    journals.write(&journal, target.durable)?;
    Ok(Applied { number, paths })
}

/// Gives every operation a place to wait: the nearest directory that exists, under a name nobody else uses.
fn with_waiting_rooms(root: &Root, mut operations: Vec<Operation>, number: u64) -> Vec<Operation> {
    let mut known: BTreeMap<TreePath, bool> = BTreeMap::new();
    let token = blake3::hash(
        format!(
            "{number} {} {:?}",
            std::process::id(),
            std::time::SystemTime::now()
        )
        .as_bytes(),
    )
    .to_hex();
    for (at, operation) in operations.iter_mut().enumerate() {
        operation.waits_as = format!(".bastle-{}-{at}", &token[..12]);
        operation.waits_in = None;
        operation.old_bits = permissions(root, &operation.path);
        let mut above = operation.path.parent();
        while let Some(directory) = above {
            let there = match known.get(&directory) {
                Some(there) => *there,
                None => matches!(root.directory(&directory), Ok(Some(_))),
            };
            known.insert(directory.clone(), there);
            if there {
                operation.waits_in = Some(directory);
                break;
            }
            above = directory.parent();
        }
    }
    // A directory that this apply removes cannot hold what waits: the root can.
    let removed: BTreeSet<TreePath> = operations
        .iter()
        .filter(|one| matches!(one.before, Some(Kind::Dir)) && one.after != Some(Kind::Dir))
        .map(|one| one.path.clone())
        .collect();
    for operation in &mut operations {
        let rooms = std::iter::successors(operation.waits_in.clone(), TreePath::parent);
        if rooms.into_iter().any(|room| removed.contains(&room)) {
            operation.waits_in = None;
        }
    }
    operations
}

/// Backups of what will go, copies of what will come.
fn prepare(
    target: &Target<'_>,
    root: &Root,
    journals: &Journals,
    journal: &Journal,
    blobs: &dyn Blobs,
) -> Result<(), Fault> {
    let kept = journals.folder(journal.number).join("before");
    target.durable.make_dir(&kept)?;
    for operation in &journal.operations {
        back_up(target, root, operation, &kept).map_err(|error| fault_of(&operation.path, &error))?;
    }
    target.durable.sync_dir(&kept)?;
    for operation in &journal.operations {
        target.durable.show(Step::Tree(operation.path.as_path()));
        lay_beside(root, operation, blobs).map_err(|error| fault_of(&operation.path, &error))?;
    }
    Ok(())
}

fn back_up(target: &Target<'_>, root: &Root, operation: &Operation, kept: &Path) -> Result<(), SettleError> {
    let Some(Kind::File {
        digest, attributes, ..
    }) = &operation.before
    else {
        return Ok(());
    };
    if let Some(id) = attributes {
        back_up_attributes(target, root, operation, &kept.join(id.to_string()))?;
    }
    let path = kept.join(digest.to_string());
    if path.exists() {
        return Ok(());
    }
    target.durable.show(Step::Write(&path));
    let Some(place) = root.place(&operation.path)? else {
        return Err(SettleError::Drift);
    };
    let file = File::create_new(&path)?;
    match copy_checked(place.open_file()?, &file, digest) {
        Err(SettleError::Damaged) => return Err(SettleError::Drift),
        other => other?,
    }
    target.durable.show(Step::Sync(&path));
    Ok(file.sync_all()?)
}

/// Attributes that the host's file has go with it, and come back with it.
fn back_up_attributes(
    target: &Target<'_>,
    root: &Root,
    operation: &Operation,
    path: &Path,
) -> Result<(), SettleError> {
    if path.exists() {
        return Ok(());
    }
    let Some(place) = root.place(&operation.path)? else {
        return Err(SettleError::Drift);
    };
    let Has::These(set) = attributes::of(&place.open_file()?)? else {
        return Err(SettleError::Drift);
    };
    if path.file_name().is_none_or(|name| *name != *set.id().to_string()) {
        return Err(SettleError::Drift);
    }
    target
        .durable
        .write_new(path, &set.encode())
        .map_err(SettleError::Content)?;
    target.durable.sync_file(path).map_err(SettleError::Content)
}

/// Removals from the deepest up, then everything else from the top down.
fn in_order(operations: &[Operation]) -> impl Iterator<Item = &Operation> {
    let removals = operations
        .iter()
        .rev()
        .filter(|operation| operation.after.is_none());
    removals.chain(operations.iter().filter(|operation| operation.after.is_some()))
}

fn commit(target: &Target<'_>, root: &Root, journal: &Journal) -> Result<(), Fault> {
    for operation in in_order(&journal.operations) {
        target.durable.show(Step::Tree(operation.path.as_path()));
        settle(root, operation).map_err(|error| fault_of(&operation.path, &error))?;
    }
    clear_all(target, root, journal)
}

/// Every path back to what it was. A path that somebody else changed meanwhile is theirs and stays.
fn roll_back(target: &Target<'_>, root: &Root, journals: &Journals, journal: &Journal) -> Result<(), Fault> {
    let backups = Backups(journals.folder(journal.number).join("before"));
    let reversed: Vec<Operation> = journal.operations.iter().map(Operation::reversed).collect();
    for operation in in_order(&reversed) {
        target.durable.show(Step::Tree(operation.path.as_path()));
        let done = root
            .kind_or_nothing(&operation.path)
            .is_ok_and(|now| now == operation.before);
        if !done {
            continue;
        }
        let waiting = in_existing_room(root, operation);
        let step = lay_beside(root, &waiting, &backups).and_then(|()| settle(root, &waiting));
        step.and_then(|()| clear_beside(root, &waiting))
            .map_err(|error| fault_of(&operation.path, &error))?;
    }
    clear_all(target, root, journal)
}

/// The room may be gone with its directory; the root always exists.
fn in_existing_room(root: &Root, operation: &Operation) -> Operation {
    let there = operation
        .waits_in
        .as_ref()
        .is_some_and(|room| matches!(root.directory(room), Ok(Some(_))));
    let waits_in = if there { operation.waits_in.clone() } else { None };
    Operation {
        waits_in,
        ..operation.clone()
    }
}

fn clear_all(target: &Target<'_>, root: &Root, journal: &Journal) -> Result<(), Fault> {
    for operation in &journal.operations {
        target.durable.show(Step::Tree(operation.path.as_path()));
        let backwards = operation.reversed();
        let in_root = Operation {
            waits_in: None,
            ..operation.reversed()
        };
        for one in [operation, &backwards, &in_root] {
            clear_beside(root, one).map_err(|error| fault_of(&operation.path, &error))?;
        }
    }
    Ok(())
}

/// The host tree, locked. Unlocks by itself: a child that was being started at that moment may still hold the
/// descriptor for an instant, and with it the lock.
struct Alone(Root);

impl Drop for Alone {
    fn drop(&mut self) {
        // The lock goes with the last descriptor in any case.
        let unlocked = rustix::fs::flock(self.0.handle(), FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok());
    }
}

/// The host tree, with nobody else applying to it: the lock is on the directory itself and leaves no trace.
fn open_alone(source: &Path) -> Result<Alone, Fault> {
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

fn fault_of(path: &TreePath, error: &SettleError) -> Fault {
    match error {
        SettleError::Drift | SettleError::NotEmpty => Fault::new(
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
