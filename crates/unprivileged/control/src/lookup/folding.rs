//! File systems on which two spellings are one name: guarded names are compared without the case of ASCII letters, and such a
//! file system folds more (Unicode case, dots and blanks at the end), so that a twin of a name would not be guarded.
//!
//! **Trust:** the tree is the user's. It is asked by its flags and its type, and at its root by looking up a name that is there in
//! another spelling; nothing is written.
use super::{At, Search};
use bastle_contract::{Code, Fault};
use rustix::fs::{AtFlags, FileType, StatFs};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

/// `FS_CASEFOLD_FL`: the directory compares names without their case (ext4, f2fs, tmpfs, bcachefs).
const CASEFOLD: u32 = 0x4000_0000;
/// Types that fold every name (statfs(2)): FAT, exFAT, NTFS, HFS, HFS+, HFSX, SMB, CIFS, SMB2, APFS.
const FOLDING: [u64; 11] = [
    0x4d44,
    0x2011_bab0,
    0x5346_544e,
    0x7366_746e,
    0x4244,
    0x482b,
    0x4858,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x4253_584e,
];
/// Names at the root that are looked up in another spelling.
const MOST_PROBED: usize = 4;

/// What is asked of one tree.
#[derive(Debug, Default)]
pub(super) struct Probe {
    probed: usize,
}

/// Refuses a directory of the host's own tree in which an agent may write and names fold.
pub(super) fn refuse_directory(search: &Search<'_>, directory: &OwnedFd, at: At<'_>) -> Result<(), Fault> {
    if !search.host || !search.writable {
        return Ok(());
    }
    let flags = rustix::fs::ioctl_getflags(directory)
        .ok()
        .map(|flags| flags.bits());
    // The type is asked where there are no flags, and once at the root: a mount below it has its own.
    let kind = || {
        let found = rustix::fs::fstatfs(directory).ok();
        found.map_or(0, |found: StatFs| magic(found.f_type))
    };
    let by_kind = (flags.is_none() || at.depth == 0).then(kind);
    if folds(flags, by_kind) {
        return Err(refused(search, at.relative));
    }
    Ok(())
}

/// The same by behaviour, for types that fold by a setting: an entry of the root that another spelling finds as well.
pub(super) fn refuse_twin(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    at: At<'_>,
    name: &CStr,
    kind: FileType,
) -> Result<(), Fault> {
    let asked = search.host && search.writable && at.depth == 0 && search.probe.probed < MOST_PROBED;
    let Some(twin) = asked.then(|| twin(name)).flatten() else {
        return Ok(());
    };
    search.probe.probed += 1;
    let stat = |name: &CStr| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let (Some(one), Some(other)) = (stat(name), stat(&twin)) else {
        return Ok(());
    };
    // Two links of one file are two names.
    let one_name = kind == FileType::Directory || super::links(one.st_nlink) == 1;
    if one_name && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) {
        return Err(refused(search, at.relative));
    }
    Ok(())
}

fn folds(flags: Option<u32>, kind: Option<u64>) -> bool {
    flags.is_some_and(|flags| flags & CASEFOLD != 0) || kind.is_some_and(|kind| FOLDING.contains(&kind))
}

/// The type in 32 bits: it is signed on some architectures.
fn magic(kind: impl TryInto<i64>) -> u64 {
    let kind = kind.try_into().unwrap_or(0);
    u64::from_le_bytes(kind.to_le_bytes()) & 0xffff_ffff
}

/// The name with the case of its ASCII letters changed; `None` where it has none.
fn twin(name: &CStr) -> Option<CString> {
    let swapped: Vec<u8> = name
        .to_bytes()
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' => byte.to_ascii_uppercase(),
            b'A'..=b'Z' => byte.to_ascii_lowercase(),
            _ => *byte,
        })
        .collect();
    (swapped != name.to_bytes())
        .then(|| CString::new(swapped).ok())
        .flatten()
}

fn refused(search: &Search<'_>, relative: &[u8]) -> Fault {
    let below = String::from_utf8_lossy(relative);
    let path = format!("{}/{below}", search.tree.root);
    Fault::new(
        Code::WorkspaceInvalid,
        format!("{} cannot be worked in in place", path.trim_end_matches('/')),
        "its file system takes names of different spelling for one (case, Unicode forms), so hidden and protected names cannot be \
         held there",
    )
    .help("bastle run --workspace copy -- CMD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_folds_names_is_known_by_its_flag_or_its_type() {
        assert!(folds(Some(CASEFOLD), None));
        assert!(folds(Some(CASEFOLD | 0x8_0000), Some(0xef53)));
        assert!(folds(None, Some(0x4d44)));
        assert!(folds(
            Some(0),
            Some(magic(i32::from_ne_bytes(0xff53_4d42_u32.to_ne_bytes())))
        ));
        for (flags, kind) in [
            (Some(0x8_0000), Some(0xef53)),
            (None, Some(0x6573_5546)),
            (None, None),
        ] {
            assert!(!folds(flags, kind), "{flags:?} {kind:?}");
        }
    }

    #[test]
    fn a_twin_has_other_letters_and_a_name_without_letters_has_none() {
        assert_eq!(twin(c".Git-1").as_deref(), Some(c".gIT-1"));
        assert_eq!(twin(c"123"), None);
    }
}
