//! Names of a project below a layer, from the record that was made with the layer.
//!
//! **Trust:** the record is what the overlay shows when the agent starts: hidden names are marked as gone in the layer, and
//! the repository is the layer's own. Links to the same file elsewhere do not matter: below a layer nothing is written.
use super::{Judged, Scope, Search, View, judge};
use bastle_contract::{AbsPath, Fault};
use bastle_workspace::manifest::Kind;
use bastle_workspace::path::TreePath;
use rustix::fs::FileType;
use std::collections::HashSet;

/// Where in the project the searched tree is, when it is in it: empty for the whole.
pub(super) fn place(search: &Search<'_>) -> Option<String> {
    match search.view {
        View::Layered { project, .. } => search.root.relative_to(project).map(str::to_owned),
        View::Host | View::Copy { .. } => None,
    }
}

/// Whether a directory of the searched tree is the project.
pub(super) fn is_project(search: &Search<'_>, path: &AbsPath) -> bool {
    match search.view {
        View::Layered { project, .. } => path == project,
        View::Host | View::Copy { .. } => false,
    }
}

/// Judges every name below `inner`, a directory of the project; the searched tree knows that one as `relative`.
pub(super) fn names(search: &mut Search<'_>, inner: &str, relative: &str) -> Result<(), Fault> {
    let View::Layered { shown, .. } = search.view else {
        return Ok(());
    };
    // A directory comes before what is in it, though not right before.
    let mut closed: HashSet<TreePath> = HashSet::new();
    for entry in shown.entries() {
        let Some(below) = beneath(inner, entry.path.as_bytes()) else {
            continue;
        };
        let covered = !closed.is_empty() && entry.path.parent().is_some_and(|above| closed.contains(&above));
        let kind = match entry.kind {
            Kind::Dir | Kind::Submodule { .. } => FileType::Directory,
            Kind::Symlink { .. } => FileType::Symlink,
            Kind::File { .. } | Kind::Opaque { .. } => FileType::RegularFile,
        };
        let named = [relative.as_bytes(), below].concat();
        let open = !covered && judge(search, &named, kind, Scope::All)? == Judged::Open;
        if !open && kind == FileType::Directory {
            closed.insert(entry.path.clone());
        }
    }
    Ok(())
}

/// The rest of a path below a directory, which is not among the names in it.
fn beneath<'a>(inner: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    if inner.is_empty() {
        return Some(path);
    }
    path.strip_prefix(inner.as_bytes())?.strip_prefix(b"/")
}
