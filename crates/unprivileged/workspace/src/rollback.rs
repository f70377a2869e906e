//! Rollback: the tree becomes a snapshot again, and what it was before is a snapshot too.
//!
//! **Trust:** order is everything. (1) The tree as it is becomes a durable snapshot. (2) Every content of the target is
//! in the store. (3) The intent is recorded. (4) The tree is changed. (5) The intent is removed. A crash before 3 leaves
//! the old tree, one after 3 is finished at the next start.
use crate::audit_delta::{Change, Scope, delta};
use crate::beneath::Dir;
use crate::contents::not_kept;
use crate::faults::io_fault;
use crate::manifest::{Content, Kind, Manifest};
use crate::meta::{FORMAT, Reason, Snapshot, State, Which};
use crate::path::TreePath;
use crate::place::{read_record, write_record};
use crate::restore::{Restorer, sweep};
use crate::seen::Alive;
use crate::store::Keep;
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};

/// Most paths that a failed rollback names.
const MOST_NAMED: usize = 10;

/// What is under way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Intent {
    format: u32,
    to: Content,
    /// Number of the snapshot that holds the tree as it was.
    before: u32,
}

/// Who may be writing to the tree while it is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// The caller has paused the agent, or it has ended.
    Paused,
    /// Not known: refused while the run is alive.
    Unknown,
}

/// What a rollback did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The snapshot of the tree as it was.
    pub before: Snapshot,
    /// The snapshot that the tree is now.
    pub to: Snapshot,
    /// What was changed.
    pub changes: Vec<Change>,
}

impl Workspace {
    /// Makes the tree what it was at a snapshot.
    ///
    /// # Errors
    /// Before anything is changed: when the run is alive and not paused, when the snapshot is missing, when a content
    /// of it is not kept any more. Later only when the disk fails; the next start then finishes.
    pub fn rollback(&self, which: &Which, quiet: Quiet) -> Result<RolledBack, Fault> {
        let _held = self.hold()?;
        if self.meta()?.state == State::Running && quiet == Quiet::Unknown {
            let what = format!("run {} is alive", self.run);
            return Err(Fault::new(
                Code::WorkspaceBusy,
                what,
                "the agent would write into the tree meanwhile",
            ));
        }
        if self.meta()?.state == State::Running && self.is_layered() {
            let what = format!("run {} is alive", self.run);
            let why = "the layers of an overlay must not be changed while it is mounted, paused or not";
            return Err(Fault::new(Code::WorkspaceBusy, what, why).help("wait for its end: bastle ps"));
        }
        let to = self.find(which)?;
        let target = self.manifest(&to)?;
        let (taken, now) = self.snapshot_held(None, Reason::BeforeRollback)?;
        let before = self.keep_for_rollback(taken.snapshot)?;
        let changes = delta(&now, &target, Scope::Whole);
        self.ensure_all(&changes)?;
        let intent = Intent {
            format: FORMAT,
            to: to.manifest,
            before: before.number,
        };
        write_record(self.place.durable(), &self.path("rollback.json"), &intent)?;
        self.restore(&changes, before.number, (&to.manifest, &target))
            .and_then(|()| self.finish_rollback())
            .map_err(|fault| {
                let run = &self.run;
                fault
                    .help(format!(
                        "bastle snapshots {run}   finishes the rollback, as any verb about the run"
                    ))
                    .help(format!("bastle rollback {run} {}   takes it back", before.number))
            })?;
        self.verify(&target)?;
        Ok(RolledBack { before, to, changes })
    }

    /// A snapshot that was there already, taken for another reason: from now on it is what a rollback took away, so
    /// that neither thinning nor a removal takes it for a state that the agent itself went on from.
    fn keep_for_rollback(&self, snapshot: Snapshot) -> Result<Snapshot, Fault> {
        match snapshot.reason {
            Reason::Base | Reason::Asked | Reason::BeforeRollback => return Ok(snapshot),
            Reason::Turn | Reason::Look | Reason::Fork => {}
        }
        let kept = Snapshot {
            reason: Reason::BeforeRollback,
            ..snapshot
        };
        let path = self.path("snapshots").join(format!("{}.json", kept.number));
        write_record(self.place.durable(), &path, &kept)?;
        Ok(kept)
    }

