//! The daemon's interface through the real binary and real HTTP: who may what, what is refused and changes nothing, what
//! goes on while others misbehave.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod authority;
mod bodies;
mod crowds;
mod daemon;
mod doors;
mod driven;
mod entry;
mod foreign;
mod forms;
mod fuzz;
mod http;
mod outward;
mod own_program;
mod principals;
mod project_files;
mod questions;
mod runs;
mod streams;
mod traces;
mod truth;
mod unusual;
mod writers;
