//! Configuration files of a project, read on the host side.
//!
//! **Trust:** whoever wrote the project chose what stands under these names. A name may be a symbolic link to a file
//! that only the reader may see, a FIFO that never answers, a device or a huge file. The kernel resolves the whole name
//! beneath the project and refuses links in every component (`openat2`); what was opened is checked by `fstat`.
use crate::beneath::Dir;
use crate::path::{TreePath, TreePathError};
use rustix::io::Errno;
use std::io::{self, Read};
use std::path::Path;

/// Why a file of the project is not read. No variant holds content of the file or the target of a link.
#[derive(Debug, thiserror::Error)]
pub enum ProjectFileError {
    /// The name or one of its directories is a symbolic link.
    #[error("it is a symbolic link or lies behind one, and links in a project are not followed")]
    Link,
    /// A directory, FIFO, socket or device.
    #[error("it is not a regular file")]
    NotRegular,
    /// Longer than the caller's limit.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// `openat2` is missing: a sandbox around this process hides it.
    #[error("openat2 is not available: bastle does not run inside a sandbox")]
    Sandboxed,
    /// No name inside a project.
    #[error(transparent)]
    Name(#[from] TreePathError),
    /// What the kernel said.
    #[error("{0}")]
    Io(io::Error),
}

impl ProjectFileError {
    /// What to do about it, for the file at `path`.
    #[must_use]
    pub fn fix(&self, path: &Path) -> String {
        let shown = path.display();
        match self {
            Self::Link => format!("replace the link with a regular file: ls -l {shown}"),
            Self::NotRegular => format!("replace it with a regular file: ls -l {shown}"),
            Self::TooLarge(_) => format!("shorten it: wc -c {shown}"),
            Self::Sandboxed => "run bastle outside of the sandbox".to_owned(),
            Self::Name(_) | Self::Io(_) => format!("check the file: ls -l {shown}"),
        }
    }
}

/// Reads a regular file of the project at `root`; `None` where there is none.
///
/// # Errors
/// When something other than a regular file of at most `limit` bytes stands there; see [`ProjectFileError`].
pub fn read_project_file(
    root: &Path,
    relative: &Path,
    limit: u64,
) -> Result<Option<Vec<u8>>, ProjectFileError> {
    let path = TreePath::new(relative.as_os_str().as_encoded_bytes())?;
    let opened = Dir::open(root).and_then(|directory| directory.open_regular(path.as_bytes()));
    let (file, _) = match opened {
        Ok(opened) => opened,
        Err(error) => return absent_or(error),
    };
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(ProjectFileError::Io)?;
    if bytes.len() as u64 > limit {
        return Err(ProjectFileError::TooLarge(limit));
    }
    Ok(Some(bytes))
}

fn absent_or(error: io::Error) -> Result<Option<Vec<u8>>, ProjectFileError> {
    if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() {
        return Err(ProjectFileError::NotRegular);
    }
    match Errno::from_io_error(&error) {
        // A file in the place of a parent: nothing is below it.
        Some(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        // `EXDEV`: the way leads out of the project.
        Some(Errno::LOOP | Errno::XDEV) => Err(ProjectFileError::Link),
        Some(Errno::NOSYS) => Err(ProjectFileError::Sandboxed),
        // Opening a socket, or a device without a driver.
        Some(Errno::NXIO | Errno::NODEV) => Err(ProjectFileError::NotRegular),
        Some(_) | None => Err(ProjectFileError::Io(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn read(root: &Path, name: &str) -> Result<Option<Vec<u8>>, ProjectFileError> {
        read_project_file(root, Path::new(name), 16)
    }

    #[test]
    fn a_link_in_any_component_is_refused_and_a_regular_file_is_read() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("settings"), "token").unwrap();
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/settings"), "own").unwrap();
        symlink(outside.path().join("settings"), root.join("absolute")).unwrap();
        symlink("sub/settings", root.join("inside")).unwrap();
        symlink(outside.path(), root.join("directory")).unwrap();
        symlink("/proc/self/environ", root.join("environ")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        for name in [
            "absolute",
            "inside",
            "directory/settings",
            "environ",
            "magic/etc/passwd",
            "dangling",
        ] {
            let error = read(root, name).unwrap_err();
            assert!(matches!(error, ProjectFileError::Link), "{name}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("token"));
        }
        assert_eq!(read(root, "sub/settings").unwrap().unwrap(), b"own");
        assert!(read(root, "absent").unwrap().is_none());
        assert!(read(root, "absent/settings").unwrap().is_none());
        assert!(read(root, "sub/settings/below").unwrap().is_none());
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_without_waiting() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        std::fs::create_dir(root.join("directory")).unwrap();
        for name in ["fifo", "socket", "directory"] {
            let error = read(root, name).unwrap_err();
            assert!(matches!(error, ProjectFileError::NotRegular), "{name}: {error:?}");
        }
        std::fs::write(root.join("plain"), "x".repeat(16)).unwrap();
        assert_eq!(read(root, "plain").unwrap().unwrap().len(), 16);
        std::fs::write(root.join("plain"), "x".repeat(17)).unwrap();
        let error = read(root, "plain").unwrap_err();
        assert!(matches!(error, ProjectFileError::TooLarge(16)), "{error:?}");
    }

    #[test]
    fn a_name_that_leaves_the_project_by_its_text_is_refused() {
        let project = tempfile::tempdir().unwrap();
        for name in ["", "..", "../x", "/etc/passwd", "a/../b", "a//b"] {
            let error = read(project.path(), name).unwrap_err();
            assert!(matches!(error, ProjectFileError::Name(_)), "{name}: {error:?}");
        }
    }
}
