//! The disk reserve: the run is paused before a file system that it can write to is full.
//!
//! Free space is looked at from outside, so that no write is slower for it. The next look comes before the space above the
//! reserve could be used up at a rate that no disk reaches; close to the reserve that is every few milliseconds.
use super::Relay;
use bastle_contract::{Access, runs::RunState};
use bastle_contract::{Code, Fault, LaunchPlan, LimitHit, LimitKind, LimitRule, MountKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a run can write in a second; an assumption on the safe side of storage.
const BYTES_PER_SECOND: u64 = 4 << 30;
const AT_LEAST: Duration = Duration::from_secs(2);
const AT_MOST: Duration = Duration::from_millis(5);
/// How long a run without a terminal stays paused: nobody may be there who makes room, and nothing may wait for ever.
const UNATTENDED: Duration = Duration::from_secs(5 * 60);
/// Names that stay free where the file system counts them, if a hundredth is not less.
const INODES: u64 = 10_000;

/// What is watched, and when next.
pub(super) struct Reserve {
    rule: LimitRule,
    places: Vec<PathBuf>,
    next: Instant,
    state: State,
    /// When a run that stands still for it is ended; `None`: a person or the list of runs shows it, and it waits.
    ends: Option<Instant>,
}

/// Whether somebody sees that the run stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// At a terminal, or as a run that is kept in the background.
    Yes,
    /// In the foreground without a terminal: whoever started it only waits.
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Watching,
    /// The run is paused for it.
    Short,
    /// A person let the run go on all the same.
    GivenUp,
}

/// Whether a person insists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    Yes,
    No,
}

/// What a file system has left, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Space {
    size: u64,
    free: u64,
    inodes: u64,
    free_inodes: u64,
}

/// A file system with too little left.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shortage {
    place: PathBuf,
    free: u64,
    reserve: u64,
    what: &'static str,
}

impl Space {
    fn of(place: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(place).ok()?;
        Some(Self {
            size: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: stat.f_files,
            free_inodes: stat.f_favail,
        })
    }

    fn lacks_inodes(self) -> bool {
        self.inodes > 0 && self.free_inodes < INODES.min(self.inodes / 100)
    }

    /// How long the reserve cannot be reached.
    fn safe_for(self, reserve: u64) -> Duration {
        let left = self.free.saturating_sub(reserve);
        Duration::from_millis(left / (BYTES_PER_SECOND / 1000)).clamp(AT_MOST, AT_LEAST)
    }
}

impl Reserve {
    /// `None`: the plan has none.
    pub(super) fn of(plan: &LaunchPlan, state: &Path) -> Option<Self> {
        let rule = *plan.limit(LimitKind::DiskReserve)?;
        rule.kept_free(0)?;
        Some(Self {
            rule,
            places: places(plan, state),
            next: Instant::now(),
            state: State::Watching,
            ends: None,
        })
    }

    /// When to look again, while there is something to look at, or when to end.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Watching => Some(self.next),
            State::Short => self.ends,
            State::GivenUp => None,
        }
    }

    /// Whether the run stood still for too long; told once.
    fn is_over(&mut self, now: Instant) -> bool {
        let over = self.state == State::Short && self.ends.is_some_and(|end| now >= end);
        if over {
            self.ends = None;
        }
        over
    }

    /// The first file system that has too little, and how long the others cannot.
    fn shortage(&self) -> (Option<Shortage>, Duration) {
        let mut safe = AT_LEAST;
        for place in &self.places {
            // One that is gone, or that nobody answers for, cannot be written either.
            let Some(space) = Space::of(place) else { continue };
            let reserve = self.rule.kept_free(space.size).unwrap_or(0);
            let short = |what| Shortage {
                place: place.clone(),
                free: space.free,
                reserve,
                what,
            };
            if reserve > 0 && space.free < reserve {
                return (Some(short("space")), AT_MOST);
            }
            if reserve > 0 && space.lacks_inodes() {
                return (Some(short("inodes")), AT_MOST);
            }
            safe = safe.min(space.safe_for(reserve));
        }
        (None, safe)
    }

    /// Looks when it is time.
    fn look(&mut self, now: Instant, watched: Watched) -> Option<Shortage> {
        if self.state != State::Watching || now < self.next {
            return None;
        }
        let (found, safe) = self.shortage();
        self.next = now + safe;
        if found.is_some() {
            self.state = State::Short;
            self.ends = match watched {
                Watched::Yes => None,
                Watched::No => Some(now + UNATTENDED),
            };
        }
        found
    }
}

/// Where the run, or bastle for it, writes: one path for each file system.
fn places(plan: &LaunchPlan, state: &Path) -> Vec<PathBuf> {
    let written = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind {
            source,
            access: Access::ReadWrite,
            ..
        } => Some(source.as_path().to_path_buf()),
        MountKind::Overlay { layer, .. } => Some(layer.as_path().to_path_buf()),
        _ => None,
    });
    let mut seen = Vec::new();
    written
        .chain([state.to_path_buf(), std::env::temp_dir()])
        .filter(|place| {
            let Ok(meta) = std::fs::metadata(place) else {
                return false;
            };
            let new = !seen.contains(&meta.dev());
            seen.push(meta.dev());
            new
        })
        .collect()
}

