//! Counts what a run spends and says when it must wait or stop.
//!
//! **Trust:** the limits come from the table. The counts come from bytes that really passed, and for models from the
//! server's own usage fields; the agent cannot lower them.
//!
//! Marks: at 80 % somebody is told; at 100 % nothing new goes out until a person lets it, or the run stops when
//! nobody is there; at 120 % the run stops in any case, which bounds what was already under way. Letting it go on
//! raises every limit that was reached by a fifth of the original one, and the marks move with it.
//!
//! What models charge is known only when they have answered. Until then an estimate is reserved (`reservation.rs`), so
//! that requests sent side by side cannot all pass the last of a budget.
mod reservation;

pub(crate) use reservation::{Estimate, Reservation, WithTurn};

use bastle_contract::egress::{BudgetKind, BudgetReached, BudgetStep};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Every kind, in the order of the meters.
pub(crate) const KINDS: [BudgetKind; 7] = [
    BudgetKind::Cost,
    BudgetKind::Tokens,
    BudgetKind::BytesOut,
    BudgetKind::BytesIn,
    BudgetKind::Requests,
    BudgetKind::Connections,
    BudgetKind::Turns,
];

/// Limits by kind; `None` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Millionths of a dollar.
    pub(crate) cost: Option<u64>,
    /// Model tokens of every kind.
    pub(crate) tokens: Option<u64>,
    /// Bytes towards servers.
    pub(crate) bytes_out: Option<u64>,
    /// Bytes from servers.
    pub(crate) bytes_in: Option<u64>,
    /// Requests that were allowed.
    pub(crate) requests: Option<u64>,
    /// Connections that were allowed.
    pub(crate) connections: Option<u64>,
    /// Requests to models.
    pub(crate) turns: Option<u64>,
}

/// Whether somebody can let a run go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// A person can answer.
    Attended,
    /// Nobody can.
    Unattended,
}

/// What may happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(crate) enum Flow {
    /// Go on.
    Go,
    /// Nothing new until a person lets it.
    Wait,
    /// Nothing any more.
    Stop,
}

/// The counters of one run.
pub(crate) struct Budget {
    meters: [Meter; 7],
    attendance: Attendance,
    report: Box<dyn Fn(BudgetReached) + Send + Sync>,
    changed: Notify,
    /// Held while a reservation is judged and made, so that two never take the same rest.
    gate: Mutex<()>,
    largest: reservation::Largest,
}

/// One counter. `limit` 0 with `bounded` 0 would be ambiguous, so "no limit" is the largest number.
struct Meter {
    used: AtomicU64,
    /// Estimates of what is under way.
    reserved: AtomicU64,
    /// More was asked for than the limit leaves: only for what is counted one by one before it happens.
    beyond: AtomicBool,
    original: AtomicU64,
    limit: AtomicU64,
    told: AtomicU8,
}

/// No limit.
const NONE: u64 = u64::MAX;

impl Budget {
    /// Counters at zero. `report` is told once for each mark that is passed; it must not block.
    pub(crate) fn new(
        limits: Limits,
        attendance: Attendance,
        report: impl Fn(BudgetReached) + Send + Sync + 'static,
    ) -> Self {
        let meters = limits.list().map(|limit| Meter {
            used: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            beyond: AtomicBool::new(false),
            original: AtomicU64::new(limit),
            limit: AtomicU64::new(limit),
            told: AtomicU8::new(0),
        });
        Self {
            meters,
            attendance,
            report: Box::new(report),
            changed: Notify::new(),
            gate: Mutex::new(()),
            largest: reservation::Largest::default(),
        }
    }

