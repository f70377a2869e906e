//! Files of the project that were changed below an overlay after the run began, where nobody kept their first content.
//!
//! **Trust:** the project is the user's own. What is taken in place of a lost content is read through descriptors and kept
//! by its digest, so that what is shown and what is written later are the same bytes.
use super::merge::{Below, drifted};
use crate::attributes::{self, Has};
use crate::beneath::Dir;
use crate::faults::{damaged, io_fault};
use crate::manifest::{Entry, Kind, Manifest, Mode};
use crate::path::TreePath;
use crate::scan::length;
use crate::store::{Batch, Keep};
use crate::workspace::Workspace;
use bastle_contract::Fault;
use std::collections::BTreeMap;
use std::path::Path;

/// A tree of which every content can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// The tree.
    pub manifest: Manifest,
    /// What stands under the names that were changed in the project: none where the name is gone.
    replaced: BTreeMap<TreePath, Option<Kind>>,
}

impl Current {
    /// The files that have the project's content of now, or are missing because the project has them no more.
    #[must_use]
    pub fn paths(&self) -> Vec<TreePath> {
        self.replaced.keys().cloned().collect()
    }

    /// Puts the same files into another tree, where it has them as `target` had them.
    pub(crate) fn carry_into(&self, other: &Manifest, target: &Manifest) -> Result<Manifest, Fault> {
        replace(other, &self.replaced, |entry| {
            target.get(&entry.path) == Some(&entry.kind)
        })
    }
}

impl Workspace {
    /// A tree of this run in which files that the agent left alone, whose content was changed in the project and is kept
    /// nowhere, are what the project has now. The overlay shows them to the agent in the same way.
    ///
    /// # Errors
    /// When the project or the record of the base cannot be read.
    pub fn with_project_of_now(&self, target: Manifest) -> Result<Current, Fault> {
        if !self.is_layered() {
            let replaced = BTreeMap::new();
            return Ok(Current {
                manifest: target,
                replaced,
            });
        }
        let _held = self.hold()?;
        let _shared = self.store.lock_shared()?;
        let root = Dir::open(&self.source).map_err(|e| io_fault("open", &self.source, e))?;
        let base = self.base()?;
        let seen = self.source_seen(&base);
        let below = Below {
            root: &root,
            base: &base,
            seen: seen.as_ref(),
        };
        let lost = |entry: &Entry| match &entry.kind {
            Kind::File { digest, .. } => !self.store.has(digest),
            Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => false,
        };
        let open: Vec<(usize, &Entry)> = base
            .entries()
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.path.in_git() && target.get(&entry.path) == Some(&entry.kind))
            .filter(|(_, entry)| lost(entry))
            .collect();
        let batch = self.batch(Keep::All);
        let mut replaced = BTreeMap::new();
        for finding in drifted(&below, &open)? {
            let now = self.file_of_now(&root, &finding.path, &batch)?;
            replaced.insert(finding.path, now);
        }
        batch.commit()?;
        let manifest = replace(&target, &replaced, |_| true)?;
        Ok(Current { manifest, replaced })
    }

    /// `None` where the project has no readable regular file of that name.
    fn file_of_now(&self, root: &Dir, path: &TreePath, batch: &Batch<'_>) -> Result<Option<Kind>, Fault> {
        let opened = root
            .beneath(path.parent().as_ref())
            .and_then(|dir| dir.open_regular(path.name()));
        let Ok((file, stat)) = opened else {
            return Ok(None);
        };
        let failed = |e| io_fault("read", &self.source.join(path.as_path()), e);
        let (digest, size) = batch
            .take(&file, length(&stat), &mut Vec::new())
            .map_err(failed)?;
        let attributes = match attributes::of(&file).map_err(failed)? {
            Has::These(set) => Some(batch.take_bytes(&set.encode()).map_err(failed)?),
            Has::Nothing | Has::TooMuch => None,
        };
        Ok(Some(Kind::File {
            digest,
            size,
            mode: Mode {
                special: false,
                ..Mode::from_bits(stat.st_mode)
            },
            attributes,
        }))
    }
}

fn replace(
    tree: &Manifest,
    replaced: &BTreeMap<TreePath, Option<Kind>>,
    wanted: impl Fn(&Entry) -> bool,
) -> Result<Manifest, Fault> {
    if replaced.is_empty() {
        return Ok(tree.clone());
    }
    let of = |entry: &Entry| match replaced.get(&entry.path).filter(|_| wanted(entry)) {
        Some(kind) => kind.clone().map(|kind| Entry {
            path: entry.path.clone(),
            kind,
        }),
        None => Some(entry.clone()),
    };
    let entries = tree.entries().iter().filter_map(of).collect();
    let first = replaced
        .keys()
        .next()
        .map(ToString::to_string)
        .unwrap_or_default();
    Manifest::new(entries).map_err(|error| damaged(Path::new(&first), error))
}
