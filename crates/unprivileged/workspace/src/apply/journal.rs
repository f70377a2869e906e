//! The record of one transaction on a host tree: durable before the first name changes, so that a crash at any point
//! can be finished or undone.
//!
//! **Trust:** lies in the run's state directory, which the sandbox does not see. Read back with limits all the same: a
//! damaged journal is an error, never a guess.
use crate::durable::Durable;
use crate::faults::{damaged, io_fault};
use crate::manifest::Kind;
use crate::path::TreePath;
use crate::rooted::read_small;
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// 500 bytes per operation, half a million operations.
const MAX_JOURNAL: u64 = 256 << 20;
/// A state holds one line per changed directory.
const MAX_STATE: u64 = 64 << 20;
const FORMAT: u8 = 2;
const JOURNAL: &str = "journal.json";
const STATE: &str = "state.json";
/// What stands between the number of a journal that was set aside and the number of its copy.
const ASIDE: &str = ".aside-";

/// How far a transaction got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JournalState {
    /// New objects are being staged; no name of the host tree has changed.
    Preparing,
    /// Everything is staged and durable; names are being exchanged.
    Committing,
    /// All names are exchanged and durable; staging areas are being removed.
    Settling,
    /// All names are back and durable; what was staged is being removed.
    Abandoning,
    /// Finished: the host tree is new.
    Done,
    /// Rolled back: the host tree is old.
    Abandoned,
}

impl JournalState {
    /// Whether nothing is left to finish or undo.
    pub(super) fn is_final(self) -> bool {
        match self {
            Self::Done | Self::Abandoned => true,
            Self::Preparing | Self::Committing | Self::Settling | Self::Abandoning => false,
        }
    }
}

/// One path and what it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its path in the tree.
    pub path: TreePath,
    /// The object on the host; `None` when there is none.
    pub before: Option<Kind>,
    /// The object that takes its place; `None` removes it.
    pub after: Option<Kind>,
}

impl Operation {
    pub(super) fn new(path: TreePath, before: Option<Kind>, after: Option<Kind>) -> Self {
        Self { path, before, after }
    }

    /// The same step backwards.
    pub(super) fn reversed(&self) -> Self {
        Self {
            path: self.path.clone(),
            before: self.after.clone(),
            after: self.before.clone(),
        }
    }
}

/// One exchange of names: the object at a path of the host tree for the object in a slot of a staging area. Objects are
/// whole subtrees where a directory comes or goes, so that no kill can leave half of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Swap {
    /// The path with everything below it, the path itself first.
    pub(super) operations: Vec<Operation>,
    /// Index of the staging area that holds the slot.
    pub(super) area: usize,
    /// The slot: a path in the staging area.
    pub(super) slot: TreePath,
    /// Inode of the staged object, where there is one.
    pub(super) new: Option<u64>,
    /// Inode of the host's object, where there is one.
    pub(super) old: Option<u64>,
}

impl Swap {
    /// The path that changes its object.
    pub(super) fn top(&self) -> &Operation {
        &self.operations[0]
    }

    pub(super) fn path(&self) -> &TreePath {
        &self.top().path
    }

    /// Whether a directory moves.
    pub(super) fn moves_directory(&self) -> bool {
        let is = |kind: &Option<Kind>| matches!(kind, Some(Kind::Dir));
        is(&self.top().before) || is(&self.top().after)
    }
}

/// A directory on the file system of the paths it serves, so that one `rename` moves an object in or out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "at")]
pub(super) enum Area {
    /// In the journal's own directory: nothing of ours is ever in the project, and what was replaced stays for undo.
    Journal,
    /// In the project, where the state directory is on another file system. Removed when the transaction has ended; what
    /// was replaced is copied to the journal before.
    Tree {
        /// The topmost directory of that file system within the project; `None` is the project itself.
        directory: Option<TreePath>,
        /// Its name.
        name: String,
    },
}

