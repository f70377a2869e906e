//! The file operations of a run: what was created, changed and deleted, what was read and by which program.
//!
//! **Trust:** names and program names are the agent's. Trees are read by descriptor without following links, and
//! what is kept is bounded; what did not fit is counted and said.
mod listing;
mod reads;
#[cfg(test)]
mod tests;

pub(crate) use reads::{Reads, leave};

use listing::Listing;

use crate::record::Record;
use crate::review;
use crate::workspaces::Work;
use bastle_audit::{AuditEvent, Exit, RunEntry, RunState};
use bastle_contract::{
    ChangeSight, ChangeSort, Fault, FileChange, FileSeen, FileState, FileUse, FilesTold, LaunchPlan,
    ReadSight, RunId, Usage,
};
use bastle_workspace::audit_delta::{Change, ChangeKind, Scope};
use bastle_workspace::manifest::{Kind, Opaque};
use bastle_workspace::meta::{Reason, Which};
use bastle_workspace::path::visible;
use bastle_workspace::place::Place;
use bastle_workspace::workspace::Workspace;
use std::collections::BTreeMap;
use std::path::Path;

/// Changes that are recorded one by one: about 15 MiB.
const MOST_CHANGES: usize = 20_000;
/// Files that were only used, recorded one by one.
const MOST_USED: usize = 10_000;

/// The changes of a tree, however they were found.
#[derive(Debug)]
pub(crate) struct Changes {
    /// How.
    pub(crate) sight: ChangeSight,
    /// By the path inside, as bytes.
    pub(crate) list: Vec<(Vec<u8>, FileChange)>,
    /// How many more there were.
    pub(crate) more: u64,
}

impl Changes {
    /// Between two manifests of a copy whose root is shown inside as `root`.
    pub(crate) fn of_copy(root: &str, delta: &[Change]) -> Self {
        let list = delta.iter().map(|change| {
            let sort = match change.sort() {
                ChangeKind::Created => ChangeSort::Created,
                ChangeKind::Changed => ChangeSort::Changed,
                ChangeKind::Deleted => ChangeSort::Deleted,
            };
            let told = FileChange {
                sort,
                before: change.before.as_ref().map(state),
                after: change.after.as_ref().map(state),
            };
            (inside(root, change.path.as_bytes()), told)
        });
        Self {
            sight: ChangeSight::Contents,
            list: list.collect(),
            more: 0,
        }
    }

    /// How much was written for them at least. A created name that has the size of one that is gone was moved. Of a file
    /// that was there before its whole content counts where it is known to be another, else what it grew by.
    pub(crate) fn written(&self) -> u64 {
        let size = |state: &Option<FileState>| state.as_ref().and_then(|state| state.size);
        let mut moved: BTreeMap<u64, u64> = BTreeMap::new();
        let gone = self
            .list
            .iter()
            .filter(|(_, change)| change.sort == ChangeSort::Deleted);
        for bytes in gone.filter_map(|(_, change)| size(&change.before)) {
            *moved.entry(bytes).or_default() += 1;
        }
        let written = self.list.iter().map(|(_, change)| {
            let (before, after) = (
                size(&change.before).unwrap_or(0),
                size(&change.after).unwrap_or(0),
            );
            match change.sort {
                ChangeSort::Deleted => 0,
                ChangeSort::Created => match moved.get_mut(&after) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        0
                    }
                    Some(_) | None => after,
                },
                ChangeSort::Changed if is_rewritten(change) => after,
                ChangeSort::Changed => after.saturating_sub(before),
            }
        });
        written.fold(0, u64::saturating_add)
    }

    /// None are known.
    pub(crate) fn unseen(why: impl Into<String>) -> Self {
        Self {
            sight: ChangeSight::Nothing { why: why.into() },
            list: Vec::new(),
            more: 0,
        }
    }
}

/// What was seen of files, ready for the record.
#[derive(Debug)]
pub(crate) struct Seen {
    sight: ReadSight,
    files: BTreeMap<Vec<u8>, FileUse>,
    left_out: u64,
    gaps: u64,
}

impl Seen {
    /// Of a run whose readings nobody sees, with the reason.
    pub(crate) fn nothing(why: impl Into<String>) -> Self {
        Self {
            sight: ReadSight::Nothing { why: why.into() },
            files: BTreeMap::new(),
            left_out: 0,
            gaps: 0,
        }
    }
}

/// When it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// The run itself, at its end.
    Run,
    /// A later start: the one who should have told was killed.
    Later,
}

/// Writes one record per file and one for the whole.
pub(crate) fn record(
    record: &mut Record,
    changes: Changes,
    seen: Seen,
    teller: Teller,
) -> Result<FilesTold, Fault> {
    let (events, told) = events(changes, seen, teller);
    for event in events {
        record.file(&AuditEvent::File(event))?;
    }
    record.append(&AuditEvent::Files(told.clone()))?;
    Ok(told)
}

