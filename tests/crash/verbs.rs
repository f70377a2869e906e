//! Every verb over a tree of all pairs of types, interrupted at every call.
use super::calls::Fault;
use super::ground::{Ground, Tree};
use super::rounds::{Again, Case, Depth, Look, REFUSALS, can_watch, rounds};
use super::support::{git, skip};
use super::types::{Paths, Shape, all_pairs};
use std::fs;
use std::path::{Path, PathBuf};

/// The host's tree.
pub(crate) fn host<'a>() -> Look<'a> {
    Box::new(|ground| Tree::of(&ground.project()))
}

/// The agent's files of the run.
pub(crate) fn copy<'a>() -> Look<'a> {
    // Rollbacks do not keep the times of directories.
    Box::new(|ground| Tree::of(&ground.copy_of(&ground.run)).without_times())
}

pub(crate) fn both<'a>() -> Look<'a> {
    Box::new(|ground| Tree::joined([("host", host()(ground)), ("copy", copy()(ground))]))
}

/// Some types of work, for verbs that do not write the project.
fn some() -> (Paths, Paths) {
    let of = |shapes: [(&str, Shape); 6]| shapes.map(|(path, shape)| (path.to_owned(), shape)).to_vec();
    let before = of([
        ("file.c", Shape::File(0)),
        ("to-directory.c", Shape::File(0)),
        ("to-file.c", Shape::Directory(0)),
        ("to-link.c", Shape::EmptyDirectory),
        ("gone.c", Shape::Directory(0)),
        ("from-link.c", Shape::Link(0)),
    ]);
    let after = of([
        ("file.c", Shape::Executable(1)),
        ("to-directory.c", Shape::Directory(1)),
        ("to-file.c", Shape::File(1)),
        ("to-link.c", Shape::Link(0)),
        ("gone.c", Shape::Absent),
        ("from-link.c", Shape::Directory(0)),
    ]);
    (before, after)
}

pub(crate) fn some_ground() -> Ground {
    let (before, after) = some();
    Ground::new(Ground::usual(), &before, &after)
}

/// Undone, the project is as before.
pub(crate) fn can_be_undone(ground: &Ground, old: &Tree, what: &str) {
    let ended = ground.say(&format!("apply {} --undo", ground.run));
    assert_eq!(ended.code, Some(0), "{ended:?} {what}");
    let now = host()(ground);
    assert!(
        now.is(old),
        "not taken back (before | now):\n{}{what}",
        old.differences(&now)
    );
}

#[test]
fn an_apply_interrupted_at_any_call_leaves_every_pair_of_types_old_or_new() {
    if !can_watch("an_apply_interrupted_at_any_call_leaves_every_pair_of_types_old_or_new") {
        return;
    }
    let (before, after) = all_pairs();
    let mut ground = Ground::new(Ground::usual(), &before, &after);
    let line = ground.apply_all("");
    ground.save();
    Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds)
        .finally(can_be_undone)
        .everywhere(1, 48);
}

#[test]
fn an_undo_interrupted_at_any_call_leaves_every_pair_of_types_old_or_new() {
    if !can_watch("an_undo_interrupted_at_any_call_leaves_every_pair_of_types_old_or_new") {
        return;
    }
    let (before, after) = all_pairs();
    let mut ground = Ground::new(Ground::usual(), &before, &after);
    ground.says(&ground.apply_all(""));
    ground.save();
    let line = format!("apply {} --undo", ground.run);
    Case::new(&ground, "undo", &line, (host(), copy()), Again::Refuses)
        .with_all_times()
        .everywhere(1, 48);
}

