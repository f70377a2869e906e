//! The record of one apply: written before the host tree is touched, so that a crash can be finished or undone.
//!
//! **Trust:** lies in the run's state directory, which the sandbox does not see. Read back with limits all the
//! same: a damaged journal is an error, never a guess.
use crate::durable::Durable;
use crate::faults::{damaged, io_fault};
use crate::manifest::Kind;
use crate::path::TreePath;
use crate::rooted::read_small;
use bastle_contract::Fault;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// 500 bytes per operation, half a million operations.
const MAX_JOURNAL: u64 = 256 << 20;

/// How far an apply got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalState {
    /// Copies are being made beside; the host's own names are untouched.
    Preparing,
    /// Everything is at hand; names are being changed.
    Committing,
    /// All names are changed.
    Done,
    /// Nothing is changed.
    Abandoned,
}

/// One path and what it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Where.
    pub path: TreePath,
    /// What the host has.
    pub before: Option<Kind>,
    /// What it gets.
    pub after: Option<Kind>,
    /// Permission bits of the file that goes.
    pub(super) old_bits: Option<u32>,
    /// Permission bits of the file that comes, where it comes back.
    pub(super) new_bits: Option<u32>,
    /// The existing directory in which the new content waits; `None` is the root of the tree.
    pub(super) waits_in: Option<TreePath>,
    /// The name under which it waits.
    pub(super) waits_as: String,
}

impl Operation {
    pub(super) fn new(path: TreePath, before: Option<Kind>, after: Option<Kind>) -> Self {
        Self {
            path,
            before,
            after,
            old_bits: None,
            new_bits: None,
            waits_in: None,
            waits_as: String::new(),
        }
    }

    /// The same step backwards.
    pub(super) fn reversed(&self) -> Self {
        Self {
            before: self.after.clone(),
            after: self.before.clone(),
            old_bits: self.new_bits,
            new_bits: self.old_bits,
            waits_as: format!("{}u", self.waits_as),
            ..self.clone()
        }
    }
}

/// The stored record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub(super) format: u8,
    pub(super) number: u64,
    pub(super) state: JournalState,
    /// The apply that this one takes back.
    pub(super) undoes: Option<u64>,
    pub(super) operations: Vec<Operation>,
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
    pub(super) fn read_all(&self) -> Result<Vec<Journal>, Fault> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        numbers
            .into_iter()
            .filter_map(|number| self.read(number).transpose())
            .collect()
    }

    fn numbers(&self) -> Result<Vec<u64>, Fault> {
        let fail = |error| io_fault("read", &self.directory, error);
        let listing = match std::fs::read_dir(&self.directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut numbers = Vec::new();
        for entry in listing {
            let name = entry.map_err(fail)?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    fn read(&self, number: u64) -> Result<Option<Journal>, Fault> {
        let path = self.folder(number).join("journal.json");
        let bytes = match read_small(&path, MAX_JOURNAL) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_fault("read", &path, error)),
        };
        let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| damaged(&path, error))?;
        if journal.format != 1 || journal.number != number {
            return Err(damaged(&path, "it is not the journal of this directory"));
        }
        Ok(Some(journal))
    }

    /// The number of the next journal.
    pub(super) fn next(&self) -> Result<u64, Fault> {
        Ok(self.numbers()?.into_iter().max().unwrap_or(0) + 1)
    }

    /// Writes a journal durably: its state is the commit point.
    pub(super) fn write(&self, journal: &Journal, durable: &Durable) -> Result<(), Fault> {
        let folder = self.folder(journal.number);
        durable.make_dir(&folder)?;
        let path = folder.join("journal.json");
        let bytes = serde_json::to_vec(journal).map_err(|error| damaged(&path, error))?;
        durable.write_file(&path, &bytes)
    }
}
