//! Which program files `exec.allow` lets execute inside.
//!
//! A rule names a program by its name or its path. What executes is held by file, not by name: a copy, another name or
//! another way to start it is another file or the same one. Arguments of a rule are judged for the launch line and for
//! tools that ask; inside only the file is held.
use super::PlanLine;
use super::environment::{SYSTEM_PATH, granted_bins};
use super::facts::{FsFacts, PathKind};
use crate::command::CommandRule;
use crate::commands::CommandTier;
use crate::effective::Effective;
use crate::request::LaunchRequest;
use bastle_contract::{AbsPath, ExecList, Guarantee, Mechanism};
use std::collections::BTreeSet;

/// What the note of every held rule says about its limits.
const NOT_HELD: &str = "arguments and scripts that it reads are not held inside";

/// The plan's list, and the bare names that every allow list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) list: Option<ExecList>,
    pub(super) names: BTreeSet<String>,
}

/// Paths that must be looked up before the list can be made; none without an allow list.
pub(super) fn paths(effective: &Effective, request: &LaunchRequest) -> BTreeSet<AbsPath> {
    if !effective.lists_programs() {
        return BTreeSet::new();
    }
    let directories = directories(effective, request);
    let rules = tiers(effective).flat_map(|(_, rules)| rules);
    let mut paths: BTreeSet<AbsPath> = rules
        .flat_map(|(_, rule)| {
            candidates(
                effective,
                &effective.surroundings.workspace,
                &directories,
                rule.program(),
            )
        })
        .collect();
    paths.extend(candidates(
        effective,
        &request.cwd,
        &directories,
        request.argv.program(),
    ));
    paths
}

/// The list, with a line for each rule that it comes from.
pub(super) fn build(
    effective: &Effective,
    request: &LaunchRequest,
    fs: &FsFacts,
    listing: &mut Vec<PlanLine>,
) -> Programs {
    if !effective.lists_programs() {
        return Programs::default();
    }
    let directories = directories(effective, request);
    let workspace = &effective.surroundings.workspace;
    let found = |base: &AbsPath, program: &str| -> BTreeSet<AbsPath> {
        candidates(effective, base, &directories, program)
            .iter()
            .filter_map(|path| fs.paths.get(path))
            .filter(|fact| fact.kind == PathKind::File && !fs.programs.contains(&fact.resolved))
            .map(|fact| fact.resolved.clone())
            .collect()
    };
    let mut files: Option<BTreeSet<AbsPath>> = None;
    let mut names: Option<BTreeSet<String>> = None;
    for (tier, rules) in tiers(effective) {
        let mut own = BTreeSet::new();
        for (index, rule) in &rules {
            let programs = found(workspace, rule.program());
            if let Some(sourced) = tier.allow.as_ref().and_then(|allow| allow.get(*index)) {
                listing.push(PlanLine {
                    section: "exec.allow".to_owned(),
                    rule: sourced.value.clone(),
                    origin: sourced.origin.clone(),
                    mechanism: Mechanism::Landlock,
                    probe: Some(Guarantee::ProgramsListed),
                    note: note(rule.program(), &programs),
                });
            }
            own.extend(programs);
        }
        let bare = rules
            .iter()
            .map(|(_, rule)| rule.program())
            .filter(|name| !name.contains('/'));
        let bare: BTreeSet<String> = bare.map(str::to_owned).collect();
        files = Some(files.map_or_else(|| own.clone(), |files| &files & &own));
        names = Some(names.map_or_else(|| bare.clone(), |names| &names & &bare));
    }
    // The shell's order: the first that is there.
    let launch = candidates(effective, &request.cwd, &directories, request.argv.program())
        .iter()
        .filter_map(|path| fs.paths.get(path))
        .find(|fact| fact.kind == PathKind::File)
        .map(|fact| fact.resolved.clone());
    Programs {
        list: Some(ExecList {
            programs: files.unwrap_or_default().into_iter().collect(),
            launch,
        }),
        names: names.unwrap_or_default(),
    }
}

fn note(program: &str, files: &BTreeSet<AbsPath>) -> String {
    if files.is_empty() {
        return "no such program inside".to_owned();
    }
    let shown: Vec<&str> = files.iter().map(AbsPath::as_str).collect();
    let name = program.rsplit('/').next().unwrap_or(program);
    let other = if files.iter().any(|file| file.name() != name) {
        "; one file, whatever name it is started by"
    } else {
        ""
    };
    format!("{}{other}; {NOT_HELD}", shown.join(", "))
}

/// Tiers that state an allow list, with its rules and their places in it.
fn tiers(effective: &Effective) -> impl Iterator<Item = (&CommandTier, Vec<(usize, CommandRule)>)> {
    effective.exec.iter().filter_map(|tier| {
        let allow = tier.allow.as_ref()?.iter().enumerate();
        let rules = allow.filter_map(|(index, rule)| Some((index, CommandRule::parse(&rule.value).ok()?)));
        Some((tier, rules.collect()))
    })
}

/// Where a bare name is looked for: the directories of every `PATH` that the run can start with.
fn directories(effective: &Effective, request: &LaunchRequest) -> Vec<AbsPath> {
    let set = effective.env_set.iter().map(|entry| &entry.value);
    let stated = set
        .chain(&request.env)
        .filter(|(name, _)| name.as_str() == "PATH")
        .map(|(_, value)| value.as_str());
    let listed = stated
        .chain([SYSTEM_PATH])
        .flat_map(|value| value.split(':'))
        .filter_map(|directory| AbsPath::new(directory).ok());
    granted_bins(effective).cloned().chain(listed).collect()
}

/// The paths that a program's name can mean.
fn candidates(effective: &Effective, base: &AbsPath, directories: &[AbsPath], program: &str) -> Vec<AbsPath> {
    if !program.contains('/') {
        return directories
            .iter()
            .filter_map(|directory| directory.join(program).ok())
            .collect();
    }
    let path = match (program.strip_prefix("~/"), program.starts_with('/')) {
        (Some(rest), _) => effective.surroundings.home.join(rest),
        (None, true) => AbsPath::new(program),
        (None, false) => base.join(program.trim_start_matches("./")),
    };
    path.into_iter().collect()
}
