//! The bastle command line.
#![forbid(unsafe_code)]
pub use bastle_control::SPAWNER_VERB;

/// Runs the command line; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    0
}
