//! Extended attributes of files: those of the user's name space, as one set with one digest.
//!
//! **Trust:** names and values are the agent's. Only `user.*` is read and written, never `security.*`, `trusted.*` or
//! `system.*`, and never a name by which a layered file system steers itself: such a name in the host's tree would be
//! obeyed by the next overlay above it. A stored set is checked again before any of it is set on a file.
use crate::blobs::{Blobs, read_blob};
use crate::faults::damaged;
use crate::manifest::Content;
use bastle_contract::Fault;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Longest name: the kernel's limit.
const MAX_NAME: usize = 255;
/// Longest value, and longest list of names: the kernel's limits.
const MAX_VALUE: usize = 64 * 1024;
/// Most attributes of one file.
const MAX_COUNT: usize = 1024;
/// Most bytes of one stored set: twice the longest value. ext4 holds 4 KiB, XFS any number of values.
pub(crate) const MAX_SET: usize = 2 * MAX_VALUE;
/// The user's name space, and names in it that file systems take for their own.
const USER: &[u8] = b"user.";
const STEERING: [&[u8]; 3] = [b"user.overlay.", b"user.fuseoverlayfs.", b"user.containers."];

/// The attributes of one file. Never empty: a file without any has no set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes(BTreeMap<Vec<u8>, Vec<u8>>);

/// What a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// Nothing that is carried.
    Nothing,
    /// These.
    These(Attributes),
    /// More than is carried, or they cannot be read.
    TooMuch,
}

/// Whether a file could take what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Held {
    /// All of it.
    All,
    /// Its file system has no attributes, or not this much room for them: it has none of them now.
    Nothing,
}

/// Whether an attribute of this name travels.
fn travels(name: &[u8]) -> bool {
    name.len() > USER.len()
        && name.len() <= MAX_NAME
        && name.starts_with(USER)
        && !name.contains(&0)
        && !STEERING.iter().any(|prefix| name.starts_with(prefix))
}

impl Attributes {
    /// `None` when there is nothing in it that travels.
    pub(crate) fn new(all: BTreeMap<Vec<u8>, Vec<u8>>) -> Option<Self> {
        let set = Self(all.into_iter().filter(|(name, _)| travels(name)).collect());
        (!set.0.is_empty()).then_some(set)
    }

    /// By name, in the order of their bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The digest that stands for the set.
    pub(crate) fn id(&self) -> Content {
        Content::of(&self.encode())
    }

