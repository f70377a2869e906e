//! Makes a tree be what a manifest says, starting from what it is.
//!
//! **Trust:** the tree is the agent's: all by descriptor, beneath, without links. New files are complete and durable
//! beside the tree before they are renamed into it. What was not recorded is moved aside, never removed.
use crate::audit_delta::Change;
use crate::beneath::Dir;
use crate::contents::Contents;
use crate::durable::{Durable, Step};
use crate::faults::{damaged, io_fault};
use crate::layers::marks;
use crate::manifest::{Content, Kind, Manifest, Mode, Opaque};
use crate::path::TreePath;
use crate::rooted::is_no_directory;
use crate::store::copy_hashing;
use bastle_contract::Fault;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a restoration works with.
pub(crate) struct Restorer<'a> {
    pub(crate) tree: &'a Dir,
    /// What shines through where the tree is the upper side of an overlay.
    pub(crate) lower: Option<&'a Dir>,
    /// What shone through when the run began: the layer is read over this record, also where the project has changed since.
    pub(crate) recorded: Option<&'a Manifest>,
    /// Where the tree is, for telling.
    pub(crate) root: &'a Path,
    pub(crate) contents: &'a Contents<'a>,
    pub(crate) durable: &'a Durable,
    /// Fresh files, the run's own.
    pub(crate) temporary: &'a Path,
    /// Where unrecorded things go; made when needed.
    pub(crate) aside: &'a Path,
    /// When a file was changed that comes back, where it is known.
    pub(crate) modified: &'a (dyn Fn(&TreePath) -> Option<i64> + Sync),
}

