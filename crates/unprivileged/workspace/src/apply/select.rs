//! Which changes a person takes: named, approved, and not ignored.
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::diff::{Patch, diff, exact_patch};
use crate::gate::{Approvals, Assessed, Tier, set_hash};
use crate::manifest::{Content, Kind};
use crate::path::TreePath;
use bastle_contract::Fault;
use serde::Serialize;

/// Why a change stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// Paths were named, and it is not among them.
    NotNamed,
    /// The project's ignore files name it.
    Ignored,
    /// Its content is not approved.
    NeedsApproval {
        /// What approves it.
        approval: Content,
    },
    /// It is never taken.
    Refused,
    /// The host's version was chosen.
    KeptOurs,
}

/// A change that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Where.
    pub path: TreePath,
    /// Why.
    #[serde(flatten)]
    pub reason: Reason,
}

/// The answer of [`select`]; the only source of a plan, a commit or a patch.
#[derive(Clone, Debug)]
#[must_use]
pub struct Selection {
    taken: Vec<Change>,
    left_out: Vec<LeftOut>,
}

/// Chooses the changes to take. With `paths`, only those and what lies below them; a path named exactly, or a
/// directory above it, takes ignored ones too.
pub fn select(assessed: &[Assessed], approvals: &Approvals, paths: &[TreePath]) -> Selection {
    let mut selection = Selection {
        taken: Vec::new(),
        left_out: Vec::new(),
    };
    let named = |change: &Assessed| paths.iter().any(|path| change.change.path.starts_with(path));
    let wanted: Vec<Assessed> = assessed
        .iter()
        .filter(|one| {
            if paths.is_empty() {
                !one.ignored
            } else {
                named(one)
            }
        })
        .cloned()
        .collect();
    // The hash of the set is that of what is asked for, so that it can be approved without what is not.
    let (all, asked) = (set_hash(assessed), set_hash(&wanted));
    for one in assessed {
        let reason = if !paths.is_empty() && !named(one) {
            Reason::NotNamed
        } else if one.ignored && paths.is_empty() {
            Reason::Ignored
        } else if one.tier() == Tier::Refuse {
            Reason::Refused
        } else if approvals.allow(one, &all) || approvals.allow(one, &asked) {
            selection.taken.push(one.change.clone());
            continue;
        } else {
            Reason::NeedsApproval {
                approval: one.approval,
            }
        };
        selection.left_out.push(LeftOut {
            path: one.change.path.clone(),
            reason,
        });
    }
    selection
}

impl Selection {
    /// What is taken.
    #[must_use]
    pub fn taken(&self) -> &[Change] {
        &self.taken
    }

    /// What is not.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// For a commit: each path with what it becomes.
    #[must_use]
    pub fn files(&self) -> Vec<(TreePath, Option<Kind>)> {
        // A directory that became a file has its old files removed by changes of their own.
        let is_directory = |change: &Change| {
            matches!(
                (&change.before, &change.after),
                (Some(Kind::Dir), None) | (None | Some(Kind::Dir), Some(Kind::Dir))
            )
        };
        let files = self.taken.iter().filter(|change| !is_directory(change));
        files
            .map(|change| {
                let after = change.after.clone().filter(|kind| !matches!(kind, Kind::Dir));
                (change.path.clone(), after)
            })
            .collect()
    }

    /// As a patch in git's format.
    ///
    /// # Errors
    /// When a content cannot be read.
    pub fn patch(&self, blobs: &dyn Blobs) -> Result<Patch, Fault> {
        let diffs = self
            .taken
            .iter()
            .map(|change| diff(change, blobs))
            .collect::<Result<Vec<_>, _>>()?;
        exact_patch(&diffs, blobs)
    }
}