#[test]
fn a_project_on_another_file_system_than_the_state_is_old_or_new_after_a_killed_apply() {
    let test = "a_project_on_another_file_system_than_the_state_is_old_or_new_after_a_killed_apply";
    if !can_watch(test) {
        return;
    }
    let (before, after) = some();
    let mut ground = match Ground::elsewhere(Ground::usual(), &before, &after) {
        Ok(ground) => ground,
        Err(reason) => return skip(test, &reason),
    };
    let line = ground.apply_all("");
    ground.save();
    let mut case =
        Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds).finally(can_be_undone);
    let in_project = case.calls().iter().any(|call| call.contains("/.bastle-"));
    assert!(
        in_project,
        "no staging area in the project: the test sees nothing"
    );
    case.every(Fault::Kill, 0, if rounds().is_some() { 1 } else { 3 });
    let tally = case.tally;
    assert!(tally.old > 0 && tally.new > 0, "no kill came in time: {tally:?}");
    // A record that cannot be written leaves no staging area in the project.
    for at in case.calls_that_fail(|call| call.contains("/state.json")) {
        for refusal in REFUSALS {
            case.round(refusal, at, None, Depth::Rest);
        }
    }
}

#[test]
fn a_project_on_another_file_system_than_the_state_is_old_or_new_after_an_interrupted_undo() {
    let test = "a_project_on_another_file_system_than_the_state_is_old_or_new_after_an_interrupted_undo";
    if !can_watch(test) {
        return;
    }
    let (before, after) = some();
    let mut ground = match Ground::elsewhere(Ground::usual(), &before, &after) {
        Ok(ground) => ground,
        Err(reason) => return skip(test, &reason),
    };
    ground.says(&ground.apply_all(""));
    ground.save();
    let line = format!("apply {} --undo", ground.run);
    let mut case = Case::new(&ground, "undo", &line, (host(), copy()), Again::Refuses).with_all_times();
    let in_project = case.calls().iter().any(|call| call.contains("/.bastle-"));
    assert!(
        in_project,
        "no staging area in the project: the test sees nothing"
    );
    case.everywhere(3, 48);
}

#[test]
fn an_apply_over_edits_of_the_user_that_is_interrupted_at_any_call_loses_none() {
    if !can_watch("an_apply_over_edits_of_the_user_that_is_interrupted_at_any_call_loses_none") {
        return;
    }
    let (before, after) = some();
    let mut ground = Ground::new(Ground::usual(), &before, &after);
    let line = ground.apply_all(" --theirs");
    // Both sides changed the first two; of the others the agent knows nothing.
    for path in ["file.c", "to-directory.c", "README", "theirs/new.c"] {
        ground.lab.project(path, &format!("the user's {path}\n"));
    }
    ground.save();
    let mut case = Case::new(
        &ground,
        "apply --theirs",
        &line,
        (host(), copy()),
        Again::Succeeds,
    )
    .finally(can_be_undone);
    let written = Path::new("theirs/new.c");
    assert_eq!(case.old().bytes(written), case.new_state().bytes(written));
    case.everywhere(2, 24);
}

#[test]
fn what_the_user_writes_during_an_interrupted_apply_stays() {
    if !can_watch("what_the_user_writes_during_an_interrupted_apply_stays") {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all("");
    ground.save();
    let mut case = Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds);
    let paths = [
        "file.c",
        "to-directory.c",
        "to-directory.c/mine.c",
        "to-file.c",
        "to-file.c/mine.c",
        "gone.c/mine.c",
        "mine.c",
    ];
    let calls = case.calls().len();
    for at in (0..calls).step_by(if rounds().is_some() { 1 } else { 3 }) {
        let path = Path::new(paths[at / 3 % paths.len()]);
        case.edited(at, path);
        let second = (at % 2 == 0).then_some(at / 2 % 24);
        case.killed_and_edited(at, path, second);
    }
    println!("{:?}", case.tally);
}

#[test]
fn an_apply_that_is_refused_and_then_killed_while_it_takes_back_is_old_or_new() {
    if !can_watch("an_apply_that_is_refused_and_then_killed_while_it_takes_back_is_old_or_new") {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all("");
    ground.save();
    let mut case = Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds);
    let commits = case.calls_that_fail(|call| call.starts_with("renameat") && call.contains("/slots/"));
    assert!(commits.len() > 4, "{commits:?}");
    let step = if rounds().is_some() { 1 } else { commits.len() / 3 };
    let mut cut = 0;
    for at in commits.into_iter().step_by(step) {
        for later in 0..60 {
            if !case.refused_and_killed(at, later) {
                break;
            }
            cut += 1;
        }
    }
    assert!(cut > 20, "{cut}");
    println!("{:?}", case.tally);
}

