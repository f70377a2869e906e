//! How fast a caller may ask: a bucket of tokens that fills by the monotonic clock. One caller's is not another's.
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    /// Requests per second in the long run.
    pub(crate) per_second: u32,
    /// Requests at once after a pause.
    pub(crate) burst: u32,
}

/// Parts of a token, so that nothing is lost between two looks at the clock.
const WHOLE: u64 = 1_000_000;

/// One caller's tokens.
#[derive(Debug)]
pub(super) struct Bucket {
    parts: u64,
    looked: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self {
            parts: u64::from(rate.burst) * WHOLE,
            looked: now,
        }
    }

    /// Takes a token; or says how long to wait for one.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.looked);
        self.looked = now;
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        // One token per second is one part per microsecond.
        let filled = micros.saturating_mul(u64::from(rate.per_second));
        self.parts = self
            .parts
            .saturating_add(filled)
            .min(u64::from(rate.burst) * WHOLE);
        if self.parts >= WHOLE {
            self.parts -= WHOLE;
            return Ok(());
        }
        let missing = WHOLE - self.parts;
        Err(Duration::from_micros(
            missing.div_ceil(u64::from(rate.per_second.max(1))),
        ))
    }

    /// Whether nothing was asked for so long that a new one would be the same.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked) > Duration::from_secs(60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_burst_is_refused_until_the_clock_has_filled_the_bucket() {
        let rate = Rate {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let mut bucket = Bucket::full(rate, start);
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, start), Ok(()));
        }
        let wait = bucket.take(rate, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(bucket.take(rate, start + wait / 2).is_err());
        assert_eq!(bucket.take(rate, start + wait), Ok(()));
        // A clock that goes back gives nothing.
        assert!(bucket.take(rate, start).is_err());
        let later = start + Duration::from_secs(3600);
        let taken = (0..10).filter(|_| bucket.take(rate, later).is_ok()).count();
        assert_eq!(taken, 3, "a long pause fills it to the burst and no further");
    }
}
