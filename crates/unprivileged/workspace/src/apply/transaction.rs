//! An open transaction: its steps, each of which can be repeated.
//!
//! **Trust:** decides nothing. Originals stay in their slots until the new names are durable; nothing of the host's is
//! removed that is not in the tree or in the journal.
use super::area::{self, Areas};
use super::execute::{BACKUP, Target, fault_of};
use super::journal::{Area, Journal, JournalState, Journals, Operation, Progress, Swap};
use super::settle::{Exchange, SettleError, moved};
use super::stage::{Source, copy, set_times, stage};
use crate::crew::by_piece;
use crate::durable::Step;
use crate::faults::io_fault;
use crate::manifest::Kind;
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::Fault;
use rustix::fs::{FileType, Stat};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Up to so many staged objects are synced one by one; beyond, the file system is synced once.
const MOST_SINGLE_SYNCS: usize = 64;

/// An open transaction.
pub(super) struct Open<'a> {
    pub(super) target: &'a Target<'a>,
    pub(super) root: &'a Root,
    pub(super) journals: Journals,
    pub(super) journal: Journal,
    pub(super) areas: Vec<Root>,
}

impl Open<'_> {
    pub(super) fn folder(&self) -> PathBuf {
        self.journals.folder(self.journal.number)
    }

    pub(super) fn advance(&self, progress: &Progress) -> Result<(), Fault> {
        self.journals
            .advance(self.journal.number, progress, self.target.durable)
    }

    /// Everything up to the point where only names have to change. Answers files that have other names (hard links),
    /// which keep the old content.
    pub(super) fn prepare(
        &mut self,
        groups: &[Vec<Operation>],
        source: &Source<'_>,
    ) -> Result<Vec<TreePath>, Fault> {
        let of_tree = |error: SettleError| match error {
            SettleError::Io(error) => io_fault("prepare", self.target.source, error),
            other => fault_of(&groups[0][0].path, &other),
        };
        let near = self.root.nearby().map_err(|error| of_tree(error.into()))?;
        let areas = Areas::new(self.root, &self.journals, self.journal.number);
        let mut areas = areas.map_err(|error| of_tree(error.into()))?;
        let mut swaps = Vec::with_capacity(groups.len());
        let mut linked = Vec::new();
        for operations in groups {
            let path = &operations[0].path;
            let failed = |error| fault_of(path, &error);
            let (area, slot) = areas.slot(path).map_err(failed)?;
            let old = near.stat(path).map_err(|error| failed(error.into()))?;
            if old.as_ref().is_some_and(is_linked) && operations[0].after.is_some() {
                linked.push(path.clone());
            }
            swaps.push(Swap {
                operations: operations.clone(),
                area,
                slot,
                new: None,
                old: old.as_ref().map(|stat| stat.st_ino),
            });
        }
        self.journal.areas = areas.chosen().to_vec();
        self.note_holders()?;
        self.journals.write(&self.journal, self.target.durable)?;
        self.areas = areas.make().map_err(of_tree)?;
        self.restore_holders(&self.times_before(), &[]);
        let staged = by_piece(&swaps, |piece| self.stage(piece, source))?;
        for (swap, new) in swaps.iter_mut().zip(staged) {
            swap.new = new;
        }
        self.journal.swaps = swaps;
        self.back_up()?;
        self.sync_staged()?;
        self.note_parents()?;
        self.journals.write(&self.journal, self.target.durable)?;
        Ok(linked)
    }

    /// Makes the new objects of some swaps, and answers their inodes.
    fn stage(&self, swaps: &[Swap], source: &Source<'_>) -> Result<Vec<Option<u64>>, Fault> {
        let (root, areas) = self.nearby()?;
        let one = |swap: &Swap| {
            let area = &areas[swap.area];
            self.target.durable.show(Step::Tree(swap.path().as_path()));
            stage(&root, area, swap, source)?;
            Ok(area.inode(&swap.slot)?)
        };
        let failed = |swap: &Swap, error: SettleError| fault_of(swap.path(), &error);
        swaps
            .iter()
            .map(|swap| one(swap).map_err(|error| failed(swap, error)))
            .collect()
    }

    /// The tree and the areas for one pass over neighbours.
    fn nearby(&self) -> Result<(Root, Vec<Root>), Fault> {
        let failed = |error| io_fault("open", self.target.source, error);
        let root = self.root.nearby().map_err(failed)?;
        let areas: Result<_, _> = self.areas.iter().map(Root::nearby).collect();
        Ok((root, areas.map_err(failed)?))
    }

    /// Copies of what an area in the project would lose when it is removed.
    fn back_up(&self) -> Result<(), Fault> {
        for (number, area) in self.journal.areas.iter().enumerate() {
            if matches!(area, Area::Journal) {
                continue;
            }
            let folder = self.folder().join(format!("{BACKUP}-{number}"));
            self.target.durable.make_dir(&folder)?;
            let to = Root::open(&folder).map_err(|error| io_fault("open", &folder, error))?;
            for swap in self.journal.swaps.iter().filter(|swap| swap.area == number) {
                self.target.durable.show(Step::Tree(swap.path().as_path()));
                back_up_one(self.root, swap, &to).map_err(|error| fault_of(swap.path(), &error))?;
            }
            self.sync_all(&to, &folder)?;
        }
        Ok(())
    }

    /// Staged objects are durable before any name of the tree refers to them.
    fn sync_staged(&self) -> Result<(), Fault> {
        let objects = self
            .journal
            .operations()
            .filter(|one| one.after.is_some())
            .count();
        for (number, area) in self.areas.iter().enumerate() {
            let shown = match self.journal.areas[number] {
                Area::Journal => self.folder().join(area::SLOTS),
                Area::Tree { .. } => self.target.source.to_owned(),
            };
            if objects > MOST_SINGLE_SYNCS {
                self.sync_all(area, &shown)?;
                continue;
            }
            self.target.durable.show(Step::Sync(&shown));
            for swap in self.journal.swaps.iter().filter(|swap| swap.area == number) {
                sync_swap(area, swap).map_err(|error| fault_of(swap.path(), &error))?;
            }
            sync_rooms(area).map_err(|error| io_fault("sync", self.target.source, error))?;
        }
        Ok(())
    }

    fn sync_all(&self, tree: &Root, shown: &Path) -> Result<(), Fault> {
        self.target.durable.show(Step::Sync(shown));
        rustix::fs::syncfs(tree.handle()).map_err(|errno| io_fault("sync", shown, errno))
    }

    pub(super) fn exchanges(&self) -> impl DoubleEndedIterator<Item = Exchange<'_>> {
        self.journal.swaps.iter().map(|swap| Exchange {
            root: self.root,
            area: &self.areas[swap.area],
            swap,
        })
    }

    /// Exchanges what is not exchanged yet. A failure names the path, where it is of one.
    pub(super) fn commit(&self) -> Result<(), (Option<TreePath>, Fault)> {
        let failed_at = Mutex::new(None);
        let exchanged = by_piece(&self.journal.swaps, |piece| {
            self.exchange(piece)
                .map(|()| Vec::<()>::new())
                .map_err(|(at, fault)| {
                    let mut failed_at = failed_at.lock().unwrap_or_else(PoisonError::into_inner);
                    *failed_at = failed_at.take().or(at);
                    fault
                })
        });
        let failed_at = failed_at.into_inner().unwrap_or_else(PoisonError::into_inner);
        exchanged.map_err(|fault| (failed_at, fault))?;
        self.sync_parents().map_err(|fault| (None, fault))
    }

    /// Exchanges some. No path of a swap lies below a path of another, so that their order is all the same.
    fn exchange(&self, swaps: &[Swap]) -> Result<(), (Option<TreePath>, Fault)> {
        let (root, areas) = self.nearby().map_err(|fault| (None, fault))?;
        for swap in swaps {
            // One that moves a directory must not look into the one that was there before.
            let (root, area) = match swap.moves_directory() {
                true => (self.root, &self.areas[swap.area]),
                false => (&root, &areas[swap.area]),
            };
            let path = swap.path();
            Exchange { root, area, swap }
                .forward(|| self.target.durable.show(Step::Tree(path.as_path())))
                .map_err(|error| (Some(path.clone()), fault_of(path, &error)))?;
        }
        Ok(())
    }

    /// Every object back in its place, in reverse order. Answers the paths that somebody changed meanwhile: theirs stay.
    pub(super) fn roll_back(&self) -> Result<Vec<TreePath>, Fault> {
        let mut kept = Vec::new();
        for one in self.exchanges().rev() {
            let path = one.swap.path();
            self.target.durable.show(Step::Tree(path.as_path()));
            match one.back() {
                Ok(()) => {}
                Err(SettleError::Drift) => kept.push(path.clone()),
                Err(error) => return Err(fault_of(path, &error)),
            }
        }
        self.sync_parents()?;
        Ok(kept)
    }

    fn sync_parents(&self) -> Result<(), Fault> {
        let failed = |error| io_fault("sync", self.target.source, error);
        if self.journal.parents.len() + self.areas.len() > MOST_SINGLE_SYNCS {
            // Every parent has an area on its own file system, so that these are all of them.
            return self
                .areas
                .iter()
                .try_for_each(|area| self.sync_all(area, self.target.source));
        }
        for parent in &self.journal.parents {
            let shown = parent
                .directory
                .as_ref()
                .map_or(Path::new("."), TreePath::as_path);
            self.target
                .durable
                .show(Step::SyncDir(&self.target.source.join(shown)));
            let open = match &parent.directory {
                None => Some(self.root.handle().try_clone().map_err(failed)?),
                // One that is gone was removed by somebody.
                Some(path) => self.root.directory(path).unwrap_or(None),
            };
            if let Some(open) = open {
                rustix::fs::fsync(&open).map_err(|errno| failed(errno.into()))?;
            }
        }
        self.areas
            .iter()
            .try_for_each(|area| sync_rooms(area).map_err(failed))
    }

    /// The new names are durable: records it, and removes what only the transaction needed.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        let progress = self.record_exchanged()?;
        self.finish_recorded(progress)
    }

    /// Records that every name is exchanged. From then on originals in a staging area in the project may go.
    pub(super) fn record_exchanged(&self) -> Result<Progress, Fault> {
        let in_project = |area: &Area| matches!(area, Area::Tree { .. });
        let settles = self.journal.undoes.is_some() || self.journal.areas.iter().any(in_project);
        let mut progress = Progress::at(match settles {
            true => JournalState::Settling,
            false => JournalState::Done,
        });
        progress.modified = self.times_now();
        self.advance(&progress)?;
        Ok(progress)
    }

    /// Removes what only the transaction needed.
    pub(super) fn finish_recorded(&self, mut progress: Progress) -> Result<(), Fault> {
        if progress.state == JournalState::Done {
            return Ok(());
        }
        let told = |fault: Fault| {
            fault.help(
                "Every change is in the project; the next bastle command removes what was staged for it.",
            )
        };
        self.settle(&progress).map_err(told)?;
        progress.state = JournalState::Done;
        self.advance(&progress).map_err(told)
    }

    /// Every name back, and what was staged removed, after a failure at `at`.
    pub(super) fn take_back(&self, before: &[Option<i64>], at: Option<TreePath>) -> Result<(), Fault> {
        let kept = self.roll_back()?;
        let theirs: Vec<TreePath> = kept.iter().cloned().chain(at).collect();
        self.restore_times(before, &theirs);
        self.abandon(kept)
    }

    /// Removes staging areas; after an undo also what it brought back, which has its names in the tree again.
    pub(super) fn settle(&self, progress: &Progress) -> Result<(), Fault> {
        match self.journal.undoes {
            None => self.clear_where(&self.journal, |area| matches!(area, Area::Tree { .. }))?,
            Some(undone) => {
                self.clear(&self.journal)?;
                if let Some((journal, _)) = self.journals.read(undone)? {
                    self.clear(&journal)?;
                }
            }
        }
        self.restore_holders(&progress.modified, &[]);
        Ok(())
    }

    /// It ends before a name of the tree changed.
    pub(super) fn give_up(&self) -> Result<(), Fault> {
        self.clear(&self.journal)?;
        self.restore_holders(&self.times_before(), &[]);
        self.advance(&Progress::at(JournalState::Abandoned))
    }

    /// Every name is back: records it before a slot goes, since without its slot a swap can no longer be told to be
    /// exchanged or not.
    pub(super) fn abandon(&self, kept: Vec<TreePath>) -> Result<(), Fault> {
        let mut progress = Progress::at(JournalState::Abandoning);
        progress.kept = kept;
        self.advance(&progress)?;
        self.finish_abandoning(progress)
    }

    /// Removes what was staged, unless an original had to stay because somebody wrote in its place.
    pub(super) fn finish_abandoning(&self, mut progress: Progress) -> Result<(), Fault> {
        let nothing = progress.kept.is_empty();
        self.clear_where(&self.journal, |area| nothing || matches!(area, Area::Tree { .. }))?;
        self.restore_holders(&self.times_before(), &progress.kept);
        progress.state = JournalState::Abandoned;
        self.advance(&progress)
    }

    pub(super) fn clear(&self, journal: &Journal) -> Result<(), Fault> {
        self.clear_where(journal, |_| true)
    }

    fn clear_where(&self, journal: &Journal, which: impl Fn(&Area) -> bool) -> Result<(), Fault> {
        let folder = self.journals.folder(journal.number);
        for area in journal.areas.iter().filter(|area| which(area)) {
            self.target.durable.show(Step::Remove(&folder));
            area::remove(self.root, &folder, area)
                .map_err(|error| io_fault("remove what was staged for", self.target.source, error))?;
        }
        Ok(())
    }
}