/// The stored record. What is in it never changes once it is committing; the state is a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub(super) format: u8,
    pub(super) number: u64,
    /// The apply that this one takes back.
    pub(super) undoes: Option<u64>,
    pub(super) areas: Vec<Area>,
    pub(super) swaps: Vec<Swap>,
    /// Directories whose names change, with their modification times before.
    pub(super) parents: Vec<Touched>,
}

impl Journal {
    pub(super) fn new(number: u64, undoes: Option<u64>) -> Self {
        Self {
            format: FORMAT,
            number,
            undoes,
            areas: Vec::new(),
            swaps: Vec::new(),
            parents: Vec::new(),
        }
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.swaps.iter().flat_map(|swap| &swap.operations)
    }
}

/// A directory and its modification time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Touched {
    /// `None` is the root of the tree.
    pub(super) directory: Option<TreePath>,
    /// Nanoseconds since the epoch.
    pub(super) modified: i64,
}

/// The second record: small, replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Progress {
    pub(super) state: JournalState,
    /// Modification times of the directories after the last exchange, in the order of [`Journal::parents`].
    #[serde(default)]
    pub(super) modified: Vec<Option<i64>>,
    /// Paths that somebody changed meanwhile: theirs stay in the tree, and what was there before stays in the journal.
    #[serde(default)]
    pub(super) kept: Vec<TreePath>,
}

impl Progress {
    pub(super) fn at(state: JournalState) -> Self {
        Self {
            state,
            modified: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// What the directory of journals holds.
#[derive(Default)]
pub(super) struct AllJournals {
    pub(super) readable: Vec<(Journal, Progress)>,
    /// Directories of journals that are damaged or were set aside.
    pub(super) unreadable: Vec<PathBuf>,
}

/// All journals of a run.
#[derive(Clone, Debug)]
pub(super) struct Journals {
    directory: PathBuf,
}

impl Journals {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// The directory of one journal.
    pub(super) fn folder(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:06}"))
    }

    /// Every journal, oldest first. A directory without a journal is one whose apply never began.
    pub(super) fn read_all(&self) -> Result<AllJournals, Fault> {
        let mut all = AllJournals::default();
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        for number in numbers {
            match self.read(number) {
                Ok(read) => all.readable.extend(read),
                Err(_) => all.unreadable.push(self.folder(number)),
            }
        }
        let aside = self.names()?.into_iter().filter(|name| name.contains(ASIDE));
        all.unreadable.extend(aside.map(|name| self.directory.join(name)));
        all.unreadable.sort();
        Ok(all)
    }

    /// Takes a journal out of the count: nothing reads it any more, and what it keeps stays where it is.
    pub(super) fn set_aside(&self, number: u64, durable: &Durable) -> Result<PathBuf, Fault> {
        let folder = self.folder(number);
        let free = |copy: &u32| {
            let name = format!("{number:06}{ASIDE}{copy}");
            !self.directory.join(name).exists()
        };
        let copy = (1..).find(free).unwrap_or_default();
        let aside = self.directory.join(format!("{number:06}{ASIDE}{copy}"));
        durable.rename(&folder, &aside)?;
        durable.sync_dir(&self.directory)?;
        Ok(aside)
    }

    /// All journals, newest first, each read when it is asked for.
    pub(super) fn newest_first(
        &self,
    ) -> Result<impl Iterator<Item = Result<(Journal, Progress), Fault>>, Fault> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        let read = |number| self.read(number).transpose();
        Ok(numbers.into_iter().rev().filter_map(read))
    }

    /// The numbers of journals that have to be finished or undone. Reads only the small records.
    pub(super) fn unfinished(&self) -> Result<Vec<u64>, Fault> {
        let mut numbers = Vec::new();
        for number in self.numbers()? {
            // One that cannot be read is not known to be over.
            let unfinished = match self.folder(number).join(STATE).exists() {
                true => self.progress(number).map(|progress| !progress.state.is_final()),
                false => self.read(number).map(|journal| journal.is_some()),
            };
            if unfinished.unwrap_or(true) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn numbers(&self) -> Result<Vec<u64>, Fault> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| name.parse::<u64>().ok()).collect())
    }

