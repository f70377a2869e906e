//! Journals that cannot be read: what they keep is copied out as it lies there, and a person can set them aside.
//!
//! **Trust:** nothing is guessed about a transaction whose record is damaged: its objects are not put back into a tree, and
//! nothing of them is removed before the run is.
use super::area::SLOTS;
use super::execute::{BACKUP, Target, fault_of};
use super::groups::walk;
use super::stage::copy;
use crate::faults::io_fault;
use crate::path::TreePath;
use crate::rooted::Root;
use bastle_contract::Fault;
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// How the names of staging areas in a project begin.
const AREA_IN_TREE: &str = ".bastle-";

/// Directories of a journal that hold objects of the project, with the names that they get in a copy.
fn keeping(folder: &Path) -> Result<Vec<(String, PathBuf)>, Fault> {
    let listing = std::fs::read_dir(folder).map_err(|error| io_fault("read", folder, error))?;
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|error| io_fault("read", folder, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == SLOTS || name.starts_with(BACKUP) {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Staging areas that lie in the topmost directory of a project. Only a journal says whose they are.
fn areas_in(source: &Path) -> Vec<(String, PathBuf)> {
    let Ok(listing) = std::fs::read_dir(source) else {
        return Vec::new();
    };
    let mut found: Vec<_> = listing
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, path)| is_area(name) && path.symlink_metadata().is_ok_and(|meta| meta.is_dir()))
        .collect();
    found.sort();
    found
}

fn is_area(name: &str) -> bool {
    let rest = name.strip_prefix(AREA_IN_TREE).unwrap_or_default();
    match rest.split_once('-') {
        Some((token, number)) => {
            token.len() == 16
                && token.bytes().all(|byte| byte.is_ascii_hexdigit())
                && number.parse::<usize>().is_ok()
        }
        None => false,
    }
}

/// Every object in such a directory but the subdirectories that hold the slots: parents before what is in them.
fn objects(root: &Root, at: &Path) -> Result<Vec<(TreePath, FileType)>, Fault> {
    let failed = |error| io_fault("read", at, error);
    let own = root.handle().try_clone().map_err(failed)?;
    let mut found = Vec::new();
    for room in crate::beneath::Dir::from_user(own).list().map_err(failed)? {
        let Ok(room) = TreePath::join(None, &room.name) else {
            continue;
        };
        walk(root, &room, |path, kind| {
            found.push((path.clone(), kind));
            true
        })
        .map_err(failed)?;
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The objects that unreadable journals keep, by their paths in the journals. They count as kept nowhere else.
pub(super) fn kept(unreadable: &[PathBuf]) -> Result<Vec<TreePath>, Fault> {
    let mut kept = Vec::new();
    for folder in unreadable {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        for (part, at) in keeping(folder)? {
            let root = Root::open(&at).map_err(|error| io_fault("open", &at, error))?;
            for (path, kind) in objects(&root, &at)? {
                if kind != FileType::Directory
                    && let Ok(path) =
                        TreePath::new([format!("{name}/{part}/").as_bytes(), path.as_bytes()].concat())
                {
                    kept.push(path);
                }
            }
        }
    }
    Ok(kept)
}

/// Copies what unreadable journals keep, each into a directory of its name. Answers what was written.
pub(super) fn extract(
    target: &Target<'_>,
    into: &Path,
    unreadable: &[PathBuf],
) -> Result<Vec<PathBuf>, Fault> {
    let mut written = Vec::new();
    for folder in unreadable {
        let to = into.join(folder.file_name().unwrap_or_default());
        for (part, at) in keeping(folder)? {
            copy_raw(&at, &to.join(part), &mut written)?;
        }
    }
    if !unreadable.is_empty() {
        for (name, at) in areas_in(target.source) {
            copy_raw(&at, &into.join(name), &mut written)?;
        }
    }
    Ok(written)
}

fn copy_raw(from: &Path, into: &Path, written: &mut Vec<PathBuf>) -> Result<(), Fault> {
    let failed = |error| io_fault("write", into, error);
    let source = Root::open(from).map_err(|error| io_fault("open", from, error))?;
    let objects = objects(&source, from)?;
    if objects.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(into).map_err(failed)?;
    let to = Root::open(into).map_err(failed)?;
    for (path, _) in objects {
        // The subdirectories of slots were not copied; those of the project's directories were.
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(into.join(parent.as_path())).map_err(failed)?;
        }
        copy(&source, &path, &to, &path).map_err(|error| fault_of(&path, &error))?;
        written.push(into.join(path.as_path()));
    }
    Ok(())
}
