//! The spawner daemon through its real socket: callers that are not named, ask too fast, for too much, or in nonsense; a
//! daemon that is killed, doubled or reloaded; runs that must not notice. Every denial stands beside something that works.
//!
//! Needs root: only root's daemon serves others than its own user.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod client;
mod crowd;
mod daemon;
mod frames;
mod life;
mod own_fence;
mod standing;
mod users;
