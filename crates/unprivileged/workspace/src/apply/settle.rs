//! One exchange of names: the object at a path of the host tree for the object in its slot, forwards or backwards.
//!
//! **Trust:** every look and every change goes through descriptors beneath the root. Nothing is overwritten or unlinked:
//! what comes out of the tree is looked at in its slot, and what is not what the journal names goes back.
use super::groups::walk;
use super::journal::{Operation, Swap};
use crate::manifest::Kind;
use crate::path::TreePath;
use crate::rooted::{Root, is_no_directory};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// Why a path could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    /// It is neither old nor new.
    #[error("it changed while the apply was under way")]
    Drift,
    /// Its content is not what its digest says.
    #[error("the stored content is damaged")]
    Damaged,
    /// The file system cannot hold what the file had.
    #[error("the file system has no room for its extended attributes")]
    NoRoom,
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The content cannot be had.
    #[error("{0}")]
    Content(#[source] bastle_contract::Fault),
}

impl From<io::Error> for SettleError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for SettleError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Which version of a swap's objects is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// What the host had.
    Before,
    /// What the host gets.
    After,
}

impl Side {
    pub(super) fn of(self, operation: &Operation) -> Option<&Kind> {
        match self {
            Self::Before => operation.before.as_ref(),
            Self::After => operation.after.as_ref(),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Before => Self::After,
            Self::After => Self::Before,
        }
    }
}

/// Where the two objects of a swap are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// The new object is in the slot.
    Staged,
    /// The old object is in the slot.
    Exchanged,
}

/// A name in an open directory.
pub(super) type Name<'a> = (&'a OwnedFd, &'a [u8]);

/// A swap with the two trees that it is about.
pub(super) struct Exchange<'a> {
    pub(super) root: &'a Root,
    pub(super) area: &'a Root,
    pub(super) swap: &'a Swap,
}

