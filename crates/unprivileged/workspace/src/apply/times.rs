//! Times of directories: a transaction that failed, or was undone, leaves them as they were.
//!
//! **Trust:** only a convenience for build tools and people; nothing is decided by a time.
use super::journal::{Area, Journal, Progress, Touched};
use super::stage::modified_at;
use super::transaction::Open;
use crate::faults::io_fault;
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::Fault;
use std::collections::BTreeSet;

impl Open<'_> {
    /// Directories of the project that a staging area comes into, and their times before.
    pub(super) fn note_holders(&mut self) -> Result<(), Fault> {
        let holders: BTreeSet<Option<TreePath>> = self.holders().cloned().collect();
        self.note(holders)
    }

    /// The directories whose names will change, and their times.
    pub(super) fn note_parents(&mut self) -> Result<(), Fault> {
        let mut parents: BTreeSet<Option<TreePath>> = self
            .journal
            .swaps
            .iter()
            .map(|swap| swap.path().parent())
            .collect();
        // Noted already, before an area came into them.
        self.journal.parents.iter().for_each(|known| {
            parents.remove(&known.directory);
        });
        self.note(parents)
    }

    fn note(&mut self, directories: BTreeSet<Option<TreePath>>) -> Result<(), Fault> {
        for directory in directories {
            let modified = modified(self.root, directory.as_ref())
                .map_err(|error| io_fault("look at", self.target.source, error))?;
            if let Some(modified) = modified {
                self.journal.parents.push(Touched { directory, modified });
            }
        }
        Ok(())
    }

    fn holders(&self) -> impl Iterator<Item = &Option<TreePath>> {
        self.journal.areas.iter().filter_map(|area| match area {
            Area::Journal => None,
            Area::Tree { directory, .. } => Some(directory),
        })
    }

    /// The times of before the transaction, as they were recorded.
    pub(super) fn times_before(&self) -> Vec<Option<i64>> {
        let of = |one: &Touched| Some(one.modified);
        self.journal.parents.iter().map(of).collect()
    }

    /// A staging area came into a directory or went: gives the directory these times, except where somebody else changed
    /// a name.
    pub(super) fn restore_holders(&self, times: &[Option<i64>], changed: &[TreePath]) {
        let holders: BTreeSet<&Option<TreePath>> = self.holders().collect();
        self.set_times(times, changed, |directory| holders.contains(directory));
    }

    /// Modification times of the directories, in the order of the journal.
    pub(super) fn times_now(&self) -> Vec<Option<i64>> {
        let of = |one: &Touched| modified(self.root, one.directory.as_ref()).unwrap_or(None);
        self.journal.parents.iter().map(of).collect()
    }

    /// Gives directories their times of before, except those in which somebody else changed a name.
    pub(super) fn restore_times(&self, before: &[Option<i64>], changed: &[TreePath]) {
        self.set_times(before, changed, |_| true);
    }

    fn set_times(
        &self,
        times: &[Option<i64>],
        changed: &[TreePath],
        which: impl Fn(&Option<TreePath>) -> bool,
    ) {
        let theirs: BTreeSet<Option<TreePath>> = changed.iter().map(TreePath::parent).collect();
        for (parent, time) in self.journal.parents.iter().zip(times) {
            if let Some(time) = time
                && which(&parent.directory)
                && !theirs.contains(&parent.directory)
            {
                set_modified(self.root, parent.directory.as_ref(), *time);
            }
        }
    }

    /// As [`Self::restore_parents`], for an undo that somebody else began.
    pub(super) fn restore_times_of_undone(&self) -> Result<(), Fault> {
        let Some(undone) = self.journal.undoes else {
            return Ok(());
        };
        if let Some((applied, then)) = self.journals.read(undone)? {
            self.restore_parents(&applied, &then, &self.times_before());
        }
        Ok(())
    }

    /// After an undo: times of before the apply, for directories that nobody changed between.
    pub(super) fn restore_parents(&self, applied: &Journal, then: &Progress, before_undo: &[Option<i64>]) {
        for (was, after) in applied.parents.iter().zip(&then.modified) {
            let at = self
                .journal
                .parents
                .iter()
                .position(|one| one.directory == was.directory);
            let untouched = at
                .and_then(|at| before_undo.get(at))
                .is_some_and(|now| now == after);
            if untouched && after.is_some() {
                set_modified(self.root, was.directory.as_ref(), was.modified);
            }
        }
    }
}

/// When a directory was modified, in nanoseconds; `None` when it is gone.
fn modified(root: &Root, directory: Option<&TreePath>) -> std::io::Result<Option<i64>> {
    let stat = match directory {
        None => Some(rustix::fs::fstat(root.handle())?),
        Some(path) => root.stat(path)?,
    };
    let time = |stat: rustix::fs::Stat| {
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
        stat.st_mtime
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    };
    Ok(stat.map(time))
}

/// Only a convenience for build tools: a time that cannot be set changes nothing else.
fn set_modified(root: &Root, directory: Option<&TreePath>, modified: i64) {
    let times = modified_at(
        modified.div_euclid(1_000_000_000),
        modified.rem_euclid(1_000_000_000),
    );
    let set = match directory {
        None => rustix::fs::futimens(root.handle(), &times),
        Some(path) => match root.directory(path) {
            Ok(Some(open)) => rustix::fs::futimens(&open, &times),
            Ok(None) | Err(_) => Ok(()),
        },
    };
    match set {
        Ok(()) | Err(_) => {}
    }
}
