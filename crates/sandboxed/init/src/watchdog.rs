//! Looking after limits for which the kernel offers no event: memory of the whole run without a cgroup, and whether
//! the number of processes reached its rlimit.
use crate::step::Step;
use bastle_contract::socket;
use bastle_contract::{Event, Fault, FromInit, Handover, LimitHit, LimitKind, LimitMechanism};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Ten times a second bounds what a hog can take in between.
const FOR_MEMORY: Duration = Duration::from_millis(100);
/// The rlimit holds by itself; this only tells that it did.
const FOR_PIDS: Duration = Duration::from_millis(500);

/// What one process can take of the memory in a second; an assumption, on the safe side of what machines fill.
const BYTES_PER_SECOND: u64 = 8 << 30;
/// A host with much memory is looked at this often.
const AT_LEAST: Duration = Duration::from_secs(1);
/// And one with little no more often than this.
const AT_MOST: Duration = Duration::from_millis(50);
/// Available memory below which the host is in trouble, if a twentieth of its memory is not less.
const SCARCE: u64 = 512 << 20;

/// What is looked after, and when next.
pub(crate) struct Watchdog {
    /// A limit that holds while the host has memory left: looked at only when it becomes scarce.
    backstop: Option<u64>,
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
        let backstop = value(LimitKind::Memory, LimitMechanism::Watchdog);
        let every = match (memory, pids, backstop) {
            (None, None, None) => return None,
            (Some(_), _, _) => FOR_MEMORY,
            (None, Some(_), _) => FOR_PIDS,
            (None, None, Some(_)) => AT_LEAST,
        };
        Some(Self {
            backstop,
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
        if let Some(limit) = self.backstop {
            let left = self.look_at_host(handover, limit)?;
            self.next = now + self.every.min(left);
        }
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

impl Watchdog {
    /// Adds up the run's memory only where the host's says that it can be too much. How long nothing can happen.
    fn look_at_host(&self, handover: &Handover, limit: u64) -> Result<Duration, Fault> {
        let Some(host) = HostMemory::now() else {
            return Ok(AT_MOST);
        };
        if host.is_pressed(limit) {
            let (memory, _) = measure(Some(limit))?;
            if host.is_over(memory, limit) {
                tell(
                    handover,
                    LimitKind::Memory,
                    limit,
                    "every process of the run was killed",
                )?;
                bastle_sys::signal::kill_everything_else(libc::SIGKILL).step("memory watchdog", "SIGKILL")?;
            }
        }
        Ok(host.safe_for(limit))
    }
}

/// What the host says of its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostMemory {
    total: u64,
    available: u64,
}

impl HostMemory {
    fn now() -> Option<Self> {
        let table = std::fs::read_to_string("/proc/meminfo").ok()?;
        Some(Self {
            total: field(&table, "MemTotal:")?.checked_mul(1024)?,
            available: field(&table, "MemAvailable:")?.checked_mul(1024)?,
        })
    }

    /// Available memory below which somebody must end.
    fn scarce(self) -> u64 {
        SCARCE.min(self.total / 20)
    }

    /// Whether a run could be over its limit: everything that is used together is not less than nine tenths of it.
    fn is_pressed(self, limit: u64) -> bool {
        self.available < self.scarce() || self.total.saturating_sub(self.available) >= limit / 10 * 9
    }

    /// Whether a run that uses this much must end: over its limit, or large on a host that is in trouble.
    fn is_over(self, memory: u64, limit: u64) -> bool {
        memory > limit || (self.available < self.scarce() && memory > self.total / 4)
    }

    /// How long a run cannot get the host into trouble, at the assumed rate.
    fn safe_for(self, limit: u64) -> Duration {
        let until_limit = limit.saturating_sub(self.total.saturating_sub(self.available));
        let until_scarce = self.available.saturating_sub(self.scarce());
        let bytes = until_limit.min(until_scarce);
        Duration::from_millis(bytes / (BYTES_PER_SECOND / 1000)).clamp(AT_MOST, AT_LEAST)
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
/// holds, System V segments nobody is attached to by their resident size. Memory files are added by their size, since their
/// pages need no mapping; pages that are mapped as well are counted twice. (Those whose only descriptor lies in a
/// socket's queue escape. Where a run states its memory limit, the filter refuses to make them.)
fn measure(limit: Option<u64>) -> Result<(u64, u64), Fault> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Err("unreadable").step("watchdog", "/proc");
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let (memory, threads) = of_processes(names, limit);
    let apart = limit.map_or(0, |_| scratch() + detached_segments());
    Ok((memory + apart, threads))
}

/// The memory, where there is a limit, and the threads of the processes among these names.
fn of_processes(names: impl Iterator<Item = String>, limit: Option<u64>) -> (u64, u64) {
    let (mut memory, mut threads) = (0, 0);
    let mut files = BTreeMap::new();
    for pid in names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())) {
        // A process that ended meanwhile counts nothing.
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        threads += field(&status, "Threads:").unwrap_or(1);
        if limit.is_none() {
            continue;
        }
        memory += of_process(&pid, &status);
        memory_files(&pid, &mut files);
    }
    (memory + files.values().sum::<u64>(), threads)
}

/// The anonymous and shared memory of a process.
///
/// A main thread that called `pthread_exit` has no memory any more, though the other threads go on with it: then any of
/// them answers for all.
fn of_process(pid: &str, status: &str) -> u64 {
    if let Some(memory) = of_thread(&format!("/proc/{pid}"), status) {
        return memory;
    }
    threads_of(pid)
        .find_map(|thread| {
            let status = std::fs::read_to_string(format!("{thread}/status")).ok()?;
            of_thread(&thread, &status)
        })
        .unwrap_or(0)
}

/// `None`: this thread has no memory. One that made itself unreadable is counted by its resident size, so that hiding
/// does not pay.
fn of_thread(thread: &str, status: &str) -> Option<u64> {
    let resident = field(status, "RssAnon:")?;
    let rollup = std::fs::read_to_string(format!("{thread}/smaps_rollup")).unwrap_or_default();
    Some(match field(&rollup, "Pss_Anon:") {
        Some(anonymous) => anonymous * 1024 + kib(&rollup, "Pss_Shmem:"),
        None => resident * 1024 + kib(status, "RssShmem:"),
    })
}

fn threads_of(pid: &str) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter_map(|path| path.into_os_string().into_string().ok())
}

