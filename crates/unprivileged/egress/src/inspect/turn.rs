//! One turn of an agent: a request that a model answers. Counted when it is asked for, given back when none comes of it.
//!
//! **Trust:** the path comes from the agent, the status from the server. Leaving a turn out would need another path than
//! those at which models answer.
use super::judge::Inbound;
use crate::state::State;
use crate::usage::is_model_path;
use bastle_contract::egress::BudgetKind;
use std::sync::Arc;

/// A turn that was counted. Dropped without an answer it is given back.
#[must_use]
pub(super) struct Turn {
    state: Option<Arc<State>>,
}

impl Turn {
    /// Counts the turn that `inbound` is, if it is one.
    pub(super) fn begin(state: &Arc<State>, inbound: &Inbound) -> Self {
        if inbound.method != http::Method::POST || !is_model_path(&inbound.path) {
            return Self { state: None };
        }
        state.budget.count(BudgetKind::Turns, 1);
        Self {
            state: Some(Arc::clone(state)),
        }
    }

    /// A model answered.
    pub(super) fn answered(mut self) {
        self.state = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            state.budget.refund(BudgetKind::Turns, 1);
        }
    }
}
