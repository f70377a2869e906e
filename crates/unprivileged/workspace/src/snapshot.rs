//! Snapshots: the tree now, with everything in it kept.
//!
//! **Trust:** the record of a snapshot is written last, after all contents and the manifest are durable; so a
//! snapshot that is listed can be restored.
use crate::audit_delta::{Change, Scope, delta};
use crate::faults::io_fault;
use crate::finding::{About, Finding};
use crate::manifest::{Content, Kind, Manifest};
use crate::meta::{FORMAT, MAX_EXPORTED, Meta, Reason, Snapshot, SnapshotName, State, Which};
use crate::place::read_record;
use crate::scan::{Known, Scan, scan};
use crate::seen::Alive;
use crate::store::{Batch, Keep};
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use std::fs;

/// Snapshots before turns and commands that one run keeps.
const MOST_BY_THEMSELVES: usize = 100;

/// A snapshot and what is worth knowing about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The snapshot; an earlier one when nothing had changed and no name was given.
    pub snapshot: Snapshot,
    /// Names that are not in it, or not as one state.
    pub findings: Vec<Finding>,
}

impl Workspace {
    /// Records the tree as it is. While the agent runs, each file is one state of itself; pause the agent for one
    /// state of the whole.
    ///
    /// # Errors
    /// When the tree cannot be read or the store cannot be written.
    pub fn snapshot(&self, name: Option<SnapshotName>, reason: Reason) -> Result<Taken, Fault> {
        let _held = self.hold()?;
        self.snapshot_held(name, reason).map(|(taken, _)| taken)
    }

    /// The same for somebody who holds the copy; also gives the manifest.
    pub(crate) fn snapshot_held(
        &self,
        name: Option<SnapshotName>,
        reason: Reason,
    ) -> Result<(Taken, Manifest), Fault> {
        let _shared = self.store.lock_shared()?;
        let alive = match self.meta()?.state {
            State::Running => Alive::Yes,
            State::Making | State::Ready | State::Finished | State::Applied => Alive::No,
        };
        let batch = self.batch(Keep::All);
        let known = self.known();
        let mut found = self.look(
            known.as_ref().map(|(m, s)| Known { manifest: m, seen: s }),
            &batch,
            alive,
        )?;
        let mut findings = std::mem::take(&mut found.findings);
        let last = self.snapshots()?.pop();
        let unchanged = last
            .as_ref()
            .filter(|last| last.manifest == found.seen.manifest && name.is_none());
        if let Some(last) = unchanged {
            batch.commit()?;
            self.write_seen(&found.seen)?;
            let snapshot = last.clone();
            return Ok((Taken { snapshot, findings }, found.manifest));
        }
        if let Some(last) = &last {
            let before = self.store.manifest(&last.manifest)?;
            findings.extend(self.keep_before(&delta(&before, &found.manifest, Scope::Whole), &batch)?);
        }
        let id = batch.take_manifest(&found.manifest)?;
        batch.commit()?;
        self.write_seen(&found.seen)?;
        let number = last.map_or(0, |last| last.number.saturating_add(1));
        self.keep_times(number, &found)?;
        let snapshot = self.record(number, name, reason, &found.manifest, id)?;
        if reason == Reason::Turn {
            self.thin()?;
        }
        Ok((Taken { snapshot, findings }, found.manifest))
    }

    /// The tree as it is, without keeping anything of it: needs no room in the state directory.
    pub(crate) fn judge_held(&self) -> Result<(Manifest, Vec<Finding>), Fault> {
        let batch = self.batch(Keep::Nothing);
        let known = self.known();
        let known = known.as_ref().map(|(manifest, seen)| Known { manifest, seen });
        let found = self.look(known, &batch, Alive::No)?;
        Ok((found.manifest, found.findings))
    }

    /// Lets go of the oldest snapshots that nobody asked for, where there are too many. Their numbers are not used again.
    fn thin(&self) -> Result<(), Fault> {
        let by_itself = |snapshot: &Snapshot| snapshot.reason == Reason::Turn && snapshot.name.is_none();
        let mut old: Vec<Snapshot> = self.snapshots()?.into_iter().filter(by_itself).collect();
        old.truncate(old.len().saturating_sub(MOST_BY_THEMSELVES));
        for snapshot in old {
            let path = self.path("snapshots").join(format!("{}.json", snapshot.number));
            self.place.durable().remove_file(&path)?;
            self.forget_times(snapshot.number)?;
        }
        Ok(())
    }

    fn look(&self, known: Option<Known<'_>>, batch: &Batch<'_>, alive: Alive) -> Result<Scan, Fault> {
        if self.is_layered() {
            return self.look_layered(known, batch, alive);
        }
        let tree = self.open_tree()?;
        scan(&tree, &self.tree(), known, batch, alive)
    }

