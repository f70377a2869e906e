//! Opening below a directory without following anything: the only way apply touches the host tree.
//!
//! **Trust:** names come from the agent and the tree may change while it is read. Every component is resolved
//! by the kernel beneath an open directory, links are refused, and what was opened is checked afterwards.
use crate::attributes::{self, Has};
use crate::manifest::{Content, Kind, LinkTarget, Mode, Opaque};
use crate::path::TreePath;
use rustix::fs::{AtFlags, FileType, Mode as Bits, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Neither out of the tree, nor over a link, nor through `/proc`.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Most bytes of a file in memory while it is hashed.
const CHUNK: usize = 128 << 10;

/// An open directory that is the root of a tree.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    /// For neighbours: the directory that was opened last, by its path.
    last: Option<Mutex<Option<Opened>>>,
}

/// A directory of a tree, by its path.
type Opened = (Vec<u8>, Arc<OwnedFd>);

/// The directory that holds a path, open, and the path's last component.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) directory: Arc<OwnedFd>,
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
        Ok(Self::plain(rustix::fs::open(path, flags, Bits::empty())?))
    }

    /// Opens a directory by its name in another one, as the root of a tree.
    pub(crate) fn open_beneath(directory: impl AsFd, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(directory, name, flags, Bits::empty(), BENEATH)?;
        Ok(Self::plain(fd))
    }

    fn plain(fd: OwnedFd) -> Self {
        Self { fd, last: None }
    }

    /// The same root for one pass over neighbours: the directory of the last path stays open. If somebody moves that
    /// directory meanwhile, its other files are found where it went, as if the pass had come before the move. Not for a
    /// pass that moves directories itself.
    pub(crate) fn nearby(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            last: Some(Mutex::new(None)),
        })
    }

    /// The directory of a path; `None` when it does not exist.
    pub(crate) fn place<'a>(&self, path: &'a TreePath) -> io::Result<Option<Place<'a>>> {
        let name = path.name();
        let above = path.as_bytes().len().saturating_sub(name.len() + 1);
        let above = &path.as_bytes()[..above];
        let lock = |last| Mutex::lock(last).unwrap_or_else(PoisonError::into_inner);
        let mut last = self.last.as_ref().map(lock);
        if let Some(Some((known, directory))) = last.as_deref()
            && known == above
        {
            let directory = Arc::clone(directory);
            return Ok(Some(Place { directory, name }));
        }
        let opened = match path.parent() {
            None => Some(self.fd.try_clone()?),
            Some(parent) => self.directory(&parent)?,
        };
        let Some(directory) = opened.map(Arc::new) else {
            return Ok(None);
        };
        if let Some(last) = last.as_deref_mut() {
            *last = Some((above.to_vec(), Arc::clone(&directory)));
        }
        Ok(Some(Place { directory, name }))
    }

    /// A directory of the tree; `None` when it does not exist.
    pub(crate) fn directory(&self, path: &TreePath) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.fd, path.as_path(), flags, Bits::empty(), BENEATH) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The directory of the root itself.
    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.fd
    }

    /// What sort of object stands at a path, without looking into it; `None` when nothing does.
    pub(crate) fn type_of(&self, path: &TreePath) -> io::Result<Option<FileType>> {
        Ok(self.stat(path)?.map(|stat| FileType::from_raw_mode(stat.st_mode)))
    }

    /// The inode at a path; `None` when nothing stands there.
    pub(crate) fn inode(&self, path: &TreePath) -> io::Result<Option<u64>> {
        Ok(self.stat(path)?.map(|stat| stat.st_ino))
    }

    /// The attributes of the object at a path, of the link itself where it is one; `None` when nothing stands there.
    pub(crate) fn stat(&self, path: &TreePath) -> io::Result<Option<Stat>> {
        let place = match self.place(path) {
            Err(error) if is_no_directory(&error) => return Ok(None),
            other => other?,
        };
        let Some(place) = place else { return Ok(None) };
        match rustix::fs::statat(&place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// As [`Self::kind`], but where a file or link stands in the place of a parent there is nothing below it.
    pub(crate) fn kind_or_nothing(&self, path: &TreePath) -> io::Result<Option<Kind>> {
        match self.kind(path) {
            Err(error) if is_no_directory(&error) => Ok(None),
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
        self.open_looked_at().map(|(file, _)| file)
    }

    /// The same, with what the kernel says of the open file.
    fn open_looked_at(&self) -> io::Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(rustix::fs::openat2(
            &self.directory,
            self.name,
            flags,
            Bits::empty(),
            BENEATH,
        )?);
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok((file, stat))
        } else {
            Err(not_regular())
        }
    }

    fn file_kind(&self) -> io::Result<Kind> {
        let (file, stat) = self.open_looked_at()?;
        let attributes = match attributes::of(&file)? {
            Has::These(set) => Some(set.id()),
            // More than is carried is left alone: it is no part of what is compared.
            Has::Nothing | Has::TooMuch => None,
        };
        let mut hasher = blake3::Hasher::new();
        let length = usize::try_from(stat.st_size).unwrap_or(CHUNK);
        let size = each_chunk(&file, length, |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(Kind::File {
            digest: Content::from_bytes(*hasher.finalize().as_bytes()),
            size,
            mode: Mode {
                executable: Mode::from_bits(stat.st_mode).executable,
                special: false,
            },
            attributes,
        })
    }
}

/// Shows all bytes of a file of about that length, and answers how many there are. A small file takes two calls and no
/// more memory than it has bytes.
pub(crate) fn each_chunk(
    mut file: impl Read,
    length: usize,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut buffer = vec![0_u8; length.saturating_add(1).min(CHUNK)];
    let mut total = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        each(&buffer[..read])?;
        total += read as u64;
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

/// Whether a file or link stands where a directory was expected: links are not followed.
pub(crate) fn is_no_directory(error: &io::Error) -> bool {
    let errnos = [Errno::NOTDIR, Errno::LOOP];
    errnos
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}