    /// The canonical bytes: length of the name (1), name, length of the value (4, little endian), value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.0 {
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name);
            out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(value);
        }
        out
    }

    /// Reads canonical bytes; `None` when they are not exactly what [`Self::encode`] writes for some set.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_SET {
            return None;
        }
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut rest = bytes;
        while let Some((length, tail)) = rest.split_first() {
            let (name, tail) = tail.split_at_checked(usize::from(*length))?;
            let (length, tail) = tail.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (value, tail) = tail.split_at_checked(length)?;
            let in_order = all
                .last_key_value()
                .is_none_or(|(last, _)| last.as_slice() < name);
            if !in_order || !travels(name) || value.len() > MAX_VALUE || all.len() == MAX_COUNT {
                return None;
            }
            all.insert(name.to_vec(), value.to_vec());
            rest = tail;
        }
        Self::new(all)
    }

    /// Reads a kept set.
    ///
    /// # Errors
    /// When it is not kept, or is not a set.
    pub(crate) fn open(blobs: &dyn Blobs, id: &Content, of: &Path) -> Result<Self, Fault> {
        read_blob(blobs, id, MAX_SET as u64)?
            .and_then(|bytes| Self::decode(&bytes))
            .ok_or_else(|| damaged(of, "its attributes are not kept as they were"))
    }

    /// Sets all of them on a fresh file, or none.
    ///
    /// # Errors
    /// The kernel's, other than that the file system cannot hold them.
    pub(crate) fn set(&self, file: &File) -> io::Result<Held> {
        for (name, value) in &self.0 {
            match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::NOTSUP | Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE) => {
                    self.clear(file)?;
                    return Ok(Held::Nothing);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Held::All)
    }

    fn clear(&self, file: &File) -> io::Result<()> {
        for name in self.0.keys() {
            match rustix::fs::fremovexattr(file, name.as_slice()) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// What an open file has now.
///
/// # Errors
/// The kernel's. A file system without attributes has none.
pub(crate) fn of(file: &impl AsFd) -> io::Result<Has> {
    let file = file.as_fd();
    match rustix::fs::flistxattr_query(file) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Has::Nothing),
        Ok(_) => {}
        Err(Errno::TOOBIG) => return Ok(Has::TooMuch),
        Err(errno) => return Err(errno.into()),
    }
    let mut names = vec![0_u8; MAX_VALUE];
    let count = match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(count) => count,
        Err(Errno::RANGE | Errno::TOOBIG) => return Ok(Has::TooMuch),
        Err(errno) => return Err(errno.into()),
    };
    let mut all = BTreeMap::new();
    let mut size = 0;
    let mut value = Vec::new();
    for name in names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| travels(name))
    {
        value.resize(MAX_VALUE, 0);
        let length = match rustix::fs::fgetxattr(file, name, &mut value[..]) {
            Ok(length) => length,
            // Taken away since it was listed.
            Err(Errno::NODATA) => continue,
            Err(Errno::RANGE | Errno::TOOBIG) => return Ok(Has::TooMuch),
            Err(errno) => return Err(errno.into()),
        };
        size += 5 + name.len() + length;
        if size > MAX_SET || all.len() == MAX_COUNT {
            return Ok(Has::TooMuch);
        }
        all.insert(name.to_vec(), value[..length].to_vec());
    }
    Ok(Attributes::new(all).map_or(Has::Nothing, Has::These))
}

/// Whether an open directory has any that would travel with a file. A directory's do not, which is to be told.
pub(crate) fn stay_behind(directory: &impl AsFd) -> bool {
    // What cannot be read has been told, or will be, by who lists it.
    matches!(of(directory), Ok(Has::These(_) | Has::TooMuch))
}

