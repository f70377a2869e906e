//! The account of one allowed request: bytes, status and tokens, reported once when it is over, however it ends.
//!
//! **Trust:** counts what really passed. What a model used is settled here, from the response where it tells and by an
//! estimate where it does not or was cut off.
use super::body::{BodyError, Stopped, Tally};
use super::decode::Coded;
use super::socket::Socket;
use super::turn::{Api, Claim, Turn};
use crate::budget::{Flow, Reservation};
use crate::state::State;
use crate::usage::{BYTES_PER_TOKEN, Ending, Settlement, UsageReader, prices};
use bastle_contract::egress::{BudgetKind, ModelUse, NetClosed, UsageBasis};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reports when it is dropped.
pub(super) struct Ledger {
    state: Arc<State>,
    seq: u64,
    tally: Arc<Tally>,
    status: Option<u16>,
    turn: Turn,
    usage: Option<UsageReader>,
    ending: Ending,
    /// A WebSocket to a model.
    socket: Socket,
}

impl Ledger {
    /// For the decision `seq`.
    pub(super) fn new(state: Arc<State>, seq: u64, tally: Arc<Tally>, turn: Turn) -> Self {
        Self {
            state,
            seq,
            tally,
            status: None,
            turn,
            usage: None,
            ending: Ending::Cut,
            socket: Socket::default(),
        }
    }

    /// The server answered. A model's answer is read as it passes; what it did not answer with success was no turn.
    pub(super) fn answered(&mut self, status: http::StatusCode, headers: &HeaderMap) {
        self.status = Some(status.as_u16());
        let switched = status == http::StatusCode::SWITCHING_PROTOCOLS;
        if !status.is_success() && !switched {
            return;
        }
        if let Turn::Taken(claim) = &mut self.turn {
            match claim.api {
                Api::Known => claim.reservation.answered(),
                // Its answer may still say that nothing was generated.
                Api::Unlisted => {}
            }
            if switched {
                // An upgrade alone makes no model answer, and its messages would wait for its estimate for ever.
                claim.reservation.release_estimate();
            }
        }
        if self.turn.reads_answer() && !switched {
            let text = |name| {
                headers
                    .get(name)
                    .and_then(|value: &http::HeaderValue| value.to_str().ok())
            };
            // Codings that are known are undone before the answer is counted.
            let coding = match Coded::of(headers) {
                Coded::Plain | Coded::With(_) => None,
                Coded::Unknown => Some("unknown"),
            };
            self.usage = Some(UsageReader::new(text(CONTENT_TYPE), coding));
        }
    }

    /// Some of the answer came.
    pub(super) fn received(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if let Some(usage) = &mut self.usage {
            usage.feed(bytes);
        }
        self.count(BudgetKind::BytesIn, bytes.len() as u64)
    }

    /// The answer ended as the server meant it to.
    pub(super) fn ended(&mut self) {
        self.ending = Ending::Whole;
    }

    /// Bytes that passed.
    pub(super) fn count(&self, kind: BudgetKind, amount: u64) -> Result<(), BodyError> {
        let counter = if kind == BudgetKind::BytesOut {
            &self.tally.sent
        } else {
            &self.tally.received
        };
        counter.fetch_add(amount, Ordering::Relaxed);
        match self.state.budget.spend(kind, amount) {
            Flow::Go | Flow::Wait => Ok(()),
            Flow::Stop => Err(self.stopped()),
        }
    }

    /// Bytes of a WebSocket. To a model each few of them stand for a token, because nothing inside is read; tokens and
    /// their cost count at once, because a connection may live as long as the run.
    pub(super) fn passed(&self, kind: BudgetKind, amount: u64) -> Result<(), BodyError> {
        if let Turn::Taken(claim) = &self.turn {
            let model = claim.facts.model.clone().unwrap_or_default();
            let price = |used: &ModelUse| claim.cost_of(used).unwrap_or(0);
            let more = self.socket.passed(kind, amount, model, price);
            self.state.budget.count(BudgetKind::Tokens, more.tokens);
            self.state.budget.count(BudgetKind::Cost, more.cost);
        }
        self.count(kind, amount)
    }

    /// Whether messages over a WebSocket are turns.
    pub(super) fn counts_messages(&self) -> bool {
        match self.turn {
            Turn::Taken(_) => true,
            Turn::Watched | Turn::None => false,
        }
    }

