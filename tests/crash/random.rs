//! Random trees, random work on them, random faults at random calls. The seed is said; with `BASTLE_SEED` it is the same
//! again, with `BASTLE_ROUNDS` there are as many rounds.
use super::calls::Fault;
use super::disk::Loss;
use super::ground::{Ground, Tree};
use super::rounds::{Again, Case, Depth, REFUSALS, can_watch, rounds};
use super::types::{Paths, SHAPES, Shape};
use super::verbs::{archives, beside_branch, both, branch, can_be_undone, copy, host, repository_is_sound};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rounds in the usual run of the tests.
const FEW: usize = 40;
/// Rounds on one ground.
const PER_GROUND: usize = 20;

/// Numbers that look random and are the same for the same seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let end = u64::try_from(end.max(1)).expect("fits");
        usize::try_from((mixed ^ (mixed >> 31)) % end).expect("is below a usize")
    }
}

/// The seed that was asked for, or one of the clock.
pub(crate) fn seed() -> u64 {
    match std::env::var("BASTLE_SEED") {
        Ok(text) => text.parse().expect("BASTLE_SEED is a number"),
        Err(_) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            since.as_secs() ^ (u64::from(since.subsec_nanos()) << 20)
        }
    }
}

/// One ground in so many is large: from 65 changes on several threads stage and exchange.
const ONE_IN: usize = 6;
/// Rounds on a large ground.
const PER_LARGE: usize = 8;

/// How many paths change.
fn size(random: &mut Random) -> usize {
    match random.below(ONE_IN) {
        0 => 150 + random.below(151),
        _ => 2 + random.below(7),
    }
}

/// That many paths in up to four directories, each with a type before and one after.
fn trees(random: &mut Random, paths: usize) -> (Paths, Paths) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for number in 0..paths {
        let directory = ["", "a/", "a/b/", "c/"][random.below(4)];
        let path = format!("{directory}path-{number}.c");
        let mut was = SHAPES[random.below(SHAPES.len())];
        let mut becomes = SHAPES[random.below(SHAPES.len())];
        if was.has_repository() && becomes.is_file_or_link() {
            (was, becomes) = (becomes, was);
        }
        if was == becomes {
            becomes = becomes.changed();
        }
        before.push((path.clone(), was));
        after.push((path, becomes));
    }
    // Something always changes.
    after.push(("always.c".to_owned(), Shape::File(1)));
    (before, after)
}

/// The verbs that one ground is tried with, and how each begins.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Apply,
    Theirs,
    Undo,
    Rollback,
    Fork,
    Remove,
    Branch,
    Export,
    Prune,
}

const VERBS: [Verb; 9] = [
    Verb::Apply,
    Verb::Theirs,
    Verb::Undo,
    Verb::Rollback,
    Verb::Fork,
    Verb::Remove,
    Verb::Branch,
    Verb::Export,
    Verb::Prune,
];

/// Verbs that the power is cut in; the library's tests cut forks and rollbacks.
fn is_cut(verb: Verb) -> bool {
    match verb {
        Verb::Apply
        | Verb::Theirs
        | Verb::Undo
        | Verb::Branch
        | Verb::Export
        | Verb::Remove
        | Verb::Prune => true,
        Verb::Rollback | Verb::Fork => false,
    }
}

/// What is to be said.
struct Begun {
    line: String,
    /// The run that goes by age, where one does.
    idle: String,
}

fn case_of<'a>(ground: &'a Ground, verb: Verb, begun: &'a Begun, name: &str) -> Case<'a> {
    let name = format!("{verb:?} {name}");
    let new = |looks, again| Case::new(ground, &name, &begun.line, looks, again);
    match verb {
        Verb::Apply | Verb::Theirs => new((host(), copy()), Again::Succeeds).finally(can_be_undone),
        Verb::Undo => new((host(), copy()), Again::Refuses),
        Verb::Rollback => new((copy(), host()), Again::Succeeds).ended_by_the_next(),
        Verb::Fork => {
            let fork = |ground: &Ground| Tree::of(&ground.copy_of("second"));
            new((Box::new(fork), both()), Again::Refuses)
        }
        Verb::Remove => new((copy(), host()), Again::Refuses),
        Verb::Branch => new((branch(), beside_branch()), Again::Refuses).always(repository_is_sound),
        Verb::Export => {
            let exports = |ground: &Ground| Tree::of(&ground.lab.outside().join("exports"));
            new((Box::new(exports), both()), Again::Refuses)
        }
        Verb::Prune => {
            let idle = |ground: &Ground| Tree::of(&ground.copy_of(&begun.idle));
            new((Box::new(idle), both()), Again::Succeeds)
        }
    }
}

/// One apply or undo in so many has its state on another file system than the project, where this host has one.
const ELSEWHERE: usize = 4;

