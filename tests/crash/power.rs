//! Every verb, cut off by the power at its calls: of what was not synced nothing or any part is on disk.
use super::disk::Loss;
use super::ground::{Ground, Tree};
use super::rounds::{Again, Case, can_watch, rounds};
use super::verbs::{archives, beside_branch, both, branch, copy, host, repository_is_sound, some_ground};
use std::path::Path;

/// The power goes at calls that name this place, at every `step`-th other one, and after the last one.
fn cut_everywhere(case: &mut Case<'_>, place: &Path, step: usize) {
    let calls = case.calls();
    let place = format!("{}/", place.display());
    let (step, cuts) = match rounds() {
        Some(_) => (1, 8),
        None => (step, 1),
    };
    let near = |at: usize| {
        calls[at.saturating_sub(1)..=at]
            .iter()
            .any(|call| call.contains(&place))
    };
    for at in (0..calls.len()).filter(|at| at % step == 0 || near(*at)) {
        for cut in 0..cuts {
            let loss = match (at + cut) % 2 {
                0 => Loss::Everything,
                _ => Loss::Some(u64::try_from(at * 8 + cut).expect("fits")),
            };
            case.power_cut(at, loss);
        }
    }
    // After the last call, with whatever the kernel wrote by itself.
    for seed in 0..4 {
        case.power_cut(usize::MAX, Loss::Some(seed));
    }
    case.power_cut(usize::MAX, Loss::Everything);
    let tally = case.tally;
    println!(
        "{}: {} cuts, {} old, {} new",
        case.name, tally.rounds, tally.old, tally.new
    );
    assert!(tally.old > 0 && tally.new > 0, "{tally:?}");
}

#[test]
fn a_branch_cut_by_the_power_is_there_whole_or_not_at_all_and_a_success_stays_one() {
    if !can_watch("a_branch_cut_by_the_power_is_there_whole_or_not_at_all_and_a_success_stays_one") {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all(" --branch agent/work");
    ground.save();
    let mut case = Case::new(
        &ground,
        "branch",
        &line,
        (branch(), beside_branch()),
        Again::Refuses,
    )
    .always(repository_is_sound);
    cut_everywhere(&mut case, &ground.project().join(".git"), 24);
}

#[test]
fn an_archive_cut_by_the_power_is_whole_or_not_there_and_a_success_stays_one() {
    if !can_watch("an_archive_cut_by_the_power_is_whole_or_not_there_and_a_success_stays_one") {
        return;
    }
    let mut ground = some_ground();
    let exports = archives(&ground);
    ground.save();
    let line = format!("export {} {}/archive.tar", ground.run, exports.display());
    let archive = |_: &Ground| Tree::of(&exports);
    let mut case = Case::new(
        &ground,
        "export",
        &line,
        (Box::new(archive), both()),
        Again::Refuses,
    );
    cut_everywhere(&mut case, &exports, 6);
}

#[test]
fn an_apply_and_its_undo_cut_by_the_power_leave_the_project_old_or_new() {
    if !can_watch("an_apply_and_its_undo_cut_by_the_power_leave_the_project_old_or_new") {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all("");
    ground.save();
    let mut case = Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds);
    cut_everywhere(&mut case, &ground.project(), 12);
    drop(case);
    ground.restore();
    ground.says(&line);
    ground.save();
    let line = format!("apply {} --undo", ground.run);
    let mut case = Case::new(&ground, "undo", &line, (host(), copy()), Again::Refuses);
    cut_everywhere(&mut case, &ground.project(), 12);
}
