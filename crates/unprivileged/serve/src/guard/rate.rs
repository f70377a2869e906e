//! How often somebody may ask: a bucket per token, and one per peer for whoever shows none. By the monotonic clock.
use super::Peer;
use crate::errors::Refusal;
use bastle_contract::Code;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// Buckets that are remembered; full ones are forgotten first, because a fresh one is no different.
const MOST: usize = 4096;

/// Two sorts of buckets.
#[derive(Debug)]
pub(crate) struct Rate {
    known: Buckets,
    unknown: Buckets,
}

#[derive(Debug)]
struct Buckets {
    per_second: f64,
    burst: f64,
    all: Mutex<HashMap<String, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    /// So many requests a second per token, and per peer without one.
    pub(crate) fn new(known: u32, unknown: u32) -> Self {
        Self {
            known: Buckets::new(known, 5),
            unknown: Buckets::new(unknown, 5),
        }
    }

    /// A request of somebody who was recognised.
    pub(crate) fn known(&self, id: &str) -> Result<(), Refusal> {
        self.known.take(id, Instant::now())
    }

    /// A request for what needs no token. Apart from the wrong ones: guesses must not make the daemon look dead.
    pub(crate) fn open(&self, peer: Option<&Peer>) -> Result<(), Refusal> {
        self.known.take(&format!("open {}", key(peer)), Instant::now())
    }

    /// A request that shows no token, or one that does not hold.
    pub(crate) fn unknown(&self, peer: Option<&Peer>) -> Result<(), Refusal> {
        self.unknown.take(&key(peer), Instant::now())
    }
}

fn key(peer: Option<&Peer>) -> String {
    match peer {
        Some(Peer::Local(uid)) => format!("uid {uid}"),
        Some(Peer::Network(address)) => address.to_string(),
        None => "nobody".to_owned(),
    }
}

impl Buckets {
    fn new(per_second: u32, seconds: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            burst: f64::from(per_second.saturating_mul(seconds)),
            all: Mutex::new(HashMap::new()),
        }
    }

    fn take(&self, key: &str, now: Instant) -> Result<(), Refusal> {
        let mut all = lock(&self.all);
        if !all.contains_key(key) && all.len() >= MOST {
            let (per_second, burst) = (self.per_second, self.burst);
            all.retain(|_, bucket| bucket.filled(now, per_second, burst) < burst);
            if all.len() >= MOST {
                return Err(too_often());
            }
        }
        let bucket = all.entry(key.to_owned()).or_insert(Bucket {
            left: self.burst,
            at: now,
        });
        bucket.left = bucket.filled(now, self.per_second, self.burst);
        bucket.at = now;
        if bucket.left < 1.0 {
            return Err(too_often());
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn filled(&self, now: Instant, per_second: f64, burst: f64) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + since * per_second).min(burst)
    }
}

fn too_often() -> Refusal {
    Refusal::new(Code::ApiRate, "too many requests", "").retry_after(1)
}

/// A counter is right whatever happened to who held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_who_asks_too_often_is_refused_and_another_is_served() {
        let buckets = Buckets::new(10, 2);
        let start = Instant::now();
        let served = (0..100).filter(|_| buckets.take("a", start).is_ok()).count();
        assert_eq!(served, 20);
        assert!(buckets.take("b", start).is_ok());
        assert!(buckets.take("a", start + Duration::from_millis(150)).is_ok());
        assert!(buckets.take("a", start + Duration::from_millis(150)).is_err());
    }

    #[test]
    fn many_peers_cost_a_bounded_memory() {
        let buckets = Buckets::new(10, 2);
        let start = Instant::now();
        for peer in 0..3 * MOST {
            drop(buckets.take(&peer.to_string(), start));
        }
        assert!(lock(&buckets.all).len() <= MOST);
        assert!(buckets.take("later", start + Duration::from_secs(60)).is_ok());
    }
}
