//! Which changed paths the project's own ignore files name: build output that nobody reviews.
//!
//! **Trust:** ignore files are text that git parses; they are given to it in an empty work tree of ours, so it
//! never walks a tree that the agent wrote. A path ignored by the old or the new rules stays out.
use super::{Call, HostGit, Scratch, unusable};
use crate::blobs::{Blobs, read_blob};
use crate::manifest::{Kind, Manifest};
use crate::path::TreePath;
use bastle_contract::Fault;
use std::collections::BTreeSet;
use std::path::Path;

/// An ignore file is written by people; the largest public templates have 20 KiB.
const MAX_IGNORE_FILE: u64 = 1 << 20;
/// Ignore files used from one tree; more are not a project's own.
const MAX_IGNORE_FILES: usize = 5_000;

/// The paths among `asked` that the ignore files of one of the manifests name.
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
    for (number, manifest) in manifests.iter().enumerate() {
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
    Ok(found)
}

/// Writes the ignore files of a manifest, and nothing else of it, into a fresh directory.
fn lay_out(tree: &Path, manifest: &Manifest, blobs: &dyn Blobs) -> Result<(), Fault> {
    let fail = |error: std::io::Error| unusable(tree, error.to_string());
    std::fs::create_dir(tree).map_err(fail)?;
    let files = manifest
        .entries()
        .iter()
        .filter(|entry| entry.path.name() == b".gitignore" && !entry.path.in_git());
    for entry in files.take(MAX_IGNORE_FILES) {
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
