//! What differs between two manifests: the file-operation statement of a run, and the ground of every diff.
//!
//! **Trust:** pure; compares checked manifests only.
use crate::manifest::{Entry, Kind, Manifest};
use crate::path::TreePath;
use serde::Serialize;
use std::cmp::Ordering;

/// One name that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where.
    pub path: TreePath,
    /// What stood there before; `None` when created.
    pub before: Option<Kind>,
    /// What stands there after; `None` when deleted.
    pub after: Option<Kind>,
}

/// The sort of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// New name.
    Created,
    /// Same name, other kind, content, mode or target.
    Changed,
    /// Name gone.
    Deleted,
}

/// Which part of a tree is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything, the copy's own `.git` included.
    Whole,
    /// What a reviewer sees: without the `.git` at the root.
    Work,
}

impl Change {
    /// Created, changed or deleted.
    #[must_use]
    pub fn sort(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Created,
            (Some(_), None) => ChangeKind::Deleted,
            (Some(_), Some(_)) => ChangeKind::Changed,
        }
    }
}

/// All differences, in the order of the paths.
#[must_use]
pub fn delta(before: &Manifest, after: &Manifest, scope: Scope) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut old = before.entries().iter().peekable();
    let mut new = after.entries().iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.path.cmp(&b.path),
        };
        let (a, b) = match order {
            Ordering::Less => (old.next(), None),
            Ordering::Greater => (None, new.next()),
            Ordering::Equal => (old.next(), new.next()),
        };
        changes.extend(change(a, b, scope));
    }
    changes
}

fn change(before: Option<&Entry>, after: Option<&Entry>, scope: Scope) -> Option<Change> {
    let path = &before.or(after)?.path;
    let unchanged = before.map(|e| &e.kind) == after.map(|e| &e.kind);
    if unchanged || (scope == Scope::Work && path.in_git()) {
        return None;
    }
    Some(Change {
        path: path.clone(),
        before: before.map(|e| e.kind.clone()),
        after: after.map(|e| e.kind.clone()),
    })
}
