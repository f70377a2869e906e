//! References of a recorded repository, read without git: loose, packed, the head, stashes and other work trees.
use crate::git::ObjectId;
use crate::manifest::{Kind, Manifest};
use crate::path::{TreePath, visible};
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use std::collections::BTreeMap;

/// A hundred bytes per reference, half a million references.
const MAX_PACKED: u64 = 64 << 20;
/// `ref: ` and a name.
const MAX_LOOSE: u64 = 4096;
/// One line per stash.
const MAX_STASHES: u64 = 1 << 20;

/// What a repository's references name.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Full names with the digits of what they name; `HEAD` only where it is detached.
    pub(super) all: BTreeMap<String, String>,
    /// The checked-out commit.
    pub(super) head: Option<String>,
    /// References whose content is gone, and stores of references in a form that is not read.
    pub(super) unreadable: Vec<String>,
}

/// The short name that people use.
pub(super) fn short(name: &str) -> String {
    let short = name
        .strip_prefix("refs/heads/")
        .or_else(|| name.strip_prefix("refs/"))
        .unwrap_or(name);
    match short {
        "stash" => "stash@{0}".to_owned(),
        _ => short.to_owned(),
    }
}

pub(super) fn references(tree: &Manifest, space: &Workspace) -> Result<References, Fault> {
    let mut found = References::default();
    let file = |path: &str, most| match TreePath::new(path) {
        Ok(path) => space.git_file(tree, &path, most),
        Err(_) => Ok(None),
    };
    if let Some(bytes) = file(".git/packed-refs", MAX_PACKED)? {
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            if let Some((id, name)) = line.split_once(' ') {
                put(&mut found.all, name, id);
            }
        }
    }
    for entry in tree.entries().iter().filter(|entry| entry.path.in_git()) {
        let Some(name) = entry.path.as_bytes().strip_prefix(b".git/") else {
            continue;
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if name == "reftable" {
            found.unreadable.push("reftable".to_owned());
        }
        let of_worktree = name
            .strip_prefix("worktrees/")
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(_, rest)| rest == "HEAD" || rest.starts_with("refs/"));
        if !(name.starts_with("refs/") || of_worktree) || !matches!(entry.kind, Kind::File { .. }) {
            continue;
        }
        match space.git_file(tree, &entry.path, MAX_LOOSE) {
            Ok(Some(bytes)) => put(&mut found.all, &name, String::from_utf8_lossy(&bytes).trim()),
            Ok(None) => {}
            Err(fault) if fault.code == Code::WorkspaceDamaged => {
                found.unreadable.push(short(&visible(name.as_bytes())))
            }
            Err(fault) => return Err(fault),
        }
    }
    if let Some(bytes) = file(".git/logs/refs/stash", MAX_STASHES)? {
        let text = String::from_utf8_lossy(&bytes);
        let ids: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        // The newest is the last line, and the reference itself.
        for (at, id) in ids.iter().rev().enumerate().skip(1) {
            put(&mut found.all, &format!("refs/stash@{{{at}}}"), id);
        }
    }
    if let Some(bytes) = file(".git/HEAD", MAX_LOOSE)? {
        let text = String::from_utf8_lossy(&bytes);
        found.head = match text.trim().strip_prefix("ref:") {
            Some(name) => found.all.get(name.trim()).cloned(),
            None => ObjectId::parse(text.trim()).map(|id| id.as_str().to_owned()),
        };
    }
    Ok(found)
}

/// Names are shown and typed, so one with characters that act on a terminal gets them escaped.
fn put(all: &mut BTreeMap<String, String>, name: &str, id: &str) {
    if let Some(id) = ObjectId::parse(id) {
        all.insert(visible(name.as_bytes()), id.as_str().to_owned());
    }
}
