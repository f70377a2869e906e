//! What the write guard watches: one tree per writable bind.
use super::PlanLine;
use super::facts::{Names, concerns, patterns};
use crate::effective::{Effective, Sourced};
use crate::pathrule::PathRule;
use bastle_contract::{AbsPath, Code, Fault, Guarantee, Guard, GuardedTree, HostFacts, Mechanism};

pub(super) fn build(
    effective: &Effective,
    writable: &[(AbsPath, AbsPath)],
    host: &HostFacts,
    listing: &mut Vec<PlanLine>,
) -> Result<Guard, Fault> {
    let mut trees: Vec<GuardedTree> = Vec::new();
    for (typed, root) in writable {
        let hide = patterns(effective, typed, Names::Hidden);
        let protect = patterns(effective, typed, Names::Protected);
        trees.push(GuardedTree {
            root: root.clone(),
            hide,
            protect,
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
