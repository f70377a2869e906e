//! One verb, interrupted at one call, brought to rest by the next verb, and judged.
use super::calls::{self, Ended, Errno, Extent, Fault};
use super::disk::Loss;
use super::ground::{Ground, Tree};
use super::support::skip;
use std::fs;
use std::path::{Path, PathBuf};

/// How many calls a verb must show at least: fewer, and the test sees nothing.
const FEWEST_CALLS: usize = 10;

/// What is looked at of a ground.
pub(crate) type Look<'a> = Box<dyn Fn(&Ground) -> Tree + 'a>;

/// What is tried in the end.
type Finally<'a> = Box<dyn Fn(&Ground, &Tree, &str) + 'a>;

/// How much is tried after an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The next verb repairs, and everything is looked at.
    Rest,
    /// The verb is said again as well.
    Again,
    /// The way back is tried as well, and everything is let go of.
    Everything,
}

/// How many rounds somebody asked for; none in the usual run of the tests.
pub(crate) fn rounds() -> Option<usize> {
    let text = std::env::var("BASTLE_ROUNDS").ok()?;
    Some(text.parse().expect("BASTLE_ROUNDS is a number"))
}

type Check<'a> = Box<dyn Fn(&Ground) + 'a>;

/// A verb and what it may change.
pub(crate) struct Case<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    /// What the verb changes: as before or as after at every moment of rest.
    changes: Look<'a>,
    /// What it must leave alone.
    leaves: Look<'a>,
    /// Whether it can be said again when it has done its work.
    again: Again,
    old: Tree,
    new: Tree,
    /// What it is afterwards, with every time.
    seen: Tree,
    rest: Tree,
    /// More that must hold at rest.
    always: Vec<Check<'a>>,
    /// Whether it is old or new again as soon as the verb has failed, and not only after the next one.
    at_once: bool,
    /// What can be done with it in the end; sees what was there before.
    also: Vec<Finally<'a>>,
    pub(crate) tally: Tally,
}

/// What a verb that has done its work answers when it is said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It succeeds, and nothing changes.
    Succeeds,
    /// It says that there is nothing to do, or that it exists already.
    Refuses,
}

/// How rounds ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: usize,
    pub(crate) old: usize,
    pub(crate) new: usize,
}

