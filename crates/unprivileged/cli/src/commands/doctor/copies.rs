//! What a copy of a project takes of the disk, and whether the mode that makes none works here.
use super::{Check, State};
use bastle_control::containment::ContainmentVerdict;
use bastle_control::trial::{Scratch, TRIAL_TIME, Trial, TrialSettings};
use std::path::Path;

/// Looks at the file system of the state directory.
pub(super) fn check(state: &Path, fence: ContainmentVerdict) -> Option<Check> {
    if bastle_control::workspaces::shares_extents(state)? {
        return Some(Check::new(
            State::Ok,
            "copies",
            "files share extents: a copy takes what is changed in it",
        ));
    }
    let check = Check::new(State::Info, "copies", "files share no extents here").consequence(
        "a run on a copy takes the size of the project, and its first contents are kept once more for all runs",
    );
    if fence != ContainmentVerdict::Enforced {
        // Where no run starts, nothing is known of this one.
        return Some(check);
    }
    Some(match overlay(state) {
        true => check.fix("bastle run --workspace overlay -- CMD"),
        false => check.fix("export XDG_STATE_HOME=DIRECTORY, one on btrfs or xfs"),
    })
}

/// Whether a run with a layer works: tried where copies are kept, because a kernel can lack the file system, and not every
/// file system can be below or above.
fn overlay(state: &Path) -> bool {
    let Ok(scratch) = Scratch::make_in(state) else {
        return false;
    };
    let (Ok(workspace), Ok(state)) = (scratch.dir("project"), scratch.dir("state")) else {
        return false;
    };
    let outcome = Trial {
        mode: "overlay",
        flags: &["--quiet", "--net", "none"],
        command: &["true"],
        workspace: &workspace,
        state: &state,
        settings: TrialSettings::Own,
        within: TRIAL_TIME,
    }
    .run();
    outcome.is_ok_and(|outcome| outcome.code == 0 && outcome.fault().is_none())
}