    /// Counts `amount` and says what may happen next. What was counted has already happened.
    pub(crate) fn spend(&self, kind: BudgetKind, amount: u64) -> Flow {
        let meter = self.meter(kind);
        // Wrapping would forgive everything; the sum saturates instead. The closure always gives a value.
        let before = meter
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_add(amount))
            })
            .unwrap_or(NONE);
        self.mark(kind, before.saturating_add(amount));
        self.flow()
    }

    /// Counts what is already under way. The flow is looked at before the next request or connection.
    pub(crate) fn count(&self, kind: BudgetKind, amount: u64) {
        match self.spend(kind, amount) {
            Flow::Go | Flow::Wait | Flow::Stop => {}
        }
    }

    /// What may happen now, by every counter.
    pub(crate) fn flow(&self) -> Flow {
        let worst = KINDS.into_iter().map(|kind| self.flow_of(kind)).max();
        worst.unwrap_or(Flow::Go)
    }

    /// The counter that stands worst, for an explanation.
    pub(crate) fn worst(&self) -> BudgetReached {
        let share = |kind: &BudgetKind| {
            let meter = self.meter(*kind);
            let limit = u128::from(meter.limit.load(Ordering::Relaxed).max(1));
            u128::from(meter.used.load(Ordering::Relaxed)) * 1_000_000 / limit
                + u128::from(meter.beyond.load(Ordering::Relaxed))
        };
        let kind = KINDS.into_iter().max_by_key(share).unwrap_or(BudgetKind::Cost);
        let meter = self.meter(kind);
        BudgetReached {
            kind,
            step: match self.flow_of(kind) {
                Flow::Go => BudgetStep::Warn,
                Flow::Wait => BudgetStep::Pause,
                Flow::Stop => BudgetStep::Stop,
            },
            used: meter.used.load(Ordering::Relaxed),
            limit: meter.limit.load(Ordering::Relaxed),
        }
    }

    /// Waits while the run is paused, and says how it ended: `Go` or `Stop`.
    pub(crate) async fn clear(&self) -> Flow {
        loop {
            // Registered before looking, so that a change between the look and the wait is not missed.
            let changed = self.changed.notified();
            match self.flow() {
                Flow::Wait => changed.await,
                Flow::Go => return Flow::Go,
                Flow::Stop => return Flow::Stop,
            }
        }
    }

    /// A person let the run go on.
    pub(crate) fn extend(&self) {
        for kind in KINDS {
            let meter = self.meter(kind);
            let used = meter.used.load(Ordering::Relaxed);
            let limit = meter.limit.load(Ordering::Relaxed);
            let beyond = meter.beyond.swap(false, Ordering::Relaxed);
            let reached = match kind {
                BudgetKind::Turns => beyond,
                BudgetKind::Cost
                | BudgetKind::Tokens
                | BudgetKind::BytesOut
                | BudgetKind::BytesIn
                | BudgetKind::Requests
                | BudgetKind::Connections => used >= limit,
            };
            if limit == NONE || !reached {
                continue;
            }
            let fifth = (meter.original.load(Ordering::Relaxed) / 5).max(1);
            // The one that waits is let go besides.
            let more = fifth.saturating_add(u64::from(beyond));
            meter.limit.store(used.saturating_add(more), Ordering::Relaxed);
            meter.told.store(0, Ordering::Relaxed);
        }
        self.changed.notify_waiters();
    }

    /// New limits after a reload; what was used stays used.
    pub(crate) fn relimit(&self, limits: Limits) {
        for (meter, limit) in self.meters.iter().zip(limits.list()) {
            if meter.original.swap(limit, Ordering::Relaxed) != limit {
                meter.limit.store(limit, Ordering::Relaxed);
                meter.told.store(0, Ordering::Relaxed);
                meter.beyond.store(false, Ordering::Relaxed);
            }
        }
        for kind in KINDS {
            self.mark(kind, self.meter(kind).used.load(Ordering::Relaxed));
        }
        self.changed.notify_waiters();
    }

    fn meter(&self, kind: BudgetKind) -> &Meter {
        let [cost, tokens, bytes_out, bytes_in, requests, connections, turns] = &self.meters;
        match kind {
            BudgetKind::Cost => cost,
            BudgetKind::Tokens => tokens,
            BudgetKind::BytesOut => bytes_out,
            BudgetKind::BytesIn => bytes_in,
            BudgetKind::Requests => requests,
            BudgetKind::Connections => connections,
            BudgetKind::Turns => turns,
        }
    }

    fn flow_of(&self, kind: BudgetKind) -> Flow {
        let meter = self.meter(kind);
        match self.step(kind, meter.used.load(Ordering::Relaxed)) {
            None | Some(BudgetStep::Warn) => Flow::Go,
            Some(BudgetStep::Pause) => Flow::Wait,
            Some(BudgetStep::Stop) => Flow::Stop,
        }
    }

    /// The mark that stands for `used`. A run may take as many turns as its limit says and go on with other things: only
    /// the turn that is asked for beyond the last one pauses or stops it.
    fn step(&self, kind: BudgetKind, used: u64) -> Option<BudgetStep> {
        let meter = self.meter(kind);
        let limit = meter.limit.load(Ordering::Relaxed);
        match kind {
            BudgetKind::Turns => match (meter.beyond.load(Ordering::Relaxed), self.attendance) {
                (true, Attendance::Attended) => Some(BudgetStep::Pause),
                (true, Attendance::Unattended) => Some(BudgetStep::Stop),
                (false, attendance) => step_of(used, limit, attendance).map(|_| BudgetStep::Warn),
            },
            BudgetKind::Cost
            | BudgetKind::Tokens
            | BudgetKind::BytesOut
            | BudgetKind::BytesIn
            | BudgetKind::Requests
            | BudgetKind::Connections => step_of(used, limit, self.attendance),
        }
    }

    fn mark(&self, kind: BudgetKind, used: u64) {
        let meter = self.meter(kind);
        let limit = meter.limit.load(Ordering::Relaxed);
        let Some(step) = self.step(kind, used) else {
            return;
        };
        let number = match step {
            BudgetStep::Warn => 1,
            BudgetStep::Pause => 2,
            BudgetStep::Stop => 3,
        };
        // Whoever raises the number tells; everybody else knows it has been told.
        if meter.told.fetch_max(number, Ordering::Relaxed) < number {
            (self.report)(BudgetReached {
                kind,
                step,
                used,
                limit,
            });
            self.changed.notify_waiters();
        }
    }
}

/// The mark that `used` has passed. A limit of 0 allows nothing.
fn step_of(used: u64, limit: u64, attendance: Attendance) -> Option<BudgetStep> {
    if limit == NONE {
        return None;
    }
    let percent = u128::from(used) * 100;
    let limit = u128::from(limit);
    match attendance {
        _ if percent >= limit * 120 && used > 0 => Some(BudgetStep::Stop),
        Attendance::Unattended if percent >= limit * 100 => Some(BudgetStep::Stop),
        Attendance::Attended if percent >= limit * 100 => Some(BudgetStep::Pause),
        Attendance::Attended | Attendance::Unattended if percent >= limit * 80 => Some(BudgetStep::Warn),
        Attendance::Attended | Attendance::Unattended => None,
    }
}

impl Limits {
    fn list(self) -> [u64; 7] {
        let Self {
            cost,
            tokens,
            bytes_out,
            bytes_in,
            requests,
            connections,
            turns,
        } = self;
        [cost, tokens, bytes_out, bytes_in, requests, connections, turns].map(|limit| limit.unwrap_or(NONE))
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("attendance", &self.attendance)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
