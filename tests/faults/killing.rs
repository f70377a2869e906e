//! `kill -9` of bastle, of its spawner, of both, in every state and at random moments: nothing of the run may be left.
use crate::host::{all_gone, eventually, groups, marker, orphans, pass, status};
use crate::live::{Live, send};
use crate::support::{Fence, Identity, Lab, for_each_identity, identities};
use rustix::process::Signal;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Victim {
    Bastle,
    Spawner,
    Both,
}

/// Starts a tree that does not want to end, with groups where this identity can have them.
fn start(fence: &Fence<'_>, mark: &str) -> Live {
    let script = format!(
        "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; sleep 600; : {mark}' & echo GO; sleep 600; : {mark}"
    );
    let mut live = Live::sh(fence, &script);
    live.expect("GO");
    live
}

fn limited(lab: &Lab) -> Fence<'_> {
    lab.fence().flags(["--pids", "60", "--mem", "200M"])
}

fn strike(live: &Live, victim: Victim) {
    let spawner = live.spawner();
    match victim {
        Victim::Bastle => live.signal(Signal::KILL),
        Victim::Spawner => send(spawner, Signal::KILL),
        Victim::Both => {
            // Stopped first, so that neither sees the other's end and cleans up: this is about nobody left to.
            live.signal(Signal::STOP);
            send(spawner, Signal::KILL);
            live.signal(Signal::KILL);
        }
    }
}

fn assert_grouped(lab: &Lab, fence: &Fence<'_>) {
    if lab.identity == Identity::Root {
        assert!(
            !groups(fence.name()).is_empty(),
            "control: the run has groups while it lives"
        );
    }
}

#[test]
fn a_killed_bastle_takes_everything_with_it() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = limited(lab);
        let live = start(&fence, &mark);
        // The one in the background may not have come to its own name yet.
        let alive = eventually(|| crate::host::marked(&mark).len() >= 2);
        assert!(alive, "control: the tree is seen while it lives");
        assert_grouped(lab, &fence);
        strike(&live, Victim::Bastle);
        assert_eq!(live.wait().code, 137);
        assert!(all_gone(&mark, fence.name()));
    });
}

#[test]
fn a_killed_spawner_ends_the_run_with_a_reason_and_takes_everything_with_it() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = limited(lab);
        let live = start(&fence, &mark);
        assert_grouped(lab, &fence);
        strike(&live, Victim::Spawner);
        let ended = live.wait();
        assert!([125, 137].contains(&ended.code), "{ended:?}");
        assert!(ended.errors().contains("BST-FENCE-008"), "{ended:?}");
        assert!(all_gone(&mark, fence.name()));
        let sealed = fence.audit().iter().any(|event| event["type"] == "ended");
        assert!(sealed, "the record says how it ended");
    });
}

#[test]
fn with_bastle_and_spawner_killed_no_process_is_left_and_the_next_run_removes_the_groups() {
    for_each_identity(|lab| {
        let mark = marker();
        let fence = limited(lab);
        let live = start(&fence, &mark);
        assert_grouped(lab, &fence);
        strike(&live, Victim::Both);
        assert_eq!(live.wait().code, 137);
        assert!(eventually(
            || crate::host::marked(&mark).is_empty() && orphans().is_empty()
        ));
        // A killed spawner counts as alive until its new parent has seen its end: then a later run sweeps.
        let next = || limited(lab).sh("exit 3").ended.code == 3;
        assert!(next(), "the next run is not disturbed");
        assert!(eventually(
            || groups(fence.name()).is_empty() || (next() && groups(fence.name()).is_empty())
        ));
    });
}

#[test]
fn a_suspended_tree_dies_like_any_other() {
    for_each_identity(|lab| {
        for victim in [Victim::Bastle, Victim::Spawner] {
            let mark = marker();
            let fence = limited(lab);
            let live = start(&fence, &mark);
            let spawner = live.spawner();
            live.signal(Signal::TSTP);
            let stopped = || status(live.pid(), "State").is_some_and(|state| state.starts_with('T'));
            assert!(eventually(stopped), "control: bastle is suspended");
            match victim {
                Victim::Bastle => live.signal(Signal::KILL),
                Victim::Spawner | Victim::Both => send(spawner, Signal::KILL),
            }
            assert!(eventually(|| crate::host::marked(&mark).is_empty()), "{victim:?}");
            live.signal(Signal::CONT);
            assert!([125, 137].contains(&live.wait().code), "{victim:?}");
            assert!(all_gone(&mark, fence.name()), "{victim:?}");
        }
    });
}

/// A fixed sequence: a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn killed_at_thirty_random_moments_nothing_is_left_and_the_next_run_works() {
    for_each_identity(|lab| {
        let mut dice = Dice(0xba57_1e00);
        let mut names = Vec::new();
        let mark = marker();
        for _ in 0..30 / identities().len() {
            let fence = limited(lab);
            names.push(fence.name().to_owned());
            let live = Live::sh(&fence, &format!("sleep 600; : {mark}"));
            pass(Duration::from_millis(dice.roll(160)));
            let victim = [Victim::Bastle, Victim::Spawner, Victim::Both][dice.roll(3) as usize];
            match (victim, crate::host::children(live.pid()).first()) {
                (Victim::Bastle, _) | (Victim::Spawner | Victim::Both, None) => live.signal(Signal::KILL),
                (Victim::Spawner, Some(spawner)) => send(*spawner, Signal::KILL),
                (Victim::Both, Some(spawner)) => {
                    live.signal(Signal::STOP);
                    send(*spawner, Signal::KILL);
                    live.signal(Signal::KILL);
                }
            }
            let ended = live.wait();
            assert!([125, 137].contains(&ended.code), "{victim:?}: {ended:?}");
        }
        assert!(eventually(
            || crate::host::marked(&mark).is_empty() && orphans().is_empty()
        ));
        let next = limited(lab).sh("echo works");
        assert_eq!((next.ended.code, next.said()), (0, "works"), "{next:?}");
        // Sweeping is the next run's work; a killed spawner counts as alive until its new parent has seen its end.
        let left = || -> Vec<_> { names.iter().flat_map(|name| groups(name)).collect() };
        assert!(
            eventually(|| limited(lab).sh("true").ended.code == 0 && left().is_empty()),
            "{:?}",
            left()
        );
        let verified = crate::support::run(
            lab.command(crate::support::bastle())
                .args(["audit", "verify", "@last"]),
            b"",
            crate::support::Limit::HANG,
        );
        assert_eq!(
            verified.code, 0,
            "the log of the run after the kills is whole: {verified:?}"
        );
    });
}
