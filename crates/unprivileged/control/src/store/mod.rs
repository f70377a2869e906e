//! The daemon's records: one SQLite database, one writer, a few readers.
//!
//! **Trust:** the directory is its owner's alone. What is confirmed is on the disk: every transaction is synced before
//! its caller goes on. After a failed write or sync nobody knows what the disk holds, so nothing more is confirmed until
//! the database is opened again.
mod schema;

#[cfg(test)]
mod tests;

use bastle_contract::{Code, Fault};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many idle readers are kept.
const READERS: usize = 4;
/// How long a statement waits for another process, such as a backup by hand.
const PATIENCE: Duration = Duration::from_secs(5);

/// The database.
pub(crate) struct Store {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    /// Why nothing is confirmed any more.
    broken: Mutex<Option<String>>,
    commits: AtomicU64,
    errors: AtomicU64,
}

/// What ends a transaction early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The caller's own reason; the database is as before.
    Refused(Fault),
    /// The database's.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

/// A number for a column.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number from a column.
pub(crate) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A lock whose holder panicked is taken: the value behind it is a connection, and its transaction was rolled back.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens or makes the database in `directory`, checks it, and brings its form up to date.
    pub(crate) fn open(directory: &Path) -> Result<Self, Fault> {
        let path = directory.join("daemon.db");
        prepare(directory, &path).map_err(|error| {
            Fault::new(
                Code::StateDir,
                format!("cannot use {}", path.display()),
                error.to_string(),
            )
            .help("df -h, and whether the directory is yours: bastle doctor")
        })?;
        let writer = connect(&path).map_err(|error| damaged(&path, &error.to_string()))?;
        schema::bring_up_to_date(&writer).map_err(|error| damaged(&path, &error))?;
        Ok(Self {
            path,
            writer: Mutex::new(writer),
            readers: Mutex::new(Vec::new()),
            broken: Mutex::new(None),
            commits: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        })
    }

    /// Changes something: all of it and durably, or nothing.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let mut writer = held(&self.writer);
        self.sound()?;
        let transaction = writer
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| self.failed(&error))?;
        let value = match change(&transaction) {
            Ok(value) => value,
            Err(Stop::Refused(fault)) => return Err(fault),
            Err(Stop::Sql(error)) => return Err(self.failed(&error)),
        };
        match transaction.commit() {
            Ok(()) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                // Whether it is on the disk is not known: nobody is told that it is, and nothing is built on it.
                self.give_up(&error.to_string());
                Err(self.failed(&error))
            }
        }
    }

    /// Looks something up, beside whoever writes.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Stop>) -> Result<T, Fault> {
        self.sound()?;
        let idle = held(&self.readers).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => connect_reading(&self.path).map_err(|error| self.failed(&error))?,
        };
        let found = look(&reader);
        let mut readers = held(&self.readers);
        if readers.len() < READERS {
            readers.push(reader);
        }
        drop(readers);
        match found {
            Ok(value) => Ok(value),
            Err(Stop::Refused(fault)) => Err(fault),
            Err(Stop::Sql(error)) => Err(self.failed(&error)),
        }
    }

    /// Nothing is read or written after this.
    pub(crate) fn close(&self) {
        // After whoever writes now has finished.
        let _writer = held(&self.writer);
        self.give_up("the daemon is closed");
    }

    /// Why nothing is confirmed any more, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        held(&self.broken).clone()
    }

    /// Transactions and failures since it was opened.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (
            self.commits.load(Ordering::Relaxed),
            self.errors.load(Ordering::Relaxed),
        )
    }

    /// Bytes of the database on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        let size = |path: &Path| path.metadata().map_or(0, |about| about.len());
        size(&self.path) + size(&self.path.with_extension("db-wal"))
    }

    /// Copies everything to a new file while others write. A file that is there is not replaced.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), Fault> {
        self.sound()?;
        copy_file(&self.path, to)
    }

    fn sound(&self) -> Result<(), Fault> {
        match &*held(&self.broken) {
            None => Ok(()),
            Some(why) => Err(refused(why)),
        }
    }

    fn give_up(&self, why: &str) {
        held(&self.broken).get_or_insert_with(|| why.to_owned());
    }

    /// Tells what went wrong; after an error of the disk nothing more is done.
    fn failed(&self, error: &rusqlite::Error) -> Fault {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let fatal = matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DiskFull
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::OutOfMemory
                    | ErrorCode::FileLockingProtocolFailed
            )
        );
        if fatal {
            self.give_up(&error.to_string());
        }
        refused(&error.to_string())
    }
}

/// Copies the database in `directory` to a new file, beside whoever has it open.
pub(crate) fn copy(directory: &Path, to: &Path) -> Result<(), Fault> {
    let path = directory.join("daemon.db");
    if !path.exists() {
        return Err(Fault::new(
            Code::StateDir,
            format!("there are no records in {}", directory.display()),
            "no daemon was ever started with this state",
        )
        .help("bastle daemon start"));
    }
    copy_file(&path, to)
}

fn copy_file(path: &Path, to: &Path) -> Result<(), Fault> {
    let fail = |why: String| {
        Fault::new(
            Code::StateDir,
            format!("cannot copy the daemon's records to {}", to.display()),
            why,
        )
        .help("name a file that does not exist, in a directory you may write")
    };
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let fresh = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .map_err(|error| fail(error.to_string()))?;
    let copied = copy_into(path, &part)
        .and_then(|()| fresh.sync_all().map_err(|error| error.to_string()))
        // A link instead of a rename: it fails when the name is taken.
        .and_then(|()| std::fs::hard_link(&part, to).map_err(|error| error.to_string()));
    let removed = std::fs::remove_file(&part).map_err(|error| error.to_string());
    copied.and(removed).map_err(fail)?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or_else(|| Path::new(".")))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| fail(error.to_string()))
}

/// Copies, and looks at what came out: a copy that is found damaged when it is needed is none.
fn copy_into(path: &Path, part: &Path) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    let from = connect_reading(path).map_err(text)?;
    let mut into = Connection::open(part).map_err(text)?;
    rusqlite::backup::Backup::new(&from, &mut into)
        .and_then(|copying| copying.run_to_completion(512, Duration::ZERO, None))
        .map_err(text)?;
    // As one file: what would lie beside it is not copied by whoever takes it elsewhere.
    into.pragma_update(None, "journal_mode", "DELETE").map_err(text)?;
    let checked: String = into
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(text)?;
    match checked.as_str() {
        "ok" => Ok(()),
        damage => Err(format!("the copy is damaged: {damage}")),
    }
}

fn refused(why: &str) -> Fault {
    Fault::new(
        Code::StateFailed,
        "the daemon's records could not be read or written",
        why,
    )
    .help("bastle daemon stop && bastle daemon start")
}

fn damaged(path: &Path, why: &str) -> Fault {
    Fault::new(
        Code::StateDamaged,
        format!("{} cannot be used", path.display()),
        why,
    )
    .help("use the version of bastle that wrote it, or put a backup in its place")
}

/// The directory and the file, for their owner alone, before the database makes its own files beside them.
fn prepare(directory: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.sync_all()?;
    std::fs::File::open(directory)?.sync_all()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // The write-ahead file does not stay as large as its largest moment.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn connect_reading(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}
