//! Many runs under one daemon, through the real binary: the daemon is killed at the worst moments, and no run is lost,
//! doubled, or left behind. The agent inside is hostile to the daemon's own files.
#![allow(dead_code, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../api/daemon.rs"]
mod daemon;
#[path = "../api/http.rs"]
mod http;

mod inside;
mod killed;
mod mother;
mod processes;
mod records;
mod storm;
