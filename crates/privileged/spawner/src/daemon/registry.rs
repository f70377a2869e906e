//! Who serves a run: one file per worker, locked for as long as the worker lives. A daemon that is started again finds
//! those of the one before it, and tells them from files that were left behind.
use bastle_contract::RunId;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Largest file that is read.
const MOST: u64 = 4096;
/// How the name of an unfinished file begins.
const NEW: &str = ".new-";

/// The directory of the files.
#[derive(Debug)]
pub(super) struct Registry(OwnedFd);

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) uid: u32,
    pub(super) pid: u32,
    pub(super) since_ms: u64,
    /// `None` until its plan came.
    pub(super) run: Option<RunId>,
}

/// A worker of an earlier daemon.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) entry: Entry,
    /// Readable when it has ended.
    pub(super) pidfd: OwnedFd,
}

/// A worker's own entry: it holds as long as this value lives.
pub(super) struct Registered {
    entry: Entry,
    _lock: OwnedFd,
}

impl Registry {
    /// Opens the directory, which only this user may write.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::other("others may write or read it"));
        }
        Ok(Self(directory))
    }

    /// For whoever closes everything else.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Workers that live. Files without one are removed.
    pub(super) fn living(&self) -> io::Result<Vec<Adopted>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            match self.look(name) {
                Ok(Some(adopted)) => found.push(adopted),
                Ok(None) => self.forget(name)?,
                // It vanished meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|adopted| adopted.entry.since_ms);
        Ok(found)
    }

    /// `None`: nobody holds it.
    fn look(&self, name: &str) -> io::Result<Option<Adopted>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        if !is_held(&file)? {
            return Ok(None);
        }
        if name.starts_with(NEW) {
            // Somebody writes it right now. It comes under its own name, or not at all.
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut text = String::new();
        std::fs::File::from(file.try_clone()?)
            .take(MOST)
            .read_to_string(&mut text)?;
        // Its holder renames a finished file into place: another one is not ours, and nobody is counted for it.
        let Ok(entry) = serde_json::from_str::<Entry>(&text) else {
            return Err(io::Error::other(format!("{name} is no entry")));
        };
        let pid = i32::try_from(entry.pid).ok().and_then(Pid::from_raw);
        let pidfd = match pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => pidfd,
            Some(Err(Errno::SRCH)) | None => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
        };
        // Still held: then the number has not been used again in between.
        Ok(is_held(&file)?.then_some(Adopted { entry, pidfd }))
    }

    /// Removes what is left of a worker that ended.
    pub(super) fn forget_worker(&self, pid: u32) -> io::Result<()> {
        self.forget(&pid.to_string())
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Enters this process.
    pub(super) fn register(&self, entry: Entry) -> io::Result<Registered> {
        let lock = self.write(&entry)?;
        Ok(Registered { entry, _lock: lock })
    }

    /// Writes and locks a file beside, then puts it in place: nobody sees half of one, or one without its lock.
    fn write(&self, entry: &Entry) -> io::Result<OwnedFd> {
        let (name, new) = (entry.pid.to_string(), format!("{NEW}{}", entry.pid));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, new.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let bytes = serde_json::to_vec(entry)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = &rest[written..];
        }
        rustix::fs::renameat(&self.0, new.as_str(), &self.0, name.as_str())?;
        Ok(file)
    }
}

impl Registered {
    /// The run has a name now. Where that cannot be written the old entry stays.
    pub(super) fn name(&mut self, registry: &Registry, run: RunId) -> io::Result<()> {
        let entry = Entry {
            run: Some(run),
            ..self.entry.clone()
        };
        // The new one is in place and locked before the old one is let go.
        *self = registry.register(entry)?;
        Ok(())
    }
}

fn is_held(file: &OwnedFd) -> io::Result<bool> {
    match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(file.as_fd(), FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32) -> Entry {
        Entry {
            uid: 7,
            pid,
            since_ms: 1,
            run: None,
        }
    }

    #[test]
    fn a_worker_that_lives_is_found_with_its_run_and_one_that_ended_is_not_counted() {
        let place = std::env::temp_dir().join(format!("bastle-registry-{}", std::process::id()));
        let registry = Registry::open(&place).unwrap();
        let mut own = registry.register(entry(std::process::id())).unwrap();
        drop(registry.register(entry(1)).unwrap());
        std::fs::write(place.join("999999"), "{}").unwrap();
        let run = RunId::try_from("calm-otter".to_owned()).unwrap();
        own.name(&registry, run.clone()).unwrap();
        let found = registry.living().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].entry,
            Entry {
                run: Some(run),
                ..entry(std::process::id())
            }
        );
        drop(own);
        let left = registry.living().unwrap();
        let files = std::fs::read_dir(&place).unwrap().count();
        std::fs::remove_dir_all(&place).unwrap();
        assert!(left.is_empty() && files == 0, "{left:?} {files}");
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = std::env::temp_dir().join(format!("bastle-registry-open-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
        let opened = Registry::open(&place);
        std::fs::remove_dir(&place).unwrap();
        assert!(opened.is_err());
    }
}
