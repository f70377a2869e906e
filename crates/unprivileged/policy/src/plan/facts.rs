//! What the planner needs to know of the disk, and what control found there.
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::layers::LayerKind;
use crate::names::relative_to;
use crate::pathrule::PathRule;
use bastle_contract::{AbsPath, NamePattern};
use std::collections::{BTreeMap, BTreeSet};

/// A tree to search: its root, names that are hidden below it, names that are protected below it.
pub type TreeNeed = (AbsPath, Vec<NamePattern>, Vec<NamePattern>);

/// What control must look up before a plan can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Paths to resolve.
    pub paths: Vec<AbsPath>,
    /// Trees to search for existing names.
    pub trees: Vec<TreeNeed>,
    /// Programs to find in the directories of `PATH`.
    pub programs: Vec<String>,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Dir,
    /// Anything else that can be bound.
    File,
    /// Not there, or not readable.
    Missing,
}

/// One path on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFact {
    /// Where it leads when every symlink is followed; itself when missing.
    pub resolved: AbsPath,
    /// What is there.
    pub kind: PathKind,
}

/// What control found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsFacts {
    /// The paths of [`Needs::paths`].
    pub paths: BTreeMap<AbsPath, PathFact>,
    /// Symlinks of the host's root directory (`/bin` → `usr/bin`).
    pub root_links: Vec<(AbsPath, String)>,
    /// Existing hidden names in the trees.
    pub hidden: Vec<AbsPath>,
    /// Existing protected names in the trees.
    pub protected: Vec<AbsPath>,
    /// Program files of denied programs.
    pub programs: Vec<AbsPath>,
}

/// Shells looked for, in order of preference.
pub(super) const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// What control must look up for this policy.
#[must_use]
pub fn needs(effective: &Effective) -> Needs {
    let mut paths: BTreeSet<AbsPath> = BTreeSet::from([effective.surroundings.workspace.clone()]);
    let visible = effective
        .fs
        .iter()
        .filter(|(path, reach)| reach.grade > Grade::None && effective.hidden_by(path).is_none());
    paths.extend(visible.map(|(path, _)| path.clone()));
    paths.extend(SHELLS.iter().filter_map(|shell| AbsPath::new(*shell).ok()));
    paths.extend(hidden_in_system(effective));
    let mut trees: Vec<TreeNeed> = Vec::new();
    for (root, reach) in effective.fs.iter() {
        let wanted = !reach.system && reach.grade > Grade::None && effective.hidden_by(root).is_none();
        if wanted && !trees.iter().any(|(outer, _, _)| root.is_within(outer)) {
            let writable = effective
                .fs
                .iter()
                .any(|(path, reach)| reach.grade == Grade::Write && path.is_within(root));
            let protect = if writable {
                patterns(effective, root, Names::Protected)
            } else {
                Vec::new()
            };
            trees.push((root.clone(), patterns(effective, root, Names::Hidden), protect));
        }
    }
    Needs {
        paths: paths.into_iter().collect(),
        trees,
        programs: denied_programs(effective),
    }
}

/// Names that are hidden below `root`: they are left out where that tree is copied.
#[must_use]
pub fn hidden_below(effective: &Effective, root: &AbsPath) -> Vec<NamePattern> {
    patterns(effective, root, Names::Hidden)
}

/// Whether a grant lets the agent write anything at or below `root`.
#[must_use]
pub fn writes_below(effective: &Effective, root: &AbsPath) -> bool {
    effective
        .fs
        .iter()
        .any(|(path, reach)| reach.grade == Grade::Write && (path.is_within(root) || root.is_within(path)))
}

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Hidden,
    Protected,
}

/// What a list means below `root`.
pub(super) fn patterns(effective: &Effective, root: &AbsPath, names: Names) -> Vec<NamePattern> {
    let rules = match names {
        Names::Hidden => &effective.hide,
        Names::Protected => &effective.protect,
    };
    let slash = AbsPath::root();
    let mut found = BTreeSet::new();
    for rule in rules {
        // A re-opened path cannot be cut out of a pattern, so a pattern of the floor that names it is left out of this tree.
        if rule.origin.layer == LayerKind::Floor && reopened(effective, root, &rule.value) {
            continue;
        }
        found.extend(below(effective, root, &rule.value, &slash));
    }
    found.into_iter().collect()
}

/// Whether a rule names anything at or below `root`.
pub(super) fn concerns(effective: &Effective, root: &AbsPath, rule: &PathRule) -> bool {
    !below(effective, root, rule, &AbsPath::root()).is_empty()
}

fn below(effective: &Effective, root: &AbsPath, rule: &PathRule, slash: &AbsPath) -> Vec<NamePattern> {
    // `**/x` holds below the outermost granted tree: below an inner root some of its components may be used up.
    let outer = effective
        .trees
        .iter()
        .find(|tree| root.is_within(tree))
        .unwrap_or(root);
    let anchor = rule.root(&effective.surroundings, slash).unwrap_or(outer);
    relative_to(root, Some(anchor), &rule.below)
        .into_iter()
        .flatten()
        .collect()
}

fn reopened(effective: &Effective, root: &AbsPath, rule: &PathRule) -> bool {
    if effective.unprotect.is_empty() {
        return false;
    }
    let slash = AbsPath::root();
    let names = below(effective, root, rule, &slash);
    effective.unprotect.iter().any(|open| {
        root.is_within(open)
            || open
                .relative_to(root)
                .is_some_and(|rest| !rest.is_empty() && names.iter().any(|name| name.covers(rest.as_bytes())))
    })
}

/// Hidden paths without wildcards that lie in a system tree: nobody searches those trees, so each is looked up by itself.
pub(super) fn hidden_in_system(effective: &Effective) -> Vec<AbsPath> {
    let exact = effective.hide.iter().filter(|rule| !rule.value.is_pattern());
    let paths = exact.filter_map(|rule| rule.value.resolve(&effective.surroundings).ok());
    paths
        .filter(|path| effective.fs.find(path).is_some_and(|(_, reach)| reach.system))
        .collect()
}

/// Whether a command rule is the bare name of a program.
pub(super) fn is_program(rule: &str) -> bool {
    !rule.is_empty()
        && rule.len() <= 64
        && rule
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-'))
}

fn denied_programs(effective: &Effective) -> Vec<String> {
    let denied = effective
        .exec
        .iter()
        .flat_map(|tier| &tier.deny)
        .map(|rule| &rule.value);
    let names: BTreeSet<String> = denied.filter(|rule| is_program(rule)).cloned().collect();
    names.into_iter().collect()
}
