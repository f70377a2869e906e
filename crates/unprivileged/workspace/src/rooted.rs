//! Opening below a directory without following anything: the only way apply touches the host tree.
//!
//! **Trust:** names come from the agent and the tree may change while it is read. Every component is resolved
//! by the kernel beneath an open directory, links are refused, and what was opened is checked afterwards.
use crate::attributes::{self, Has};
use crate::manifest::{Content, Kind, LinkTarget, Mode, Opaque};
use crate::path::TreePath;
use rustix::fs::{AtFlags, FileType, Mode as Bits, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Neither out of the tree, nor over a link, nor through `/proc`.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// An open directory that is the root of a tree.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// The directory that holds a path, open, and the path's last component.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) directory: OwnedFd,
    /// The name in it.
    pub(crate) name: &'a [u8],
}

impl Root {
    /// Opens the root of a tree; the path itself is the caller's and may hold links above its last component.
    ///
    /// # Errors
    /// When it is no directory or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Bits::empty())?))
    }

    /// The directory of a path; `None` when it does not exist.
    pub(crate) fn place<'a>(&self, path: &'a TreePath) -> io::Result<Option<Place<'a>>> {
        let directory = match path.parent() {
            None => Some(self.0.try_clone()?),
            Some(parent) => self.directory(&parent)?,
        };
        Ok(directory.map(|directory| Place {
            directory,
            name: path.name(),
        }))
    }

    /// A directory of the tree; `None` when it does not exist.
    pub(crate) fn directory(&self, path: &TreePath) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.0, path.as_path(), flags, Bits::empty(), BENEATH) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The directory of the root itself.
    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.0
    }

    /// As [`Self::kind`], but where a file stands in the place of a parent there is nothing below it.
    pub(crate) fn kind_or_nothing(&self, path: &TreePath) -> io::Result<Option<Kind>> {
        match self.kind(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => Ok(None),
            other => other,
        }
    }

    /// What stands at a path now; `None` when nothing does. A file or link in the place of a parent is an error.
    ///
    /// # Errors
    /// When a component above is not a directory, or reading fails.
    pub fn kind(&self, path: &TreePath) -> io::Result<Option<Kind>> {
        let Some(place) = self.place(path)? else {
            return Ok(None);
        };
        let stat = match rustix::fs::statat(&place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => place.file_kind()?,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&place.directory, place.name, Vec::new())?;
                Kind::Symlink {
                    target: LinkTarget(target.into_bytes()),
                }
            }
            FileType::Fifo => Kind::Opaque { why: Opaque::Fifo },
            FileType::Socket => Kind::Opaque { why: Opaque::Socket },
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                Kind::Opaque { why: Opaque::Device }
            }
        }))
    }
}

impl Place<'_> {
    /// Opens the regular file here for reading; never blocks on a FIFO, never follows a link.
    pub(crate) fn open_file(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(rustix::fs::openat2(
            &self.directory,
            self.name,
            flags,
            Bits::empty(),
            BENEATH,
        )?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(not_regular())
        }
    }

    fn file_kind(&self) -> io::Result<Kind> {
        let file = self.open_file()?;
        let meta = file.metadata()?;
        let attributes = match attributes::of(&file)? {
            Has::These(set) => Some(set.id()),
            // More than is carried is left alone: it is no part of what is compared.
            Has::Nothing | Has::TooMuch => None,
        };
        let mut hasher = blake3::Hasher::new();
        let size = io::copy(&mut file.take(u64::MAX), &mut hasher)?;
        Ok(Kind::File {
            digest: Content::from_bytes(*hasher.finalize().as_bytes()),
            size,
            mode: Mode {
                executable: Mode::from_bits(meta.mode()).executable,
                special: false,
            },
            attributes,
        })
    }
}

/// Reads a small regular file by its full path without following a link at its end.
pub(crate) fn read_small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Bits::empty())?);
    if !file.metadata()?.is_file() {
        return Err(not_regular());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is larger than any of its kind",
        ));
    }
    Ok(bytes)
}

/// Makes a directory's entries durable.
pub(crate) fn sync_directory(directory: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(directory)?)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}