impl<'a> Case<'a> {
    /// Lets the verb run through once to see what it does. The ground is as it was saved afterwards.
    pub(crate) fn new(
        ground: &'a Ground,
        name: &str,
        line: &str,
        (changes, leaves): (Look<'a>, Look<'a>),
        again: Again,
    ) -> Self {
        ground.restore();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (old, rest) = (changes(ground), leaves(ground));
        let done = ground.says(line);
        let seen = changes(ground);
        let new = seen.clone().with_free_times(&old);
        assert!(!seen.is(&old), "{line} changes nothing: {done:#?}");
        assert_unchanged(&rest, &leaves(ground), name);
        ground.restore();
        Self {
            ground,
            name: name.to_owned(),
            words,
            changes,
            leaves,
            again,
            old,
            new,
            seen,
            rest,
            always: Vec::new(),
            at_once: true,
            also: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Something else that must hold at rest.
    pub(crate) fn always(mut self, check: impl Fn(&Ground) + 'a) -> Self {
        self.always.push(Box::new(check));
        self
    }

    /// A failed verb may leave the end to the next one, which it says.
    pub(crate) fn ended_by_the_next(mut self) -> Self {
        self.at_once = false;
        self
    }

    /// Times that change become the same ones every time.
    pub(crate) fn with_all_times(mut self) -> Self {
        self.new = self.seen.clone();
        self
    }

    /// What it was before and is afterwards. Times are best effort on a disk that refuses.
    fn expected(&self, fault: Fault) -> (Tree, Tree) {
        let (old, new) = (self.old.clone(), self.new.clone());
        match fault {
            Fault::Fail(..) => (old.without_times(), new.without_times()),
            Fault::Nothing | Fault::Kill | Fault::Edit => (old, new),
        }
    }

    /// Something that must be possible in the end, when the verb has done its work.
    pub(crate) fn finally(mut self, check: impl Fn(&Ground, &Tree, &str) + 'a) -> Self {
        self.also.push(Box::new(check));
        self
    }

    pub(crate) fn old(&self) -> &Tree {
        &self.old
    }

    pub(crate) fn new_state(&self) -> &Tree {
        &self.new
    }

    /// The calls of the verb when nothing happens to it, as kills see them.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.ground.restore();
        let mut command = self.ground.command(&self.words);
        let ended = calls::run(&mut command, usize::MAX, Fault::Kill, &mut || {});
        assert_eq!(ended.code, Some(0), "{}: {ended:?}", self.name);
        assert!(
            ended.calls.len() >= FEWEST_CALLS,
            "{} shows only {} calls: the test sees nothing",
            self.name,
            ended.calls.len()
        );
        ended.calls
    }

    /// The numbers of calls as refusals see them, syncs counted.
    pub(crate) fn calls_that_fail(&self, which: impl Fn(&str) -> bool) -> Vec<usize> {
        self.ground.restore();
        let fault = Fault::Fail(Errno::Io, Extent::Once);
        let mut command = self.ground.command(&self.words);
        let ended = calls::run(&mut command, usize::MAX, fault, &mut || {});
        let calls = ended.calls.iter().enumerate();
        calls.filter(|(_, call)| which(call)).map(|(at, _)| at).collect()
    }

    /// A kill at every `kills`-th call and every refusal at every `refusals`-th; at all of them where rounds were asked for.
    pub(crate) fn everywhere(&mut self, kills: usize, refusals: usize) {
        let (kills, refusals) = match rounds() {
            Some(_) => (1, 1),
            None => (kills, refusals),
        };
        self.every(Fault::Kill, 0, kills);
        for (number, refusal) in REFUSALS.into_iter().enumerate() {
            self.every(refusal, number * refusals / REFUSALS.len(), refusals);
        }
        let tally = self.tally;
        println!(
            "{}: {} rounds, {} old, {} new",
            self.name, tally.rounds, tally.old, tally.new
        );
        assert!(
            tally.old > 0 && tally.new > 0,
            "{}: no fault came in time: {tally:?}",
            self.name
        );
    }

    /// The fault at every `step`-th call from `first` on. Each round begins with the ground as it was saved.
    pub(crate) fn every(&mut self, fault: Fault, first: usize, step: usize) {
        let mut at = first;
        loop {
            let number = at / step;
            let depth = match (rounds(), number % 24) {
                (Some(_), _) | (None, 0) => Depth::Everything,
                (None, 8 | 16) => Depth::Again,
                (None, _) => Depth::Rest,
            };
            // Every other kill is followed by one of the verb that repairs.
            let second = (fault == Fault::Kill && number % 2 == 1).then_some(number / 2 % 20);
            if !self.round(fault, at, second, depth) {
                break;
            }
            at += step;
        }
    }

    /// Whether the call came. The verb that repairs is killed, too, at its call number `second`.
    pub(crate) fn round(&mut self, fault: Fault, at: usize, second: Option<usize>, depth: Depth) -> bool {
        self.ground.restore();
        let ended = calls::run(&mut self.ground.command(&self.words), at, fault, &mut || {});
        let what = format!(
            "{}: {fault:?} at call {at} of\n{ended:?}\n(bastle {})",
            self.name,
            self.words.join(" ")
        );
        if !ended.reached {
            assert_eq!(ended.code, Some(0), "{what}");
            self.is_new(&what);
            return false;
        }
        self.judge_answer(fault, &ended, &what);
        if let Some(second) = second {
            self.killed_repair(second);
        }
        let is_new = self.judge_rest(fault, &what);
        self.always.iter().for_each(|check| check(self.ground));
        if depth != Depth::Rest {
            let answer = if is_new { self.again } else { Again::Succeeds };
            self.say_again(answer, &self.new, &what);
        }
        if depth == Depth::Everything {
            let (old, _) = self.expected(fault);
            self.also.iter().for_each(|check| check(self.ground, &old, &what));
            self.ground.let_go();
        }
        true
    }

    /// The power goes at a call, or after the last one: of what was not synced so much is lost. A verb that said it succeeded
    /// has done its work for good. Whether the call came.
    pub(crate) fn power_cut(&mut self, at: usize, loss: Loss) -> bool {
        self.ground.restore();
        let mut disk = self.ground.disk();
        let ended = calls::run_witnessed(&mut self.ground.command(&self.words), at, &mut disk);
        let lost = disk.cut(loss);
        let what = format!(
            "{}: power cut at call {at} ({loss:?}) of\n{ended:?}\n(bastle {})\nlost: {lost:#?}",
            self.name,
            self.words.join(" ")
        );
        let is_new = self.judge_rest(Fault::Fail(Errno::Io, Extent::Once), &what);
        self.always.iter().for_each(|check| check(self.ground));
        assert!(is_new || ended.code != Some(0), "told, and lost: {what}");
        let new = self.new.clone().without_times();
        let answer = if is_new { self.again } else { Again::Succeeds };
        self.say_again(answer, &new, &what);
        self.ground.let_go();
        ended.reached
    }

    /// What a verb says is true at once, before anything repairs it.
    fn judge_answer(&self, fault: Fault, ended: &Ended, what: &str) {
        if ended.code.is_none() {
            assert_eq!(fault, Fault::Kill, "{what}");
            return;
        }
        let now = (self.changes)(self.ground);
        let (old, new) = self.expected(fault);
        if ended.code == Some(0) {
            // Pruning goes on with the next copy, and tells which one it could not remove.
            let told = now.is(&old) && ended.stderr.contains(" stays: ");
            assert!(
                now.is(&new) || told,
                "a success that is none: {}{what}",
                new.differences(&now)
            );
            return;
        }
        assert!(ended.stderr.starts_with("error["), "no message: {what}");
        if ended.stderr.contains("as it was before") {
            assert!(now.is(&old), "untrue: {}{what}", old.differences(&now));
        }
        let refused_once = self.at_once && matches!(fault, Fault::Fail(_, Extent::Once));
        assert!(
            !refused_once || now.is(&old) || now.is(&new),
            "neither old nor new after one refused call (old | now):\n{}(new | now):\n{}{what}",
            old.differences(&now),
            new.differences(&now)
        );
    }

    /// Any verb ends what was interrupted, and tells it once; gives what it told.
    fn come_to_rest(&self, what: &str) -> String {
        let ended = self.ground.say("prune --dry-run --older-than 3650d");
        assert_eq!(ended.code, Some(0), "the next verb fails: {ended:?} {what}");
        let markers = self.ground.state().join("applying");
        let left: Vec<PathBuf> = fs::read_dir(markers)
            .map(|listing| {
                listing
                    .map(|entry| entry.expect("can be listed").path())
                    .collect()
            })
            .unwrap_or_default();
        // One that was cut off while it was written names no project; the next one takes its place.
        let left: Vec<PathBuf> = left
            .into_iter()
            .filter(|path| path.extension().is_none())
            .collect();
        assert!(left.is_empty(), "still marked as interrupted: {ended:?} {what}");
        ended.stderr
    }

    /// The work is still there: what was not done can be done, and what was done is not done twice.
    fn say_again(&self, answer: Again, new: &Tree, what: &str) {
        let ended = self.ground.say(&self.words.join(" "));
        let succeeds = answer == Again::Succeeds;
        assert!(
            succeeds == (ended.code == Some(0)),
            "said again: {ended:?} {what}"
        );
        self.is_now(new, what);
        self.always.iter().for_each(|check| check(self.ground));
    }

    fn is_new(&self, what: &str) {
        self.is_now(&self.new, what);
    }

    fn is_now(&self, new: &Tree, what: &str) {
        let now = (self.changes)(self.ground);
        assert!(
            now.is(new),
            "not done (wanted | now):\n{}{what}",
            new.differences(&now)
        );
        assert_unchanged(&self.rest, &(self.leaves)(self.ground), what);
    }

    /// The user writes a file of the project while the verb is at that call: the new bytes are there at rest, and
    /// everything else is old or new. Whether the call came.
    pub(crate) fn edited(&mut self, at: usize, path: &Path) -> bool {
        self.ground.restore();
        let full = self.ground.project().join(path);
        let mut wrote = false;
        let mut edit = || wrote = write_as_user(self.ground, &full);
        let ended = calls::run(&mut self.ground.command(&self.words), at, Fault::Edit, &mut edit);
        if !ended.reached {
            return false;
        }
        let what = format!(
            "{}: {} edited at call {at} of\n{ended:?}",
            self.name,
            path.display()
        );
        self.come_to_rest(&what);
        self.judge_beside_edit(wrote.then_some(MINE), path, &what);
        true
    }

    /// Killed, then the user writes a file, then the verb that repairs is killed at its call number `second`, then the next
    /// verb: as [`Self::edited`].
    pub(crate) fn killed_and_edited(&mut self, at: usize, path: &Path, second: Option<usize>) -> bool {
        self.ground.restore();
        let ended = calls::run(&mut self.ground.command(&self.words), at, Fault::Kill, &mut || {});
        if !ended.reached {
            return false;
        }
        let what = format!(
            "{}: killed at call {at}, then {} edited, then killed at {second:?}\n{ended:?}",
            self.name,
            path.display()
        );
        let full = self.ground.project().join(path);
        let wrote = write_as_user(self.ground, &full);
        let second = second.is_some_and(|second| self.killed_repair(second));
        self.come_to_rest(&what);
        self.judge_beside_edit(wrote.then_some(MINE), path, &what);
        second
    }

    /// One call refused, and killed so many calls later: when the verb takes back what it did.
    pub(crate) fn refused_and_killed(&mut self, at: usize, later: usize) -> bool {
        self.ground.restore();
        let first = (at, Fault::Fail(Errno::Io, Extent::Once));
        let mut command = self.ground.command(&self.words);
        let ended = calls::run_twice(&mut command, first, (later, Fault::Kill), &mut || {});
        if !ended.reached {
            return false;
        }
        let what = format!(
            "{}: EIO at call {at}, killed {later} calls later\n{ended:?}",
            self.name
        );
        self.judge_rest(first.1, &what);
        true
    }

    /// Another verb runs while this one is stopped at a call; killed so many calls later, this one is still repaired.
    pub(crate) fn beside_and_killed(&mut self, at: usize, line: &str, later: usize) -> bool {
        self.ground.restore();
        let ground = self.ground;
        let mut other = None;
        let mut beside = || other = Some(ground.say(line));
        let mut command = self.ground.command(&self.words);
        let (first, then) = ((at, Fault::Edit), (later, Fault::Kill));
        let ended = calls::run_twice(&mut command, first, then, &mut beside);
        if !ended.reached {
            return false;
        }
        let what = format!(
            "{}: {line} at call {at}, killed {later} calls later\n{other:?}\n{ended:?}",
            self.name
        );
        assert_eq!(other.and_then(|other| other.code), Some(0), "{what}");
        self.judge_rest(Fault::Kill, &what);
        true
    }

    /// The next verb repairs, and what it tells is true. Whether it is new.
    fn judge_rest(&mut self, fault: Fault, what: &str) -> bool {
        let repaired = self.come_to_rest(what);
        let now = (self.changes)(self.ground);
        let (old, new) = self.expected(fault);
        for (told, truth) in [
            (": it is as it was before", &old),
            (": it is as the change wanted it", &new),
        ] {
            assert!(
                !repaired.contains(told) || now.is(truth),
                "untrue: {repaired}{what}"
            );
        }
        let is_new = now.is(&new);
        assert!(
            is_new || now.is(&old),
            "neither old nor new (old | now):\n{}(new | now):\n{}{what}",
            old.differences(&now),
            new.differences(&now)
        );
        assert_unchanged(&self.rest, &(self.leaves)(self.ground), what);
        self.tally.rounds += 1;
        match is_new {
            true => self.tally.new += 1,
            false => self.tally.old += 1,
        }
        is_new
    }

    /// Whether the kill came.
    fn killed_repair(&self, second: usize) -> bool {
        let words = ["ls".to_owned()];
        calls::run(&mut self.ground.command(&words), second, Fault::Kill, &mut || {}).reached
    }

    /// `mine`: what the user wrote at the path, if that came before the end.
    fn judge_beside_edit(&mut self, mine: Option<&[u8]>, path: &Path, what: &str) {
        let now = (self.changes)(self.ground);
        if mine.is_some() {
            assert_eq!(now.bytes(path), mine, "the user's edit is lost: {what}");
        }
        let theirs = |one: &Path| one.starts_with(path) || path.starts_with(one);
        let bare = |tree: &Tree| tree.without(theirs).without_times();
        let (now, old, new) = (bare(&now), bare(&self.old), bare(&self.new));
        assert!(
            now == old || now == new,
            "neither old nor new beside the edit (old | now):\n{}(new | now):\n{}{what}",
            old.differences(&now),
            new.differences(&now)
        );
        self.tally.rounds += 1;
        match now == new {
            true => self.tally.new += 1,
            false => self.tally.old += 1,
        }
    }
}

const MINE: &[u8] = b"mine, and nobody else's\n";

/// As an editor does that saves in place. `false` where nothing can be written at the moment, or elsewhere through a link.
fn write_as_user(ground: &Ground, full: &Path) -> bool {
    let wrote = !full.is_symlink() && fs::write(full, MINE).is_ok();
    if wrote {
        ground.lab.hand_over(full);
    }
    wrote
}

#[track_caller]
fn assert_unchanged(expected: &Tree, now: &Tree, what: &str) {
    assert!(
        now.is(expected),
        "something else changed (before | now):\n{}{what}",
        expected.differences(now)
    );
}

/// The faults of a disk.
pub(crate) const REFUSALS: [Fault; 4] = [
    Fault::Fail(Errno::NoSpace, Extent::Once),
    Fault::Fail(Errno::Io, Extent::Once),
    Fault::Fail(Errno::NoSpace, Extent::Onward),
    Fault::Fail(Errno::Io, Extent::Onward),
];

/// Whether this host can stop a program at its calls. Where it cannot, the test is counted as skipped, with the reason.
pub(crate) fn can_watch(test: &str) -> bool {
    match calls::cannot_watch() {
        None => true,
        Some(reason) => {
            skip(test, &reason);
            false
        }
    }
}
