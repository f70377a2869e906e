//! The account of one allowed request: bytes, status and tokens, reported once when it is over, however it ends.
//!
//! **Trust:** counts what really passed.
use super::body::{BodyError, Stopped, Tally};
use crate::budget::Flow;
use crate::state::State;
use crate::usage::{Prices, UsageReader};
use bastle_contract::egress::{BudgetKind, NetClosed};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Reports when it is dropped.
pub(super) struct Ledger {
    state: Arc<State>,
    seq: u64,
    tally: Arc<Tally>,
    status: Option<u16>,
    usage: Option<UsageReader>,
}

impl Ledger {
    /// For the decision `seq`.
    pub(super) fn new(state: Arc<State>, seq: u64, tally: Arc<Tally>) -> Self {
        Self {
            state,
            seq,
            tally,
            status: None,
            usage: None,
        }
    }

    /// The server answered.
    pub(super) fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer is a model's.
    pub(super) fn reads(&mut self, usage: UsageReader) {
        self.usage = Some(usage);
    }

    /// Some of the answer came.
    pub(super) fn received(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if let Some(usage) = &mut self.usage {
            usage.feed(bytes);
        }
        self.count(BudgetKind::BytesIn, bytes.len() as u64)
    }

    /// Bytes that passed after an upgrade.
    pub(super) fn count(&self, kind: BudgetKind, amount: u64) -> Result<(), BodyError> {
        let counter = if kind == BudgetKind::BytesOut {
            &self.tally.sent
        } else {
            &self.tally.received
        };
        counter.fetch_add(amount, Ordering::Relaxed);
        match self.state.budget.spend(kind, amount) {
            Flow::Go | Flow::Wait => Ok(()),
            Flow::Stop => {
                self.tally.stopped.get_or_init(|| Stopped::Budget);
                Err("a budget is used up".into())
            }
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let sent = self.tally.sent.load(Ordering::Relaxed);
        let model = self.usage.take().map(|usage| usage.finish(prices(), sent));
        if let Some(used) = &model {
            let tokens = [used.input, used.output, used.cache_read, used.cache_write]
                .iter()
                .fold(0u64, |sum, n| sum.saturating_add(*n));
            self.state.budget.count(BudgetKind::Tokens, tokens);
            let cost = used.cost_micro_usd.unwrap_or(0);
            self.state.budget.count(BudgetKind::Cost, cost);
        }
        let closed = NetClosed {
            seq: self.seq,
            bytes_out: sent,
            bytes_in: self.tally.received.load(Ordering::Relaxed),
            status: self.status,
            model,
        };
        let state = Arc::clone(&self.state);
        // Outside the runtime the process is ending, and nobody reads reports any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { state.closed(closed).await });
        }
    }
}

fn prices() -> &'static Prices {
    static PRICES: OnceLock<Prices> = OnceLock::new();
    PRICES.get_or_init(Prices::built_in)
}
