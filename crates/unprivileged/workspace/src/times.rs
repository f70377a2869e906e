//! When the files of a snapshot were last changed, so that going back brings the times back too.
//!
//! **Trust:** beside the record of a snapshot and never part of it: two trees with the same contents are the same tree. A
//! list that is damaged or missing is none; files then have the time at which they were written back.
use crate::beneath::Dir;
use crate::manifest::{Content, Kind, Manifest};
use crate::meta::Snapshot;
use crate::path::TreePath;
use crate::scan::Scan;
use crate::workspace::Workspace;
use bastle_contract::Fault;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use std::fs::File;
use std::io;
use std::path::PathBuf;

const MAGIC: &[u8] = b"bastle times 1\n";
const BILLION: i64 = 1_000_000_000;
/// No time: nothing was ever changed then.
const UNKNOWN: i64 = i64::MIN;

/// The times of one tree's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Nanoseconds since the epoch, in the order of the manifest's entries.
    modified: Vec<i64>,
}

impl Times {
    /// As they were seen; what changed a moment before the look is looked at once more.
    fn of(scan: &Scan, tree: &Dir) -> Self {
        let known = |at: usize| {
            let seen = scan.seen.seen.get(at).copied().flatten();
            let below = scan.below.get(at).copied().flatten();
            seen.map(|seen| seen.modified()).or(below)
        };
        let modified = scan.manifest.entries().iter().enumerate().map(|(at, entry)| {
            let looked = || match entry.kind {
                Kind::File { .. } => look(tree, &entry.path),
                Kind::Dir | Kind::Symlink { .. } | Kind::Submodule { .. } | Kind::Opaque { .. } => None,
            };
            known(at).or_else(looked).unwrap_or(UNKNOWN)
        });
        Self {
            modified: modified.collect(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAGIC.len() + 32 + self.modified.len() * 8);
        out.extend_from_slice(MAGIC);
        for time in &self.modified {
            out.extend_from_slice(&time.to_le_bytes());
        }
        let check = Content::of(&out);
        out.extend_from_slice(check.as_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk::<32>()?;
        if Content::of(body).as_bytes() != check {
            return None;
        }
        let chunks = body.strip_prefix(MAGIC)?.chunks(8);
        let modified = chunks.map(|chunk| chunk.try_into().ok().map(i64::from_le_bytes));
        Some(Self {
            modified: modified.collect::<Option<_>>()?,
        })
    }

    /// When a file of the tree was changed.
    pub(crate) fn find(&self, manifest: &Manifest, path: &TreePath) -> Option<i64> {
        let time = *self.modified.get(manifest.position(path)?)?;
        (time != UNKNOWN).then_some(time)
    }
}

fn look(tree: &Dir, path: &TreePath) -> Option<i64> {
    let stat = tree
        .beneath(path.parent().as_ref())
        .ok()?
        .stat(path.name())
        .ok()?;
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).ok()?;
    Some(stat.st_mtime.wrapping_mul(BILLION).wrapping_add(nanoseconds))
}

/// Gives a fresh file the time at which its content was changed.
pub(crate) fn set(file: &File, modified: i64) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.div_euclid(BILLION),
            tv_nsec: modified.rem_euclid(BILLION),
        },
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

impl Workspace {
    fn times_path(&self, number: u32) -> PathBuf {
        self.path("snapshots").join(format!("{number}.times"))
    }

    /// Keeps the times of a snapshot, before its record.
    pub(crate) fn keep_times(&self, number: u32, scan: &Scan) -> Result<(), Fault> {
        let tree = self.open_tree()?;
        self.write_times(number, &Times::of(scan, &tree))
    }

    pub(crate) fn write_times(&self, number: u32, times: &Times) -> Result<(), Fault> {
        self.place
            .durable()
            .write_cache(&self.times_path(number), &times.encode())
    }

    /// The times of a snapshot, where they are kept.
    pub(crate) fn times(&self, snapshot: &Snapshot) -> Option<Times> {
        Times::decode(&std::fs::read(self.times_path(snapshot.number)).ok()?)
    }

    /// The times of a tree that is a snapshot.
    pub(crate) fn times_of(&self, manifest: &Content) -> Option<Times> {
        let mut all = self.snapshots().ok()?.into_iter();
        all.find(|snapshot| snapshot.manifest == *manifest)
            .and_then(|snapshot| self.times(&snapshot))
    }

    pub(crate) fn forget_times(&self, number: u32) -> Result<(), Fault> {
        self.place.durable().remove_file(&self.times_path(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_with_any_flipped_bit_or_cut_off_is_no_list() {
        let times = Times {
            modified: vec![UNKNOWN, -1, 1_700_000_000_123_456_789],
        };
        let bytes = times.encode();
        assert_eq!(Times::decode(&bytes), Some(times));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert_eq!(Times::decode(&flipped), None);
            assert_eq!(Times::decode(&bytes[..at]), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut checked = [MAGIC, &bytes].concat();
            checked.extend_from_slice(Content::of(&checked).as_bytes());
            for input in [bytes, checked] {
                if let Some(times) = Times::decode(&input) {
                    prop_assert_eq!(times.encode(), input);
                }
            }
        }
    }
}