/// The memory files (memfd_create(2)) that the threads of a process have open: device and inode with the bytes they hold.
fn memory_files(pid: &str, files: &mut BTreeMap<(u64, u64), u64>) {
    // Threads may have descriptors of their own (no CLONE_FILES).
    for thread in threads_of(pid) {
        let Ok(entries) = std::fs::read_dir(format!("{thread}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_one = std::fs::read_link(&path)
                .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"));
            if let (true, Ok(meta)) = (is_one, std::fs::metadata(&path)) {
                files.insert((meta.dev(), meta.ino()), meta.blocks() * 512);
            }
        }
    }
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
    fn a_run_is_ended_over_its_limit_or_when_it_is_large_on_a_host_without_memory() {
        const GIB: u64 = 1 << 30;
        let host = |available| HostMemory {
            total: 16 * GIB,
            available,
        };
        let limit = 13 * GIB;
        assert!(
            !host(8 * GIB).is_pressed(limit),
            "nothing is added up while there is enough"
        );
        assert!(host(3 * GIB).is_pressed(limit));
        assert!(host(3 * GIB).is_over(limit + 1, limit));
        assert!(!host(3 * GIB).is_over(limit, limit), "control: at the limit");
        assert!(host(GIB / 4).is_over(5 * GIB, limit), "others use the rest");
        assert!(
            !host(GIB / 4).is_over(GIB, limit),
            "a small run is not what is in the way"
        );
        assert_eq!(host(16 * GIB).safe_for(limit), AT_LEAST);
        assert_eq!(host(GIB / 4).safe_for(limit), AT_MOST);
    }

    #[test]
    fn a_memory_file_that_nobody_maps_is_counted() {
        // This process alone: others of the machine come and go meanwhile.
        let own = || of_processes(std::iter::once(std::process::id().to_string()), Some(u64::MAX)).0;
        let before = own();
        let mut file =
            std::fs::File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        std::io::Write::write_all(&mut file, &vec![1; 64 << 20]).unwrap();
        let mut files = BTreeMap::new();
        memory_files(&std::process::id().to_string(), &mut files);
        assert!(files.values().any(|bytes| *bytes >= 64 << 20), "{files:?}");
        let after = own();
        assert!(
            after >= before.saturating_sub(32 << 20) + (64 << 20),
            "{before} {after}"
        );
    }

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
