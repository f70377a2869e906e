//! Further commands in a run that lives, files in and out of it, and its servers: started from outside, fenced as the
//! agent is. What is executed is hostile; every denial stands beside something that works.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../live/agent.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of live grants, which use more of it"
)]
mod agent;
#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod commands;
mod confinement;
mod files;
mod living;
mod ports;
mod terminal;
