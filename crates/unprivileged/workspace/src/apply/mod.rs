//! The way back to the host: accepted changes become files of the host tree, a branch, or a patch.
//!
//! **Trust:** what to write was decided by [`select`] and [`plan`] from immutable manifests; writing then only
//! checks that the host is still what the plan saw. A journal makes it all or nothing: after a crash,
//! [`recover`] finishes or undoes it, so that the host tree is old or new and never between.
#[cfg(test)]
mod abandon_tests;
mod area;
mod both;
#[cfg(test)]
mod both_tests;
mod damaged;
#[cfg(test)]
mod damaged_tests;
mod execute;
mod groups;
mod inherit;
mod journal;
#[cfg(test)]
mod many_tests;
mod plan;
#[cfg(test)]
mod power_tests;
mod recover;
mod select;
mod settle;
mod stage;
#[cfg(test)]
mod tests;
mod times;
mod transaction;
#[cfg(test)]
mod undo_tests;
mod wear;

pub use execute::{Applied, Target, apply, undo};
pub use journal::Operation;
pub use plan::{Conflict, Plan, Resolve, plan};
pub use recover::{
    Direction, Recovered, abandon, extract, is_interrupted, kept_originals, recover, recover_to,
};
pub use select::{LeftOut, Reason, Selection, select};