    /// Takes the contents that the agent has just replaced from the source, as long as that still has them.
    fn keep_before(&self, changes: &[Change], batch: &Batch<'_>) -> Result<Vec<Finding>, Fault> {
        let replaced: Vec<(&Change, &Content)> = changes
            .iter()
            .filter_map(|change| match &change.before {
                Some(Kind::File { digest, .. }) if !self.store.has(digest) => Some((change, digest)),
                _ => None,
            })
            .collect();
        if replaced.is_empty() {
            return Ok(Vec::new());
        }
        let contents = self.contents();
        let mut buffer = Vec::new();
        let mut lost = Vec::new();
        for (change, digest) in replaced {
            if !contents.ensure(digest, batch, &mut buffer)? {
                lost.push(Finding {
                    path: change.path.clone(),
                    about: About::BeforeLost,
                });
            }
        }
        Ok(lost)
    }

    /// Records that the work as of this manifest is elsewhere.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn mark_applied(&self, manifest: Content) -> Result<(), Fault> {
        let _held = self.hold()?;
        let mut meta = self.meta()?;
        meta.applied = Some(manifest);
        if meta.state == State::Finished {
            meta.state = State::Applied;
        }
        self.place.write_meta(&meta)
    }

    /// Records that the tree as of this manifest is in an archive, a patch or a branch. What was applied to the project
    /// stays on record beside it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mark_saved(&self, manifest: Content) -> Result<(), Fault> {
        let _held = self.hold()?;
        let mut meta = self.meta()?;
        if meta.state == State::Finished {
            meta.state = State::Applied;
        }
        self.write_exported(meta, manifest)
    }

    /// Records that this state, of the tree or of a snapshot, is in an archive, a patch or a branch.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn mark_exported(&self, manifest: Content) -> Result<(), Fault> {
        let _held = self.hold()?;
        self.write_exported(self.meta()?, manifest)
    }

    fn write_exported(&self, mut meta: Meta, manifest: Content) -> Result<(), Fault> {
        meta.exported.retain(|known| *known != manifest);
        meta.exported.push(manifest);
        let old = meta.exported.len().saturating_sub(MAX_EXPORTED);
        meta.exported.drain(..old);
        self.place.write_meta(&meta)
    }

    /// All snapshots, oldest first.
    ///
    /// # Errors
    /// When a record is damaged.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Fault> {
        let dir = self.path("snapshots");
        let mut all: Vec<Snapshot> = Vec::new();
        for entry in fs::read_dir(&dir).map_err(|e| io_fault("list", &dir, e))? {
            let path = entry.map_err(|e| io_fault("list", &dir, e))?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let snapshot: Snapshot = read_record(&path)?;
                if snapshot.format != FORMAT {
                    return Err(crate::faults::damaged(&path, "another format"));
                }
                all.push(snapshot);
            }
        }
        all.sort_unstable_by_key(|snapshot| snapshot.number);
        Ok(all)
    }

    /// Finds a snapshot.
    ///
    /// # Errors
    /// When there is none of that number or name.
    pub fn find(&self, which: &Which) -> Result<Snapshot, Fault> {
        let mut all = self.snapshots()?;
        let found = match which {
            Which::Number(number) => all.into_iter().find(|s| s.number == *number),
            Which::Name(name) => all.into_iter().rev().find(|s| s.name.as_ref() == Some(name)),
            Which::Last => all.pop(),
        };
        let shown = match which {
            Which::Number(number) => format!("number {number}"),
            Which::Name(name) => format!("name {name}"),
            Which::Last => "any name".to_owned(),
        };
        let run = &self.run;
        found.ok_or_else(|| {
            Fault::new(
                Code::WorkspaceMissing,
                format!("run {run} has no snapshot of {shown}"),
                "",
            )
            .help(format!("bastle snapshots {run}"))
        })
    }

    /// The tree of a snapshot.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn manifest(&self, snapshot: &Snapshot) -> Result<Manifest, Fault> {
        self.store.manifest(&snapshot.manifest)
    }

    /// The tree now: a snapshot for comparing, so that what is shown is kept and can be applied as shown.
    ///
    /// # Errors
    /// See [`Self::snapshot`].
    pub fn current(&self) -> Result<(Taken, Manifest), Fault> {
        let _held = self.hold()?;
        self.snapshot_held(None, Reason::Look)
    }

    /// What was created, changed and deleted between two snapshots, with the digests before and after.
    ///
    /// # Errors
    /// When one of them is missing or damaged.
    pub fn delta(&self, from: &Which, to: &Which, scope: Scope) -> Result<Vec<Change>, Fault> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        if from.manifest == to.manifest {
            return Ok(Vec::new());
        }
        let before = self.manifest(&from)?;
        let after = self.manifest(&to)?;
        Ok(delta(&before, &after, scope))
    }
}
