//! The import gate: what each change could do on the host, and what must be approved before it gets there.
//!
//! **Trust:** paths and contents are the agent's. A path that no rule names is source; what cannot be read as
//! text is never "source"; a rule that cannot decide takes the stricter answer.
mod approve;
mod classify;
mod content;
mod rules;
#[cfg(test)]
mod tests;

pub use approve::{ApprovalError, Approvals, set_hash};
pub use classify::{Assessed, assess, assess_all};
pub use rules::{Class, Finding, Rules, Tier};

pub(crate) use content::{fuzz_content, is_binary};
