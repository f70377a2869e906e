//! The import gate: what each change could do on the host, and what must be approved before it gets there.
//!
//! **Trust:** paths and contents are the agent's. A path is judged by every name it can be reached by, in folded form. A
//! kind that is neither in the catalogue nor on the allow list of plain kinds is held; what cannot be read as text is
//! never "source"; a rule that cannot decide takes the stricter answer.
mod approve;
#[cfg(test)]
mod bypass_tests;
mod catalogue;
mod classify;
mod content;
#[cfg(test)]
mod corpus;
mod declared;
mod deploy;
mod document;
#[cfg(test)]
mod evasion_tests;
mod fold;
mod fuzz;
mod judge;
mod lock;
mod names;
mod place;
mod plain;
mod removal;
mod rules;
#[cfg(test)]
mod structure_tests;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
mod written;

pub use approve::{ApprovalError, Approvals, set_hash};
pub use classify::{Assessed, assess, assess_all};
pub use fuzz::fuzz_gate;
pub use names::Tree;
pub use rules::{Class, Finding, Rules, Tier};

pub(crate) use content::{fuzz_content, is_binary};
