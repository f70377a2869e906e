//! x
use super::harness::Scenario;
pub(super) const SCENARIOS: &[Scenario] = &[];
