//! Runs in the background: they outlive whoever started them, are watched, typed into, paused and ended, and nothing of
//! them is left or lost. The agent and the moment of every death are hostile.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod acp;
mod attached;
mod driven;
mod ends;
mod kept;
mod outlives;
mod questions;
mod refusals;
mod sdk;
