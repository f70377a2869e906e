//! A token bucket of processor time: what the agent can make this process compute is bounded over time.
//!
//! **Trust:** the agent decides how many connections, requests and bytes there are. Whatever costs time for the agent asks
//! here first and waits while the bucket is empty, so that no flood keeps a processor busy. The kernel counts the time.
use bastle_contract::egress::{EGRESS_CPU, EGRESS_CPU_BURST};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// [`EGRESS_CPU_BURST`] as a duration.
const BURST: Duration = Duration::from_secs(EGRESS_CPU_BURST);

/// How often the clock of the process is read, in milliseconds: a system call, and too rare to be felt.
const SAMPLE: u64 = 10;
/// The shortest and the longest wait at once, in milliseconds.
const WAITS: (u64, u64) = (5, 500);
/// How far below zero it goes, in microseconds: work that nothing could hold back is not paid for ever.
const DEEPEST: i64 = -2_000_000;

/// The account of this process.
#[derive(Debug)]
pub(crate) struct CpuAccount {
    bounded: bool,
    started: Instant,
    /// When the clock is read next, in milliseconds since the start.
    next: AtomicU64,
    /// How long to wait, in milliseconds; 0: not at all.
    wait: AtomicU64,
    bucket: Mutex<Bucket>,
    /// Reads the processor time of the process, in microseconds.
    clock: fn() -> u64,
}

/// Microseconds of processor time: milliseconds that passed times thousandths of a processor.
#[derive(Debug, PartialEq, Eq)]
struct Bucket {
    left: i64,
    burst: i64,
    /// Thousandths of a processor; `None`: no bound.
    rate: Option<u64>,
    /// Milliseconds that had passed and microseconds that were used at the last look.
    seen: (u64, u64),
}

impl CpuAccount {
    /// For the egress process of one run, with a sustained share in thousandths of a processor.
    pub(crate) fn of_run(share: u64) -> Self {
        Self::with(Some(share.clamp(1, EGRESS_CPU)), BURST, process_time)
    }

    /// Without a bound, for a proxy that an operator runs by itself.
    pub(crate) fn unbounded() -> Self {
        Self::with(None, BURST, process_time)
    }

    pub(crate) fn with(rate: Option<u64>, burst: Duration, clock: fn() -> u64) -> Self {
        let burst = i64::try_from(burst.as_micros()).unwrap_or(i64::MAX);
        let seen = (0, clock());
        let bucket = Bucket {
            left: burst,
            burst,
            rate,
            seen,
        };
        Self {
            bounded: rate.is_some(),
            started: Instant::now(),
            next: AtomicU64::new(0),
            wait: AtomicU64::new(0),
            bucket: Mutex::new(bucket),
            clock,
        }
    }

    /// Returns at once while there is processor time left, and else as soon as there is again.
    pub(crate) async fn turn(&self) {
        while let Some(wait) = self.wait() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long to wait before it is asked again; `None`: there is time left.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if !self.bounded {
            return None;
        }
        // No system call: the monotonic clock is read in the vDSO, and the clock of the process once in [`SAMPLE`].
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if now >= self.next.load(Ordering::Relaxed) {
            self.next.store(now.saturating_add(SAMPLE), Ordering::Relaxed);
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            let wait = bucket.charge(now, (self.clock)());
            self.wait.store(wait, Ordering::Relaxed);
        }
        match self.wait.load(Ordering::Relaxed) {
            0 => None,
            wait => Some(Duration::from_millis(wait)),
        }
    }
}

impl Bucket {
    /// Takes what was used until `now` and fills up; how long to wait in milliseconds, 0 for not at all.
    fn charge(&mut self, now: u64, used: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let filled = now.saturating_sub(self.seen.0).saturating_mul(rate);
        let spent = used.saturating_sub(self.seen.1);
        self.seen = (now, used);
        let change = i64::try_from(filled).unwrap_or(i64::MAX) - i64::try_from(spent).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(change).clamp(DEEPEST, self.burst);
        if self.left > 0 {
            return 0;
        }
        (self.left.unsigned_abs() / rate.max(1)).clamp(WAITS.0, WAITS.1)
    }
}

/// Processor time of all threads, in microseconds.
fn process_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(rest / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(burst: i64, rate: Option<u64>) -> Bucket {
        Bucket {
            left: burst,
            burst,
            rate,
            seen: (0, 0),
        }
    }

    /// Uses a whole processor whenever it is let, for `seconds`; gives what it used, in milliseconds.
    fn greedy(mut bucket: Bucket, seconds: u64) -> u64 {
        let (mut used, mut held_until) = (0, 0);
        for now in 0..seconds * 1000 {
            if now < held_until {
                continue;
            }
            match bucket.charge(now, used * 1000) {
                0 => used += 1,
                wait => held_until = now + wait,
            }
        }
        used
    }

    #[test]
    fn whoever_takes_all_it_can_gets_the_burst_and_then_its_share() {
        let used = greedy(bucket(2_000_000, Some(500)), 60);
        assert!((31_900..=32_100).contains(&used), "{used}");
        assert_eq!(
            greedy(bucket(2_000_000, None), 60),
            60_000,
            "control: without a rate"
        );
    }

    #[test]
    fn a_rest_fills_the_bucket_and_never_beyond_the_burst() {
        let mut bucket = bucket(1_000_000, Some(500));
        assert_eq!(bucket.charge(10, 999_000), 0, "control: something is left");
        assert!(bucket.charge(20, 1_500_000) > 0);
        assert_eq!(bucket.charge(60_000, 1_500_000), 0);
        assert_eq!(bucket.left, 1_000_000);
    }

    #[test]
    fn no_debt_is_paid_for_ever() {
        let mut bucket = bucket(1_000_000, Some(500));
        assert_eq!(bucket.charge(10, 3_600_000_000), 500, "the longest wait at once");
        assert_eq!(bucket.charge(10_000, 3_600_000_000), 0);
    }

    #[tokio::test]
    async fn a_turn_waits_while_the_bucket_is_empty_and_not_before() {
        let busy = CpuAccount::with(Some(500), Duration::from_millis(1), || {
            static CALLS: AtomicU64 = AtomicU64::new(0);
            // At the first look nothing was used, at the second ten milliseconds, and nothing afterwards.
            match CALLS.fetch_add(1, Ordering::Relaxed) {
                0 => 0,
                _ => 10_000,
            }
        });
        assert!(busy.wait().is_some(), "it is empty");
        busy.turn().await;
        assert_eq!(busy.wait(), None);
        let free = CpuAccount::with(None, Duration::ZERO, || 3_600_000_000);
        assert_eq!(free.wait(), None, "control: without a rate");
    }
}
