//! The lower tree of an overlay as it is when the run begins: what a copy would have held, without copying.
//!
//! **Trust:** the tree is the user's own and is only read; no link in it is followed. Files that look as they did when
//! their digest was last taken are not read again.
use crate::attributes::{self, Has};
use crate::beneath::{Dir, Listed};
use crate::copy::{Copied, Hidden, Kept, Progress};
use crate::crew::{self, Heap};
use crate::faults::{damaged, io_fault};
use crate::finding::{About, Finding, leads_out};
use crate::manifest::{Content, Entry, Kind, LinkTarget, Manifest, Mode};
use crate::path::TreePath;
use crate::scan::{PIECE, Task, assemble, can_descend, length};
use crate::seen::{Alive, Seen, SeenList, now};
use crate::store::copy_hashing;
use bastle_contract::{Code, Fault};
use rustix::fs::{FileType, Stat};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Share {
    entries: Vec<(Entry, Option<Seen>)>,
    findings: Vec<Finding>,
    attributes: Kept,
    buffer: Vec<u8>,
}

struct Looker<'a> {
    root: &'a Dir,
    shown: &'a Path,
    hidden: Hidden<'a>,
    known: Option<&'a (Manifest, SeenList)>,
    /// Device and owner of the root: an overlay shows one file system, and brings up files of one owner only.
    home: Stat,
    files: AtomicU64,
    bytes: AtomicU64,
}

