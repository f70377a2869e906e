//! What to do to the host tree: three-way by path, and by line where both sides changed a text.
//!
//! **Trust:** reads the host tree beneath its root without following links; decides, writes nothing.
use super::both::{Both, both_changed};
use super::groups::group;
use super::journal::Operation;
use super::select::{LeftOut, Reason, Selection};
use super::wear;
use crate::attributes::Attributes;
use crate::audit_delta::Change;
use crate::blobs::Blobs;
use crate::crew::by_piece;
use crate::manifest::{Content, Kind, Mode};
use crate::path::TreePath;
use crate::rooted::{Root, is_no_directory};
use bastle_contract::{Code, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// What to do where both sides changed and lines do not merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// Write nothing at all.
    Refuse,
    /// Keep the host's version of those paths.
    Ours,
    /// Take the agent's version of those paths.
    Theirs,
}

/// A path on which host and agent disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub path: TreePath,
    /// Why, for people.
    pub why: &'static str,
    /// Both versions between markers, where both are text.
    pub marked: Option<Vec<u8>>,
}

/// All that will be done. Made only by [`plan`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Plan {
    pub(super) operations: Vec<Operation>,
    pub(super) made: BTreeMap<Content, Vec<u8>>,
    conflicts: Vec<Conflict>,
    left_out: Vec<LeftOut>,
    merged: Vec<TreePath>,
    already: Vec<TreePath>,
    bare: Vec<TreePath>,
    groups: Vec<Vec<Operation>>,
    kept: Vec<TreePath>,
}

impl Plan {
    /// Operations by exchange of names.
    pub(super) fn groups(&self) -> &[Vec<Operation>] {
        &self.groups
    }

    /// Directories that the agent removed and that stay, because they hold files that the agent never saw.
    #[must_use]
    pub fn kept(&self) -> &[TreePath] {
        &self.kept
    }

    /// Paths whose new attributes the project's file system cannot hold; the files come without them.
    #[must_use]
    pub fn without_attributes(&self) -> &[TreePath] {
        &self.bare
    }

    /// Paths that keep the plan from being carried out.
    #[must_use]
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Changes that stay where they are.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Paths whose text is a merge of both sides.
    #[must_use]
    pub fn merged(&self) -> &[TreePath] {
        &self.merged
    }

    /// Paths that the host has already as the agent left them.
    #[must_use]
    pub fn already(&self) -> &[TreePath] {
        &self.already
    }

    /// What will be written and removed.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The conflicts as one message.
    #[must_use]
    pub fn conflict_fault(&self) -> Option<Fault> {
        if self.conflicts.is_empty() {
            return None;
        }
        let listed: Vec<String> = self
            .conflicts
            .iter()
            .take(20)
            .map(|one| format!("{} ({})", one.path, one.why))
            .collect();
        let more = self.conflicts.len().saturating_sub(20);
        let tail = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Some(
            Fault::new(Code::WorkspaceConflict, "apply to the project", format!("{}{tail}", listed.join("; ")))
                .help("bastle apply --theirs takes the agent's versions, --ours keeps yours, --branch NAME leaves the tree alone"),
        )
    }
}

/// Compares the selection with the host tree as it is now.
///
/// # Errors
/// When the host tree or a content cannot be read.
pub fn plan(root: &Root, selection: &Selection, resolve: Resolve, blobs: &dyn Blobs) -> Result<Plan, Fault> {
    let mut plan = Plan {
        operations: Vec::new(),
        made: BTreeMap::new(),
        conflicts: Vec::new(),
        left_out: selection.left_out().to_vec(),
        merged: Vec::new(),
        already: Vec::new(),
        bare: Vec::new(),
        groups: Vec::new(),
        kept: Vec::new(),
    };
    let hosts = by_piece(selection.taken(), |piece| {
        let root = nearby(root)?;
        Ok(piece.iter().map(|change| root.kind(&change.path)).collect())
    })?;
    for (change, host) in selection.taken().iter().zip(hosts) {
        plan.consider(root, (change, host), resolve, blobs)?;
    }
    plan.add_parents(root)?;
    plan.group(root, resolve)?;
    Ok(plan)
}

