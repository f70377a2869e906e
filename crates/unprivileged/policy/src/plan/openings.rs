//! Exceptions to the hard floor: what `--unprotect` opens, checked against the disk and told with the rule it is made to.
//!
//! **Trust:** the names come from the person; the project's files do not. A link that the project made in the place of a
//! named file would open another one, so a link is refused.
use super::PlanLine;
use super::facts::{FsFacts, PathKind};
use crate::effective::{Effective, Origin, Sourced};
use crate::fsmap::Grade;
use crate::pathrule::PathRule;
use crate::text::quoted_tree;
use bastle_contract::{AbsPath, Access, Code, Fault, Guarantee, Mechanism, MountKind, OpenScope, Opening};
use std::collections::BTreeMap;

pub(super) fn build(effective: &Effective, fs: &FsFacts, listing: &mut Vec<PlanLine>) -> Result<(), Fault> {
    for open in &effective.unprotect {
        check_kind(open, fs)?;
        check_above(effective, open)?;
        listing.push(PlanLine {
            section: "fs.unprotect".to_owned(),
            rule: open.to_string(),
            origin: Origin::unprotect(),
            mechanism: Mechanism::Mount,
            probe: Some(Guarantee::ReadsConfined),
            note: note(effective, open),
        });
    }
    Ok(())
}

/// Opened files in a directory that is held read-only as a whole are writable where they exist.
pub(super) fn reopen(
    effective: &Effective,
    fs: &FsFacts,
    mounts: &mut BTreeMap<AbsPath, MountKind>,
) -> Result<(), Fault> {
    for open in &effective.unprotect {
        show(effective, fs, open, mounts);
        let read_only = |at: &&AbsPath| {
            let held = MountKind::Bind {
                source: (*at).clone(),
                access: Access::ReadOnly,
                owned: true,
            };
            open.path.is_within(at) && **at != open.path && mounts.get(*at) == Some(&held)
        };
        let Some(held) = fs.protected.iter().find(read_only) else {
            continue;
        };
        if fs
            .paths
            .get(&open.path)
            .is_none_or(|fact| fact.kind == PathKind::Missing)
        {
            let why = format!("it does not exist, and {held} is held read-only as a whole");
            return Err(refused(open, why).help(format!(
                "create it first, or --unprotect {} for all that is in there",
                quoted_tree(held)
            )));
        }
        let kind = MountKind::Bind {
            source: open.path.clone(),
            access: Access::ReadWrite,
            owned: true,
        };
        mounts.insert(open.path.clone(), kind);
    }
    Ok(())
}

/// A grant that is hidden as a whole is not shown; the file that was opened in it is, by itself.
fn show(effective: &Effective, fs: &FsFacts, open: &Opening, mounts: &mut BTreeMap<AbsPath, MountKind>) {
    let Some((granted, reach)) = effective.fs.find(&open.path) else {
        return;
    };
    let there = fs
        .paths
        .get(&open.path)
        .is_some_and(|fact| fact.kind == PathKind::File && fact.resolved == open.path);
    let parted = reach.grade > Grade::None && !reach.system && effective.hidden_by(granted).is_some();
    if there && parted && effective.hidden_by(&open.path).is_none() && !mounts.contains_key(&open.path) {
        let kind = MountKind::Bind {
            source: open.path.clone(),
            access: match reach.grade {
                Grade::Write if effective.protected_by(&open.path).is_none() => Access::ReadWrite,
                Grade::Write | Grade::Read | Grade::None => Access::ReadOnly,
            },
            owned: true,
        };
        mounts.insert(open.path.clone(), kind);
    }
}

fn refused(open: &Opening, why: String) -> Fault {
    Fault::new(
        Code::UsageArgument,
        format!("--unprotect {open} cannot be used"),
        why,
    )
}

fn check_kind(open: &Opening, fs: &FsFacts) -> Result<(), Fault> {
    let Some(fact) = fs.paths.get(&open.path) else {
        return Ok(());
    };
    if fact.kind != PathKind::Missing && fact.resolved != open.path {
        let why = format!(
            "it is a symbolic link, or lies behind one: it leads to {}",
            fact.resolved
        );
        return Err(refused(open, why).help("name the file itself, if you mean that one"));
    }
    match (open.scope, fact.kind) {
        (OpenScope::File, PathKind::Dir) => Err(refused(open, "it is a directory".to_owned()).help(format!(
            "--unprotect {} opens it with all that is in it",
            quoted_tree(&open.path)
        ))),
        (OpenScope::Tree, PathKind::File) => Err(refused(open, "it is a file".to_owned()).help(format!(
            "--unprotect {} opens exactly this file",
            crate::text::quoted(&open.path)
        ))),
        (OpenScope::File | OpenScope::Tree, _) => Ok(()),
    }
}

/// A directory that is hidden as a whole is covered or left out as a whole: nothing in it can be opened by itself.
fn check_above(effective: &Effective, open: &Opening) -> Result<(), Fault> {
    let Some(tree) = shown_in(effective, &open.path) else {
        return Ok(());
    };
    let above = std::iter::successors(open.path.parent(), AbsPath::parent)
        .take_while(|at| at != tree && at.is_within(tree));
    let Some((hidden, rule)) = above
        .filter_map(|at| Some((at.clone(), effective.hidden_by(&at)?)))
        .last()
    else {
        return Ok(());
    };
    let why = format!(
        "it lies in {hidden}, which {} hides as a whole ({})",
        rule.value, rule.origin
    );
    Err(refused(open, why).help(format!(
        "--unprotect {} opens that directory with all that is in it",
        quoted_tree(&hidden)
    )))
}

/// The innermost grant that shows `path` as a part of it.
pub(crate) fn shown_in<'e>(effective: &'e Effective, path: &AbsPath) -> Option<&'e AbsPath> {
    let (granted, reach) = effective.fs.find(path)?;
    let part = reach.grade > Grade::None && granted != path && effective.hidden_by(granted).is_none();
    part.then_some(granted)
}

fn note(effective: &Effective, open: &Opening) -> String {
    let still = effective
        .hidden_by(&open.path)
        .or_else(|| effective.protected_by(&open.path));
    if let Some(rule) = still {
        return format!("without effect: {} of {} holds it, too", rule.value, rule.origin);
    }
    let floor: Vec<String> = effective
        .floor_rules(&open.path)
        .into_iter()
        .flatten()
        .map(|rule: &Sourced<PathRule>| format!("{} ({})", rule.value, rule.origin))
        .collect();
    let what = match open.scope {
        OpenScope::File => "EXCEPTION: this file and no other name",
        OpenScope::Tree => "EXCEPTION: this directory and all that is in it",
    };
    match (floor.is_empty(), open.scope) {
        (false, _) => format!("{what}, of {}", floor.join(", ")),
        (true, OpenScope::Tree) => format!("{what}, of the floor"),
        (true, OpenScope::File) => "without effect: no rule of the floor names it".to_owned(),
    }
}