/// Looks at everything below `root` but its `.git` and hidden names.
///
/// # Errors
/// When an overlay could not show or bring up a part of it; the kernel's.
pub(super) fn look(
    root: &Dir,
    shown: &Path,
    hidden: Hidden<'_>,
    known: Option<&(Manifest, SeenList)>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Copied, Fault> {
    let home = rustix::fs::fstat(root.as_fd()).map_err(|e| io_fault("look at", shown, e))?;
    let looker = Looker {
        root,
        shown,
        hidden,
        known,
        home,
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let shares = crew::work(
        vec![Task::Directory(None)],
        |task, share, heap| looker.task(task, share, heap),
        || progress(looker.progress()),
    )?;
    progress(looker.progress());
    let mut findings = Vec::new();
    let mut entries = Vec::new();
    let mut attributes = Kept::new();
    for share in shares {
        let Share {
            entries: more,
            findings: told,
            attributes: sets,
            buffer: _,
        } = share;
        attributes.extend(sets);
        entries.extend(more);
        findings.extend(told);
    }
    findings.sort();
    let (manifest, seen) = assemble(entries).map_err(|error| damaged(shown, error))?;
    let source = SeenList {
        manifest: manifest.id(),
        seen,
    };
    Ok(Copied {
        tree: SeenList {
            manifest: source.manifest,
            seen: vec![None; source.seen.len()],
        },
        manifest,
        source,
        findings,
        attributes,
    })
}

impl Share {
    fn note(&mut self, path: &TreePath, about: About) {
        self.findings.push(Finding {
            path: path.clone(),
            about,
        });
    }

    /// Of an open file; told where they are too much.
    fn attributes(&mut self, path: &TreePath, file: &File) -> std::io::Result<Option<Content>> {
        match attributes::of(file)? {
            Has::Nothing => Ok(None),
            Has::These(set) => {
                let id = set.id();
                self.attributes.insert(id, set.encode());
                Ok(Some(id))
            }
            Has::TooMuch => {
                self.note(path, About::Attributes);
                Ok(None)
            }
        }
    }
}

impl Looker<'_> {
    fn progress(&self) -> Progress {
        Progress {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    fn unfit(&self, path: &TreePath, why: &str) -> Fault {
        Fault::new(
            Code::WorkspaceOverlay,
            format!("{} cannot be the lower side of an overlay", self.shown.display()),
            format!("{path} {why}"),
        )
        .help("bastle run --workspace copy ...")
    }

    fn task(&self, task: Task, share: &mut Share, heap: &Heap<Task>) -> Result<(), Fault> {
        let (path, names) = match task {
            Task::Directory(path) => (path, None),
            Task::Names(path, names) => (path, Some(names)),
        };
        let fresh = names.is_none();
        let opened = self.root.beneath(path.as_ref()).and_then(|dir| match names {
            Some(names) => Ok((dir, names)),
            None => dir.list().map(|names| (dir, names)),
        });
        let (dir, mut names) = match (opened, &path) {
            (Ok(opened), _) => opened,
            (Err(error), None) => return Err(io_fault("open", self.shown, error)),
            (Err(_), Some(path)) => {
                share.note(path, About::Unreadable);
                return Ok(());
            }
        };
        if let Some(path) = &path {
            let stat = rustix::fs::fstat(dir.as_fd()).map_err(|e| io_fault("look at", path.as_path(), e))?;
            self.check(path, &stat)?;
            if fresh && attributes::stay_behind(&dir) {
                share.note(path, About::Attributes);
            }
        }
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
            self.name(&dir, inner, &listed, share, heap)?;
        }
        Ok(())
    }

    /// The kernel shows one file system per layer, and cannot bring up what belongs to somebody whom the sandbox does
    /// not know.
    fn check(&self, path: &TreePath, stat: &Stat) -> Result<(), Fault> {
        if stat.st_dev != self.home.st_dev {
            return Err(self.unfit(path, "is on another file system"));
        }
        if (stat.st_uid, stat.st_gid) != (self.home.st_uid, self.home.st_gid) {
            return Err(self.unfit(path, "belongs to another user or group than the directory itself"));
        }
        Ok(())
    }

    fn name(
        &self,
        dir: &Dir,
        path: TreePath,
        listed: &Listed,
        share: &mut Share,
        heap: &Heap<Task>,
    ) -> Result<(), Fault> {
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
            FileType::Directory => {
                share.note(&path, About::TooDeep);
                return Ok(());
            }
            FileType::Symlink => {
                let Ok(target) = dir.read_link(&listed.name) else {
                    return Ok(());
                };
                if leads_out(&path, &target) {
                    share.note(&path, About::LinkOutside);
                }
                (
                    Kind::Symlink {
                        target: LinkTarget(target),
                    },
                    None,
                )
            }
            FileType::RegularFile => match self.file(dir, &path, share)? {
                Some(found) => found,
                None => return Ok(()),
            },
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                share.note(&path, About::Special);
                return Ok(());
            }
        };
        share.entries.push((Entry { path, kind }, seen));
        Ok(())
    }

    fn file(
        &self,
        dir: &Dir,
        path: &TreePath,
        share: &mut Share,
    ) -> Result<Option<(Kind, Option<Seen>)>, Fault> {
        let stat = match dir.stat(path.name()) {
            Ok(stat) => stat,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(_) => {
                share.note(path, About::Unreadable);
                return Ok(None);
            }
        };
        self.check(path, &stat)?;
        if length(&stat) > crate::store::MAX_FILE {
            share.note(path, About::TooLarge);
            return Ok(None);
        }
        if stat.st_nlink > 1 {
            share.note(path, About::HardLink);
        }
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Some((digest, size, seen)) = self.unchanged(path, &stat) {
            return Ok(Some((kind(digest, size, &stat, None), Some(seen))));
        }
        let began = now();
        let read = dir.open_regular(path.name()).and_then(|(file, before)| {
            let (digest, size) = copy_hashing((&file).take(length(&before)), None, &mut share.buffer)?;
            let attributes = share.attributes(path, &file)?;
            let after = rustix::fs::fstat(&file)?;
            let same = Seen::exactly(&before, Alive::No).still(&after, Alive::No);
            Ok(((digest, size, attributes), after, same))
        });
        let Ok(((digest, size, attributes), after, same)) = read else {
            share.note(path, About::Unreadable);
            return Ok(None);
        };
        self.bytes.fetch_add(size, Ordering::Relaxed);
        if !same {
            share.note(path, About::Moving);
        }
        let seen = Seen::of(&after, began, Alive::No).filter(|_| same);
        Ok(Some((kind(digest, size, &after, attributes), seen)))
    }

    fn unchanged(&self, path: &TreePath, stat: &Stat) -> Option<(Content, u64, Seen)> {
        let (manifest, list) = self.known?;
        let at = manifest.position(path)?;
        let seen = (*list.seen.get(at)?)?;
        // One with attributes is read again: what they were may not be kept since.
        let Kind::File {
            digest,
            size,
            attributes: None,
            ..
        } = &manifest.entries()[at].kind
        else {
            return None;
        };
        seen.still(stat, Alive::No).then_some((*digest, *size, seen))
    }
}

/// Setuid and setgid have no effect on the mount.
fn kind(digest: Content, size: u64, stat: &Stat, attributes: Option<Content>) -> Kind {
    Kind::File {
        digest,
        size,
        attributes,
        mode: Mode {
            special: false,
            ..Mode::from_bits(stat.st_mode)
        },
    }
}
