//! What a run did with the network, for its receipt.
use bastle_contract::Code;
use bastle_contract::egress::{NetClosed, NetDecision, NetVerdict};
use bastle_sys::usage::Used;
use serde::Serialize;
use std::collections::BTreeSet;

/// Most hosts that are counted one by one.
const MOST_HOSTS: usize = 4096;

/// Sums over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetTotals {
    /// Requests and connections that went out.
    pub requests: u64,
    /// How many of them because the run learns.
    pub learned: u64,
    /// Requests, connections and lookups that were refused.
    pub denied: u64,
    /// Those that failed because a name or a server did not answer.
    pub failed: u64,
    /// Questions to a person.
    pub asked: u64,
    /// Distinct hosts that were reached.
    pub hosts: BTreeSet<String>,
    /// Bytes out.
    pub bytes_out: u64,
    /// Bytes in.
    pub bytes_in: u64,
    /// Model tokens, in and out.
    pub tokens: u64,
    /// Cost in millionths of a dollar, as far as prices are known.
    pub cost_micro_usd: u64,
    /// Requests that a model answered.
    pub turns: u64,
    /// Uses of each secret's name.
    pub secrets: BTreeSet<String>,
    /// How often the egress process was lost.
    pub lost: u32,
    /// Processor time of the run's egress processes in milliseconds; it is part of the run's own.
    pub cpu_ms: u64,
    /// The largest resident set of one of them, in bytes.
    pub peak_memory: u64,
}

impl NetTotals {
    /// Counts a decision. Lookups that were answered are no requests.
    pub(crate) fn decided(&mut self, decision: &NetDecision) {
        let count = u64::from(decision.count.max(1));
        match decision.verdict {
            NetVerdict::Denied if matches!(decision.code, Some(Code::NetResolve | Code::NetUpstream)) => {
                self.failed += count;
            }
            NetVerdict::Denied => self.denied += count,
            NetVerdict::Asked => self.asked += 1,
            NetVerdict::Allowed | NetVerdict::Learned if decision.port == 0 => {}
            NetVerdict::Allowed | NetVerdict::Learned => {
                self.requests += count;
                if decision.verdict == NetVerdict::Learned {
                    self.learned += count;
                }
                if self.hosts.len() < MOST_HOSTS {
                    self.hosts.insert(decision.host.clone());
                }
            }
        }
        if let Some(secret) = &decision.secret {
            self.secrets.insert(secret.clone());
        }
    }

    /// Counts an end.
    pub(crate) fn closed(&mut self, closed: &NetClosed) {
        self.bytes_out = self.bytes_out.saturating_add(closed.bytes_out);
        self.bytes_in = self.bytes_in.saturating_add(closed.bytes_in);
        if let Some(model) = &closed.model {
            self.turns = self.turns.saturating_add(1);
            let used = [model.input, model.output, model.cache_read, model.cache_write];
            self.tokens = used.into_iter().fold(self.tokens, u64::saturating_add);
            self.cost_micro_usd = self
                .cost_micro_usd
                .saturating_add(model.cost_micro_usd.unwrap_or(0));
        }
    }

    /// Adds what one egress process used to what those before it did.
    pub(crate) fn spent(&mut self, used: Used) {
        self.cpu_ms = self.cpu_ms.saturating_add(used.cpu_ms);
        self.peak_memory = self.peak_memory.max(used.peak_memory);
    }

    /// What is left of a budget when another process has to go on counting.
    pub(crate) fn rest(&self, budget: &bastle_policy::NetBudget) -> bastle_policy::NetBudget {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        bastle_policy::NetBudget {
            cost_micro_usd: left(budget.cost_micro_usd, self.cost_micro_usd),
            tokens: left(budget.tokens, self.tokens),
            bytes_out: left(budget.bytes_out, self.bytes_out),
            bytes_in: left(budget.bytes_in, self.bytes_in),
            requests: left(budget.requests, self.requests),
            connections: left(budget.connections, self.requests),
            turns: left(budget.turns, self.turns),
            on_exceed: budget.on_exceed,
            waived: budget.waived.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_policy::NetBudget;

    #[test]
    fn the_time_of_every_egress_process_counts_and_of_their_memory_the_largest() {
        let used = |cpu_ms, peak_memory| Used {
            cpu_ms,
            peak_memory,
            bytes_written: 0,
        };
        let mut totals = NetTotals::default();
        totals.spent(used(30, 5000));
        totals.spent(used(12, 4000));
        assert_eq!((totals.cpu_ms, totals.peak_memory), (42, 5000));
    }

    #[test]
    fn what_was_spent_is_not_given_back_to_a_new_process() {
        let totals = NetTotals {
            bytes_out: 70,
            requests: 9,
            cost_micro_usd: 2_000_000,
            ..NetTotals::default()
        };
        let budget = NetBudget {
            bytes_out: Some(100),
            requests: Some(5),
            cost_micro_usd: Some(5_000_000),
            ..NetBudget::default()
        };
        let rest = totals.rest(&budget);
        assert_eq!((rest.bytes_out, rest.requests), (Some(30), Some(0)));
        assert_eq!((rest.cost_micro_usd, rest.tokens), (Some(3_000_000), None));
    }
}
