//! Paths granted to a run that lives: mounted, served one by one, taken back. The agent, the host's other users and the
//! names on disk are hostile; every denial stands beside something that works.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod broker;
mod mounts;
mod refusals;
mod revoked;
