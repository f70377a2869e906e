//! What the write guard watches: one tree per writable bind.
use super::facts::{FsFacts, LedAs, Names, concerns, patterns};
use super::{PlanLine, built_in, led, live};
use crate::effective::{Effective, Sourced};
use crate::pathrule::PathRule;
use bastle_contract::{
    AbsPath, BuiltInNames, Code, Fault, Guarantee, Guard, GuardedTree, HostFacts, Mechanism, NameList,
    TreeKind,
};

pub(super) fn build(
    effective: &Effective,
    writable: &[(AbsPath, AbsPath)],
    (host, fs): (&HostFacts, &FsFacts),
    listing: &mut Vec<PlanLine>,
) -> Result<Guard, Fault> {
    let mut trees: Vec<GuardedTree> = Vec::new();
    for (typed, root) in writable {
        let mut hide = patterns(effective, typed, Names::Hidden);
        let mut protect = patterns(effective, typed, Names::Protected);
        let kind = match &fs.copied {
            Some(project) if root.is_within(project) => TreeKind::Own,
            Some(_) | None => TreeKind::Live,
        };
        let pinned = match kind {
            TreeKind::Own => NameList::default(),
            TreeKind::Live => {
                protect.built_in = live::protected(effective, typed);
                live::in_repositories(effective, fs, root, &mut protect);
                protect.extend(live::beside_heads(fs, root));
                protect.extend(led::patterns(fs, root, LedAs::Protected));
                hide.extend(led::patterns(fs, root, LedAs::Hidden));
                live::pinned_in(fs, root)
            }
        };
        trees.push(GuardedTree {
            root: root.clone(),
            hide,
            protect,
            pinned,
            kind,
        });
    }
    if !trees.is_empty() && !host.seccomp_notify {
        return Err(Fault::new(
            Code::FenceStep,
            "names that do not exist yet cannot be guarded",
            "this kernel has no seccomp user notification",
        )
        .help("use Linux 5.9 or newer, or --sandbox read-only"));
    }
    for (section, rules) in [("fs.hide", &effective.hide), ("fs.protect", &effective.protect)] {
        for rule in rules {
            let guarded = writable
                .iter()
                .any(|(typed, _)| concerns(effective, typed, &rule.value));
            let held = if guarded { IN_WRITABLE } else { ELSEWHERE };
            listing.push(line(section, rule, held));
        }
    }
    if trees.iter().any(|tree| tree.kind == TreeKind::Live) {
        let said = |rule: &str, note: &str| PlanLine {
            section: "fs.protect".to_owned(),
            rule: rule.to_owned(),
            origin: built_in(),
            mechanism: Mechanism::Guard,
            probe: Some(Guarantee::NamesGuarded),
            note: note.to_owned(),
        };
        let itself = "in place: a new, replaced or removed one, whatever it is; what is in it is not meant";
        listing.extend(live::pinned().iter().map(|name| said(name.as_str(), itself)));
        listing.push(said(
            "**/HEAD",
            "in place: a new one outside of repositories, because it makes any directory one",
        ));
        let here = "in place: the host's git executes or follows it";
        listing.extend(
            BuiltInNames::Repository
                .texts()
                .iter()
                .map(|name| said(name, here)),
        );
        let count = format!(
            "{} names that programs of the host execute",
            BuiltInNames::Project.texts().len()
        );
        let note = "in place: the catalogue of the import gate (docs/import-gate.md); bastle why write FILE tells of one";
        listing.push(said(&count, note));
    }
    Ok(Guard { trees })
}

/// How a name is held: mechanism, probe and what else there is to say.
type Held = (Mechanism, Guarantee, &'static str);

/// In a writable tree, by the guard.
const IN_WRITABLE: Held = (
    Mechanism::Guard,
    Guarantee::NamesGuarded,
    "also for names that do not exist yet",
);
/// Elsewhere, by a cover or by not being there.
const ELSEWHERE: Held = (
    Mechanism::Mount,
    Guarantee::ReadsConfined,
    "not in a writable tree: covered where it shows, else absent",
);

fn line(section: &str, rule: &Sourced<PathRule>, (mechanism, probe, note): Held) -> PlanLine {
    PlanLine {
        section: section.to_owned(),
        rule: rule.value.to_string(),
        origin: rule.origin.clone(),
        mechanism,
        probe: Some(probe),
        note: note.to_owned(),
    }
}
