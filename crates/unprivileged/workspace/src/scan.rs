//! Looks at a whole tree: its manifest, reading only what may have changed.
//!
//! **Trust:** the tree is the agent's, and the agent may be changing it meanwhile. Directories are opened beneath the
//! root without links, files are judged by the open descriptor, everything is bounded, nothing waits.
use crate::attributes::{self, Has};
use crate::beneath::{Dir, Listed};
use crate::crew::{self, Heap};
use crate::faults::{damaged, io_fault};
use crate::finding::{About, Finding};
use crate::manifest::{Content, Entry, Kind, LinkTarget, MAX_ENTRIES, Manifest, ManifestError, Mode, Opaque};
use crate::path::{MAX_DEPTH, MAX_NAME, MAX_PATH, TreePath};
use crate::seen::{Alive, Seen, SeenList, now};
use crate::store::{Batch, is_not_kept};
use bastle_contract::Fault;
use rustix::fs::{FileType, Stat};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names per piece of work: enough to make the handing over cheap, few enough to share one large directory.
pub(crate) const PIECE: usize = 512;
/// How often a file that changes while it is read is read again.
const TRIES: usize = 3;

/// A directory to list, or some names of one.
pub(crate) enum Task {
    Directory(Option<TreePath>),
    Names(Option<TreePath>, Vec<Listed>),
}

/// What was known before.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The last manifest of this tree.
    pub manifest: &'a Manifest,
    /// What its files looked like.
    pub seen: &'a SeenList,
}

/// What was found.
pub struct Scan {
    /// The tree as it is.
    pub manifest: Manifest,
    /// What its files look like; belongs to `manifest`.
    pub seen: SeenList,
    /// When files were changed that are seen through the tree and are not in it, in the order of `manifest`; empty where
    /// nothing is seen through.
    pub(crate) below: Vec<Option<i64>>,
    /// What is worth knowing.
    pub findings: Vec<Finding>,
}

/// One worker's share.
#[derive(Default)]
struct Share {
    entries: Vec<(Entry, Option<Seen>)>,
    findings: Vec<Finding>,
    buffer: Vec<u8>,
}

impl Share {
    fn note_attributes(&mut self, path: Option<&TreePath>, directory: &Dir) {
        if let Some(path) = path
            && attributes::stay_behind(directory)
        {
            self.findings.push(Finding {
                path: path.clone(),
                about: About::Attributes,
            });
        }
    }
}

struct Scanner<'a> {
    root: &'a Dir,
    shown: &'a Path,
    known: Option<Known<'a>>,
    batch: &'a Batch<'a>,
    alive: Alive,
    count: AtomicUsize,
}

/// Looks at the tree below `root`; contents that are not known go to the batch.
///
/// # Errors
/// The kernel's, and when the tree is larger than a manifest may be. A name that vanishes meanwhile is no error.
pub fn scan(
    root: &Dir,
    shown: &Path,
    known: Option<Known<'_>>,
    batch: &Batch<'_>,
    alive: Alive,
) -> Result<Scan, Fault> {
    let scanner = Scanner {
        root,
        shown,
        known,
        batch,
        alive,
        count: AtomicUsize::new(0),
    };
    let first = vec![Task::Directory(None)];
    let shares = crew::work(first, |task, share, heap| scanner.task(task, share, heap), || {})?;
    let mut pairs = Vec::new();
    let mut findings = Vec::new();
    for share in shares {
        pairs.extend(share.entries);
        findings.extend(share.findings);
    }
    findings.sort();
    let (manifest, seen) = assemble(pairs).map_err(|error| damaged(shown, error))?;
    let seen = SeenList {
        manifest: manifest.id(),
        seen,
    };
    Ok(Scan {
        manifest,
        seen,
        below: Vec::new(),
        findings,
    })
}

