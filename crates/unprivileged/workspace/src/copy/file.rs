//! One file: shared extents where the file system can, otherwise its data, with holes, times and attributes.
//!
//! **Trust:** reads a descriptor that was judged after the open; writes a file that did not exist before.
use super::Copier;
use crate::attributes::{self, Attributes, Has, Held};
use crate::beneath::Dir;
use crate::manifest::{Content, Kind, Mode};
use crate::scan::length;
use crate::seen::{Alive, Seen};
use crate::store::copy_hashing;
use rustix::fs::{OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Files up to here are read with one call and written with one.
pub const MAX_BUFFER: u64 = 1 << 20;

/// A finished copy of a file.
pub(crate) struct CopiedFile {
    digest: Content,
    pub(crate) size: u64,
    mode: Mode,
    /// `None` when the source changed meanwhile.
    pub(crate) source: Option<Seen>,
    pub(crate) tree: Seen,
    /// What the copy has of the source's attributes.
    pub(crate) attributes: Option<Attributes>,
    /// Whether the copy lacks some that the source has.
    pub(crate) lacks: bool,
}

impl CopiedFile {
    pub(crate) fn kind(&self) -> Kind {
        Kind::File {
            digest: self.digest,
            size: self.size,
            mode: self.mode,
            attributes: self.attributes.as_ref().map(Attributes::id),
        }
    }
}

impl Copier<'_> {
    pub(super) fn copy_file(
        &self,
        (input, before): (&File, &Stat),
        to: &Dir,
        name: &[u8],
        buffer: &mut Vec<u8>,
    ) -> io::Result<CopiedFile> {
        // Setuid and setgid are never carried over: the agent would own the file.
        let mode = Mode {
            special: false,
            ..Mode::from_bits(before.st_mode)
        };
        let mut output = to.create_new(name, mode.create_bits())?;
        let (digest, size) = self.contents(input, length(before), &mut output, buffer)?;
        let (attributes, lacks) = copy_attributes(input, &output)?;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: before.st_mtime,
                tv_nsec: i64::try_from(before.st_mtime_nsec).unwrap_or(0),
            },
        };
        rustix::fs::futimens(&output, &times)?;
        let made = rustix::fs::fstat(&output)?;
        let unchanged = Seen::exactly(before, Alive::No);
        let after = rustix::fs::fstat(input)?;
        Ok(CopiedFile {
            digest,
            size,
            mode,
            source: unchanged.still(&after, Alive::No).then_some(unchanged),
            tree: Seen::exactly(&made, Alive::No),
            attributes,
            lacks,
        })
    }

    fn contents(
        &self,
        mut input: &File,
        size: u64,
        output: &mut File,
        buffer: &mut Vec<u8>,
    ) -> io::Result<(Content, u64)> {
        if size > 0 && self.can_clone.load(Ordering::Relaxed) {
            if rustix::fs::ioctl_ficlone(&*output, input).is_ok() {
                return copy_hashing(output, None, buffer);
            }
            self.can_clone.store(false, Ordering::Relaxed);
        }
        if size > MAX_BUFFER {
            return copy_hashing(input.take(size), Some(output), buffer);
        }
        let length = usize::try_from(size).unwrap_or(0);
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let mut filled = 0;
        while filled < length {
            match input.read(&mut buffer[filled..length]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        output.write_all(&buffer[..filled])?;
        Ok((Content::of(&buffer[..filled]), filled as u64))
    }
}

/// Whether files below a directory can share their extents, so that a copy of them takes no room. Tried on two files
/// without names; `None` where that cannot be tried.
#[must_use]
pub fn shares_extents(dir: &Path) -> Option<bool> {
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(dir, flags, rustix::fs::Mode::from_raw_mode(0o600)).map(File::from)
    };
    let (mut from, to) = (unnamed().ok()?, unnamed().ok()?);
    from.write_all(&[1; 4096]).ok()?;
    Some(rustix::fs::ioctl_ficlone(&to, &from).is_ok())
}

/// What the copy has, and whether that is less than the source has. A file system without attributes is fine.
fn copy_attributes(input: &File, output: &File) -> io::Result<(Option<Attributes>, bool)> {
    match attributes::of(input)? {
        Has::Nothing => Ok((None, false)),
        Has::TooMuch => Ok((None, true)),
        Has::These(set) => match set.set(output)? {
            Held::All => Ok((Some(set), false)),
            Held::Nothing => Ok((None, true)),
        },
    }
}
