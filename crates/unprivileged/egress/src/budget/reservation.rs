//! What is reserved for a request to a model before it is sent, and settled when its answer is known.
//!
//! **Trust:** the estimate comes from the agent's request. Too small a one lets no more pass than one request at a time
//! would: what was really used is counted in any case. Too large a one only makes the agent's own other requests wait.
use super::{Attendance, Budget, Flow, NONE};
use bastle_contract::egress::BudgetKind;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// What one request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Tokens in and out.
    pub(crate) tokens: u64,
    /// Millionths of a dollar.
    pub(crate) cost: u64,
}

/// A turn and an estimate that are taken. Given back when dropped; what was really used is counted by its holder.
#[must_use]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    estimate: Estimate,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Taken, and given back unless a model answers.
    Reserved,
    /// A model answered.
    Used,
}

/// Whether there is room.
enum Room {
    /// Taken.
    Taken,
    /// Not now.
    Later,
    /// Never.
    Never,
}

impl Reservation {
    /// Waits for room in every budget of models and takes it; `None` when there will be none.
    pub(crate) async fn take(budget: &Arc<Budget>, estimate: Estimate) -> Option<Self> {
        loop {
            // Registered before looking, so that a change between the look and the wait is not missed.
            let changed = budget.changed.notified();
            match budget.try_reserve(estimate) {
                Room::Taken => {
                    return Some(Self {
                        budget: Arc::clone(budget),
                        estimate,
                        turn: Turn::Reserved,
                    });
                }
                Room::Later => changed.await,
                Room::Never => return None,
            }
        }
    }

    /// The turn was taken: a model answered, or may have.
    pub(crate) fn answered(&mut self) {
        if self.turn == Turn::Used {
            return;
        }
        self.turn = Turn::Used;
        // Counted first: at no moment is the turn in neither number.
        self.budget.count(BudgetKind::Turns, 1);
        self.budget.release(BudgetKind::Turns, 1);
        self.budget.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.turn == Turn::Reserved {
            self.budget.release(BudgetKind::Turns, 1);
        }
        self.budget.release(BudgetKind::Tokens, self.estimate.tokens);
        self.budget.release(BudgetKind::Cost, self.estimate.cost);
        self.budget.changed.notify_waiters();
    }
}

impl Budget {
    fn try_reserve(&self, estimate: Estimate) -> Room {
        let _one_at_a_time = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        match self.flow() {
            Flow::Go => {}
            Flow::Wait => return Room::Later,
            Flow::Stop => return Room::Never,
        }
        let turns = self.meter(BudgetKind::Turns);
        let (limit, used) = (
            turns.limit.load(Ordering::Relaxed),
            turns.used.load(Ordering::Relaxed),
        );
        if limit != NONE {
            if used >= limit {
                turns.beyond.store(true, Ordering::Relaxed);
                self.mark(BudgetKind::Turns, used);
                return match self.attendance {
                    Attendance::Attended => Room::Later,
                    Attendance::Unattended => Room::Never,
                };
            }
            // What is under way may come to nothing and leave its turn.
            if used.saturating_add(turns.reserved.load(Ordering::Relaxed)) >= limit {
                return Room::Later;
            }
        }
        let wanted = [
            (BudgetKind::Tokens, estimate.tokens),
            (BudgetKind::Cost, estimate.cost),
        ];
        for (kind, _) in wanted {
            let meter = self.meter(kind);
            let limit = meter.limit.load(Ordering::Relaxed);
            let reserved = meter.reserved.load(Ordering::Relaxed);
            let taken = meter.used.load(Ordering::Relaxed).saturating_add(reserved);
            // Alone it may use the rest, however large its estimate is: estimates are often far too large, and what
            // one request uses beyond a limit is what the marks above it are for.
            if limit != NONE && reserved > 0 && taken >= limit {
                return Room::Later;
            }
        }
        for (kind, amount) in wanted.into_iter().chain([(BudgetKind::Turns, 1)]) {
            let add = |reserved: u64| Some(reserved.saturating_add(amount));
            // The closure always gives a value.
            let reserved = &self.meter(kind).reserved;
            reserved
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
                .unwrap_or_default();
        }
        Room::Taken
    }

    fn release(&self, kind: BudgetKind, amount: u64) {
        let reserved = &self.meter(kind).reserved;
        let less = |reserved: u64| Some(reserved.saturating_sub(amount));
        // The closure always gives a value.
        reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .unwrap_or_default();
    }
}