    fn names(&self) -> Result<Vec<String>, Fault> {
        let fail = |error| io_fault("read", &self.directory, error);
        let listing = match std::fs::read_dir(&self.directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut names = Vec::new();
        for entry in listing {
            let name = entry.map_err(fail)?.file_name();
            names.extend(name.to_str().map(str::to_owned));
        }
        Ok(names)
    }

    pub(super) fn read(&self, number: u64) -> Result<Option<(Journal, Progress)>, Fault> {
        let path = self.folder(number).join(JOURNAL);
        let bytes = match read_small(&path, MAX_JOURNAL) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_fault("read", &path, error)),
        };
        let parsed: Result<Journal, _> = serde_json::from_slice(&bytes);
        let own = matches!(&parsed, Ok(journal) if journal.format == FORMAT);
        match if own { None } else { foreign(&bytes) } {
            None => {}
            Some(JournalState::Done | JournalState::Abandoned) => return Ok(None),
            Some(
                JournalState::Preparing
                | JournalState::Committing
                | JournalState::Settling
                | JournalState::Abandoning,
            ) => {
                let what = format!("{}", path.display());
                let why = "another version of bastle began this apply";
                return Err(Fault::new(Code::WorkspaceDamaged, what, why).help("finish it with that version"));
            }
        }
        let journal = parsed.map_err(|error| Self::damaged(&path, error))?;
        let areas = journal.areas.len();
        if journal.number != number
            || journal
                .swaps
                .iter()
                .any(|swap| swap.operations.is_empty() || swap.area >= areas)
        {
            return Err(Self::damaged(&path, "it is not the journal of this directory"));
        }
        let progress = self.progress(number)?;
        Ok(Some((journal, progress)))
    }

    /// A journal that was begun and whose record is gone.
    pub(super) fn missing(&self, number: u64) -> Fault {
        Self::damaged(&self.folder(number).join(JOURNAL), "it is gone")
    }

    /// The fault about a record of a journal, with the place of what the journal keeps.
    fn damaged(path: &Path, why: impl ToString) -> Fault {
        let slots = path.with_file_name(super::area::SLOTS);
        let why = why.to_string();
        damaged(
            path,
            format!(
                "{why}; files of the project that it keeps are in {}",
                slots.display()
            ),
        )
    }

    fn progress(&self, number: u64) -> Result<Progress, Fault> {
        let path = self.folder(number).join(STATE);
        match read_small(&path, MAX_STATE) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Self::damaged(&path, error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Progress::at(JournalState::Preparing))
            }
            Err(error) => Err(io_fault("read", &path, error)),
        }
    }

    /// The number of the next journal.
    pub(super) fn next(&self) -> Result<u64, Fault> {
        let number = |name: &String| {
            let own = name.split(ASIDE).next().unwrap_or_default();
            own.parse::<u64>().ok()
        };
        Ok(self.names()?.iter().filter_map(number).max().unwrap_or(0) + 1)
    }

    /// Writes the record durably.
    pub(super) fn write(&self, journal: &Journal, durable: &Durable) -> Result<(), Fault> {
        let folder = self.folder(journal.number);
        durable.make_dir(&folder)?;
        let path = folder.join(JOURNAL);
        let bytes = serde_json::to_vec(journal).map_err(|error| damaged(&path, error))?;
        durable.write_file(&path, &bytes)
    }

    /// Writes the state durably: each is a commit point.
    pub(super) fn advance(&self, number: u64, progress: &Progress, durable: &Durable) -> Result<(), Fault> {
        let path = self.folder(number).join(STATE);
        let bytes = serde_json::to_vec(progress).map_err(|error| damaged(&path, error))?;
        durable.write_file(&path, &bytes)
    }
}

/// The state of a journal of another format, which held it itself.
fn foreign(bytes: &[u8]) -> Option<JournalState> {
    #[derive(Deserialize)]
    struct Foreign {
        format: u8,
        state: JournalState,
    }
    match serde_json::from_slice(bytes) {
        Ok(Foreign { format, state }) if format != FORMAT => Some(state),
        Ok(_) | Err(_) => None,
    }
}