    /// Finishes a rollback that a crash interrupted; `true` when there was one.
    pub(crate) fn resume_rollback(&self) -> Result<bool, Fault> {
        let path = self.path("rollback.json");
        if !path.exists() {
            return Ok(false);
        }
        let intent: Intent = read_record(&path)?;
        let target: Manifest = self.store.manifest(&intent.to)?;
        let (_, now) = self.snapshot_held(None, Reason::BeforeRollback)?;
        let changes = delta(&now, &target, Scope::Whole);
        self.ensure_all(&changes)?;
        self.restore(&changes, intent.before, (&intent.to, &target))?;
        self.finish_rollback()?;
        Ok(true)
    }

    /// Every content that the target needs is in the store before anything else happens.
    fn ensure_all(&self, changes: &[Change]) -> Result<(), Fault> {
        let _shared = self.store.lock_shared()?;
        let contents = self.contents();
        let batch = self.batch(Keep::All);
        let mut buffer = Vec::new();
        let mut lost = Vec::new();
        for change in changes {
            let Some(Kind::File {
                digest, attributes, ..
            }) = &change.after
            else {
                continue;
            };
            let kept = attributes.is_none_or(|id| contents.has(&id));
            if !kept || !contents.ensure(digest, &batch, &mut buffer)? {
                lost.push(change.path.clone());
            }
        }
        batch.commit()?;
        if lost.is_empty() {
            Ok(())
        } else {
            Err(not_kept(&lost))
        }
    }

    fn restore(
        &self,
        changes: &[Change],
        before: u32,
        (to, target): (&Content, &Manifest),
    ) -> Result<(), Fault> {
        let times = self.times_of(to);
        let modified = |path: &TreePath| times.as_ref().and_then(|times| times.find(target, path));
        let tree = self.open_tree()?;
        let contents = self.contents();
        let temporary = self.path("tmp");
        sweep(&temporary)?;
        let lower = match self.is_layered() {
            true => Some(Dir::open(&self.source).map_err(|e| io_fault("open", &self.source, e))?),
            false => None,
        };
        let recorded = match self.is_layered() {
            true => Some(self.base()?),
            false => None,
        };
        let restorer = Restorer {
            tree: &tree,
            lower: lower.as_ref(),
            recorded: recorded.as_ref(),
            root: &self.tree(),
            contents: &contents,
            durable: self.place.durable(),
            temporary: &temporary,
            aside: &self.path("kept").join(before.to_string()),
            modified: &modified,
        };
        restorer.apply(changes)
    }

    /// Looks at an overlay again: its view depends on the project below it, so that the layer alone proves nothing.
    fn verify(&self, target: &Manifest) -> Result<(), Fault> {
        if !self.is_layered() {
            return Ok(());
        }
        let _shared = self.store.lock_shared()?;
        let batch = self.batch(Keep::Small);
        let found = self.look_layered(None, &batch, Alive::No)?;
        // What never had content does not come back, and is told by the snapshot that has it.
        let had_content = |change: &&Change| !matches!(change.after, Some(Kind::Opaque { .. }));
        let changes = delta(&found.manifest, target, Scope::Whole);
        let wrong: Vec<String> = changes
            .iter()
            .filter(had_content)
            .take(MOST_NAMED)
            .map(|change| change.path.to_string())
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let what = format!("roll back {}", wrong.join(", "));
        let why = "the overlay does not show the state of the snapshot under these names";
        Err(Fault::new(Code::WorkspaceDamaged, what, why)
            .help(format!("bastle fork {}", self.run))
            .help(format!("bastle snapshots {}", self.run)))
    }

    fn finish_rollback(&self) -> Result<(), Fault> {
        self.place.durable().remove_file(&self.path("rollback.json"))
    }
}