#[test]
fn a_verb_beside_an_apply_that_is_killed_later_leaves_it_to_be_repaired() {
    if !can_watch("a_verb_beside_an_apply_that_is_killed_later_leaves_it_to_be_repaired") {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all("");
    ground.save();
    let mut case = Case::new(&ground, "apply", &line, (host(), copy()), Again::Succeeds);
    let calls = case.calls();
    let marked = calls
        .iter()
        .position(|call| call.starts_with("rename") && call.contains("/applying/"));
    let after = marked.expect("an apply sets a marker") + 1;
    let project = format!("{}/", ground.project().display());
    let changing: Vec<usize> = (after..calls.len())
        .filter(|at| calls[*at].starts_with("renameat") && calls[*at].contains(&project))
        .collect();
    assert!(changing.len() > 4, "{calls:#?}");
    for at in changing.into_iter().skip(1).step_by(2) {
        // Counted from the call at which the other verb ran.
        assert!(case.beside_and_killed(after, "ls", at - after - 1));
    }
    println!("{:?}", case.tally);
}

#[test]
fn a_rollback_interrupted_at_any_call_leaves_the_copy_old_or_new_and_the_work_in_a_snapshot() {
    if !can_watch("a_rollback_interrupted_at_any_call_leaves_the_copy_old_or_new_and_the_work_in_a_snapshot")
    {
        return;
    }
    let mut ground = some_ground();
    ground.save();
    let line = format!("rollback {} base", ground.run);
    Case::new(&ground, "rollback", &line, (copy(), host()), Again::Succeeds)
        .ended_by_the_next()
        .finally(|ground, old, what| {
            let all = ground.json(&format!("snapshots {}", ground.run));
            let all = all["snapshots"].as_array().expect("a list");
            let found = (0..all.len()).any(|number| {
                ground.says(&format!("rollback {} {number}", ground.run));
                copy()(ground) == *old
            });
            assert!(found, "the work is in no snapshot: {what}");
        })
        .everywhere(3, 24);
}

/// The word that throws the run's work away.
pub(crate) fn discard(ground: &Ground) -> String {
    let refused = ground.say(&format!("rm {}", ground.run));
    let word = refused.stderr.split("--discard ").nth(1);
    let word = word.and_then(|rest| rest.split_whitespace().next());
    word.unwrap_or_else(|| panic!("{refused:?}")).to_owned()
}

#[test]
fn a_removal_interrupted_at_any_call_leaves_the_copy_whole_or_in_the_trash_or_gone() {
    if !can_watch("a_removal_interrupted_at_any_call_leaves_the_copy_whole_or_in_the_trash_or_gone") {
        return;
    }
    let mut ground = some_ground();
    let word = discard(&ground);
    ground.save();
    let line = format!("rm {} --discard {word}", ground.run);
    Case::new(&ground, "rm", &line, (copy(), host()), Again::Refuses)
        .finally(|ground, old, what| {
            ground.says(&format!("restore {}", ground.run));
            assert!(copy()(ground) == *old, "not whole in the trash: {what}");
        })
        .everywhere(1, 12);
    let line = format!("rm {} --now --discard {word}", ground.run);
    Case::new(&ground, "rm --now", &line, (copy(), host()), Again::Refuses).everywhere(6, 32);
}

#[test]
fn pruning_interrupted_at_any_call_leaves_each_copy_whole_or_gone_and_work_untouched() {
    if !can_watch("pruning_interrupted_at_any_call_leaves_each_copy_whole_or_gone_and_work_untouched") {
        return;
    }
    let mut ground = some_ground();
    let idle = ground.make_run(&[]);
    ground.save();
    let of_idle = |ground: &Ground| Tree::of(&ground.copy_of(&idle));
    let line = "prune --now --older-than 0s";
    Case::new(&ground, line, line, (Box::new(of_idle), both()), Again::Succeeds).everywhere(6, 32);

    ground.restore();
    ground.says(&format!("rm {idle}"));
    ground.save();
    let listed = |ground: &Ground| {
        Tree::told(
            ground
                .says("ls --trash --json")
                .stdout
                .contains(&idle)
                .to_string(),
        )
    };
    let line = "prune --older-than 3650d --trash-older-than 0s";
    Case::new(&ground, line, line, (Box::new(listed), both()), Again::Succeeds).everywhere(6, 32);
}

/// The branch `agent` of the project.
pub(crate) fn branch<'a>() -> Look<'a> {
    Box::new(|ground| {
        let project = ground.project();
        let there = git(
            &ground.lab,
            &project,
            &["for-each-ref", "--format=%(refname:short)", "refs/heads/agent"],
        );
        Tree::told(match there.trim() {
            "" => String::new(),
            name => git(&ground.lab, &project, &["ls-tree", "-r", name]),
        })
    })
}

/// What a branch leaves alone.
pub(crate) fn beside_branch<'a>() -> Look<'a> {
    Box::new(|ground| {
        Tree::joined([
            ("host", host()(ground).without(|path| path.starts_with(".git"))),
            ("copy", copy()(ground)),
        ])
    })
}

pub(crate) fn repository_is_sound(ground: &Ground) {
    let project = ground.project();
    git(&ground.lab, &project, &["fsck", "--strict"]);
    for path in Tree::of(&project.join(".git")).paths() {
        // The lock of the one branch is git's, when git itself was killed; it names it, and the user removes it.
        let lock = path.starts_with("refs/heads") && path.extension().is_some_and(|end| end == "lock");
        if lock {
            fs::remove_file(project.join(".git").join(path)).expect("own file");
            continue;
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let ours = name.contains("tmp") || name.ends_with(".lock") || name.ends_with(".part");
        assert!(!ours, "left in the repository: {}", path.display());
    }
}

/// A directory for archives; what is in it.
pub(crate) fn archives(ground: &Ground) -> PathBuf {
    let exports = ground.lab.outside().join("exports");
    fs::create_dir(&exports).expect("a fresh place");
    ground.lab.hand_over(&exports);
    exports
}

#[test]
fn a_branch_interrupted_at_any_call_is_there_whole_or_not_at_all_and_the_repository_is_sound() {
    if !can_watch("a_branch_interrupted_at_any_call_is_there_whole_or_not_at_all_and_the_repository_is_sound")
    {
        return;
    }
    let mut ground = some_ground();
    let line = ground.apply_all(" --branch agent");
    ground.save();
    Case::new(
        &ground,
        "apply --branch",
        &line,
        (branch(), beside_branch()),
        Again::Refuses,
    )
    .always(repository_is_sound)
    .everywhere(3, 32);
}

#[test]
fn an_archive_interrupted_at_any_call_is_whole_or_not_there() {
    if !can_watch("an_archive_interrupted_at_any_call_is_whole_or_not_there") {
        return;
    }
    let mut ground = some_ground();
    let exports = archives(&ground);
    ground.save();
    let line = format!("export {} {}/archive.tar", ground.run, exports.display());
    let archive = |_: &Ground| Tree::of(&exports);
    Case::new(
        &ground,
        "export",
        &line,
        (Box::new(archive), both()),
        Again::Refuses,
    )
    .everywhere(2, 16);
}

#[test]
fn a_fork_interrupted_at_any_call_is_whole_or_absent_and_the_first_run_is_untouched() {
    if !can_watch("a_fork_interrupted_at_any_call_is_whole_or_absent_and_the_first_run_is_untouched") {
        return;
    }
    let mut ground = some_ground();
    ground.save();
    let line = format!("fork {} --name second", ground.run);
    let fork = |ground: &Ground| Tree::of(&ground.copy_of("second"));
    Case::new(&ground, "fork", &line, (Box::new(fork), both()), Again::Refuses).everywhere(4, 32);
}
