//! Looking after limits for which the kernel offers no event: memory of the whole run without a cgroup, and whether
//! the number of processes reached its rlimit.
use crate::step::Step;
use bastle_contract::socket;
use bastle_contract::{Event, Fault, FromInit, Handover, LimitHit, LimitKind, LimitMechanism};
use rustix::event::Timespec;
use std::time::{Duration, Instant};

/// Ten times a second bounds what a hog can take in between.
const FOR_MEMORY: Duration = Duration::from_millis(100);
/// The rlimit holds by itself; this only tells that it did.
const FOR_PIDS: Duration = Duration::from_millis(500);

/// What is looked after, and when next.
pub(crate) struct Watchdog {
    memory: Option<u64>,
    pids: Option<u64>,
    every: Duration,
    next: Instant,
}

impl Watchdog {
    /// `None` when cgroups hold everything.
    pub(crate) fn of(handover: &Handover) -> Option<Self> {
        let value = |limit, mechanism| {
            handover
                .plan
                .limit(limit)
                .filter(|rule| rule.mechanism == mechanism)
                .map(|rule| rule.value)
        };
        let memory = value(LimitKind::Memory, LimitMechanism::RlimitAndWatchdog);
        let pids = value(LimitKind::Pids, LimitMechanism::Rlimit);
        let every = match (memory, pids) {
            (None, None) => return None,
            (Some(_), _) => FOR_MEMORY,
            (None, Some(_)) => FOR_PIDS,
        };
        Some(Self {
            memory,
            pids,
            every,
            next: Instant::now() + every,
        })
    }

    /// How long to wait for anything else at most.
    pub(crate) fn timeout(&self) -> Timespec {
        let left = self.next.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    }

    /// Looks when it is time: over the memory limit everything is killed; a reached process limit is told once.
    pub(crate) fn look(&mut self, handover: &Handover) -> Result<(), Fault> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + self.every;
        let (memory, threads) = measure()?;
        if let Some(limit) = self.pids
            && threads >= limit
        {
            self.pids = None;
            tell(handover, LimitKind::Pids, limit, "further forks fail with EAGAIN")?;
        }
        if let Some(limit) = self.memory
            && memory > limit
        {
            tell(
                handover,
                LimitKind::Memory,
                limit,
                "every process of the run was killed",
            )?;
            bastle_sys::signal::kill_everything_else(libc::SIGKILL).step("memory watchdog", "SIGKILL")?;
        }
        Ok(())
    }
}

fn tell(handover: &Handover, limit: LimitKind, value: u64, effect: &str) -> Result<(), Fault> {
    let hit = Event::Limit(LimitHit {
        limit,
        value,
        effect: effect.to_owned(),
    });
    socket::send(&handover.events, &FromInit::Event(hit), &[]).step("telling events", "control")
}

/// Private resident memory and threads of everything inside.
fn measure() -> Result<(u64, u64), Fault> {
    let page = rustix::param::page_size() as u64;
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Err("unreadable").step("watchdog", "/proc");
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let (mut memory, mut threads) = (0, 0);
    for pid in names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())) {
        // A process that ended meanwhile counts nothing.
        let Ok(statm) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let mut pages = statm
            .split(' ')
            .skip(1)
            .filter_map(|field| field.parse::<u64>().ok());
        // Shared pages are somebody else's too; private ones are what a hog takes.
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        memory += resident.saturating_sub(shared) * page;
        // The name in parentheses may hold anything; the number of threads is the 18th field after it.
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        threads += after
            .split(' ')
            .nth(17)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(1);
    }
    Ok((memory, threads))
}
