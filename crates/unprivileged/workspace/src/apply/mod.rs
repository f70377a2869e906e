//! The way back to the host: accepted changes become files of the host tree, a branch, or a patch.
//!
//! **Trust:** what to write was decided by [`select`] and [`plan`] from immutable manifests; writing then only
//! checks that the host is still what the plan saw. A journal makes it all or nothing: after a crash,
//! [`recover`] finishes or undoes it, so that the host tree is old or new and never between.
mod execute;
mod journal;
mod plan;
mod select;
mod settle;
#[cfg(test)]
mod tests;
mod wear;

pub use execute::{Applied, Recovered, Target, apply, recover, undo};
pub use journal::{JournalState, Operation};
pub use plan::{Conflict, Plan, Resolve, plan};
pub use select::{LeftOut, Reason, Selection, select};
