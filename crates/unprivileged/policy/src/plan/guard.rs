//! What the write guard watches: one tree per writable bind.
use super::PlanLine;
use super::facts::{Names, patterns};
use crate::effective::Effective;
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
    if !trees.is_empty() {
        for (section, rules) in [("fs.hide", &effective.hide), ("fs.protect", &effective.protect)] {
            listing.extend(rules.iter().map(|rule| PlanLine {
                section: section.to_owned(),
                rule: rule.value.to_string(),
                origin: rule.origin.clone(),
                mechanism: Mechanism::Guard,
                probe: Some(Guarantee::NamesGuarded),
                note: "also for names that do not exist yet".to_owned(),
            }));
        }
    }
    Ok(Guard { trees })
}