/// Sorts, and drops what is listed twice or lost its directory to a rename meanwhile; keeps what belongs to each.
pub(crate) fn assemble<T>(mut pairs: Vec<(Entry, T)>) -> Result<(Manifest, Vec<T>), ManifestError> {
    pairs.sort_unstable_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    pairs.dedup_by(|(a, _), (b, _)| a.path == b.path);
    let mut directories: HashSet<TreePath> = HashSet::new();
    let mut known: Option<TreePath> = None;
    pairs.retain(|(entry, _)| {
        let parent = entry.path.parent();
        let held = parent == known || parent.as_ref().is_none_or(|parent| directories.contains(parent));
        if held {
            known = parent;
            if entry.kind == Kind::Dir {
                directories.insert(entry.path.clone());
            }
        }
        held
    });
    let (entries, rest): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok((Manifest::new(entries)?, rest))
}

/// Whether every name in this directory still makes a path that can be opened.
pub(crate) fn can_descend(path: &TreePath) -> bool {
    path.depth() < MAX_DEPTH && path.as_bytes().len() + 1 + MAX_NAME <= MAX_PATH
}

/// Names that vanished or changed their kind between the listing and the look.
fn is_gone(error: &io::Error) -> bool {
    let raw = error.raw_os_error();
    let errnos = [
        rustix::io::Errno::NOENT,
        rustix::io::Errno::NOTDIR,
        rustix::io::Errno::LOOP,
    ];
    errnos.iter().any(|errno| raw == Some(errno.raw_os_error()))
}

