//! What is reserved for a request to a model before it is sent, and settled when its answer is known.
//!
//! **Trust:** the estimate comes from the agent's request and may be a lie. Too small a one lets requests pass side by side
//! that together use more than is left, so it is raised to the largest answer of this run. Too large a one only makes
//! the agent's own other requests wait: one alone always passes while anything is left.
use super::{Attendance, Budget, Flow, NONE};
use bastle_contract::egress::BudgetKind;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Tokens in.
    pub(crate) input: u64,
    /// Tokens out.
    pub(crate) output: u64,
    /// Millionths of a dollar.
    pub(crate) cost: u64,
}

/// The largest answer of this run.
#[derive(Debug, Default)]
pub(super) struct Largest {
    output: AtomicU64,
    cost: AtomicU64,
}

/// What is taken from the meters of tokens and cost.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    tokens: u64,
    /// The part of `tokens` that is for answers.
    output: u64,
    cost: u64,
}

/// Whether a turn is taken with the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithTurn {
    /// The request counts as a turn.
    One,
    /// None: it belongs to a turn that was taken before.
    None,
}

/// A turn and an estimate that are taken. Given back when dropped; what was really used is counted by its holder.
#[must_use]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    taken: Taken,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Taken, and given back unless a model answers.
    Reserved,
    /// A model answered, or there was none to take.
    Used,
}

/// Whether there is room.
enum Room {
    /// The estimate fits and is reserved.
    Taken(Taken),
    /// It fits when requests under way are settled.
    Later,
    /// It does not fit into what is left of the budget.
    Never,
}

impl Reservation {
    /// Waits for room in every budget of models and takes it; `None` when there will be none.
    pub(crate) async fn take(budget: &Arc<Budget>, estimate: Estimate, turn: WithTurn) -> Option<Self> {
        loop {
            // Registered before looking, so that a change between the look and the wait is not missed.
            let changed = budget.changed.notified();
            match budget.try_reserve(estimate, turn) {
                Room::Taken(taken) => {
                    return Some(Self {
                        budget: Arc::clone(budget),
                        taken,
                        turn: match turn {
                            WithTurn::One => Turn::Reserved,
                            WithTurn::None => Turn::Used,
                        },
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

    /// Holds the estimate of another one too. Both turns must have been answered.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        let more = std::mem::take(&mut other.taken);
        self.taken.tokens = self.taken.tokens.saturating_add(more.tokens);
        self.taken.output = self.taken.output.saturating_add(more.output);
        self.taken.cost = self.taken.cost.saturating_add(more.cost);
    }

    /// Tokens that are reserved for answers.
    pub(crate) fn output(&self) -> u64 {
        self.taken.output
    }

    /// Gives the estimate back and keeps the turn: what follows takes estimates of its own.
    pub(crate) fn release_estimate(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.budget.release(BudgetKind::Tokens, taken.tokens);
        self.budget.release(BudgetKind::Cost, taken.cost);
        self.budget.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.turn == Turn::Reserved {
            self.budget.release(BudgetKind::Turns, 1);
        }
        self.release_estimate();
    }
}

impl Budget {
    /// An answer used this much. The next estimates are no smaller, whatever their requests say.
    pub(crate) fn saw(&self, output: u64, cost: u64) {
        self.largest.output.fetch_max(output, Ordering::Relaxed);
        self.largest.cost.fetch_max(cost, Ordering::Relaxed);
    }

    /// What an estimate takes. Where it waits it is made anew, because answers that came meanwhile may have been larger.
    fn at_least(&self, estimate: Estimate) -> Taken {
        let output = estimate.output.max(self.largest.output.load(Ordering::Relaxed));
        Taken {
            tokens: estimate.input.saturating_add(output),
            output,
            cost: estimate.cost.max(self.largest.cost.load(Ordering::Relaxed)),
        }
    }

    fn try_reserve(&self, estimate: Estimate, turn: WithTurn) -> Room {
        let _one_at_a_time = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        match self.flow() {
            Flow::Go => {}
            Flow::Wait => return Room::Later,
            Flow::Stop => return Room::Never,
        }
        if turn == WithTurn::One
            && let Some(room) = self.turn_missing()
        {
            return room;
        }
        let taken = self.at_least(estimate);
        let wanted = [(BudgetKind::Tokens, taken.tokens), (BudgetKind::Cost, taken.cost)];
        for (kind, amount) in wanted {
            let meter = self.meter(kind);
            let limit = meter.limit.load(Ordering::Relaxed);
            let reserved = meter.reserved.load(Ordering::Relaxed);
            let together = meter
                .used
                .load(Ordering::Relaxed)
                .saturating_add(reserved)
                .saturating_add(amount);
            // Alone it may use the rest, however large its estimate is: estimates are often far too large, and what
            // one request uses beyond a limit is what the marks above it are for. Beside others it must fit as a whole.
            if limit != NONE && reserved > 0 && together > limit {
                return Room::Later;
            }
        }
        let turns = match turn {
            WithTurn::One => 1,
            WithTurn::None => 0,
        };
        for (kind, amount) in wanted.into_iter().chain([(BudgetKind::Turns, turns)]) {
            let add = |reserved: u64| Some(reserved.saturating_add(amount));
            // The closure always gives a value.
            let reserved = &self.meter(kind).reserved;
            reserved
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
                .unwrap_or_default();
        }
        Room::Taken(taken)
    }

    /// Why no turn can be taken now; `None`: one can.
    fn turn_missing(&self) -> Option<Room> {
        let turns = self.meter(BudgetKind::Turns);
        let (limit, used) = (
            turns.limit.load(Ordering::Relaxed),
            turns.used.load(Ordering::Relaxed),
        );
        if limit == NONE {
            return None;
        }
        if used >= limit {
            turns.beyond.store(true, Ordering::Relaxed);
            self.mark(BudgetKind::Turns, used);
            return Some(match self.attendance {
                Attendance::Attended => Room::Later,
                Attendance::Unattended => Room::Never,
            });
        }
        // What is under way may come to nothing and leave its turn.
        let reserved = turns.reserved.load(Ordering::Relaxed);
        (used.saturating_add(reserved) >= limit).then_some(Room::Later)
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