/// The records: changes first, so that no amount of reading pushes them out.
fn events(changes: Changes, seen: Seen, teller: Teller) -> (Vec<FileSeen>, FilesTold) {
    let Seen {
        sight,
        mut files,
        left_out,
        gaps,
    } = seen;
    let count = |sort: ChangeSort| changes.list.iter().filter(|(_, c)| c.sort == sort).count() as u64;
    let mut told = FilesTold {
        created: count(ChangeSort::Created),
        changed: count(ChangeSort::Changed),
        deleted: count(ChangeSort::Deleted),
        read: files.values().filter(|used| used.read || used.executed).count() as u64,
        changes: changes.sight,
        reads: sight,
        left_out,
        gaps,
        recovered: teller == Teller::Later,
    };
    told.left_out += changes.more;
    let mut events = Vec::new();
    let mut list = changes.list;
    if list.len() > MOST_CHANGES {
        // What became of names that were there counts more than new ones, of which an agent can make any number.
        list.sort_by_key(|(_, change)| change.sort == ChangeSort::Created);
    }
    for (path, change) in list {
        let used = files.remove(&path);
        if events.len() < MOST_CHANGES {
            events.push(event(&path, Some(change), used));
        } else {
            told.left_out += 1;
        }
    }
    told.left_out += files.len().saturating_sub(MOST_USED) as u64;
    let used = files.into_iter().take(MOST_USED);
    events.extend(used.map(|(path, used)| event(&path, None, Some(used))));
    (events, told)
}

fn event(path: &[u8], change: Option<FileChange>, used: Option<FileUse>) -> FileSeen {
    let (path, raw) = match std::str::from_utf8(path) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (visible(path), Some(hex(path))),
    };
    FileSeen {
        path,
        raw,
        change,
        used,
    }
}

/// Whether the content is known to be another.
fn is_rewritten(change: &FileChange) -> bool {
    let digest = |state: &Option<FileState>| state.as_ref().and_then(|state| state.digest.clone());
    match (digest(&change.before), digest(&change.after)) {
        (Some(before), Some(after)) => before != after,
        _ => false,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a name of the tree is inside.
fn inside(root: &str, below: &[u8]) -> Vec<u8> {
    let mut path = root.as_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(below);
    path
}

fn state(kind: &Kind) -> FileState {
    let (word, size, digest) = match kind {
        Kind::File { digest, size, .. } => ("file", Some(*size), Some(digest.to_string())),
        Kind::Symlink { .. } => ("symlink", None, None),
        Kind::Dir => ("dir", None, None),
        Kind::Submodule { .. } => ("submodule", None, None),
        Kind::Opaque { why } => match why {
            Opaque::Fifo => ("fifo", None, None),
            Opaque::Socket => ("socket", None, None),
            Opaque::Device => ("device", None, None),
            Opaque::TooLarge | Opaque::TooDeep | Opaque::Unreadable => ("other", None, None),
        },
    };
    FileState {
        kind: word.to_owned(),
        size,
        digest,
    }
}

/// What is needed at the end to tell what became of files.
pub(crate) struct Watch {
    before: Option<Listing>,
    reads: Reads,
}

impl Watch {
    /// Before the agent starts: a project that it works on in place is listed, a copy has its base.
    pub(crate) fn begin(plan: &LaunchPlan, work: &Work) -> Self {
        Self {
            before: (!work.is_copy()).then(|| Listing::take(work.source.as_path())),
            reads: Reads::new(plan),
        }
    }

    /// What is read, while the run lives.
    pub(crate) fn reads(&mut self) -> &mut Reads {
        &mut self.reads
    }

    /// After its end, and after what is left of a copy was kept as its last snapshot.
    /// Also how much was written for the changes at least.
    pub(crate) fn end(self, log: &mut Record, work: &Work) -> Result<(FilesTold, u64), Fault> {
        let root = work.source.as_str();
        let changes = match (self.before, work.space()) {
            (Some(before), _) => before.compare(root),
            (None, Some(space)) => of_space(root, space),
            (None, None) => Changes::unseen("there is no tree"),
        };
        let written = changes.written();
        let told = record(log, changes, self.reads.finish(), Teller::Run)?;
        Ok((told, written))
    }
}

/// What differs between the base and the last snapshot of a copy.
fn of_space(root: &str, space: &Workspace) -> Changes {
    match space.delta(&Which::Number(0), &Which::Last, Scope::Work) {
        Ok(delta) => Changes::of_copy(root, &delta),
        Err(fault) => Changes::unseen(fault.to_string()),
    }
}

/// Tells the changes of copies whose runs were killed together with bastle, and closes their logs. What cannot be told
/// is left as it is: `bastle audit verify` says why.
pub(crate) fn recover(state: &Path, home: &Place) -> Vec<RunId> {
    let open = |entry: &RunEntry| matches!(entry.state, RunState::Open);
    let runs = bastle_audit::list(state).unwrap_or_default();
    let told = runs.into_iter().filter(open).filter_map(|entry| {
        let space = Workspace::open(home, &entry.run).ok()?;
        let dead = matches!(review::is_alive(&space), Ok(false));
        let told = dead.then(|| recover_one(state, &space))?;
        matches!(told, Ok(Some(_))).then_some(entry.run)
    });
    told.collect()
}

fn recover_one(state: &Path, space: &Workspace) -> Result<Option<FilesTold>, Fault> {
    let Some(mut log) = Record::resume(state, space.run())? else {
        return Ok(None);
    };
    review::settle_state(space)?;
    // Nobody works in it any more: what is there now is what the run left.
    space.snapshot(None, Reason::Look)?;
    let changes = of_space(&space.source().to_string_lossy(), space);
    let seen = Seen::nothing("bastle was killed with the run");
    let told = record(&mut log, changes, seen, Teller::Later)?;
    log.append(&AuditEvent::Ended {
        exit: Exit::Unknown,
        usage: Usage::default(),
        reason: Some("bastle was killed".to_owned()),
    })?;
    log.seal()?;
    Ok(Some(told))
}
