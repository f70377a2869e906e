//! A small model of a tree beside the real binary: random work of agent and user, in every way of making the tree, and after
//! every verb the project, its repository and the agent's tree are exactly what the model says.
//!
//! A round that fails prints its seed and the shortest sequence that still fails. `BASTLE_ROUNDS` and `BASTLE_SEED` play
//! other rounds than the fixed ones.
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod forms;
mod ops;
mod predict;
mod random;
mod session;
mod tree;
mod verbs;
mod world;

use random::{Case, Mode, Random};
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{Identity, Lab, identities};

/// Rounds of each mode when `BASTLE_ROUNDS` does not say.
const ROUNDS: u64 = 10;
/// The first of them: these rounds fail when an apply does not carry the right to execute.
const FIRST: u64 = 11;
/// Tries to make a failing round shorter.
const MOST_TRIES: usize = 60;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn rounds(mode: Mode) {
    let first = variable("BASTLE_SEED").unwrap_or(FIRST);
    let mut failed = Vec::new();
    for seed in first..first + variable("BASTLE_ROUNDS").unwrap_or(ROUNDS) {
        let all = identities();
        let identity = all[usize::try_from(seed).expect("is small") % all.len()];
        let case = Random::new(seed).case(mode);
        eprintln!("{mode:?} {seed}");
        if let Err(told) = outcome(identity, &case) {
            eprintln!("{told}\n{}", readable(&case));
            let (case, told) = shortest(identity, case, told);
            eprintln!(
                "FAILED {mode:?}, BASTLE_SEED={seed}, as {identity}\n{told}\n{}",
                readable(&case)
            );
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{mode:?}: seeds {failed:?}");
}

/// A case with its bytes as text.
fn readable(case: &Case) -> String {
    let all = format!("{case:?}")
        .replace("Put(", "\n  Put(")
        .replace("]), ", "]),\n  ");
    let mut out = String::new();
    let mut rest = all.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let list = after.split_once(']').map_or("", |(list, _)| list);
        let bytes: Option<Vec<u8>> = list.split(", ").map(|one| one.parse().ok()).collect();
        match bytes {
            Some(bytes) => {
                out.push_str(&format!("b\"{}\"", bytes.escape_ascii()));
                rest = &after[list.len() + 1..];
            }
            None => {
                out.push('[');
                rest = after;
            }
        }
    }
    out + rest
}

fn outcome(identity: Identity, case: &Case) -> Result<(), String> {
    let played = catch_unwind(AssertUnwindSafe(|| session::play(&Lab::new(identity), case)));
    played.unwrap_or_else(|panicked| {
        let text = panicked.downcast_ref::<String>();
        Err(format!("panicked: {}", text.map_or("", String::as_str)))
    })
}

/// Takes out operations as long as the round still fails.
fn shortest(identity: Identity, mut case: Case, mut told: String) -> (Case, String) {
    let mut tries = 0;
    loop {
        let mut shorter = None;
        for candidate in shorter_ones(&case) {
            tries += 1;
            if tries > MOST_TRIES {
                return (case, told);
            }
            // A project that cannot be made at all is another failure.
            let alike = |other: &String| other.starts_with("panicked") == told.starts_with("panicked");
            if let Err(other) = outcome(identity, &candidate)
                && alike(&other)
            {
                shorter = Some((candidate, other));
                break;
            }
        }
        let Some((next, other)) = shorter else {
            return (case, told);
        };
        (case, told) = (next, other);
    }
}

fn shorter_ones(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut without = |change: &dyn Fn(&mut Case)| {
        let mut shorter = case.clone();
        change(&mut shorter);
        all.push(shorter);
    };
    // Halves first: most of a round has nothing to do with its failure.
    for part in [case.steps.len() / 2, case.steps.len().saturating_sub(1)] {
        if part < case.steps.len() {
            without(&|one| one.steps.truncate(part));
        }
    }
    for at in 0..case.steps.len() {
        without(&|one| {
            one.steps.remove(at);
        });
    }
    for at in 0..case.agent.len() {
        without(&|one| {
            one.agent.remove(at);
        });
    }
    for at in 0..case.dirty.len() {
        without(&|one| {
            one.dirty.remove(at);
        });
    }
    for at in 0..case.committed.len() {
        without(&|one| {
            one.committed.remove(at);
        });
    }
    for at in 0..case.deeds.len() {
        without(&|one| {
            one.deeds.remove(at);
        });
    }
    if case.attributes {
        without(&|one| one.attributes = false);
    }
    if case.staged {
        without(&|one| one.staged = false);
    }
    if case.layout != random::Layout::Plain {
        without(&|one| one.layout = random::Layout::Plain);
    }
    all
}

#[test]
fn work_in_a_copy_comes_back_and_goes_as_a_model_of_it_says() {
    rounds(Mode::Copy);
}

#[test]
fn work_in_an_overlay_comes_back_and_goes_as_a_model_of_it_says() {
    rounds(Mode::Overlay);
}

#[test]
fn work_in_a_work_tree_comes_back_and_goes_as_a_model_of_it_says() {
    rounds(Mode::Worktree);
}

#[test]
fn work_in_place_is_what_a_model_of_it_says_and_leaves_the_repository_alone() {
    rounds(Mode::InPlace);
}
