//! Which changed paths the project's own ignore files name: build output that nobody reviews.
//!
//! **Trust:** ignore files are text that git parses; they are given to it in an empty work tree of ours, so it
//! never walks a tree that the agent wrote. A path ignored by the old or the new rules stays out, but for files that the
//! project tracked before the agent came: git itself never ignores those.
use super::{Call, HostGit, Scratch, unusable};
use crate::blobs::{Blobs, read_blob};
use crate::manifest::{Entry, Kind, Manifest};
use crate::path::TreePath;
use bastle_contract::Fault;
use std::collections::BTreeSet;
use std::path::Path;

/// An ignore file is written by people; the largest public templates have 20 KiB.
const MAX_IGNORE_FILE: u64 = 1 << 20;
/// 100 bytes per tracked file, two million files.
const MAX_INDEX: u64 = 256 << 20;
/// Ignore files used from one tree; more are not a project's own.
const MAX_IGNORE_FILES: usize = 5_000;

/// The paths among `asked` that the ignore files of one of the manifests name and the first manifest, the base, does
/// not track.
///
/// # Errors
/// When git fails or the scratch directory cannot be written.
pub fn ignored_paths(
    git: &HostGit,
    scratch: &Scratch,
    exclude: Option<&Path>,
    manifests: &[&Manifest],
    blobs: &dyn Blobs,
    asked: &[&TreePath],
) -> Result<BTreeSet<TreePath>, Fault> {
    let mut found = BTreeSet::new();
    if asked.is_empty() {
        return Ok(found);
    }
    let fail = |error: std::io::Error| unusable(scratch.path(), error.to_string());
    if let Some(exclude) = exclude.filter(|path| path.is_file()) {
        let bytes = crate::rooted::read_small(exclude, MAX_IGNORE_FILE).map_err(fail)?;
        std::fs::write(scratch.path().join("info/exclude"), bytes).map_err(fail)?;
    }
    let mut input = Vec::new();
    for path in asked {
        // A name that starts with `:` would be a pattern to git; behind `./` it is a name.
        input.extend_from_slice(b"./");
        input.extend_from_slice(path.as_bytes());
        input.push(0);
    }
    let mut done: Vec<Vec<&Entry>> = Vec::new();
    for (number, manifest) in manifests.iter().enumerate() {
        let rules: Vec<&Entry> = ignore_files(manifest).collect();
        if done.contains(&rules) {
            continue;
        }
        done.push(rules);
        let tree = scratch.path().join(format!("ignore-{number}"));
        lay_out(&tree, manifest, blobs)?;
        let listed = git.run(
            scratch,
            Call {
                arguments: vec![
                    "-c",
                    "core.bare=false",
                    "check-ignore",
                    "--no-index",
                    "-z",
                    "--stdin",
                ],
                input: input.clone(),
                variables: vec![("GIT_WORK_TREE", tree.clone())],
                directory: Some(tree),
                // 1: none is ignored.
                answers: &[1],
                ..Call::default()
            },
        )?;
        let names = listed
            .split(|byte| *byte == 0)
            .filter_map(|name| name.strip_prefix(b"./"));
        found.extend(names.filter_map(|name| TreePath::new(name).ok()));
    }
    if !found.is_empty()
        && let Some(base) = manifests.first()
    {
        let tracked = tracked(git, scratch, base, blobs)?;
        found.retain(|path| !tracked.contains(path));
    }
    Ok(found)
}

/// What the index of the base names. Only the base's: bastle wrote it before the agent came.
fn tracked(
    git: &HostGit,
    scratch: &Scratch,
    base: &Manifest,
    blobs: &dyn Blobs,
) -> Result<BTreeSet<TreePath>, Fault> {
    let fail = |error: std::io::Error| unusable(scratch.path(), error.to_string());
    let index = scratch.path().join("index");
    let mut there = false;
    for entry in base.entries().iter().filter(|entry| entry.path.in_git()) {
        // A split index has its larger half in a file of its own.
        let name = entry.path.name();
        let wanted = name == b"index" || name.starts_with(b"sharedindex.");
        let (Kind::File { digest, .. }, true) = (&entry.kind, wanted && entry.path.depth() == 2) else {
            continue;
        };
        let Some(bytes) = read_blob(blobs, digest, MAX_INDEX)? else {
            return Err(unusable(scratch.path(), "its index is larger than any"));
        };
        let to = match std::str::from_utf8(name) {
            Ok(name) => scratch.path().join(name),
            Err(_) => continue,
        };
        there |= to == index;
        std::fs::write(to, bytes).map_err(fail)?;
    }
    if !there {
        return Ok(BTreeSet::new());
    }
    let listed = git.run(
        scratch,
        Call {
            arguments: vec!["ls-files", "--cached", "-z"],
            variables: vec![("GIT_INDEX_FILE", index)],
            ..Call::default()
        },
    )?;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| TreePath::new(name).ok()).collect())
}

fn ignore_files(manifest: &Manifest) -> impl Iterator<Item = &Entry> {
    let files = manifest
        .entries()
        .iter()
        .filter(|entry| entry.path.name() == b".gitignore" && !entry.path.in_git());
    files.take(MAX_IGNORE_FILES)
}

/// Writes the ignore files of a manifest, and nothing else of it, into a fresh directory.
fn lay_out(tree: &Path, manifest: &Manifest, blobs: &dyn Blobs) -> Result<(), Fault> {
    let fail = |error: std::io::Error| unusable(tree, error.to_string());
    std::fs::create_dir(tree).map_err(fail)?;
    for entry in ignore_files(manifest) {
        let Kind::File { digest, .. } = &entry.kind else {
            continue;
        };
        let Some(bytes) = read_blob(blobs, digest, MAX_IGNORE_FILE)? else {
            continue;
        };
        let path = tree.join(entry.path.as_path());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(fail)?;
        }
        std::fs::write(path, bytes).map_err(fail)?;
    }
    Ok(())
}
