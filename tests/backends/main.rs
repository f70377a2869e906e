//! The one suite that every backend passes: each operation with good and with bad input, and an honest `Unsupported` where
//! a backend lacks one. A new backend is a further line in `subject::all`.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod life;
mod subject;
mod trees;