impl Scanner<'_> {
    fn task(&self, task: Task, share: &mut Share, heap: &Heap<Task>) -> Result<(), Fault> {
        let (path, names) = match task {
            Task::Directory(path) => (path, None),
            Task::Names(path, names) => (path, Some(names)),
        };
        let dir = match self.root.beneath(path.as_ref()) {
            Ok(dir) => dir,
            Err(error) => return self.lost_directory(path, error, share),
        };
        let mut names = match names {
            Some(names) => names,
            None => match dir.list() {
                Ok(names) => {
                    share.note_attributes(path.as_ref(), &dir);
                    names
                }
                Err(error) => return self.lost_directory(path, error, share),
            },
        };
        if names.len() > PIECE {
            let rest = names.split_off(PIECE);
            heap.push(
                rest.chunks(PIECE)
                    .map(|part| Task::Names(path.clone(), part.to_vec())),
            );
        }
        if self.count.fetch_add(names.len(), Ordering::Relaxed) > MAX_ENTRIES {
            return Err(damaged(self.shown, ManifestError::TooMany));
        }
        for listed in names {
            self.name(&dir, path.as_ref(), listed, share, heap)?;
        }
        Ok(())
    }

    /// The directory's own entry was made when it was listed; without it open, its inside is not known.
    fn lost_directory(
        &self,
        path: Option<TreePath>,
        error: io::Error,
        share: &mut Share,
    ) -> Result<(), Fault> {
        let Some(path) = path else {
            return Err(io_fault("open", self.shown, error));
        };
        if !is_gone(&error) {
            share.findings.push(Finding {
                path,
                about: About::Unreadable,
            });
        }
        Ok(())
    }

    fn name(
        &self,
        dir: &Dir,
        parent: Option<&TreePath>,
        listed: Listed,
        share: &mut Share,
        heap: &Heap<Task>,
    ) -> Result<(), Fault> {
        let Ok(path) = TreePath::join(parent, &listed.name) else {
            return Ok(());
        };
        let kind = match listed.kind {
            FileType::Unknown => match dir.stat(&listed.name) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => return Ok(()),
            },
            kind => kind,
        };
        let (kind, seen) = match kind {
            FileType::Directory if can_descend(&path) => {
                heap.push([Task::Directory(Some(path.clone()))]);
                (Kind::Dir, None)
            }
            FileType::Directory => (opaque(Opaque::TooDeep), None),
            FileType::Symlink => match dir.read_link(&listed.name) {
                Ok(target) => (
                    Kind::Symlink {
                        target: LinkTarget(target),
                    },
                    None,
                ),
                Err(_) => return Ok(()),
            },
            FileType::RegularFile => match self.file(dir, &path, share)? {
                Some(found) => found,
                None => return Ok(()),
            },
            FileType::Fifo => (opaque(Opaque::Fifo), None),
            FileType::Socket => (opaque(Opaque::Socket), None),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                (opaque(Opaque::Device), None)
            }
        };
        if let Kind::Opaque { why } = kind {
            share.findings.extend(about(why).map(|about| Finding {
                path: path.clone(),
                about,
            }));
        }
        share.entries.push((Entry { path, kind }, seen));
        Ok(())
    }

    fn file(
        &self,
        dir: &Dir,
        path: &TreePath,
        share: &mut Share,
    ) -> Result<Option<(Kind, Option<Seen>)>, Fault> {
        let Ok(stat) = dir.stat(path.name()) else {
            return Ok(None);
        };
        if let Some((kind, seen)) = self.unchanged(path, &stat) {
            return Ok(Some((kind, Some(seen))));
        }
        for _ in 0..TRIES {
            match self.read(dir, path, share) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(error) if is_not_kept(&error) => {
                    return Err(io_fault("keep", path.as_path(), error));
                }
                Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Ok(Some((opaque(Opaque::TooLarge), None)));
                }
                Err(_) => return Ok(Some((opaque(Opaque::Unreadable), None))),
            }
        }
        // One consistent state was never seen, but the bytes that were kept are bytes it held.
        share.findings.push(Finding {
            path: path.clone(),
            about: About::Moving,
        });
        let read = dir.open_regular(path.name()).and_then(|(file, stat)| {
            let (digest, size) = self
                .batch
                .take_of(path, &file, length(&stat), &mut share.buffer)?;
            let attributes = self.attributes(path, &file, &mut share.findings)?;
            Ok((file_kind(digest, size, &stat, attributes), None))
        });
        match read {
            Err(error) if is_not_kept(&error) => Err(io_fault("keep", path.as_path(), error)),
            read => Ok(read.ok()),
        }
    }

    fn unchanged(&self, path: &TreePath, stat: &Stat) -> Option<(Kind, Seen)> {
        let known = self.known?;
        let at = known.manifest.position(path)?;
        let seen = (*known.seen.seen.get(at)?)?;
        let Kind::File {
            digest,
            size,
            attributes,
            ..
        } = &known.manifest.entries()[at].kind
        else {
            return None;
        };
        // Setting an attribute is a change of the file to the kernel, so they too are as they were.
        seen.still(stat, self.alive)
            .then(|| (file_kind(*digest, *size, stat, *attributes), seen))
    }

    /// `None` when it changed while it was read.
    fn read(
        &self,
        dir: &Dir,
        path: &TreePath,
        share: &mut Share,
    ) -> io::Result<Option<(Kind, Option<Seen>)>> {
        let (file, before) = dir.open_regular(path.name())?;
        let began = now();
        let (digest, size) = self
            .batch
            .take_of(path, &file, length(&before), &mut share.buffer)?;
        let attributes = self.attributes(path, &file, &mut share.findings)?;
        let after = rustix::fs::fstat(&file)?;
        if !Seen::exactly(&before, self.alive).still(&after, self.alive) {
            return Ok(None);
        }
        Ok(Some((
            file_kind(digest, size, &after, attributes),
            Seen::of(&after, began, self.alive),
        )))
    }

    /// The attributes of an open file, kept; those that are too much are told and not part of it.
    fn attributes(
        &self,
        path: &TreePath,
        file: &File,
        findings: &mut Vec<Finding>,
    ) -> io::Result<Option<Content>> {
        match attributes::of(file)? {
            Has::Nothing => Ok(None),
            Has::These(set) => self.batch.take_bytes(&set.encode()).map(Some),
            Has::TooMuch => {
                findings.push(Finding {
                    path: path.clone(),
                    about: About::Attributes,
                });
                Ok(None)
            }
        }
    }
}

fn about(why: Opaque) -> Option<About> {
    match why {
        Opaque::Fifo | Opaque::Socket | Opaque::Device => None,
        Opaque::TooLarge => Some(About::TooLarge),
        Opaque::TooDeep => Some(About::TooDeep),
        Opaque::Unreadable => Some(About::Unreadable),
    }
}

fn opaque(why: Opaque) -> Kind {
    Kind::Opaque { why }
}

pub(crate) fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

pub(crate) fn file_kind(digest: Content, size: u64, stat: &Stat, attributes: Option<Content>) -> Kind {
    Kind::File {
        digest,
        size,
        mode: Mode::from_bits(stat.st_mode),
        attributes,
    }
}
