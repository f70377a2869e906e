//! Each pair of types alone, at its own places: an apply and its undo, killed or refused at random calls of which some
//! are around the change of names.
use super::calls::{Errno, Extent, Fault};
use super::ground::Ground;
use super::random::{Random, seed};
use super::rounds::{Again, Case, Depth, REFUSALS, can_watch, rounds};
use super::types::{SHAPES, Shape};
use super::verbs::{can_be_undone, copy, host};

/// Rounds per pair and verb in the usual run of the tests.
const FEW: usize = 3;

/// The same where rounds were asked for.
const MOST: usize = 30;

/// Pairs that an apply refuses as a whole, because a repository of the user's would go with the directory.
fn is_refused(was: Shape, becomes: Shape) -> bool {
    was.has_repository() && becomes.is_file_or_link()
}

/// Pairs in which nothing that may be applied differs: what is in a git directory never is.
fn is_same(was: Shape, becomes: Shape) -> bool {
    was == becomes && was.changed() == was || was.has_repository() && becomes.has_repository()
}

fn interrupted(case: &mut Case<'_>, random: &mut Random) {
    let calls = case.calls();
    let project = format!("{}/", case.ground.project().display());
    // Just before and just after each call on a name of the project.
    let near: Vec<usize> = (0..calls.len())
        .filter(|at| {
            calls[at.saturating_sub(1)..(at + 2).min(calls.len())]
                .iter()
                .any(|call| call.contains(&project))
        })
        .collect();
    assert!(
        !near.is_empty(),
        "{} never touches the project: {calls:?}",
        case.name
    );
    for at in &near {
        case.round(Fault::Kill, *at, None, Depth::Rest);
    }
    case.round(
        Fault::Fail(Errno::Io, Extent::Once),
        near[near.len() / 2],
        None,
        Depth::Everything,
    );
    for _ in 0..rounds().map_or(FEW, |rounds| rounds.min(MOST)) {
        let at = random.below(calls.len());
        let second = (random.below(3) == 0).then(|| random.below(20));
        case.round(Fault::Kill, at, second, Depth::Rest);
        let refusal = REFUSALS[random.below(REFUSALS.len())];
        case.round(refusal, random.below(calls.len() * 5 / 4), None, Depth::Rest);
    }
}

/// Pairs in the usual run of the tests: all are in one tree in `verbs`.
const FEW_PAIRS: usize = 4;

/// What an apply does with a pair of types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Takes,
    Refuses,
}

/// Every pair of types with a difference to which an apply has this answer.
fn all(answer: Answer) -> Vec<(Shape, Shape)> {
    let pairs = SHAPES
        .iter()
        .flat_map(|was| SHAPES.iter().map(|becomes| (*was, *becomes)));
    let answer_to = |was, becomes| match is_refused(was, becomes) {
        true => Answer::Refuses,
        false => Answer::Takes,
    };
    let pairs =
        pairs.filter(|(was, becomes)| !is_same(*was, *becomes) && answer_to(*was, *becomes) == answer);
    let changed = |(was, becomes): (Shape, Shape)| match was == becomes {
        true => (was, becomes.changed()),
        false => (was, becomes),
    };
    pairs.map(changed).collect()
}

fn ground_of(was: Shape, becomes: Shape) -> Ground {
    let path = "path.c".to_owned();
    Ground::new(Ground::usual(), &[(path.clone(), was)], &[(path, becomes)])
}

#[test]
fn a_repository_of_the_users_below_a_directory_that_became_something_else_is_never_replaced() {
    if !can_watch("a_repository_of_the_users_below_a_directory_that_became_something_else_is_never_replaced")
    {
        return;
    }
    let refused = all(Answer::Refuses);
    assert_eq!(
        refused.len(),
        6,
        "two kinds of repository, three of files and links"
    );
    for (was, becomes) in refused {
        let ground = ground_of(was, becomes);
        let line = ground.apply_refused();
        let before = host()(&ground);
        let ended = ground.say(&line);
        let after = host()(&ground);
        assert_eq!(ended.code, Some(1), "{was:?} to {becomes:?}: {ended:?}");
        assert!(
            before == after,
            "{was:?} to {becomes:?}: {}",
            before.differences(&after)
        );
    }
}

#[test]
fn each_pair_of_types_alone_is_old_or_new_after_an_interrupted_apply_and_after_its_undo() {
    if !can_watch("each_pair_of_types_alone_is_old_or_new_after_an_interrupted_apply_and_after_its_undo") {
        return;
    }
    let seed = seed();
    println!("BASTLE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut pairs = all(Answer::Takes);
    if rounds().is_none() {
        pairs = (0..FEW_PAIRS)
            .map(|_| pairs.swap_remove(random.below(pairs.len())))
            .collect();
    }
    let mut tally = [0; 3];
    for (was, becomes) in pairs {
        let mut ground = ground_of(was, becomes);
        let name = format!("{was:?} to {becomes:?} (BASTLE_SEED={seed})");
        let line = ground.apply_all("");
        ground.save();
        let mut case =
            Case::new(&ground, &name, &line, (host(), copy()), Again::Succeeds).finally(can_be_undone);
        interrupted(&mut case, &mut random);
        let done = case.tally;
        drop(case);
        ground.restore();
        ground.says(&line);
        ground.save();
        let line = format!("apply {} --undo", ground.run);
        let mut case = Case::new(
            &ground,
            &format!("undo of {name}"),
            &line,
            (host(), copy()),
            Again::Refuses,
        );
        interrupted(&mut case, &mut random);
        for one in [done, case.tally] {
            tally = [tally[0] + one.rounds, tally[1] + one.old, tally[2] + one.new];
        }
    }
    println!("{} rounds, {} old, {} new", tally[0], tally[1], tally[2]);
}