impl Plan {
    fn consider(
        &mut self,
        root: &Root,
        (change, host): (&Change, io::Result<Option<Kind>>),
        resolve: Resolve,
        blobs: &dyn Blobs,
    ) -> Result<(), Fault> {
        let (before, after) = (plain(change.before.as_ref()), plain(change.after.as_ref()));
        let host = match host {
            Ok(host) => host,
            // What the agent removed is not there either where a file or link has taken the place of its directory.
            Err(error) if after.is_none() && is_no_directory(&error) => None,
            // The agent made a directory of a file or link, and the plan does so too: below it is nothing yet.
            Err(error)
                if matches!(error.raw_os_error(), Some(code) if is_blocked(code))
                    && self.makes_parent_of(&change.path) =>
            {
                None
            }
            // What the agent removed cannot be below a file or a link either.
            Err(error)
                if matches!(error.raw_os_error(), Some(code) if is_blocked(code)) && after.is_none() =>
            {
                None
            }
            Err(error) if matches!(error.raw_os_error(), Some(code) if is_blocked(code)) => {
                self.conflict(
                    change,
                    "a directory above it is a file or a link on the host",
                    None,
                    resolve,
                );
                return Ok(());
            }
            Err(error) => return Err(unreadable(&change.path, &error)),
        };
        let had = host.clone();
        let host = plain(host.as_ref());
        if host == after {
            let same = self.dressed(root, change, had.as_ref(), after, blobs)?;
            if same == had {
                self.already.push(change.path.clone());
            } else {
                self.operations
                    .push(Operation::new(change.path.clone(), had, same));
            }
            return Ok(());
        }
        let planned = self.operations.len();
        if host == before {
            self.operations
                .push(Operation::new(change.path.clone(), host, after));
        } else {
            self.reconcile(root, change, host, resolve, blobs)?;
        }
        // What is decided by content gets its attributes: those of the host's file, with the agent's changes to them.
        for at in planned..self.operations.len() {
            let after = self.operations[at].after.take();
            let after = self.dressed(root, change, had.as_ref(), after, blobs)?;
            self.operations[at].after = after;
            self.operations[at].before.clone_from(&had);
        }
        if self.operations.len() > planned && self.operations[planned].after == had {
            // The host has the agent's changes among its own.
            self.operations.truncate(planned);
            self.merged.retain(|path| path != &change.path);
            self.already.push(change.path.clone());
        }
        Ok(())
    }

    /// A file with the attributes that it gets. Those of the agent that the project's file system cannot hold stay out.
    fn dressed(
        &mut self,
        root: &Root,
        change: &Change,
        host: Option<&Kind>,
        after: Option<Kind>,
        blobs: &dyn Blobs,
    ) -> Result<Option<Kind>, Fault> {
        let Some(Kind::File {
            digest, size, mode, ..
        }) = after
        else {
            return Ok(after);
        };
        let set = wear::attributes(root, change, host, blobs)?;
        if set.dropped {
            self.bare.push(change.path.clone());
        }
        let attributes = set.attributes.as_ref().map(Attributes::id);
        if let Some(set) = set.attributes {
            self.made.insert(set.id(), set.encode());
        }
        Ok(Some(Kind::File {
            digest,
            size,
            mode,
            attributes,
        }))
    }

    fn makes_parent_of(&self, path: &TreePath) -> bool {
        let made = |one: &Operation| one.after == Some(Kind::Dir) && one.before.is_some();
        self.operations
            .iter()
            .any(|one| made(one) && path != &one.path && path.starts_with(&one.path))
    }

    /// The host's version is neither the old nor the new one.
    fn reconcile(
        &mut self,
        root: &Root,
        change: &Change,
        host: Option<Kind>,
        resolve: Resolve,
        blobs: &dyn Blobs,
    ) -> Result<(), Fault> {
        let (Some(ours @ Kind::File { .. }), Some(theirs @ Kind::File { .. })) = (&host, &change.after)
        else {
            let why = match (&host, &change.after) {
                (None, _) => "removed on the host, changed by the agent",
                (_, None) => "changed on the host, removed by the agent",
                (Some(_), Some(_)) => "changed into something else on both sides",
            };
            return self.take_or_conflict(change, host, why, None, resolve);
        };
        match both_changed(root, change, (ours, theirs), blobs)? {
            Both::Fit(after, made) => {
                self.merged.push(change.path.clone());
                self.made.extend(made);
                self.operations
                    .push(Operation::new(change.path.clone(), host, Some(after)));
                Ok(())
            }
            Both::Conflict { why, marked } => self.take_or_conflict(change, host, why, marked, resolve),
        }
    }

