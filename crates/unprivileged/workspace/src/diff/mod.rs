//! Differences for review: what changed, line by line, in forms for people, programs and `git apply`.
//!
//! **Trust:** contents and names are the agent's. What goes to a terminal is neutralised here; what goes into a
//! patch is exact, with names quoted the way git quotes them.
mod binary;
mod file;
mod lines;
mod merge;
mod patch;
mod render;
#[cfg(test)]
mod tests;

pub use file::{Body, FileDiff, Hunk, Line, Sign, diff};
pub use merge::{Merged, merge};
pub use patch::{Lacking, Patch, WhyLacking, exact_patch, exact_patch_for, not_in_a_commit, patch};
pub use render::{json, name_only, reviewed, stat, unified};

pub(crate) use merge::fuzz_merge;
