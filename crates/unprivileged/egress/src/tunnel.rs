//! The connections that are alive: how many there may be, which are cut when the table changes, which have gone idle.
//!
//! **Trust:** the agent opens them; their number is bounded, and an entry holds no bytes of the agent.
use crate::limits::{IDLE_TUNNEL, MAX_TUNNELS, SWEEP};
use crate::via::Via;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Every live connection of a run.
#[derive(Debug)]
pub(crate) struct Tunnels {
    places: Arc<Semaphore>,
    live: Mutex<HashMap<u64, Arc<Tunnel>>>,
    next: AtomicU64,
}

/// The right to keep one connection.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// How a tunnel was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Its bytes pass unseen.
    Pass,
    /// A person let its bytes pass unseen.
    Approved,
    /// Every request inside is judged.
    Inspect,
}

/// One live connection.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Where it goes.
    pub via: Via,
    /// How it was admitted.
    pub admission: Admission,
    /// Where it was dialled.
    pub address: Option<IpAddr>,
    /// Bytes out.
    pub sent: AtomicU64,
    /// Bytes in.
    pub received: AtomicU64,
    /// Bytes at the last look, and how many looks ago they changed.
    seen: AtomicU64,
    rested: AtomicU64,
    cut: Notify,
}

/// A tunnel in the list; dropping it takes it out and gives its place back.
#[derive(Debug)]
pub(crate) struct Live {
    tunnels: Arc<Tunnels>,
    number: u64,
    tunnel: Arc<Tunnel>,
    _place: Place,
}

impl Tunnels {
    /// None yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(MAX_TUNNELS)),
            live: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// A place, if one is free.
    pub(crate) fn place(&self) -> Option<Place> {
        Arc::clone(&self.places)
            .try_acquire_owned()
            .ok()
            .map(|permit| Place { _permit: permit })
    }

    /// Lists a connection. The caller must afterwards look whether the table has changed since it judged.
    pub(crate) fn list(
        self: &Arc<Self>,
        place: Place,
        via: Via,
        admission: Admission,
        address: Option<IpAddr>,
    ) -> Live {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let tunnel = Arc::new(Tunnel {
            via,
            admission,
            address,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            rested: AtomicU64::new(0),
            cut: Notify::new(),
        });
        self.locked().insert(number, Arc::clone(&tunnel));
        Live {
            tunnels: Arc::clone(self),
            number,
            tunnel,
            _place: place,
        }
    }

    /// Cuts every tunnel that `keep` does not keep, and says how many.
    pub(crate) fn cut_unless(&self, keep: impl Fn(&Tunnel) -> bool) -> u32 {
        let mut cut = 0;
        for tunnel in self.locked().values().filter(|tunnel| !keep(tunnel)) {
            tunnel.cut();
            cut += 1;
        }
        cut
    }

    /// One look at every tunnel: those in which nothing moved for too long are cut.
    pub(crate) fn sweep(&self) {
        let looks = IDLE_TUNNEL.as_secs() / SWEEP.as_secs();
        self.cut_unless(|tunnel| tunnel.admission == Admission::Inspect || tunnel.rested() < looks);
    }

    /// How many are alive.
    pub(crate) fn count(&self) -> usize {
        self.locked().len()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Tunnel>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tunnel {
    /// Ends it as soon as whoever serves it looks.
    pub(crate) fn cut(&self) {
        // One task serves a tunnel; the signal waits for it if it is busy.
        self.cut.notify_one();
    }

    fn rested(&self) -> u64 {
        let moved = self.sent.load(Ordering::Relaxed) + self.received.load(Ordering::Relaxed);
        if self.seen.swap(moved, Ordering::Relaxed) == moved {
            self.rested.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.rested.store(0, Ordering::Relaxed);
            0
        }
    }
}

impl Live {
    /// The tunnel.
    pub(crate) fn tunnel(&self) -> &Arc<Tunnel> {
        &self.tunnel
    }

    /// Returns when the tunnel must end. For the one task that serves it.
    pub(crate) async fn until_cut(&self) {
        self.tunnel.cut.notified().await;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tunnels.locked().remove(&self.number);
    }
}