    /// A message of this length that the client sends over a WebSocket; to a model each is a turn, the first that of the
    /// upgrade. Returns when there is room for it.
    pub(super) async fn message(&self, length: u64) -> Result<(), BodyError> {
        let Turn::Taken(claim) = &self.turn else {
            return Ok(());
        };
        let turn = self.socket.begins();
        match Reservation::take(&self.state.budget, claim.message(length), turn).await {
            Some(mut reservation) => {
                reservation.answered();
                self.socket.hold(reservation);
                Ok(())
            }
            None => Err(self.stopped()),
        }
    }

    /// Gives back, again and again, what is reserved for messages of a WebSocket on which nothing passes any more.
    pub(super) async fn settles(&self) -> Infallible {
        self.socket.settles().await
    }

    fn stopped(&self) -> BodyError {
        self.tally.stopped.get_or_init(|| Stopped::Budget);
        "a budget is used up".into()
    }

    /// What a model used.
    fn settle(&mut self, sent: u64) -> Option<ModelUse> {
        let (turn, mut usage) = (std::mem::replace(&mut self.turn, Turn::None), self.usage.take());
        let told = usage.as_mut().is_some_and(UsageReader::has_usage);
        let used = match (&turn, usage) {
            (Turn::Taken(claim), Some(usage)) => Some(self.answer_of(claim, usage, sent)),
            (Turn::Taken(claim), None) => self.answer_unseen(claim, sent),
            (Turn::Watched, Some(usage)) => {
                // Nothing should be generated there, and yet tokens were used.
                told.then(|| {
                    let used = usage.finish(prices(), &Settlement::unknown(sent));
                    self.state
                        .budget
                        .count(BudgetKind::Turns, u64::from(used.output > 0));
                    used
                })
            }
            (Turn::Watched, None) | (Turn::None, _) => None,
        };
        if let (Some(used), Turn::Taken(_) | Turn::Watched) = (&used, &turn) {
            // What a WebSocket used was counted as it passed.
            if self.status != Some(101) {
                let tokens = [used.input, used.output, used.cache_read, used.cache_write]
                    .iter()
                    .fold(0u64, |sum, n| sum.saturating_add(*n));
                let cost = used.cost_micro_usd.unwrap_or(0);
                self.state.budget.count(BudgetKind::Tokens, tokens);
                self.state.budget.count(BudgetKind::Cost, cost);
                // An answer that nobody saw is an estimate itself: later ones are not raised to it.
                if self.status.is_some() {
                    self.state.budget.saw(used.output, cost);
                }
            }
        }
        // Only now is the reservation given back: between the two nothing more passes.
        if let Turn::Taken(mut claim) = turn {
            let nothing_generated =
                claim.api == Api::Unlisted && told && used.as_ref().is_some_and(|used| used.output == 0);
            if used.is_some() && !nothing_generated {
                claim.reservation.answered();
            }
            drop(claim);
        }
        used
    }

    fn answer_of(&self, claim: &Claim, usage: UsageReader, sent: u64) -> ModelUse {
        let settlement = Settlement {
            sent,
            ending: self.ending,
            model: claim.facts.model.as_deref(),
            price: claim.call.price,
            deferred: claim.facts.background.then(|| claim.facts.tokens(sent).1),
        };
        charged(claim, usage.finish(prices(), &settlement))
    }

    /// A request that was sent as a whole and whose answer was not seen may have been answered all the same, as far as it
    /// asked for: the model does not see that it was cancelled.
    fn answer_unseen(&self, claim: &Claim, sent: u64) -> Option<ModelUse> {
        let output = match self.status {
            Some(101) => self.tally.received.load(Ordering::Relaxed) / BYTES_PER_TOKEN,
            Some(_) => return None,
            None if sent == 0 => return None,
            None if self.tally.whole.load(Ordering::Relaxed) => claim.reservation.output(),
            None => 0,
        };
        let mut used = ModelUse {
            model: claim.facts.model.clone().unwrap_or_default(),
            input: sent / BYTES_PER_TOKEN,
            output,
            basis: UsageBasis::Estimated,
            ..ModelUse::default()
        };
        used.cost_micro_usd = claim.cost_of(&used);
        Some(used)
    }
}

/// Under a budget of cost nothing is free because nobody knows its price.
fn charged(claim: &Claim, mut used: ModelUse) -> ModelUse {
    if used.cost_micro_usd.is_none()
        && let Some(cost) = claim.cost_of(&used)
    {
        used.cost_micro_usd = Some(cost);
        used.basis = UsageBasis::Estimated;
    }
    used
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let sent = self.tally.sent.load(Ordering::Relaxed);
        let model = self.settle(sent);
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
