//! Faults around a run: exhausted resources, kills at any moment, leftovers, bad surroundings. The real binary, as root and as an ordinary user.
//!
//! Every denial has a twin that succeeds, every wait is bounded, and no assertion depends on how fast the machine is.
//!
//! | file | what must not happen |
//! |---|---|
//! | `resources` | more processes, threads, memory, descriptors, output or processor time than allowed; a core file; a limit that nobody holds |
//! | `disk` | more bytes, files or names in the workspace or in private directories than allowed |
//! | `ending` | anything that outlives a timeout, a signal, a suspension, a lost reader |
//! | `floods` | an attempt that is not on record because thousands of others came before it |
//! | `killing` | anything that outlives a killed bastle or spawner, in any state, at any moment |
//! | `leftovers` | a host that differs after a run, whatever became of it; a workspace changed by denied attempts |
//! | `surroundings` | a start in an unusable place, without a record, or under an unusable name |
//! | `documents` | a start under a policy file that cannot be trusted to mean what it says |
//! | `crowds` | secrets missed in large or odd trees; runs that disturb each other |
//! | `lost_limits` | a run that goes on without a limit it was started with |
//! | `user_zero` | user id 0 of a container or a user namespace taken for root of the host |
//! | `commands` | a command line that evades the command rules; command rules taken for the fence |
#![allow(clippy::expect_used, clippy::panic)] // Helpers of tests fail by panicking.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod crowds;
mod disk;
mod documents;
mod ending;
mod floods;
mod hog;
mod host;
mod killing;
mod leftovers;
mod live;
mod lost_limits;
mod resources;
mod surroundings;
mod user_zero;
