//! In-file tests: expectations of a policy about the effective policy it becomes part of.
use crate::decide::{Outcome, decide};
use crate::effective::{Effective, Origin};
use crate::query::Query;
use bastle_contract::{Code, Fault};
use serde::Serialize;

/// What became of one expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TestReport {
    /// The question.
    pub can: String,
    /// What the policy expects.
    pub expected: Outcome,
    /// What the evaluator answers; `None` when the question cannot be asked.
    pub got: Option<Outcome>,
    /// Why it answers so.
    pub reason: String,
    /// Where the expectation stands.
    pub origin: Origin,
}

impl TestReport {
    /// Whether the expectation holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.got == Some(self.expected)
    }

    /// The failure as a fault; `None` when it passed.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        if self.passed() {
            return None;
        }
        let got = self.got.map_or("no answer", Outcome::name);
        let what = format!(
            "{}: test {:?} expects {} and gets {got}",
            self.origin,
            self.can,
            self.expected.name()
        );
        Some(
            Fault::new(Code::PolicyTest, what, self.reason.clone())
                .help(format!("bastle why {:?}", self.can)),
        )
    }
}

/// Asks every question of every layer's `tests`.
#[must_use]
pub fn selftest(effective: &Effective) -> Vec<TestReport> {
    let reports = effective.tests.iter().map(|test| {
        let (got, reason) = match Query::parse(&test.value.can, &effective.surroundings) {
            Ok(query) => {
                let decision = decide(effective, &query);
                (Some(decision.outcome), decision.reason)
            }
            Err(fault) => (None, fault.to_string()),
        };
        TestReport {
            can: test.value.can.clone(),
            expected: test.value.is.into(),
            got,
            reason,
            origin: test.origin.clone(),
        }
    });
    reports.collect()
}