impl Restorer<'_> {
    /// `changes` lead from what the tree is (`before`) to what it shall be (`after`). May be repeated after a crash
    /// with changes computed anew.
    pub(crate) fn apply(&self, changes: &[Change]) -> Result<(), Fault> {
        let prepared = self.prepare(changes)?;
        // Deepest first, so that a directory is empty when its turn comes.
        for change in changes.iter().rev() {
            if must_go(change) {
                self.take_away(change)?;
            }
        }
        for change in changes {
            self.put(change, &prepared)?;
        }
        self.sync(changes)
    }

    /// Writes all new files beside the tree and makes them durable.
    fn prepare(&self, changes: &[Change]) -> Result<Vec<(TreePath, PathBuf)>, Fault> {
        let mut prepared = Vec::new();
        let mut buffer = Vec::new();
        for change in changes {
            let Some(Kind::File {
                digest,
                mode,
                attributes,
                ..
            }) = &change.after
            else {
                continue;
            };
            let path = self.temporary.join(format!("restore-{}", prepared.len()));
            let to = self.write(&path, &change.path, (digest, *mode), &mut buffer)?;
            if let Some(id) = attributes {
                self.contents.give_attributes(id, &to, &change.path)?;
            }
            if let Some(modified) = (self.modified)(&change.path) {
                crate::times::set(&to, modified).map_err(|e| io_fault("write", &path, e))?;
            }
            self.durable.sync_soon(&to);
            prepared.push((change.path.clone(), path));
        }
        crate::crew::wait(prepared.iter().collect(), |(_, path): &(TreePath, PathBuf)| {
            self.durable.sync_file(path)
        })?;
        Ok(prepared)
    }

    fn write(
        &self,
        path: &Path,
        shown: &TreePath,
        (digest, mode): (&Content, Mode),
        buffer: &mut Vec<u8>,
    ) -> Result<File, Fault> {
        self.durable.show(Step::Write(path));
        let from = self.contents.open(digest, shown)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode.create_bits());
        let mut to = options.open(path).map_err(|e| io_fault("create", path, e))?;
        let copied = if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
            copy_hashing(&mut to, None, buffer)
        } else {
            copy_hashing(&from, Some(&mut to), buffer)
        };
        let (found, _) = copied.map_err(|e| io_fault("write", path, e))?;
        if found != *digest {
            return Err(damaged(
                shown.as_path(),
                "the kept content does not have its digest",
            ));
        }
        Ok(to)
    }

    fn parent(&self, path: &TreePath) -> io::Result<Dir> {
        let parent = path.parent();
        let dir = match self.lower {
            None => self.tree.beneath(parent.as_ref())?,
            Some(lower) => marks::open_or_make(self.tree, lower, parent.as_ref())?,
        };
        dir.make_writable()?;
        Ok(dir)
    }

    /// Whether something below would be seen under this name if nothing stood there.
    fn shines_through(&self, path: &TreePath) -> bool {
        let look = |lower: &Dir| lower.beneath(path.parent().as_ref())?.stat(path.name());
        let shut = |above: &TreePath| {
            self.tree
                .beneath(Some(above))
                .and_then(|dir| marks::is_opaque(&dir))
                .unwrap_or(false)
        };
        let recorded = || self.recorded.is_some_and(|base| base.get(path).is_some());
        // In a directory that shows nothing from below a mark would be seen as a name that leads nowhere.
        self.lower.is_some_and(|lower| look(lower).is_ok() || recorded())
            && !std::iter::successors(path.parent(), TreePath::parent).any(|above| shut(&above))
    }

    /// Removes a name; a directory that holds marks alone is empty to everybody but the kernel.
    fn remove(&self, dir: &Dir, path: &TreePath) -> io::Result<bool> {
        if dir.remove_one(path.name())? {
            return Ok(true);
        }
        if self.lower.is_none() {
            return Ok(false);
        }
        let inner = self.tree.beneath(Some(path))?;
        let names = inner.list()?;
        for listed in &names {
            if !marks::is_whiteout(&inner.stat(&listed.name)?) {
                return Ok(false);
            }
        }
        for listed in &names {
            inner.remove_one(&listed.name)?;
        }
        dir.remove_one(path.name())
    }

    fn close(&self, dir: &Dir, path: &TreePath) -> io::Result<()> {
        if self.shines_through(path) {
            marks::make_whiteout(dir, path.name())?;
        }
        Ok(())
    }

    fn put_dir(&self, dir: &Dir, path: &TreePath) -> io::Result<()> {
        // Where a mark stood nothing was seen, so nothing from below may be seen in what takes its place.
        if self.lower.is_some() && dir.stat(path.name()).is_ok_and(|stat| marks::is_whiteout(&stat)) {
            dir.remove_one(path.name())?;
        }
        match dir.make_dir(path.name()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Ok(()) if self.shines_through(path) => marks::make_opaque(&self.tree.beneath(Some(path))?),
            other => other,
        }
    }

    fn take_away(&self, change: &Change) -> Result<(), Fault> {
        let path = &change.path;
        let failed = |e| io_fault("remove", path.as_path(), e);
        self.durable.show(Step::Tree(&self.root.join(path.as_path())));
        let dir = match self.parent(path) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let recorded = match &change.before {
            Some(Kind::Opaque { why }) => is_worthless(*why),
            Some(Kind::File { .. } | Kind::Symlink { .. } | Kind::Submodule { .. } | Kind::Dir) | None => {
                true
            }
        };
        if recorded && self.remove(&dir, path).map_err(failed)? {
            return self.close(&dir, path).map_err(failed);
        }
        // Not recorded, or a directory with something unrecorded in it.
        self.durable.make_dir(self.aside)?;
        let aside = Dir::open_own(self.aside).map_err(|e| io_fault("open", self.aside, e))?;
        let name = format!("{}", Content::of(path.as_bytes()));
        dir.rename_to(path.name(), &aside, name.as_bytes())
            .and_then(|()| self.close(&dir, path))
            .map_err(failed)
    }

    fn put(&self, change: &Change, prepared: &[(TreePath, PathBuf)]) -> Result<(), Fault> {
        let path = &change.path;
        let failed = |e| io_fault("restore", path.as_path(), e);
        let Some(after) = &change.after else { return Ok(()) };
        self.durable.show(Step::Tree(&self.root.join(path.as_path())));
        let dir = self.parent(path).map_err(failed)?;
        match after {
            Kind::Dir | Kind::Submodule { .. } => self.put_dir(&dir, path).map_err(failed),
            Kind::Symlink { target } => {
                dir.remove_one(path.name()).map_err(failed)?;
                dir.make_link(path.name(), &target.0).map_err(failed)
            }
            Kind::File { .. } => {
                let Ok(at) = prepared.binary_search_by(|(other, _)| other.cmp(path)) else {
                    return Err(damaged(path.as_path(), "not prepared"));
                };
                let from = &prepared[at].1;
                let temporary =
                    Dir::open_own(self.temporary).map_err(|e| io_fault("open", self.temporary, e))?;
                let name = from
                    .file_name()
                    .map(|n| n.as_encoded_bytes().to_vec())
                    .unwrap_or_default();
                self.durable
                    .show(Step::Rename(from, &self.root.join(path.as_path())));
                temporary.rename_to(&name, &dir, path.name()).map_err(failed)
            }
            // Never had content, so there is nothing to bring back.
            Kind::Opaque { .. } => Ok(()),
        }
    }

    /// By several threads: the file system commits for all who wait at once.
    fn sync(&self, changes: &[Change]) -> Result<(), Fault> {
        let parents: BTreeSet<Option<TreePath>> = changes.iter().map(|change| change.path.parent()).collect();
        crate::crew::wait(parents.into_iter().collect(), |parent: Option<TreePath>| {
            self.sync_one(parent.as_ref())
        })
    }

    fn sync_one(&self, parent: Option<&TreePath>) -> Result<(), Fault> {
        let shown = parent.map_or(self.root.to_path_buf(), |p| self.root.join(p.as_path()));
        self.durable.show(Step::SyncDir(&shown));
        match self.tree.beneath(parent) {
            Ok(dir) => rustix::fs::fsync(&dir).map_err(|e| io_fault("sync", &shown, e)),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(io_fault("open", &shown, error)),
        }
    }
}

/// Whether the name must be free before what comes can take it.
fn must_go(change: &Change) -> bool {
    let is_dir = |kind: &Kind| matches!(kind, Kind::Dir | Kind::Submodule { .. });
    match (&change.before, &change.after) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(Kind::Opaque { .. }), Some(_)) => true,
        (Some(before), Some(after)) => is_dir(before) != is_dir(after),
    }
}

/// The directory is no more: removed, or a file or link stands in its place.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || is_no_directory(error)
}

/// Kinds that hold nothing of their own.
fn is_worthless(why: Opaque) -> bool {
    match why {
        Opaque::Fifo | Opaque::Socket | Opaque::Device => true,
        Opaque::TooLarge | Opaque::TooDeep | Opaque::Unreadable => false,
    }
}

/// Empties a directory of temporary files.
pub(crate) fn sweep(path: &Path) -> Result<(), Fault> {
    let dir = match Dir::open_own(path) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(io_fault("open", path, error)),
    };
    let names = dir.list().map_err(|e| io_fault("list", path, e))?;
    for listed in names {
        dir.remove_all(&listed.name)
            .map_err(|e| io_fault("empty", path, e))?;
    }
    Ok(())
}