/// Whether an object has other names.
fn is_linked(stat: &Stat) -> bool {
    stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Copies what a swap will take out of the tree, and checks that it is what the plan saw.
fn back_up_one(root: &Root, swap: &Swap, to: &Root) -> Result<(), SettleError> {
    let room = swap.slot.parent().ok_or(SettleError::Drift)?;
    match rustix::fs::mkdirat(to.handle(), room.as_path(), rustix::fs::Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let removed = |one: &&Operation| one.before.is_some();
    for operation in swap.operations.iter().filter(removed) {
        let at = moved(&operation.path, swap.path(), &swap.slot)?;
        copy(root, &operation.path, to, &at)?;
        if to.kind_or_nothing(&at)? != operation.before {
            return Err(SettleError::Drift);
        }
    }
    // Filling a directory has changed its time.
    for operation in swap.operations.iter().rev() {
        if operation.before == Some(Kind::Dir)
            && let Some(stat) = root.stat(&operation.path)?
        {
            set_times(to, &moved(&operation.path, swap.path(), &swap.slot)?, &stat)?;
        }
    }
    Ok(())
}

fn sync_swap(area: &Root, swap: &Swap) -> Result<(), SettleError> {
    for operation in swap.operations.iter().rev() {
        let at = moved(&operation.path, swap.path(), &swap.slot)?;
        match &operation.after {
            Some(Kind::File { .. }) => {
                let place = area.place(&at)?.ok_or(SettleError::Drift)?;
                place.open_file()?.sync_all()?;
            }
            Some(Kind::Dir) => {
                let directory = area.directory(&at)?.ok_or(SettleError::Drift)?;
                rustix::fs::fsync(&directory)?;
            }
            Some(Kind::Symlink { .. } | Kind::Submodule { .. } | Kind::Opaque { .. }) | None => {}
        }
    }
    Ok(())
}

/// The names of slots.
fn sync_rooms(area: &Root) -> std::io::Result<()> {
    let own = area.handle().try_clone()?;
    for room in crate::beneath::Dir::from_user(own).list()? {
        let room = Root::open_beneath(area.handle(), &room.name)?;
        rustix::fs::fsync(room.handle())?;
    }
    Ok(rustix::fs::fsync(area.handle())?)
}
