//! What a WebSocket to a model used so far, and the room that its unanswered messages hold.
//!
//! **Trust:** counts bytes that really passed. The lengths of messages come from the agent and are used for estimates only.
use crate::budget::{Reservation, WithTurn};
use crate::usage::BYTES_PER_TOKEN;
use bastle_contract::egress::{BudgetKind, ModelUse};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long nothing may pass before messages count as answered: their room is given back, so that a connection that is
/// kept open does not keep other requests waiting.
const QUIET: Duration = Duration::from_secs(10);

/// The account of one connection.
#[derive(Default)]
pub(super) struct Socket(Mutex<Account>);

#[derive(Default)]
struct Account {
    messages: u64,
    sent: u64,
    received: u64,
    cost: u64,
    /// Room of the messages since the server was last heard.
    held: Option<Reservation>,
    /// Whether the server was heard since the last message.
    heard: bool,
    /// A message waits for room: what the server sends now answers those before it.
    waits: bool,
}

/// What came on top.
pub(super) struct More {
    pub(super) tokens: u64,
    pub(super) cost: u64,
}

impl Account {
    fn tokens(&self) -> (u64, u64) {
        (self.sent / BYTES_PER_TOKEN, self.received / BYTES_PER_TOKEN)
    }
}

impl Socket {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that passed; `price` tells what all together cost.
    pub(super) fn passed(
        &self,
        kind: BudgetKind,
        amount: u64,
        model: String,
        price: impl Fn(&ModelUse) -> u64,
    ) -> More {
        let mut account = self.account();
        let before = account.tokens();
        if kind == BudgetKind::BytesOut {
            account.sent = account.sent.saturating_add(amount);
        } else {
            account.received = account.received.saturating_add(amount);
            if account.waits {
                account.held = None;
            } else {
                account.heard = true;
            }
        }
        let (input, output) = account.tokens();
        let whole = price(&ModelUse {
            model,
            input,
            output,
            ..ModelUse::default()
        });
        // The price of all that passed, not of each piece: rounding up each of many small ones would count far too much.
        let cost = whole.saturating_sub(account.cost);
        account.cost = account.cost.max(whole);
        More {
            tokens: (input - before.0).saturating_add(output - before.1),
            cost,
        }
    }

    /// A message begins and is about to wait for room. The messages before it hold theirs until the server is heard.
    pub(super) fn begins(&self) -> WithTurn {
        let mut account = self.account();
        if std::mem::take(&mut account.heard) {
            account.held = None;
        }
        account.waits = true;
        account.messages = account.messages.saturating_add(1);
        if account.messages == 1 {
            WithTurn::None
        } else {
            WithTurn::One
        }
    }

    /// Keeps the room of a message that may be sent.
    pub(super) fn hold(&self, reservation: Reservation) {
        let mut account = self.account();
        account.waits = false;
        match &mut account.held {
            Some(held) => held.absorb(reservation),
            none => *none = Some(reservation),
        }
    }

    /// Gives room back whenever nothing passed for a while.
    pub(super) async fn settles(&self) -> Infallible {
        let mark = || {
            let account = self.account();
            (account.sent, account.received, account.messages)
        };
        let mut before = mark();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = mark();
            if now == before {
                self.account().held = None;
            }
            before = now;
        }
    }
}
