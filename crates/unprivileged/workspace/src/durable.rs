//! State that survives: written beside, synced, renamed, and the directory synced, in this order.
//!
//! **Trust:** acts only below the state directory, which nothing in a sandbox can reach. Every step is shown to an
//! observer first, so that tests can end the process before any of them and check the order of all of them.
use crate::faults::io_fault;
use bastle_contract::Fault;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One step towards durable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Bytes go to a file that nobody reads yet.
    Write(&'a Path),
    /// A file's bytes become durable.
    Sync(&'a Path),
    /// A file or directory gets its name.
    Rename(&'a Path, &'a Path),
    /// The names in a directory become durable.
    SyncDir(&'a Path),
    /// A name is removed.
    Remove(&'a Path),
    /// A directory is made.
    MakeDir(&'a Path),
    /// A change inside the agent's tree.
    Tree(&'a Path),
}

/// Sees every step before it is made.
pub trait Observer: Send + Sync {
    /// About to make this step.
    fn before(&self, step: Step<'_>);
}

struct Silent;

impl Observer for Silent {
    fn before(&self, _: Step<'_>) {}
}

/// The one way to change state.
#[derive(Clone)]
pub struct Durable {
    observer: Arc<dyn Observer>,
}

impl Default for Durable {
    fn default() -> Self {
        Self {
            observer: Arc::new(Silent),
        }
    }
}

impl Durable {
    /// With somebody who sees every step.
    #[must_use]
    pub fn observed(observer: Arc<dyn Observer>) -> Self {
        Self { observer }
    }

    /// Shows a step that the caller makes itself.
    pub fn show(&self, step: Step<'_>) {
        self.observer.before(step);
    }

    /// Replaces a file: the name has the old bytes or all of the new ones, whatever happens.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
        let beside = beside(path);
        self.write_new(&beside, bytes)?;
        self.sync_file(&beside)?;
        self.rename(&beside, path)?;
        self.sync_parent(path)
    }

    /// Replaces a file that may be lost: whole or absent, without waiting for the disk.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn write_cache(&self, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
        let beside = beside(path);
        self.write_new(&beside, bytes)?;
        fs::rename(&beside, path).map_err(|e| io_fault("rename to", path, e))
    }

    /// Writes a file that has no name yet which anybody reads.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
        self.show(Step::Write(path));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(path).map_err(|e| io_fault("create", path, e))?;
        file.write_all(bytes).map_err(|e| io_fault("write", path, e))
    }

    /// One of many files that will be synced: the disk may begin with it.
    pub fn sync_soon(&self, file: &File) {
        // Only makes the sync shorter, which tells what fails.
        drop(bastle_sys::fd::start_writing(file.as_fd()));
    }

    /// Makes a file's bytes durable.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn sync_file(&self, path: &Path) -> Result<(), Fault> {
        self.show(Step::Sync(path));
        let file = File::open(path).map_err(|e| io_fault("open", path, e))?;
        file.sync_all().map_err(|e| io_fault("sync", path, e))
    }

    /// Gives a name; the caller syncs the directories.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        self.show(Step::Rename(from, to));
        fs::rename(from, to).map_err(|e| io_fault("rename to", to, e))
    }

    /// Makes the names of a directory durable.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn sync_dir(&self, path: &Path) -> Result<(), Fault> {
        self.show(Step::SyncDir(path));
        let dir = File::open(path).map_err(|e| io_fault("open", path, e))?;
        dir.sync_all().map_err(|e| io_fault("sync", path, e))
    }

    fn sync_parent(&self, path: &Path) -> Result<(), Fault> {
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// Makes a directory for the owner alone, with those above it; one that is there is fine.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn make_dir(&self, path: &Path) -> Result<(), Fault> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make_dir(parent)?;
        }
        self.show(Step::MakeDir(path));
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => self.sync_parent(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(io_fault("make directory", path, error)),
        }
    }

    /// Makes fresh directories for the owner alone, parents first. Their names are durable when the caller has synced the
    /// directories they are in: once for all of them.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn make_dirs(&self, paths: &[PathBuf]) -> Result<(), Fault> {
        paths.iter().try_for_each(|path| {
            self.show(Step::MakeDir(path));
            let made = fs::DirBuilder::new().mode(0o700).create(path);
            made.map_err(|error| io_fault("make directory", path, error))
        })
    }

    /// Removes a file durably; a missing one is fine.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub fn remove_file(&self, path: &Path) -> Result<(), Fault> {
        self.show(Step::Remove(path));
        match fs::remove_file(path) {
            Ok(()) => self.sync_parent(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_fault("remove", path, error)),
        }
    }
}

/// The name under which a file is written before it gets its own.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}