    fn take_or_conflict(
        &mut self,
        change: &Change,
        host: Option<Kind>,
        why: &'static str,
        marked: Option<Vec<u8>>,
        resolve: Resolve,
    ) -> Result<(), Fault> {
        // Replacing a directory of the host's would remove files that nobody looked at.
        let replaceable = !matches!(
            host,
            Some(Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. })
        );
        if resolve == Resolve::Theirs && replaceable {
            self.operations.push(Operation::new(
                change.path.clone(),
                host,
                plain(change.after.as_ref()),
            ));
        } else {
            self.conflict(change, why, marked, resolve);
        }
        Ok(())
    }

    fn conflict(&mut self, change: &Change, why: &'static str, marked: Option<Vec<u8>>, resolve: Resolve) {
        let path = change.path.clone();
        match resolve {
            Resolve::Ours => self.left_out.push(LeftOut {
                path,
                reason: Reason::KeptOurs,
            }),
            Resolve::Refuse | Resolve::Theirs => self.conflicts.push(Conflict { path, why, marked }),
        }
    }

    /// Decides which objects change places as one, and which directories have to stay for what else is in them.
    fn group(&mut self, root: &Root, resolve: Resolve) -> Result<(), Fault> {
        let operations = std::mem::take(&mut self.operations);
        let what = "list the directories of the project";
        let grouped = group(root, operations)
            .map_err(|error| Fault::new(Code::WorkspaceApply, what, error.to_string()))?;
        for blocked in grouped.blocked {
            let path = blocked[0].path.clone();
            let why = "the directory holds other files on the host, and became something else";
            match resolve {
                Resolve::Ours => self.left_out.extend(blocked.into_iter().map(|one| LeftOut {
                    path: one.path,
                    reason: Reason::KeptOurs,
                })),
                Resolve::Refuse | Resolve::Theirs => self.conflicts.push(Conflict {
                    path,
                    why,
                    marked: None,
                }),
            }
        }
        self.kept = grouped.kept;
        self.operations = grouped.groups.iter().flatten().cloned().collect();
        self.groups = grouped.groups;
        Ok(())
    }

    /// Directories that the host lacks above what is written, where the selection did not take them.
    fn add_parents(&mut self, root: &Root) -> Result<(), Fault> {
        let known: BTreeSet<TreePath> = self.operations.iter().map(|one| one.path.clone()).collect();
        let mut missing = BTreeSet::new();
        let mut there = BTreeSet::new();
        for operation in self.operations.iter().filter(|one| one.after.is_some()) {
            let mut above = operation.path.parent();
            while let Some(directory) = above {
                above = directory.parent();
                if there.contains(&directory) {
                    break;
                }
                if known.contains(&directory) || missing.contains(&directory) {
                    continue;
                }
                match root.kind(&directory) {
                    Ok(None) => {
                        missing.insert(directory);
                    }
                    Ok(Some(_)) => {
                        there.insert(directory);
                        break;
                    }
                    Err(error) => return Err(unreadable(&directory, &error)),
                }
            }
        }
        self.operations.extend(
            missing
                .into_iter()
                .map(|path| Operation::new(path, None, Some(Kind::Dir))),
        );
        Ok(())
    }
}

fn nearby(root: &Root) -> Result<Root, Fault> {
    root.nearby()
        .map_err(|error| Fault::new(Code::WorkspaceApply, "read the project", error.to_string()))
}

/// A kind as apply compares it: special bits never travel, and attributes are decided on their own.
fn plain(kind: Option<&Kind>) -> Option<Kind> {
    kind.map(|kind| match kind {
        Kind::File {
            digest,
            size,
            mode,
            attributes: _,
        } => Kind::File {
            digest: *digest,
            size: *size,
            mode: Mode {
                executable: mode.executable,
                special: false,
            },
            attributes: None,
        },
        Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => kind.clone(),
    })
}

fn is_blocked(code: i32) -> bool {
    let errno = rustix::io::Errno::from_raw_os_error(code);
    matches!(
        errno,
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::XDEV
    )
}

pub(super) fn unreadable(path: &TreePath, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::WorkspaceApply,
        format!("read {path} of the project"),
        error.to_string(),
    )
}
