//! A copy that copies nothing: the host's tree read-only below, the agent's changes in a layer above.
//!
//! **Trust:** names that a copy would not have are marked as gone in the layer before the agent sees it, so that
//! neither side of the overlay shows them; the repository is the layer's own and shows nothing of the host's.
mod drift;
mod look;
pub(crate) mod marks;
mod merge;

pub use drift::Current;

use crate::beneath::Dir;
use crate::copy::Copied;
use crate::faults::io_fault;
use crate::finding::Finding;
use crate::manifest::{Manifest, decode, encode};
use crate::meta::{Meta, WorkMode};
use crate::path::TreePath;
use crate::restore::sweep;
use crate::scan::{Known, Scan, scan};
use crate::seen::{Alive, SeenList};
use crate::store::{Batch, Keep};
use crate::workspace::{CreateRequest, Fresh, Made, Workspace};
use bastle_contract::Fault;
use std::borrow::Cow;
use std::fs;
use std::path::Path;

/// The directory of a run that has `upper` and `work`.
pub(crate) const LAYER: &str = "layer";
pub(crate) const UPPER: &str = "layer/upper";
const WORK: &str = "layer/work";
/// What the source looked like to the last run of any kind. Numbered: what an older look left out, a new one must not
/// take for absent.
const LAST_LOOK: (&str, &str) = ("source-2.seen", "source-2.manifest");

/// The directories that a run of this mode has besides those that all have.
pub(crate) fn directories(mode: WorkMode) -> &'static [&'static str] {
    match mode {
        WorkMode::Overlay => &[LAYER, UPPER, WORK],
        WorkMode::Copy | WorkMode::Worktree | WorkMode::InPlace => &["tree"],
    }
}

impl Workspace {
    pub(crate) fn is_layered(&self) -> bool {
        self.mode == WorkMode::Overlay
    }

    /// Makes the layer.
    pub(crate) fn lay(&self, from: &Dir, meta: Meta, request: CreateRequest<'_>) -> Result<Manifest, Fault> {
        let upper = self.open_tree()?;
        let last = self.last_look();
        let found = look::look(
            from,
            &self.source,
            request.hidden,
            last.as_ref(),
            request.progress,
        )?;
        if last.is_none_or(|(_, seen)| seen != found.source) {
            self.remember(&found)?;
        }
        let absent: Vec<TreePath> = found
            .findings
            .iter()
            .filter_map(Finding::absent)
            .cloned()
            .collect();
        for path in &absent {
            self.mark_gone(&upper, from, path)?;
        }
        let git = (request.git)(&Fresh {
            source: &self.source,
            tree: &self.tree(),
            scratch: &self.path("tmp"),
            absent: &absent,
        })?;
        sweep(&self.path("tmp"))?;
        self.cover_repository(&upper, from)?;
        let _shared = self.store.lock_shared()?;
        let batch = self.batch(Keep::Small);
        batch.take_all(&found.attributes)?;
        let top = scan(&upper, &self.tree(), None, &batch, Alive::No)?;
        let below = merge::Below {
            root: from,
            base: &found.manifest,
            seen: Some(&found.source),
        };
        // What lies below was looked at a moment ago: nothing of it can have been changed since the run began.
        let scan = merge::merge(&upper, top, &below, merge::Drift::None, &self.tree())?;
        let source = Some(aligned(&scan, &found));
        self.finish(
            meta,
            batch,
            Made {
                scan,
                source,
                findings: found.findings,
                git,
            },
        )
    }

    fn mark_gone(&self, upper: &Dir, lower: &Dir, path: &TreePath) -> Result<(), Fault> {
        let made = marks::open_or_make(upper, lower, path.parent().as_ref())
            .and_then(|dir| marks::make_whiteout(&dir, path.name()));
        made.map_err(|e| io_fault("hide", &self.source.join(path.as_path()), e))
    }

    /// The host's repository is seen in no part, whether or not the layer has one of its own.
    fn cover_repository(&self, upper: &Dir, lower: &Dir) -> Result<(), Fault> {
        let failed = |e| io_fault("cover", &self.source.join(".git"), e);
        let name = TreePath::new(".git").map_err(|e| crate::faults::damaged(&self.source, e))?;
        match upper.beneath(Some(&name)) {
            Ok(own) => marks::make_opaque(&own).map_err(failed),
            Err(_) if lower.stat(name.name()).is_ok() => {
                marks::make_whiteout(upper, name.name()).map_err(failed)
            }
            Err(_) => Ok(()),
        }
    }

    /// What the overlay shows.
    pub(crate) fn look_layered(
        &self,
        known: Option<Known<'_>>,
        batch: &Batch<'_>,
        alive: Alive,
    ) -> Result<Scan, Fault> {
        let upper = self.open_tree()?;
        let top = scan(&upper, &self.tree(), known, batch, alive)?;
        let lower = Dir::open(&self.source).map_err(|e| io_fault("open", &self.source, e))?;
        let id = self.base_id()?;
        // Where nothing has changed yet, the last look is the base.
        let base = match known {
            Some(known) if known.seen.manifest == id => Cow::Borrowed(known.manifest),
            Some(_) | None => Cow::Owned(self.store.manifest(&id)?),
        };
        let seen = self.source_seen(&base);
        let below = merge::Below {
            root: &lower,
            base: &base,
            seen: seen.as_ref(),
        };
        merge::merge(&upper, top, &below, merge::Drift::Told, &self.tree())
    }

    /// What the files of the project looked like when the run began; none where that was lost.
    fn source_seen(&self, base: &Manifest) -> Option<SeenList> {
        let list = SeenList::decode(&fs::read(self.path("source.seen")).ok()?)?;
        (list.seen.len() == base.entries().len()).then_some(list)
    }

    fn last_look(&self) -> Option<(Manifest, SeenList)> {
        let (seen, manifest) = LAST_LOOK;
        let list = SeenList::decode(&fs::read(self.store.root().join(seen)).ok()?)?;
        let manifest = decode(&fs::read(self.store.root().join(manifest)).ok()?).ok()?;
        let whole = manifest.id() == list.manifest && manifest.entries().len() == list.seen.len();
        whole.then_some((manifest, list))
    }

    /// So that the next run on this source reads only what has changed.
    pub(crate) fn remember(&self, found: &Copied) -> Result<(), Fault> {
        let (seen, manifest) = LAST_LOOK;
        let durable = self.place.durable();
        let write = |name: &str, bytes: &[u8]| {
            cache(durable, &self.path("tmp"), &self.store.root().join(name), bytes)
        };
        write(manifest, &encode(&found.manifest))?;
        write(seen, &found.source.encode())
    }
}

/// Several runs may write it at once: each its own file, and the last one stays.
fn cache(durable: &crate::durable::Durable, own: &Path, to: &Path, bytes: &[u8]) -> Result<(), Fault> {
    let beside = own.join("last-look");
    durable.write_new(&beside, bytes)?;
    fs::rename(&beside, to).map_err(|e| io_fault("rename to", to, e))
}

/// What the lower files looked like, in the order of the whole.
fn aligned(whole: &Scan, found: &Copied) -> SeenList {
    let look = |path: &TreePath| *found.source.seen.get(found.manifest.position(path)?)?;
    SeenList {
        manifest: whole.seen.manifest,
        seen: whole
            .manifest
            .entries()
            .iter()
            .map(|entry| look(&entry.path))
            .collect(),
    }
}
