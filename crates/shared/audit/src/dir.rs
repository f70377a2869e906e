//! The audit directory, opened once and used by descriptor. Others must not be able to write it.
use crate::AuditError;
use bastle_contract::RunId;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Name of a run's log.
pub(crate) const LOG: &str = "log.jsonl";

/// A directory of the log, by descriptor; the path is for messages only.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// How a file of the log is opened. Symbolic links are never followed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    /// For reading.
    Read,
    /// For reading and appending; it must exist.
    Append,
    /// For reading and appending; it is made if it does not exist.
    AppendOrCreate,
    /// For appending; it must not exist.
    CreateNew,
}

impl Dir {
    /// `<state>/audit`, made if necessary, and refused if others may write it.
    pub(crate) fn create(state: &Path) -> Result<Self, AuditError> {
        let path = state.join("audit");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|e| AuditError::io("create", &path, e))?;
        let dir = Self::open_path(path)?;
        dir.refuse_strangers()?;
        Ok(dir)
    }

    /// `<state>/audit` for reading; `None` if there is none.
    pub(crate) fn open(state: &Path) -> Result<Option<Self>, AuditError> {
        match Self::open_path(state.join("audit")) {
            Ok(dir) => Ok(Some(dir)),
            Err(AuditError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open_path(path: PathBuf) -> Result<Self, AuditError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::open(&path, flags, Mode::empty()).map_err(|e| AuditError::io("open", &path, e))?;
        Ok(Self { fd, path })
    }

    fn refuse_strangers(&self) -> Result<(), AuditError> {
        let stat = fs::fstat(&self.fd).map_err(|e| AuditError::io("stat", &self.path, e))?;
        let untrusted = |why| {
            Err(AuditError::Untrusted {
                path: self.path.clone(),
                why,
            })
        };
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            untrusted("it belongs to another user")
        } else if stat.st_mode & 0o022 != 0 {
            untrusted("group or others may write it")
        } else {
            Ok(())
        }
    }

    /// Makes the directory of a run. An existing one is refused: a log is never begun twice.
    pub(crate) fn create_run(&self, run: &RunId) -> Result<Self, AuditError> {
        match fs::mkdirat(&self.fd, run.as_str(), Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(AuditError::Exists { run: run.clone() }),
            Err(errno) => return Err(AuditError::io("create", &self.path_of(run.as_str()), errno)),
        }
        self.open_run(run)?
            .ok_or_else(|| AuditError::Missing { run: run.clone() })
    }

    /// The directory of a run; `None` if there is none.
    pub(crate) fn open_run(&self, run: &RunId) -> Result<Option<Self>, AuditError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&self.fd, run.as_str(), flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self {
                fd,
                path: self.path_of(run.as_str()),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(AuditError::io("open", &self.path_of(run.as_str()), errno)),
        }
    }

    /// Opens a regular file; `None` if it does not exist.
    pub(crate) fn file(&self, name: &str, how: Open) -> Result<Option<File>, AuditError> {
        // NONBLOCK: a fifo put in a log's place must not hang the reader before it is refused.
        let base = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let flags = match how {
            Open::Read => OFlags::RDONLY,
            Open::Append => OFlags::RDWR | OFlags::APPEND,
            Open::AppendOrCreate => OFlags::RDWR | OFlags::APPEND | OFlags::CREATE,
            Open::CreateNew => OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL,
        };
        let path = self.path_of(name);
        let fd = match fs::openat(&self.fd, name, base | flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(AuditError::io("open", &path, errno)),
        };
        let stat = fs::fstat(&fd).map_err(|e| AuditError::io("stat", &path, e))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok(Some(File::from(fd)))
        } else {
            let why = "it is not a regular file";
            Err(AuditError::Untrusted { path, why })
        }
    }

    /// Like [`Self::file`], where a missing file is an error.
    pub(crate) fn must(&self, name: &str, how: Open) -> Result<File, AuditError> {
        self.file(name, how)?
            .ok_or_else(|| AuditError::io("open", &self.path_of(name), Errno::NOENT))
    }

    /// Makes `new` another name of `old`; `false` if `new` exists.
    pub(crate) fn link(&self, old: &str, new: &str) -> Result<bool, AuditError> {
        match fs::linkat(&self.fd, old, &self.fd, new, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(AuditError::io("create", &self.path_of(new), errno)),
        }
    }

    /// Replaces `new` by `old`.
    pub(crate) fn rename(&self, old: &str, new: &str) -> Result<(), AuditError> {
        fs::renameat(&self.fd, old, &self.fd, new)
            .map_err(|e| AuditError::io("create", &self.path_of(new), e))
    }

    /// Removes a file.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), AuditError> {
        fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|e| AuditError::io("remove", &self.path_of(name), e))
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, name: &str) -> Result<(), AuditError> {
        fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|e| AuditError::io("remove", &self.path_of(name), e))
    }

    /// Names in it, without `.` and `..`; names that are not UTF-8 are none of ours.
    pub(crate) fn names(&self) -> Result<Vec<String>, AuditError> {
        let failed = |e: Errno| AuditError::io("list", &self.path, e);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(failed)? {
            if let Ok(name) = entry.map_err(failed)?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A descriptor of the directory, to sync its entries.
    pub(crate) fn handle(&self) -> Result<File, AuditError> {
        let fd = self.fd.as_fd().try_clone_to_owned();
        fd.map(File::from)
            .map_err(|e| AuditError::io("open", &self.path, e))
    }

    /// Makes its entries durable.
    pub(crate) fn sync(&self) -> Result<(), AuditError> {
        fs::fsync(&self.fd).map_err(|e| AuditError::io("sync", &self.path, e))
    }

    /// The state directory that it is in.
    pub(crate) fn state(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Path of an entry, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
