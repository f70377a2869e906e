//! What a front end is told while a run lives. Text in events comes from the agent: a front end shows it escaped.
use bastle_contract::{CapabilityStatement, Denied, LaunchPlan, LimitHit};

/// A front end of one run.
pub trait Voice {
    /// The fence stands and was proven; the agent starts now.
    fn proven(&mut self, plan: &LaunchPlan, statement: &CapabilityStatement);
    /// Something was denied; `id` names the audit record.
    fn denied(&mut self, id: &str, denied: &Denied);
    /// A limit was hit.
    fn limit(&mut self, hit: &LimitHit);
}