/// What a file gets where both sides may have changed its attributes, name by name: the agent's where only the agent
/// changed it, otherwise the host's.
pub(crate) fn merge(
    base: Option<&Attributes>,
    host: Option<&Attributes>,
    agent: Option<&Attributes>,
) -> Option<Attributes> {
    let get = |set: Option<&Attributes>, name: &[u8]| set.and_then(|set| set.0.get(name).cloned());
    let names = [host, agent].into_iter().flatten().flat_map(|set| set.0.keys());
    let mut merged = BTreeMap::new();
    for name in names {
        let (was, ours, theirs) = (get(base, name), get(host, name), get(agent, name));
        let value = if ours == was { theirs } else { ours };
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    // Two sets that fit may together be more than is kept.
    Attributes::new(merged).filter(|set| set.0.len() <= MAX_COUNT && set.encode().len() <= MAX_SET)
}

/// Any bytes as a stored set; for fuzzing.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(set) = Attributes::decode(bytes) {
        assert_eq!(set.encode(), bytes);
        assert!(set.iter().all(|(name, _)| travels(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(pairs: &[(&str, &str)]) -> Option<Attributes> {
        let all = pairs
            .iter()
            .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()));
        Attributes::new(all.collect())
    }

    #[test]
    fn names_of_other_name_spaces_and_names_that_steer_an_overlay_never_travel() {
        let refused = [
            "security.capability",
            "security.selinux",
            "trusted.overlay.opaque",
            "system.posix_acl_access",
            "user.overlay.redirect",
            "user.overlay.opaque",
            "user.overlay.overlay.opaque",
            "user.fuseoverlayfs.opaque",
            "user.containers.override_stat",
            "user.",
            "user",
            "",
        ];
        for name in refused {
            assert_eq!(set(&[(name, "x")]), None, "{name}");
            let mut bytes = vec![u8::try_from(name.len()).unwrap()];
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&[1, 0, 0, 0, b'x']);
            assert_eq!(Attributes::decode(&bytes), None, "{name}");
        }
        assert!(set(&[("user.overlays", "x")]).is_some());
    }

    #[test]
    fn a_set_that_is_out_of_order_twice_or_cut_off_is_no_set() {
        let good = set(&[("user.a", "1"), ("user.b", "")]).unwrap().encode();
        assert!(Attributes::decode(&good).is_some());
        for at in 1..good.len() {
            let whole = Attributes::decode(&good[..at]).is_some_and(|set| set.encode() == good[..at]);
            assert_eq!(whole, at == 12, "{at}");
        }
        let one = set(&[("user.b", "")]).unwrap().encode();
        assert_eq!(Attributes::decode(&[one.clone(), one].concat()), None);
        assert_eq!(Attributes::decode(&[]), None);
        assert_eq!(Attributes::decode(&vec![0; MAX_SET + 1]), None);
    }

    #[test]
    fn a_merge_takes_the_agents_changes_and_keeps_what_the_host_set_meanwhile() {
        let base = set(&[
            ("user.kept", "1"),
            ("user.agent", "1"),
            ("user.both", "1"),
            ("user.gone", "1"),
        ]);
        let host = set(&[
            ("user.kept", "1"),
            ("user.agent", "1"),
            ("user.both", "host"),
            ("user.gone", "1"),
            ("user.host", "new"),
        ]);
        let agent = set(&[
            ("user.kept", "1"),
            ("user.agent", "2"),
            ("user.both", "agent"),
            ("user.new", "n"),
        ]);
        let merged = merge(base.as_ref(), host.as_ref(), agent.as_ref());
        let expected = set(&[
            ("user.kept", "1"),
            ("user.agent", "2"),
            ("user.both", "host"),
            ("user.host", "new"),
            ("user.new", "n"),
        ]);
        assert_eq!(merged, expected);
        assert_eq!(merge(None, None, None), None);
    }

    #[test]
    fn more_than_is_carried_is_too_much_and_never_a_part_of_it() {
        // ext4 has no room for so much; a memory file system has.
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return skipped("there is no /dev/shm");
        };
        let give = |name: &str, size: usize| {
            rustix::fs::fsetxattr(&file, name, &vec![b'v'; size], XattrFlags::empty())
        };
        if give("user.0", 60_000).is_err() {
            return skipped("/dev/shm holds no large attributes");
        }
        assert!(matches!(of(&file).unwrap(), Has::These(_)));
        give("user.1", 60_000).unwrap();
        give("user.2", 60_000).unwrap();
        assert_eq!(of(&file).unwrap(), Has::TooMuch);
        for name in ["user.0", "user.1", "user.2"] {
            rustix::fs::fremovexattr(&file, name).unwrap();
        }
        for number in 0..=MAX_COUNT {
            give(&format!("user.{number}"), 0).unwrap();
        }
        assert_eq!(of(&file).unwrap(), Has::TooMuch);
        rustix::fs::fremovexattr(&file, "user.0").unwrap();
        assert!(matches!(of(&file).unwrap(), Has::These(_)));
    }

    fn skipped(why: &str) {
        let line = format!("more_than_is_carried_is_too_much_and_never_a_part_of_it: {why}\n");
        if let Some(path) = std::env::var_os("BASTLE_SKIPS") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            std::io::Write::write_all(&mut file.unwrap(), line.as_bytes()).unwrap();
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_the_same(
            all in proptest::collection::btree_map("user\\.[a-z]{1,9}", proptest::collection::vec(any::<u8>(), 0..40), 1..9)
        ) {
            let set = Attributes::new(all.into_iter().map(|(n, v)| (n.into_bytes(), v)).collect()).unwrap();
            prop_assert_eq!(Attributes::decode(&set.encode()), Some(set));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }
    }
}
