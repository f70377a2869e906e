//! Which operations are one exchange: a directory that comes or goes is exchanged with all that is in it.
//!
//! **Trust:** lists the host's directories beneath the root. A directory that holds anything the plan does not name is
//! never moved: it stays, and only the named objects in it go.
use super::journal::Operation;
use crate::beneath::Dir;
use crate::manifest::Kind;
use crate::path::TreePath;
use crate::rooted::Root;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::io;

/// Operations by exchange.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    /// Each with the path that changes first; no path of one lies below a path of another.
    pub(super) groups: Vec<Vec<Operation>>,
    /// Directories that should go and stay, because they hold other files.
    pub(super) kept: Vec<TreePath>,
    /// Directories that should become something else and hold other files, with what is in them.
    pub(super) blocked: Vec<Vec<Operation>>,
}

/// Groups operations as the host tree is now.
pub(super) fn group(root: &Root, mut operations: Vec<Operation>) -> io::Result<Grouped> {
    // By components, not by bytes: only so is everything below a directory in one piece.
    operations.sort_by(|a, b| a.path.components().cmp(b.path.components()));
    let mut grouped = Grouped::default();
    let mut rest = operations.as_slice();
    while let Some(first) = rest.first() {
        let below = rest
            .iter()
            .take_while(|one| one.path.starts_with(&first.path))
            .count();
        let (was, becomes) = (is_dir(first.before.as_ref()), is_dir(first.after.as_ref()));
        let taken = match (was, becomes) {
            (true, true) => 1,
            (false, false) => {
                grouped.groups.push(vec![first.clone()]);
                1
            }
            (false, true) => {
                grouped.groups.push(rest[..below].to_vec());
                below
            }
            (true, false) if holds_only(root, &rest[..below])? => {
                grouped.groups.push(rest[..below].to_vec());
                below
            }
            (true, false) if first.after.is_none() => {
                grouped.kept.push(first.path.clone());
                1
            }
            (true, false) => {
                grouped.blocked.push(rest[..below].to_vec());
                below
            }
        };
        rest = &rest[taken..];
    }
    Ok(grouped)
}

fn is_dir(kind: Option<&Kind>) -> bool {
    matches!(kind, Some(Kind::Dir))
}

/// Whether a directory of the host holds nothing but what is removed with it.
fn holds_only(root: &Root, operations: &[Operation]) -> io::Result<bool> {
    let known: BTreeSet<&TreePath> = operations
        .iter()
        .filter(|one| one.before.is_some())
        .map(|one| &one.path)
        .collect();
    let mut unknown = false;
    walk(root, &operations[0].path, |path, _| {
        unknown |= !known.contains(path);
        !unknown
    })?;
    Ok(!unknown)
}

/// Shows everything below a directory until `each` answers `false`. A directory that is gone has nothing below it.
pub(super) fn walk(
    root: &Root,
    directory: &TreePath,
    mut each: impl FnMut(&TreePath, FileType) -> bool,
) -> io::Result<()> {
    let mut open = vec![directory.clone()];
    while let Some(at) = open.pop() {
        let Some(fd) = root.directory(&at)? else { continue };
        for listed in Dir::from_user(fd).list()? {
            let path = TreePath::join(Some(&at), &listed.name).map_err(io::Error::other)?;
            let kind = match listed.kind {
                FileType::Unknown => root.type_of(&path)?.unwrap_or(FileType::Unknown),
                known => known,
            };
            if !each(&path, kind) {
                return Ok(());
            }
            if kind == FileType::Directory {
                open.push(path);
            }
        }
    }
    Ok(())
}
