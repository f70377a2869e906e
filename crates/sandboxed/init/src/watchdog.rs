//! Looking after limits for which the kernel offers no event: memory of the whole run without a cgroup, and whether
//! the number of processes reached its rlimit.
use crate::step::Step;
use bastle_contract::socket;
use bastle_contract::{Event, Fault, FromInit, Handover, LimitHit, LimitKind, LimitMechanism};
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
    /// The newest number of a process at the last look.
    newest: Option<u32>,
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
            newest: None,
        })
    }

    /// How long to wait for anything else at most.
    pub(crate) fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks when it is time: over the memory limit everything is killed; a reached process limit is told once.
    pub(crate) fn look(&mut self, handover: &Handover) -> Result<(), Fault> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + self.every;
        if self.memory.is_none() {
            let newest = newest();
            if newest.is_some() && newest == self.newest {
                // Nobody came: there cannot be more of them. A run that waits costs no more than this.
                return Ok(());
            }
            self.newest = newest;
        }
        let (memory, threads) = measure(self.memory)?;
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

/// The number that the newest process or thread inside was given: the last word of the line, which is this namespace's own.
fn newest() -> Option<u32> {
    let line = std::fs::read_to_string("/proc/loadavg").ok()?;
    line.rsplit(' ').next()?.trim_end().parse().ok()
}

fn tell(handover: &Handover, limit: LimitKind, value: u64, effect: &str) -> Result<(), Fault> {
    let hit = Event::Limit(LimitHit {
        limit,
        value,
        effect: effect.to_owned(),
    });
    socket::send(&handover.events, &FromInit::Event(hit), &[]).step("telling events", "control")
}

/// Memory and threads of everything inside. Memory only where it is limited: adding it up walks every page table, twice a second
/// for as long as a run waits.
///
/// Every page once: anonymous and shared memory by their proportional size, the private directories by what their tmpfs
/// holds, System V segments nobody is attached to by their resident size. (Memory files that are not mapped would
/// escape: the filter refuses to make them where this watchdog holds the limit.)
fn measure(limit: Option<u64>) -> Result<(u64, u64), Fault> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Err("unreadable").step("watchdog", "/proc");
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let (mut memory, mut threads) = (0, 0);
    if limit.is_some() {
        memory = scratch() + detached_segments();
    }
    for pid in names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())) {
        // A process that ended meanwhile counts nothing.
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        threads += field(&status, "Threads:").unwrap_or(1);
        if limit.is_none() {
            continue;
        }
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        // One that made itself unreadable is counted by its resident size instead: hiding must not pay.
        memory += match rollup {
            Ok(rollup) => kib(&rollup, "Pss_Anon:") + kib(&rollup, "Pss_Shmem:"),
            Err(_) => kib(&status, "RssAnon:") + kib(&status, "RssShmem:"),
        };
    }
    Ok((memory, threads))
}

fn field(table: &str, key: &str) -> Option<u64> {
    table
        .lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

fn kib(table: &str, key: &str) -> u64 {
    field(table, key).unwrap_or(0) * 1024
}

fn scratch() -> u64 {
    rustix::fs::statvfs("/tmp").map_or(0, |stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

fn detached_segments() -> u64 {
    const ATTACHED: usize = 6;
    const RESIDENT: usize = 14;
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let number = |line: &str, column: usize| line.split_whitespace().nth(column)?.parse::<u64>().ok();
    table
        .lines()
        .skip(1)
        .filter(|line| number(line, ATTACHED) == Some(0))
        .filter_map(|line| number(line, RESIDENT))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_inside_is_seen_by_the_newest_number() {
        let before = newest().unwrap();
        let own = std::thread::spawn(rustix::thread::gettid).join().unwrap();
        let after = newest().unwrap();
        assert_ne!(before, after);
        // Others may come at the same time, so it is this one or a later one.
        assert!(
            after >= own.as_raw_nonzero().get().cast_unsigned(),
            "{own:?} {after}"
        );
    }
}
