//! The connections that are open: a bounded number, where one that does nothing makes room for one that comes.
//!
//! **Trust:** anybody can open connections and say nothing. These cost a descriptor each and go first.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    open: Mutex<VecDeque<Arc<Member>>>,
    /// How many were sent away for others.
    pub(super) displaced: AtomicU64,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Member {
    /// Requests under way on it.
    busy: AtomicUsize,
    /// Rung when it has to go.
    pub(super) leave: Notify,
}

/// A connection's place in the crowd; given back when dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    pub(super) member: Arc<Member>,
}

/// A request under way.
pub(super) struct Busy(Arc<Member>);

impl Crowd {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::new(VecDeque::new()),
            displaced: AtomicU64::new(0),
        })
    }

    /// A place for one more. The one that has been idle longest goes if there is none; `None` when all are at work.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut open = self
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if open.len() >= self.most {
            let idle = open
                .iter()
                .position(|member| member.busy.load(Ordering::Acquire) == 0)?;
            let gone = open.remove(idle)?;
            gone.leave.notify_one();
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
        let member = Arc::new(Member {
            busy: AtomicUsize::new(0),
            leave: Notify::new(),
        });
        open.push_back(Arc::clone(&member));
        Some(Place {
            crowd: Arc::clone(self),
            member,
        })
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .len()
    }
}

impl Member {
    pub(super) fn work(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self
            .crowd
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        open.retain(|member| !Arc::ptr_eq(member, &self.member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_make_room_and_busy_ones_do_not() {
        let crowd = Crowd::new(3);
        let held: Vec<_> = (0..3).filter_map(|_| crowd.enter()).collect();
        let at_work: Vec<_> = held.iter().take(2).map(|place| place.member.work()).collect();
        let newer = crowd.enter().unwrap();
        assert_eq!((crowd.count(), crowd.displaced.load(Ordering::Relaxed)), (3, 1));
        let _busy = newer.member.work();
        assert!(crowd.enter().is_none(), "all are at work");
        drop(at_work);
        assert!(crowd.enter().is_some());
    }
}
