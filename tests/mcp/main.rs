//! Workers over the Model Context Protocol, through the real binary: real pipes, real HTTP, real runs inside the fence.
//! Who may what is the REST interface's to say; these tests hold that no tool says otherwise.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../api/daemon.rs"]
#[allow(dead_code)]
mod daemon;
#[path = "../api/http.rs"]
#[allow(dead_code)]
mod http;
#[path = "../support/mod.rs"]
mod support;

mod asking;
mod client;
mod conformance;
mod pipes;
mod principals;
mod refusals;
mod roles;
mod suite;
mod tools;
mod waiting;
