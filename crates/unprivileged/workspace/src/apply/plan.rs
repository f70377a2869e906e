//! What to do to the host tree: three-way by path, and by line where both sides changed a text.
//!
//! **Trust:** reads the host tree beneath its root without following links; decides, writes nothing.
use super::journal::Operation;
use super::select::{LeftOut, Reason, Selection};
use super::wear;
use crate::attributes::Attributes;
use crate::audit_delta::Change;
use crate::blobs::{Blobs, read_blob};
use crate::diff::{Merged, merge};
use crate::manifest::{Content, Kind, Mode};
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::{Code, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Texts merged; larger ones conflict.
const MAX_MERGED: u64 = 8 << 20;

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
}

impl Plan {
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
    };
    for change in selection.taken() {
        plan.consider(root, change, resolve, blobs)?;
    }
    plan.add_parents(root)?;
    plan.operations.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(plan)
}

impl Plan {
    fn consider(
        &mut self,
        root: &Root,
        change: &Change,
        resolve: Resolve,
        blobs: &dyn Blobs,
    ) -> Result<(), Fault> {
        let (before, after) = (plain(change.before.as_ref()), plain(change.after.as_ref()));
        let host = match root.kind(&change.path) {
            Ok(host) => host,
            // The agent made a directory of a file or link, and the plan does so too: below it is nothing yet.
            Err(error)
                if matches!(error.raw_os_error(), Some(code) if is_blocked(code))
                    && self.makes_parent_of(&change.path) =>
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
        let (Some(Kind::File { mode: ours, .. }), Some(Kind::File { mode: theirs, .. })) =
            (&host, &change.after)
        else {
            let why = match (&host, &change.after) {
                (None, _) => "removed on the host, changed by the agent",
                (_, None) => "changed on the host, removed by the agent",
                (Some(_), Some(_)) => "changed into something else on both sides",
            };
            return self.take_or_conflict(change, host, why, None, resolve);
        };
        let was = match &change.before {
            Some(Kind::File { mode, .. }) => mode.executable,
            None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => {
                false
            }
        };
        // One side changed the bit: that side decides. Both changed it: they agree, a bit has two values.
        let executable = if ours.executable == was {
            theirs.executable
        } else {
            ours.executable
        };
        match three_texts(root, change, blobs)? {
            Some([base, ours, theirs]) => match merge(&base, &ours, &theirs) {
                Merged::Clean(bytes) => {
                    let digest = Content::of(&bytes);
                    let mode = Mode {
                        executable,
                        special: false,
                    };
                    let after = Some(Kind::File {
                        digest,
                        size: bytes.len() as u64,
                        mode,
                        attributes: None,
                    });
                    self.merged.push(change.path.clone());
                    self.made.insert(digest, bytes);
                    self.operations
                        .push(Operation::new(change.path.clone(), host, after));
                    Ok(())
                }
                Merged::Conflict { marked, .. } => self.take_or_conflict(
                    change,
                    host,
                    "the same lines changed on both sides",
                    Some(marked),
                    resolve,
                ),
                Merged::NotText => {
                    self.take_or_conflict(change, host, "changed on both sides and not text", None, resolve)
                }
            },
            None => self.take_or_conflict(
                change,
                host,
                "changed on both sides and too large to merge, or its old content is not kept",
                None,
                resolve,
            ),
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

    /// Directories that the host lacks above what is written, where the selection did not take them.
    fn add_parents(&mut self, root: &Root) -> Result<(), Fault> {
        let known: BTreeSet<TreePath> = self.operations.iter().map(|one| one.path.clone()).collect();
        let mut missing = BTreeSet::new();
        for operation in self.operations.iter().filter(|one| one.after.is_some()) {
            let mut above = operation.path.parent();
            while let Some(directory) = above {
                above = directory.parent();
                if known.contains(&directory) || missing.contains(&directory) {
                    continue;
                }
                match root.kind(&directory) {
                    Ok(None) => {
                        missing.insert(directory);
                    }
                    Ok(Some(_)) => break,
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

/// Base, host and agent texts; `None` when one is too large or the base is not kept.
fn three_texts(root: &Root, change: &Change, blobs: &dyn Blobs) -> Result<Option<[Vec<u8>; 3]>, Fault> {
    let base = match &change.before {
        Some(Kind::File { digest, .. }) => match read_blob(blobs, digest, MAX_MERGED) {
            Ok(Some(bytes)) => bytes,
            // A store that dropped the old content costs the merge, not the apply.
            Ok(None) | Err(_) => return Ok(None),
        },
        None | Some(Kind::Symlink { .. } | Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => {
            Vec::new()
        }
    };
    let Some(Kind::File { digest, .. }) = &change.after else {
        return Ok(None);
    };
    let Some(theirs) = read_blob(blobs, digest, MAX_MERGED)? else {
        return Ok(None);
    };
    let fail = |error: std::io::Error| unreadable(&change.path, &error);
    let Some(place) = root.place(&change.path).map_err(fail)? else {
        return Ok(None);
    };
    let mut ours = Vec::new();
    place
        .open_file()
        .map_err(fail)?
        .take(MAX_MERGED + 1)
        .read_to_end(&mut ours)
        .map_err(fail)?;
    Ok((ours.len() as u64 <= MAX_MERGED).then_some([base, ours, theirs]))
}

fn is_blocked(code: i32) -> bool {
    let errno = rustix::io::Errno::from_raw_os_error(code);
    matches!(
        errno,
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::XDEV
    )
}

fn unreadable(path: &TreePath, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::WorkspaceApply,
        format!("read {path} of the project"),
        error.to_string(),
    )
}