fn ground_of(verb: Verb, random: &mut Random, before: &Paths, after: &Paths) -> Ground {
    let writes_project = matches!(verb, Verb::Apply | Verb::Theirs | Verb::Undo);
    if writes_project && random.below(ELSEWHERE) == 0 {
        match Ground::elsewhere(Ground::usual(), before, after) {
            Ok(ground) => {
                println!("  with the state on another file system");
                return ground;
            }
            Err(reason) => println!("  {reason}"),
        }
    }
    Ground::new(Ground::usual(), before, after)
}

/// Makes the ground ready for a verb.
fn begin(ground: &mut Ground, verb: Verb, random: &mut Random, after: &Paths) -> Begun {
    let mut idle = String::new();
    let line = match verb {
        Verb::Apply => ground.apply_all(""),
        Verb::Theirs => {
            let line = ground.apply_all(" --theirs");
            for (path, shape) in after {
                if random.below(2) == 0 && ground.project().join(path).is_file() && shape.is_file_or_link() {
                    ground.lab.project(path, "the user's\n");
                }
            }
            ground.lab.project("theirs.c", "the user's\n");
            line
        }
        Verb::Undo => {
            ground.says(&ground.apply_all(""));
            format!("apply {} --undo", ground.run)
        }
        Verb::Rollback => format!("rollback {} base", ground.run),
        Verb::Fork => format!("fork {} --name second", ground.run),
        Verb::Remove => {
            let word = super::verbs::discard(ground);
            format!("rm {} --now --discard {word}", ground.run)
        }
        Verb::Branch => ground.apply_all(" --branch agent"),
        Verb::Export => {
            let exports = archives(ground);
            format!("export {} {}/archive.tar", ground.run, exports.display())
        }
        Verb::Prune => {
            idle = ground.make_run(&[]);
            "prune --now --older-than 0s".to_owned()
        }
    };
    ground.save();
    Begun { line, idle }
}

#[test]
fn random_trees_are_old_or_new_after_any_verb_that_was_interrupted_anywhere() {
    if !can_watch("random_trees_are_old_or_new_after_any_verb_that_was_interrupted_anywhere") {
        return;
    }
    let wanted = rounds().unwrap_or(FEW);
    let first = seed();
    let mut done = 0;
    while done < wanted {
        // Each ground has a seed of its own: the one that is said begins with the ground that failed.
        let seed = first.wrapping_add(u64::try_from(done).expect("fits"));
        let mut random = Random::new(seed);
        let paths = size(&mut random);
        let (before, after) = trees(&mut random, paths);
        let verb = VERBS[random.below(VERBS.len())];
        println!("BASTLE_SEED={seed} BASTLE_ROUNDS={PER_GROUND}: {verb:?} {paths} paths");
        if paths < 10 {
            println!("  {before:?} {after:?}");
        }
        let mut ground = ground_of(verb, &mut random, &before, &after);
        let begun = begin(&mut ground, verb, &mut random, &after);
        let mut case = case_of(&ground, verb, &begun, &format!("BASTLE_SEED={seed}"));
        if ground.is_elsewhere() {
            // A staging directory in the project that cannot be removed stays until the next verb.
            case = case.ended_by_the_next();
        }
        let calls = case.calls().len();
        let rounds = if paths < 10 { PER_GROUND } else { PER_LARGE };
        for _ in 0..rounds.min(wanted - done) {
            let at = random.below(calls);
            match random.below(10) {
                0..4 => {
                    let second = (random.below(2) == 0).then(|| random.below(30));
                    case.round(
                        Fault::Kill,
                        at,
                        second,
                        [Depth::Rest, Depth::Again][random.below(2)],
                    );
                }
                4..7 => {
                    let refusal = REFUSALS[random.below(REFUSALS.len())];
                    let at = random.below(calls * 5 / 4);
                    case.round(refusal, at, None, [Depth::Rest, Depth::Again][random.below(2)]);
                }
                7..9 if paths < 10 && is_cut(verb) => {
                    let seed = u64::try_from(random.below(usize::MAX)).expect("fits");
                    let loss = [Loss::Everything, Loss::Some(seed)][random.below(2)];
                    // Also after the last call.
                    case.power_cut(random.below(calls * 9 / 8), loss);
                }
                _ if matches!(verb, Verb::Apply | Verb::Undo) => {
                    let path = Path::new(&after[random.below(after.len())].0);
                    let second = (random.below(2) == 0).then(|| random.below(30));
                    case.killed_and_edited(at, path, second);
                }
                _ => {
                    case.round(Fault::Kill, at, None, Depth::Everything);
                }
            }
            done += 1;
        }
    }
    println!("{done} rounds from seed {first}");
}
