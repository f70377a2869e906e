//! The copy: every file of the source that the agent may have, read once, hashed on the way, written once.
//!
//! **Trust:** the source is the user's own; still no link in it is followed, because a file that is read through a link
//! would be a file the user did not hand over. Nothing is ever hard-linked: the agent could write through it.
mod file;

use crate::attributes;
use crate::beneath::{Dir, Listed};
use crate::crew::{self, Heap};
use crate::faults::{damaged, io_fault};
use crate::finding::{About, Finding, leads_out};
use crate::manifest::{Content, Entry, Kind, LinkTarget, Manifest};
use crate::path::TreePath;
use crate::scan::{PIECE, Task, assemble, can_descend};
use crate::seen::{Seen, SeenList};
use bastle_contract::Fault;
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use file::{MAX_BUFFER, shares_extents};

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
}

/// Whether a name of the source stays out of the copy.
pub type Hidden<'a> = &'a (dyn Fn(&TreePath) -> bool + Sync);

/// What was copied.
pub struct Copied {
    /// The copy.
    pub manifest: Manifest,
    /// What the source's files looked like.
    pub source: SeenList,
    /// What the copy's files look like.
    pub tree: SeenList,
    /// What is worth knowing.
    pub findings: Vec<Finding>,
    /// The sets of attributes that the manifest names, encoded.
    pub(crate) attributes: Kept,
}

/// Sets of attributes by digest, on their way into the store.
pub(crate) type Kept = BTreeMap<Content, Vec<u8>>;

/// What a file looked like in the source and in the copy.
type Looks = (Option<Seen>, Option<Seen>);

#[derive(Default)]
struct Share {
    entries: Vec<(Entry, Looks)>,
    findings: Vec<Finding>,
    attributes: Kept,
    buffer: Vec<u8>,
}

pub(crate) struct Copier<'a> {
    source: &'a Dir,
    tree: &'a Dir,
    shown: &'a Path,
    hidden: Hidden<'a>,
    /// Cleared by the first file that the file system cannot share.
    can_clone: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
}