impl Exchange<'_> {
    /// Where the objects are, by inode; by content on file systems whose inodes do not last.
    pub(super) fn position(&self) -> Result<Position, SettleError> {
        self.mend()?;
        let there = self.area.inode(&self.swap.slot)?;
        Ok(match (&self.swap.new, &self.swap.old) {
            (Some(_), None) if there.is_some() => Position::Staged,
            (Some(_), None) => Position::Exchanged,
            (None, _) if there.is_none() => Position::Staged,
            (None, _) => Position::Exchanged,
            (Some(new), Some(_)) if there == Some(*new) => Position::Staged,
            (Some(_), Some(old)) if there == Some(*old) => Position::Exchanged,
            (Some(_), Some(_)) if self.holds(self.area, &self.swap.slot, Side::After)? => Position::Staged,
            (Some(_), Some(_)) => Position::Exchanged,
        })
    }

    /// Puts the new object in its place. `between` runs before the change of names.
    pub(super) fn forward(&self, between: impl FnOnce()) -> Result<(), SettleError> {
        if self.position()? == Position::Staged {
            between();
            self.rename(Side::After)?;
        }
        self.check_what_came_out(Side::Before)
    }

    /// Puts the old object back. What somebody changed in the meantime is theirs and stays: drift.
    pub(super) fn back(&self) -> Result<(), SettleError> {
        if self.position()? == Position::Staged {
            return Ok(());
        }
        if !self.holds(self.root, self.swap.path(), Side::After)? {
            return self.dismantle();
        }
        self.rename(Side::Before)?;
        self.check_what_came_out(Side::After)
    }

    /// Whether the host's path holds that side's objects and nothing else.
    pub(super) fn host_holds(&self, side: Side) -> Result<bool, SettleError> {
        self.holds(self.root, self.swap.path(), side)
    }

    /// What came out of the tree under the slot's name; what is not that side's is somebody's and goes back.
    fn check_what_came_out(&self, side: Side) -> Result<(), SettleError> {
        if side.of(self.swap.top()).is_none() || self.holds(self.area, &self.swap.slot, side)? {
            return Ok(());
        }
        self.rename(side)?;
        Err(SettleError::Drift)
    }

    /// Puts that side's object in its place and the other one, if there is one, into the slot.
    fn rename(&self, into_place: Side) -> Result<(), SettleError> {
        let Some(place) = self.root.place(self.swap.path())? else {
            return Err(SettleError::Drift);
        };
        let Some(slot) = self.area.place(&self.swap.slot)? else {
            return Err(SettleError::Drift);
        };
        let comes = into_place.of(self.swap.top()).is_some();
        let goes = into_place.other().of(self.swap.top()).is_some();
        let (from, to) = (
            (slot.directory.as_ref(), slot.name),
            (place.directory.as_ref(), place.name),
        );
        match (comes, goes) {
            (true, true) => self.exchange(from, to),
            (true, false) => move_to(from, to),
            (false, _) => move_to(to, from),
        }
    }

    fn exchange(&self, slot: Name<'_>, place: Name<'_>) -> Result<(), SettleError> {
        let flags = RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(slot.0, slot.1, place.0, place.1, flags) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => self.exchange_by_moves(slot, place),
            Err(Errno::NOENT) => Err(SettleError::Drift),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where the file system cannot exchange names: the old object gets a name of its own first, so that both exist at
    /// every moment; [`Self::mend`] finishes or undoes what a kill left between.
    pub(super) fn exchange_by_moves(&self, slot: Name<'_>, place: Name<'_>) -> Result<(), SettleError> {
        let spare = spare(slot.1);
        move_to(place, (slot.0, &spare))?;
        move_to(slot, place)?;
        move_to((slot.0, &spare), slot)
    }

    /// After a kill within [`Self::exchange_by_moves`]: the old object back, or into the slot.
    fn mend(&self) -> Result<(), SettleError> {
        let Some(slot) = self.area.place(&self.swap.slot)? else {
            return Ok(());
        };
        let name = spare(slot.name);
        let Ok(path) = TreePath::join(self.swap.slot.parent().as_ref(), &name) else {
            return Ok(());
        };
        if self.area.inode(&path)?.is_none() {
            return Ok(());
        }
        if self.area.inode(&self.swap.slot)?.is_none() {
            return move_to((&*slot.directory, &name), (&*slot.directory, slot.name));
        }
        match self.root.place(self.swap.path())? {
            Some(place) => move_to((&*slot.directory, &name), (&*place.directory, place.name)),
            None => Err(SettleError::Drift),
        }
    }

    /// A new directory to which somebody added files: ours leave it, theirs stay in it. Can be repeated after a kill.
    fn dismantle(&self) -> Result<(), SettleError> {
        if self.swap.top().before.is_some() {
            return Err(SettleError::Drift);
        }
        let mut theirs = false;
        for (number, operation) in self.swap.operations.iter().enumerate().rev() {
            theirs |= !self.take_out(number, operation)?;
        }
        if theirs { Err(SettleError::Drift) } else { Ok(()) }
    }

    /// Removes one object of ours from the tree; `false` when somebody changed it.
    fn take_out(&self, number: usize, operation: &Operation) -> Result<bool, SettleError> {
        let Some(slot) = self.area.place(&self.swap.slot)? else {
            return Err(SettleError::Drift);
        };
        let aside = [slot.name, format!(".out{number}").as_bytes()].concat();
        let out = TreePath::join(self.swap.slot.parent().as_ref(), &aside).map_err(io::Error::other)?;
        let place = match self.root.place(&operation.path) {
            Err(error) if is_no_directory(&error) => None,
            other => other?,
        };
        let Some(place) = place else { return Ok(true) };
        let (here, there) = (
            (place.directory.as_ref(), place.name),
            (slot.directory.as_ref(), aside.as_slice()),
        );
        if self.area.inode(&out)?.is_none() {
            if self.root.kind_or_nothing(&operation.path)? != operation.after {
                return Ok(self.root.type_of(&operation.path)?.is_none());
            }
            if operation.after == Some(Kind::Dir) {
                return match rustix::fs::unlinkat(here.0, here.1, AtFlags::REMOVEDIR) {
                    // It stays for what somebody put into it.
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(true),
                    Err(errno) => Err(errno.into()),
                };
            }
            move_to(here, there)?;
        }
        if self.area.kind(&out)? != operation.after {
            move_to(there, here)?;
            return Ok(false);
        }
        rustix::fs::unlinkat(there.0, there.1, AtFlags::empty())?;
        Ok(true)
    }

    /// Whether a path of a tree holds that side's objects of the swap, and nothing else.
    fn holds(&self, tree: &Root, at: &TreePath, side: Side) -> Result<bool, SettleError> {
        let top = self.swap.path();
        let mut expected = BTreeMap::new();
        for operation in &self.swap.operations {
            if let Some(kind) = side.of(operation) {
                expected.insert(moved(&operation.path, top, at)?, kind);
            }
        }
        if expected.is_empty() {
            return Ok(tree.kind_or_nothing(at)?.is_none());
        }
        for (path, kind) in &expected {
            if tree.kind_or_nothing(path)?.as_ref() != Some(kind) {
                return Ok(false);
            }
        }
        let mut unknown = false;
        if side.of(self.swap.top()) == Some(&Kind::Dir) {
            walk(tree, at, |path, _| {
                unknown |= !expected.contains_key(path);
                !unknown
            })?;
        }
        Ok(!unknown)
    }
}

/// A path below `top` as it is called below `at`.
pub(super) fn moved(path: &TreePath, top: &TreePath, at: &TreePath) -> Result<TreePath, SettleError> {
    let rest = path.as_bytes().get(top.as_bytes().len()..).unwrap_or_default();
    TreePath::new([at.as_bytes(), rest].concat()).map_err(|error| SettleError::Io(io::Error::other(error)))
}

/// The name beside a slot's that the old object has for a moment.
fn spare(slot: &[u8]) -> Vec<u8> {
    [slot, b".old"].concat()
}

/// Moves to a name that is free.
fn move_to(from: Name<'_>, to: Name<'_>) -> Result<(), SettleError> {
    let moved = rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE);
    match moved {
        Ok(()) => Ok(()),
        Err(Errno::NOENT | Errno::EXIST) => Err(SettleError::Drift),
        // Some file systems do not know the flag; a look is all there is then.
        Err(Errno::INVAL) => match rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(rustix::fs::renameat(from.0, from.1, to.0, to.1)?),
            Ok(_) => Err(SettleError::Drift),
            Err(errno) => Err(errno.into()),
        },
        Err(errno) => Err(errno.into()),
    }
}
