//! What the planner needs to know of the disk, and what control found there.
use crate::effective::Effective;
use crate::fsmap::Grade;
use crate::layers::LayerKind;
use crate::names::relative_to;
use crate::pathrule::PathRule;
use crate::request::LaunchRequest;
use bastle_contract::{AbsPath, BuiltInNames, NameList, NamePattern};
use std::collections::{BTreeMap, BTreeSet};

/// A tree to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNeed {
    /// Its root.
    pub root: AbsPath,
    /// Names that are hidden below it.
    pub hide: NameList,
    /// Names that are protected below it.
    pub protect: NameList,
    /// Names that are protected beside those where the tree is the host's own.
    pub live: BuiltInNames,
}

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

/// A name that is held because a link leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Led {
    /// The link.
    pub link: AbsPath,
    /// Where it leads.
    pub at: AbsPath,
    /// A pattern below that; `None`: that itself, with what is below it.
    pub rest: Option<String>,
    /// How it is held.
    pub held: LedAs,
}

/// How a name is held that a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedAs {
    /// It cannot be read.
    Hidden,
    /// It cannot be changed.
    Protected,
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
    /// Git directories in the trees that a `.git` which is no directory leads to.
    pub repositories: Vec<AbsPath>,
    /// Directories in the trees that have a name `HEAD`: a repository, or one as soon as a configuration is made there.
    pub heads: Vec<AbsPath>,
    /// Git repositories and bundles in the trees beside the project's own.
    pub stores: Vec<AbsPath>,
    /// Names in the trees that are held because links lead to them.
    pub led: Vec<Led>,
    /// Directories of the host's own writable trees.
    pub directories: Vec<AbsPath>,
    /// The project, where the agent works on a copy or a layer of it; `None`: in place.
    pub copied: Option<AbsPath>,
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
    paths.extend(effective.unprotect.iter().map(|open| open.path.clone()));
    let mut trees: Vec<TreeNeed> = Vec::new();
    for (root, reach) in effective.fs.iter() {
        let wanted = !reach.system && reach.grade > Grade::None && effective.hidden_by(root).is_none();
        if wanted && !trees.iter().any(|outer| root.is_within(&outer.root)) {
            let writable = effective
                .fs
                .iter()
                .any(|(path, reach)| reach.grade == Grade::Write && path.is_within(root));
            let protect = if writable {
                patterns(effective, root, Names::Protected)
            } else {
                NameList::default()
            };
            trees.push(TreeNeed {
                root: root.clone(),
                hide: patterns(effective, root, Names::Hidden),
                live: if writable {
                    super::live::protected(effective, root)
                } else {
                    BuiltInNames::None
                },
                protect,
            });
        }
    }
    Needs {
        paths: paths.into_iter().collect(),
        trees,
        programs: denied_programs(effective),
    }
}

/// The same for one launch: with the programs that its policy's allow list and its own line can mean.
#[must_use]
pub fn needs_of(effective: &Effective, request: &LaunchRequest) -> Needs {
    let mut needs = needs(effective);
    let known: BTreeSet<AbsPath> = needs.paths.iter().cloned().collect();
    let programs = super::programs::paths(effective, request);
    needs.paths.extend(programs.difference(&known).cloned());
    needs
}

/// Names that are hidden below `root`: they are left out where that tree is copied.
#[must_use]
pub fn hidden_below(effective: &Effective, root: &AbsPath) -> NameList {
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

/// What a list means below `root`, with what the command line opened there.
pub(super) fn patterns(effective: &Effective, root: &AbsPath, names: Names) -> NameList {
    let rules = match names {
        Names::Hidden => &effective.hide,
        Names::Protected => &effective.protect,
    };
    let slash = AbsPath::root();
    let open: Vec<_> = effective
        .unprotect
        .iter()
        .filter_map(|open| open.below(root))
        .collect();
    let (mut always, mut unless_open) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules {
        // Exceptions are made to the floor; the same pattern of another layer stays in force.
        let excepted = !open.is_empty() && rule.origin.layer == LayerKind::Floor;
        let list = if excepted { &mut unless_open } else { &mut always };
        list.extend(below(effective, root, &rule.value, &slash));
    }
    unless_open.retain(|pattern| !always.contains(pattern));
    NameList {
        always: always.into_iter().collect(),
        unless_open: unless_open.into_iter().collect(),
        built_in: BuiltInNames::None,
        open,
    }
}

/// What is protected below `root`.
pub(super) fn patterns_of(effective: &Effective, root: &AbsPath) -> NameList {
    patterns(effective, root, Names::Protected)
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
