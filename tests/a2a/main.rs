//! The agent protocol A2A through the real binary: what its specification demands of a server, held to its own schema,
//! by our own requests and by the client that others use.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)]
#[path = "../api/daemon.rs"]
mod daemon;
#[allow(dead_code)]
#[path = "../api/http.rs"]
mod http;

mod callers;
mod cards;
mod errors;
mod forms;
mod listing;
mod messages;
mod push;
mod sdk;
mod steering;
mod streams;
mod table;
mod workers;
mod world;