impl Relay<'_> {
    /// Pauses the run where a file system has too little left, and says so.
    pub(super) fn look_after_disk(&mut self) -> Result<(), Fault> {
        if self.ended || !self.standing.is_begun() {
            return Ok(());
        }
        let (now, watched) = (Instant::now(), self.watched());
        let Some(reserve) = &mut self.reserve else {
            return Ok(());
        };
        if reserve.is_over(now) && self.ending.fault.is_none() {
            self.end_for_space();
            return Ok(());
        }
        let Some(short) = reserve.look(now, watched) else {
            return Ok(());
        };
        // First of all: every moment writes on.
        self.standing.short = Some(short.text());
        self.stand()?;
        let run = &self.plan.run;
        let hit = LimitHit {
            limit: LimitKind::DiskReserve,
            value: short.reserve,
            effect: format!(
                "{}: the run is paused. Make room, then: bastle resume {run}. Without room: bastle resume --force {run}. To end it: bastle stop {run}",
                short.text()
            ),
        };
        self.record.limit(&hit)?;
        self.voice.limit(&hit);
        Ok(())
    }

    fn watched(&self) -> Watched {
        if self.front.is_own() && !self.had_terminal {
            Watched::No
        } else {
            Watched::Yes
        }
    }

    /// Ends a run that nobody lets go on. What it made is kept, as after every end.
    fn end_for_space(&mut self) {
        let why = self.standing.short.clone().unwrap_or_default();
        let minutes = UNATTENDED.as_secs() / 60;
        let fault = Fault::new(
            Code::LimitDisk,
            format!("the run {} was ended", self.plan.run),
            format!(
                "{why}; it was paused for {minutes} minutes, and a run without a terminal cannot ask a person"
            ),
        )
        .help("make room on that file system and start the run again");
        self.give_up(bastle_contract::ExitCode::Failed as u8, fault);
    }

    /// Whether the reserve lets the run go on. A person who insists gives the reserve up for the rest of the run.
    pub(super) fn lift_reserve(&mut self, force: Force) -> Result<(), Fault> {
        let Some(reserve) = &mut self.reserve else {
            return Ok(());
        };
        match (reserve.state, force) {
            (State::Watching | State::GivenUp, Force::No) | (State::GivenUp, Force::Yes) => return Ok(()),
            (State::Watching | State::Short, Force::Yes) => reserve.state = State::GivenUp,
            (State::Short, Force::No) => {
                if let (Some(short), _) = reserve.shortage() {
                    let run = &self.plan.run;
                    return Err(Fault::new(
                        Code::LimitDisk,
                        format!("the run {run} stays paused"),
                        short.text(),
                    )
                    .help("make room on that file system")
                    .help(format!("bastle resume --force {run}"))
                    .help(format!("bastle stop {run}")));
                }
                reserve.state = State::Watching;
            }
        }
        self.standing.short = None;
        Ok(())
    }
}

impl Shortage {
    fn text(&self) -> String {
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "the file system of {} has too little {} left: {} MiB free, {} MiB are kept in reserve",
            self.place.display(),
            self.what,
            mib(self.free),
            mib(self.reserve)
        )
    }
}

/// The state of a run that the reserve holds.
pub(super) fn state(why: &str) -> (RunState, Option<String>) {
    (RunState::Suspended, Some(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::LimitMechanism;

    const MIB: u64 = 1 << 20;

    fn rule(value: u64, mechanism: LimitMechanism) -> LimitRule {
        LimitRule {
            limit: LimitKind::DiskReserve,
            value,
            mechanism,
        }
    }

    #[test]
    fn a_preset_keeps_at_most_a_twentieth_of_a_small_file_system() {
        let (size, free) = (100 * MIB, 50 * MIB);
        let preset = rule(1024 * MIB, LimitMechanism::FreeSpaceShare);
        assert_eq!(preset.kept_free(size), Some(5 * MIB));
        let stated = rule(60 * MIB, LimitMechanism::FreeSpace);
        assert_eq!(
            stated.kept_free(size),
            Some(60 * MIB),
            "control: what a person states holds"
        );
        assert_eq!(rule(60 * MIB, LimitMechanism::Waived).kept_free(size), None);
        let space = Space {
            size,
            free,
            inodes: 0,
            free_inodes: 0,
        };
        assert!(!space.lacks_inodes(), "a file system that counts none lacks none");
    }

    #[test]
    fn a_run_that_nobody_watches_is_ended_and_any_other_waits() {
        let now = Instant::now();
        let short = |watched| {
            let mut reserve = Reserve {
                rule: rule(u64::MAX, LimitMechanism::FreeSpace),
                places: vec![std::env::temp_dir()],
                next: now,
                state: State::Watching,
                ends: None,
            };
            assert!(reserve.look(now, watched).is_some(), "no disk has as much");
            reserve
        };
        let mut alone = short(Watched::No);
        assert_eq!(alone.deadline(), Some(now + UNATTENDED));
        assert!(!alone.is_over(now));
        assert!(alone.is_over(now + UNATTENDED));
        assert!(!alone.is_over(now + UNATTENDED), "told once");
        let mut seen = short(Watched::Yes);
        assert_eq!(seen.deadline(), None);
        assert!(!seen.is_over(now + UNATTENDED * 1000));
        let mut resumed = short(Watched::No);
        resumed.state = State::GivenUp;
        assert!(!resumed.is_over(now + UNATTENDED), "a person let it go on");
    }

    #[test]
    fn nobody_reaches_the_reserve_before_the_next_look() {
        // Every pair of powers of two and their neighbours.
        let values = || (0..44).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for (free, reserve) in values().flat_map(|free| values().map(move |reserve| (free, reserve))) {
            let space = Space {
                size: 1 << 45,
                free,
                inodes: 0,
                free_inodes: 0,
            };
            let wait = space.safe_for(reserve);
            let written = BYTES_PER_SECOND / 1000 * u64::try_from(wait.as_millis()).unwrap();
            assert!(
                wait == AT_MOST || free - written >= reserve,
                "{free} {reserve} {wait:?}"
            );
            assert!(wait <= AT_LEAST);
        }
    }
}