/// Copies everything below `source` but the root's `.git` and hidden names into the empty directory `tree`.
///
/// # Errors
/// The kernel's: a file that the user can see but not read is a finding, a failed write is an error.
pub fn copy_tree(
    source: &Dir,
    tree: &Dir,
    shown: &Path,
    hidden: Hidden<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Copied, Fault> {
    let copier = Copier {
        source,
        tree,
        shown,
        hidden,
        can_clone: AtomicBool::new(true),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let first = vec![Task::Directory(None)];
    let shares = crew::work(
        first,
        |task, share, heap| copier.task(task, share, heap),
        || progress(copier.progress()),
    )?;
    progress(copier.progress());
    gather(shares, shown)
}

fn gather(shares: Vec<Share>, shown: &Path) -> Result<Copied, Fault> {
    let mut findings = Vec::new();
    let mut entries = Vec::new();
    let mut attributes = Kept::new();
    for share in shares {
        attributes.extend(share.attributes);
        findings.extend(share.findings);
        entries.extend(share.entries);
    }
    findings.sort();
    let (manifest, seen) = assemble(entries).map_err(|error| damaged(shown, error))?;
    let id = manifest.id();
    let (source, tree) = seen.into_iter().unzip();
    Ok(Copied {
        manifest,
        source: SeenList {
            manifest: id,
            seen: source,
        },
        tree: SeenList {
            manifest: id,
            seen: tree,
        },
        findings,
        attributes,
    })
}

impl Copier<'_> {
    fn progress(&self) -> Progress {
        Progress {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    fn task(&self, task: Task, share: &mut Share, heap: &Heap<Task>) -> Result<(), Fault> {
        let (path, names) = match task {
            Task::Directory(path) => (path, None),
            Task::Names(path, names) => (path, Some(names)),
        };
        let shown = || {
            path.as_ref()
                .map_or(self.shown.to_path_buf(), |p| self.shown.join(p.as_path()))
        };
        let fresh = names.is_none();
        let opened = self.source.beneath(path.as_ref()).and_then(|dir| match names {
            Some(names) => Ok((dir, names)),
            None => dir.list().map(|names| (dir, names)),
        });
        let (from, mut names) = match (opened, &path) {
            (Ok(opened), _) => opened,
            (Err(error), None) => return Err(io_fault("open", self.shown, error)),
            (Err(_), Some(path)) => {
                share.note(path, About::Unreadable);
                return Ok(());
            }
        };
        if let Some(path) = path.as_ref().filter(|_| fresh)
            && attributes::stay_behind(&from)
        {
            share.note(path, About::Attributes);
        }
        let to = self
            .tree
            .beneath(path.as_ref())
            .map_err(|e| io_fault("open the copy of", &shown(), e))?;
        if names.len() > PIECE {
            let rest = names.split_off(PIECE);
            heap.push(
                rest.chunks(PIECE)
                    .map(|part| Task::Names(path.clone(), part.to_vec())),
            );
        }
        for listed in names {
            let Ok(inner) = TreePath::join(path.as_ref(), &listed.name) else {
                continue;
            };
            if inner.as_bytes() == b".git" {
                continue;
            }
            if (self.hidden)(&inner) {
                share.note(&inner, About::Hidden);
                continue;
            }
            self.name((&from, &to), inner, &listed, share, heap)?;
        }
        Ok(())
    }

    fn name(
        &self,
        (from, to): (&Dir, &Dir),
        path: TreePath,
        listed: &Listed,
        share: &mut Share,
        heap: &Heap<Task>,
    ) -> Result<(), Fault> {
        let failed = |error| io_fault("copy", &self.shown.join(path.as_path()), error);
        let kind = match listed.kind {
            FileType::Unknown => match from.stat(&listed.name) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => return Ok(()),
            },
            kind => kind,
        };
        match kind {
            FileType::Directory if can_descend(&path) => {
                to.make_dir(&listed.name).map_err(failed)?;
                heap.push([Task::Directory(Some(path.clone()))]);
                share.entries.push((
                    Entry {
                        path,
                        kind: Kind::Dir,
                    },
                    (None, None),
                ));
            }
            FileType::Directory => share.note(&path, About::TooDeep),
            FileType::Symlink => {
                let Ok(target) = from.read_link(&listed.name) else {
                    return Ok(());
                };
                if leads_out(&path, &target) {
                    share.note(&path, About::LinkOutside);
                }
                to.make_link(&listed.name, &target).map_err(failed)?;
                let kind = Kind::Symlink {
                    target: LinkTarget(target),
                };
                share.entries.push((Entry { path, kind }, (None, None)));
            }
            FileType::RegularFile => self.file(from, to, path, share)?,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => share.note(&path, About::Special),
        }
        Ok(())
    }

    fn file(&self, from: &Dir, to: &Dir, path: TreePath, share: &mut Share) -> Result<(), Fault> {
        let opened = from.open_regular(path.name());
        let (input, before) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                share.note(&path, About::Unreadable);
                return Ok(());
            }
        };
        if crate::scan::length(&before) > crate::store::MAX_FILE {
            share.note(&path, About::TooLarge);
            return Ok(());
        }
        if before.st_nlink > 1 {
            share.note(&path, About::HardLink);
        }
        let copied = self
            .copy_file((&input, &before), to, path.name(), &mut share.buffer)
            .map_err(|error| io_fault("copy", &self.shown.join(path.as_path()), error))?;
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(copied.size, Ordering::Relaxed);
        if copied.source.is_none() {
            share.note(&path, About::Moving);
        }
        if copied.lacks {
            share.note(&path, About::Attributes);
        }
        if let Some(set) = &copied.attributes {
            share.attributes.insert(set.id(), set.encode());
        }
        let kind = copied.kind();
        share
            .entries
            .push((Entry { path, kind }, (copied.source, Some(copied.tree))));
        Ok(())
    }
}

impl Share {
    fn note(&mut self, path: &TreePath, about: About) {
        self.findings.push(Finding {
            path: path.clone(),
            about,
        });
    }
}
