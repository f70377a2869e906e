//! The files behind the broker: copied out whole, replaced whole. Opened by path every time, without a symlink.
//!
//! **Trust:** the agent may own the directory a file lies in: the file can be a FIFO, a link or gone at any moment.
use bastle_contract::grants::MAX_BROKER_FILE;
use bastle_contract::{AbsPath, Authority};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// What came of replacing a file.
pub(crate) type Replaced = Result<(), Refusal>;

/// Why a file cannot be served: a status for the agent and the reason.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) why: String,
}

fn refusal(status: u16, why: impl ToString) -> Refusal {
    Refusal {
        status,
        why: why.to_string(),
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => refusal(404, "the file is not there"),
            Errno::LOOP => refusal(409, "a component of its path became a symlink"),
            other => refusal(500, other),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        refusal(500, error)
    }
}

fn open_exactly(path: &AbsPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Without O_NONBLOCK opening a FIFO would wait for a writer for ever. What is only looked at takes no such flag.
    let flags = if flags.contains(OFlags::PATH) {
        flags | OFlags::CLOEXEC
    } else {
        flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
    };
    rustix::fs::openat2(rustix::fs::CWD, path.as_path(), flags, Mode::empty(), resolve)
}

fn regular(file: &OwnedFd) -> Result<Stat, Refusal> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        Ok(stat)
    } else {
        Err(refusal(409, "it is not a regular file any more"))
    }
}

/// The size of a file that can be served.
pub(crate) fn size(path: &AbsPath) -> Option<u64> {
    let file = open_exactly(path, OFlags::PATH).ok()?;
    let stat = regular(&file).ok()?;
    u64::try_from(stat.st_size).ok()
}

/// The whole content of a file.
pub(crate) fn read_copy(path: &AbsPath) -> Result<Vec<u8>, Refusal> {
    // Looked at before it is opened for reading: opening a device can have an effect.
    regular(&open_exactly(path, OFlags::PATH)?)?;
    let file = open_exactly(path, OFlags::RDONLY)?;
    regular(&file)?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(MAX_BROKER_FILE + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BROKER_FILE {
        return Err(refusal(413, format!("it has more than {MAX_BROKER_FILE} bytes")));
    }
    Ok(bytes)
}

/// Gives a file new content: old or new, never between, with the owner and the permissions it had.
pub(crate) fn replace(path: &AbsPath, bytes: &[u8]) -> Replaced {
    let parent = path.parent().ok_or_else(|| refusal(500, "it has no directory"))?;
    let directory = open_exactly(&parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let old = regular(&open_exactly(path, OFlags::PATH)?)?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| refusal(500, error))?;
    let name = format!(".bastle-{:016x}", u64::from_ne_bytes(seed));
    let written = write_new(&directory, &name, bytes, &old).and_then(|()| {
        rustix::fs::renameat(&directory, &name, &directory, path.name())?;
        rustix::fs::fsync(&directory)?;
        Ok(())
    });
    if let Err(cause) = written {
        // What is left is named after bastle, and the old content stands.
        return match rustix::fs::unlinkat(&directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Err(cause),
            Err(error) => Err(refusal(
                500,
                format!("{}; {name} stays behind: {error}", cause.why),
            )),
        };
    }
    Ok(())
}

fn write_new(directory: &OwnedFd, name: &str, bytes: &[u8], old: &Stat) -> Result<(), Refusal> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        match rustix::fs::fchown(&file, Some(uid), Some(gid)) {
            // User id 0 of a container or a user namespace may name few owners.
            Err(Errno::PERM | Errno::INVAL) if !Authority::of_this_process().is_root() => {}
            other => other?,
        }
    }
    // Not set-uid and set-gid: the content is the agent's now.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &tempfile::TempDir, name: &str) -> AbsPath {
        AbsPath::from_path(&dir.path().canonicalize().unwrap().join(name)).unwrap()
    }

    #[test]
    fn a_file_that_became_a_link_a_fifo_or_a_directory_is_neither_read_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("secret", dir.path().join("link")).unwrap();
        std::fs::create_dir(dir.path().join("directory")).unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for name in ["link", "fifo", "directory", "missing"] {
            assert!(read_copy(&at(&dir, name)).is_err(), "{name}");
            assert!(replace(&at(&dir, name), b"new").is_err(), "{name}");
            assert_eq!(size(&at(&dir, name)), None, "{name}");
        }
        assert_eq!(read_copy(&at(&dir, "secret")).unwrap(), b"s", "control");
        assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"s");
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions_but_not_set_uid() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
        replace(&at(&dir, "f"), b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o751
        );
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("large")).unwrap();
        file.set_len(MAX_BROKER_FILE + 1).unwrap();
        assert_eq!(read_copy(&at(&dir, "large")).unwrap_err().status, 413);
        file.set_len(MAX_BROKER_FILE).unwrap();
        assert_eq!(
            read_copy(&at(&dir, "large")).unwrap().len() as u64,
            MAX_BROKER_FILE
        );
    }
}
