//! Names in a tree that the host works in at the same time: what a program on the host executes from there, and git's own
//! ways of being led elsewhere. The former is the one catalogue that the import gate reads, too. They are free in a copy, whose repository no program of the host ever reads.
use super::facts::{FsFacts, patterns_of};
use crate::effective::Effective;
use bastle_contract::{AbsPath, BuiltInNames, GIT_NAMES, NameList, NamePattern, OpenName, OpenScope};
use std::collections::BTreeSet;

/// The name by which git finds a repository. Whatever comes to be there, a directory, a file or a link, makes another one.
const REPOSITORY: &str = "**/.git";

/// Without this name no directory is a repository, and with it any directory can be made one.
const HEADS: &[&str] = &["**/HEAD", "**/packed-refs"];
/// What git executes, or is led by, in a directory that has a `HEAD`.
const BESIDE_HEAD: &[&str] = &["config", "config.worktree", "hooks", "commondir"];

/// Names that are protected by themselves.
pub(super) fn pinned() -> Vec<NamePattern> {
    NamePattern::from_static(REPOSITORY).into_iter().collect()
}

/// The same in a tree that was searched, where no `HEAD` can be made either: a directory with one, `objects` and `refs` is a
/// repository to git, whatever it is called. The directories that have one keep it, and their configuration is held.
pub(super) fn pinned_in(fs: &FsFacts, root: &AbsPath) -> NameList {
    let open = heads(fs, root).flat_map(|directory| {
        ["HEAD", "packed-refs"].map(|name| OpenName {
            below: format!("{directory}{name}"),
            scope: OpenScope::File,
        })
    });
    NameList {
        always: pinned(),
        unless_open: HEADS
            .iter()
            .filter_map(|name| NamePattern::from_static(name).ok())
            .collect(),
        open: open.collect(),
        built_in: BuiltInNames::None,
    }
}

/// Names beside every `HEAD` below `root`.
pub(super) fn beside_heads(fs: &FsFacts, root: &AbsPath) -> Vec<NamePattern> {
    let named = |directory: String| {
        // A literal name may hold characters that patterns cannot; `?` for each names more, not less.
        let directory = directory.replace(['*', '[', ']', '{', '}', '\\'], "?");
        BESIDE_HEAD
            .iter()
            .filter_map(move |name| NamePattern::try_from(format!("{directory}{name}")).ok())
    };
    heads(fs, root).flat_map(named).collect()
}

/// The directories below `root` that have a `HEAD`, each with a slash at its end; git makes that of `logs` by itself.
fn heads(fs: &FsFacts, root: &AbsPath) -> impl Iterator<Item = String> {
    let below = |directory: &AbsPath| {
        let below = directory.relative_to(root)?;
        Some(if below.is_empty() {
            String::new()
        } else {
            format!("{below}/")
        })
    };
    let all: BTreeSet<String> = fs
        .heads
        .iter()
        .filter_map(below)
        .flat_map(|at| [format!("{at}logs/"), at])
        .collect();
    all.into_iter()
}

/// Names of the program beside those of the policy in a tree at `root`: git's own, and where it is the project or around it
/// the catalogue that the import gate reads, too.
pub(super) fn protected(effective: &Effective, root: &AbsPath) -> BuiltInNames {
    let project = &effective.surroundings.workspace;
    if root.is_within(project) || project.is_within(root) {
        BuiltInNames::Project
    } else {
        BuiltInNames::Repository
    }
}

/// What is protected in repositories of other names below `root`: a `.git` that is a file or a link leads there.
pub(super) fn in_repositories(effective: &Effective, fs: &FsFacts, root: &AbsPath, list: &mut NameList) {
    let prefix = format!("{REPOSITORY}/");
    let policy = patterns_of(effective, root);
    let names: Vec<String> = policy
        .patterns()
        .filter_map(|pattern| pattern.as_str().strip_prefix(&prefix).map(str::to_owned))
        .chain(GIT_NAMES.iter().map(|name| (*name).to_owned()))
        .collect();
    let found = fs
        .repositories
        .iter()
        .filter_map(|directory| directory.relative_to(root));
    for directory in found.filter(|below| !below.is_empty()) {
        let patterns = names
            .iter()
            .filter_map(|name| NamePattern::try_from(format!("{directory}/{name}")).ok());
        list.extend(patterns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_in_place_writes_nothing_that_is_protected() {
        let protected = BuiltInNames::Project.patterns();
        let written = [
            ".git/index",
            ".git/index.lock",
            ".git/HEAD",
            ".git/HEAD.lock",
            ".git/logs/HEAD",
            ".git/COMMIT_EDITMSG",
            ".git/refs/heads/main",
            ".git/refs/heads/main.lock",
            ".git/logs/refs/heads/main",
            ".git/packed-refs",
            ".git/objects/ab/cdef",
            ".git/objects/pack/pack-1.pack",
            ".git/ORIG_HEAD",
            ".git/MERGE_HEAD",
            ".git/refs/stash",
        ];
        for path in written {
            let by: Vec<&NamePattern> = protected
                .iter()
                .filter(|name| name.covers(path.as_bytes()))
                .collect();
            assert!(by.is_empty(), "{path}: {by:?}");
        }
        for held in [
            ".git/remotes/origin",
            ".git/branches/origin",
            ".git/modules/a/remotes/origin",
            ".git/rebase-merge/git-rebase-todo",
            ".vscode/tasks.json",
            "AGENTS.md",
            "a/.github/workflows/x.yml",
        ] {
            assert!(
                protected.iter().any(|name| name.covers(held.as_bytes())),
                "control: {held}"
            );
        }
    }

    #[test]
    fn what_the_floor_protects_is_in_the_catalogue_of_the_import_gate() {
        let floor = crate::presets::floor().unwrap();
        let catalogue = crate::host_executed::catalogue().unwrap();
        for rule in &floor.document.fs.protect {
            let example = rule.value.below.trim_start_matches("**/").replace("/**/", "/x/");
            let known = |path: &str| {
                catalogue
                    .iter()
                    .any(|entry| entry.pattern.covers(path.as_bytes()))
            };
            assert!(known(&example) || known(&format!("{example}/x")), "{example}");
        }
    }
}
