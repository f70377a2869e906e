//! The files that execute where the policy has an allow list of commands, as they are in the finished root.
//!
//! Two layers hold them. Landlock grants execution to these files and to what the kernel opens along with them (dynamic
//! loaders, `#!` interpreters): that cannot be raced and is inherited. The guard judges each `execve` by the file it
//! names, so that a loader or an interpreter is not started by itself: `ld.so PROGRAM` maps any file without an
//! execution check.
//!
//! Trust: program files may lie in a workspace that an earlier run wrote. Their first bytes are parsed with limits, and
//! what they name as a helper only becomes executable *together with* a listed program.
use bastle_contract::{AbsPath, LaunchPlan};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// Interpreters of interpreters that the kernel follows.
const DEEPEST: usize = 5;
/// Bytes of a file that the kernel looks at for `#!`.
const SCRIPT_HEAD: usize = 256;
/// Program headers that are looked at: the kernel refuses more than 64 KiB of them.
const MOST_HEADERS: usize = 1024;
/// `PATH_MAX`: the longest loader path that the kernel takes.
const LONGEST: u64 = 4096;
const PT_INTERP: u32 = 3;

/// Which file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// The files of a plan's list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// Listed programs that are there.
    pub(crate) listed: BTreeMap<FileId, AbsPath>,
    /// The program of the launch line.
    pub(crate) launch: Option<(FileId, AbsPath)>,
    /// What the kernel opens along with them; not executed by itself.
    pub(crate) helpers: BTreeSet<AbsPath>,
}

impl FileId {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

impl Programs {
    /// Finds them in this root; `None` where the plan has no list.
    pub(crate) fn of(plan: &LaunchPlan) -> Option<Self> {
        let list = plan.exec.as_ref()?;
        let mut programs = Self::default();
        for path in &list.programs {
            if let Some(id) = identify(path) {
                programs.listed.insert(id, path.clone());
                programs.follow(path, 0);
            }
        }
        if let Some(path) = &list.launch
            && let Some(id) = identify(path)
        {
            programs.launch = Some((id, path.clone()));
            programs.follow(path, 0);
        }
        Some(programs)
    }

    /// Every file that may execute, whatever its names are: who could change one could put any program in its place.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileId> {
        let launch = self.launch.iter().map(|(id, _)| *id);
        let helpers = self.helpers.iter().filter_map(identify);
        self.listed.keys().copied().chain(launch).chain(helpers)
    }

    /// Files that Landlock lets execute.
    pub(crate) fn executable(&self) -> impl Iterator<Item = &AbsPath> {
        let launch = self.launch.iter().map(|(_, path)| path);
        self.listed.values().chain(launch).chain(&self.helpers)
    }

    /// Adds what `path` needs, and what that needs.
    fn follow(&mut self, path: &AbsPath, depth: usize) {
        let helper = open(path).and_then(|file| helper_of(&file));
        if let Some(helper) = helper.and_then(|path| AbsPath::new(path).ok())
            && depth < DEEPEST
            && self.helpers.insert(helper.clone())
        {
            self.follow(&helper, depth + 1);
        }
    }
}

fn identify(path: &AbsPath) -> Option<FileId> {
    let stat = rustix::fs::stat(path.as_path()).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| FileId::of(&stat))
}

fn open(path: &AbsPath) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path.as_path(), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(file)
}

/// The loader or interpreter that the kernel would open for this file.
fn helper_of(file: &OwnedFd) -> Option<String> {
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        let have = rustix::io::pread(file, bytes.as_mut_slice(), offset).ok()?;
        bytes.truncate(have);
        Some(bytes)
    };
    let head = read(0, SCRIPT_HEAD)?;
    if head.starts_with(b"#!") {
        return interpreter(&head);
    }
    let (offset, length) = headers(&head)?;
    let (at, size) = loader(&read(offset, length)?)?;
    let text = read(at, size)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

/// The program of a `#!` line.
fn interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | 0))
        .filter(|word| !word.is_empty());
    String::from_utf8(words.next()?.to_vec()).ok()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Offset and length of the program headers of a 64-bit little-endian ELF file: both architectures are that.
fn headers(head: &[u8]) -> Option<(u64, usize)> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    if !head.starts_with(b"\x7fELF") || head.get(4..6)? != [CLASS_64, LITTLE_ENDIAN] {
        return None;
    }
    let offset = u64::from_le_bytes(number(head, 32)?);
    let size = usize::from(u16::from_le_bytes(number(head, 54)?));
    let count = usize::from(u16::from_le_bytes(number(head, 56)?)).min(MOST_HEADERS);
    (size == HEADER).then_some((offset, size * count))
}

/// The size of one program header.
const HEADER: usize = 56;

/// Where the path of the loader lies in the file.
fn loader(headers: &[u8]) -> Option<(u64, usize)> {
    headers.chunks_exact(HEADER).find_map(|header| {
        let kind = u32::from_le_bytes(number(header, 0)?);
        let offset = u64::from_le_bytes(number(header, 8)?);
        let size = u64::from_le_bytes(number(header, 32)?);
        (kind == PT_INTERP && size <= LONGEST)
            .then(|| usize::try_from(size).ok().map(|size| (offset, size)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loader_of_a_real_program_is_found() {
        // Dynamic on every host that builds this; a static one has no helper, which is the other arm.
        let file = open(&AbsPath::new(std::fs::canonicalize("/bin/ls").unwrap().to_str().unwrap()).unwrap())
            .unwrap();
        let loader = helper_of(&file).unwrap();
        assert!(
            loader.starts_with('/') && std::fs::metadata(&loader).is_ok(),
            "{loader}"
        );
    }

    #[test]
    fn an_interpreter_is_the_first_word_of_the_first_line() {
        for (head, expected) in [
            (&b"#!/bin/sh\n"[..], Some("/bin/sh")),
            (b"#! \t/usr/bin/env -S node --x\nwhoami", Some("/usr/bin/env")),
            (b"#!/bin/sh", Some("/bin/sh")),
            (b"#!\n/bin/sh", None),
            (b"#!/bin/\xff\n", None),
        ] {
            assert_eq!(interpreter(head).as_deref(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_fail_or_ask_for_much(head in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut elf = head.clone();
            for bytes in [&head, { elf.splice(..elf.len().min(6), *b"\x7fELF\x02\x01"); &elf }] {
                if let Some((_, length)) = headers(bytes) {
                    prop_assert!(length <= MOST_HEADERS * HEADER);
                }
                if let Some((_, size)) = loader(bytes) {
                    prop_assert!(size as u64 <= LONGEST);
                }
                if let Some(path) = interpreter(bytes) {
                    prop_assert!(!path.contains('\n') && !path.contains('\0'));
                }
            }
        }
    }
}
