//! Where copies and stores lie below the state directory, and how one process at a time changes a copy.
//!
//! **Trust:** the state directory is the user's own (0700) and no sandbox sees it but for the `tree/` of its own run.
use crate::durable::Durable;
use crate::faults::{damaged, io_fault};
use crate::manifest::Content;
use crate::meta::{FORMAT, Meta};
use crate::store::Store;
use bastle_contract::{Code, Fault, RunId};
use rustix::fs::FlockOperation;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest record that is read back: a thousand findings with the longest paths, spelled in base64.
const MAX_RECORD: u64 = 8 << 20;

/// The state directory.
#[derive(Clone)]
pub struct Place {
    state: PathBuf,
    durable: Durable,
    /// The directory of the one copy that this value is about, where that lies in the trash.
    trashed: Option<PathBuf>,
}

/// Held while a copy is changed.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "the lock is held by the open file")] OwnedFd);

/// Whether to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

impl Place {
    /// The copies below `state`.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self::observed(state, Durable::default())
    }

    /// The same, with somebody who sees every step.
    #[must_use]
    pub fn observed(state: PathBuf, durable: Durable) -> Self {
        Self {
            state,
            durable,
            trashed: None,
        }
    }

    /// For opening one copy that lies in the trash.
    pub(crate) fn in_trash(&self, entry: PathBuf) -> Self {
        Self {
            trashed: Some(entry),
            ..self.clone()
        }
    }

    pub(crate) fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The directory of all copies.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The directory of copies.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.state.join("work")
    }

    /// The directory of one run.
    #[must_use]
    pub fn run(&self, run: &RunId) -> PathBuf {
        match &self.trashed {
            Some(entry) => entry.clone(),
            None => self.work().join(run.as_str()),
        }
    }

    /// The directory of removed copies.
    #[must_use]
    pub fn trash(&self) -> PathBuf {
        self.state.join("trash")
    }

    /// The store of a source tree.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn store(&self, source: &Path) -> Result<Store, Fault> {
        let name = Content::of(source.as_os_str().as_bytes()).to_string();
        Store::open(self.state.join("store").join(name), self.durable.clone())
    }

    /// The runs that have a copy, in the order of their names.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn runs(&self) -> Result<Vec<RunId>, Fault> {
        let names = self.names()?;
        let mut runs: Vec<RunId> = names
            .into_iter()
            .filter_map(|name| RunId::try_from(name).ok())
            .collect();
        runs.sort();
        Ok(runs)
    }

    /// Everything in the directory of copies; names that are not text are not ours.
    pub(crate) fn names(&self) -> Result<Vec<String>, Fault> {
        Self::names_in(&self.work())
    }

    /// Everything in a directory of ours that may be missing.
    pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>, Fault> {
        let listing = match fs::read_dir(dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_fault("list", dir, error)),
        };
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|e| io_fault("list", dir, e))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// Keeps others from making, removing or recovering copies.
    pub(crate) fn hold_all(&self) -> Result<Held, Fault> {
        self.durable.make_dir(&self.work())?;
        let path = self.state.join("work.lock");
        lock(&path, Wait::Yes)?.ok_or_else(|| busy(&path))
    }

    /// Keeps others from changing the copy of a run.
    ///
    /// # Errors
    /// When there is none, or with `Wait::No` when another process holds it.
    pub(crate) fn hold(&self, run: &RunId, wait: Wait) -> Result<Held, Fault> {
        let dir = self.run(run);
        if !dir.is_dir() {
            return Err(missing(run));
        }
        let path = dir.join("lock");
        let held = lock(&path, wait)?.ok_or_else(|| busy(&dir))?;
        // The copy may have been removed while this process waited.
        if path.exists() {
            Ok(held)
        } else {
            Err(missing(run))
        }
    }

    /// What is recorded about a run's copy.
    ///
    /// # Errors
    /// When there is none or it is damaged.
    pub fn meta(&self, run: &RunId) -> Result<Meta, Fault> {
        let path = self.run(run).join("meta.json");
        if !path.exists() {
            return Err(missing(run));
        }
        let meta: Meta = read_record(&path)?;
        if meta.format != FORMAT || meta.run != *run {
            return Err(damaged(&path, "another format, or the record of another run"));
        }
        Ok(meta)
    }

    pub(crate) fn write_meta(&self, meta: &Meta) -> Result<(), Fault> {
        write_record(&self.durable, &self.run(&meta.run).join("meta.json"), meta)
    }
}

/// Writes a record durably.
pub(crate) fn write_record(
    durable: &Durable,
    path: &Path,
    record: &impl serde::Serialize,
) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(record).map_err(|error| damaged(path, error))?;
    durable.write_file(path, &bytes)
}

/// Reads a record back.
pub(crate) fn read_record<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Fault> {
    let file = File::open(path).map_err(|e| io_fault("open", path, e))?;
    let mut bytes = Vec::new();
    file.take(MAX_RECORD)
        .read_to_end(&mut bytes)
        .map_err(|e| io_fault("read", path, e))?;
    serde_json::from_slice(&bytes).map_err(|error| damaged(path, error))
}

fn lock(path: &Path, wait: Wait) -> Result<Option<Held>, Fault> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    let file = file.map_err(|e| io_fault("open", path, e))?;
    let how = match wait {
        Wait::Yes => FlockOperation::LockExclusive,
        Wait::No => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(Some(Held(file.into()))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(io_fault("lock", path, errno)),
    }
}

fn busy(path: &Path) -> Fault {
    Fault::new(
        Code::WorkspaceBusy,
        format!("{} is in use", path.display()),
        "another process of bastle holds it",
    )
}

/// No copy of that name.
pub(crate) fn missing(run: &RunId) -> Fault {
    Fault::new(Code::WorkspaceMissing, format!("run {run} has no copy"), "").help("bastle ls")
}
