//! The daemon's faces over the network and the local socket, and the client that speaks to them.
//!
//! **Trust:** runs as the service user. Every byte of a request is untrusted; everything an agent said is shown as data.
#![forbid(unsafe_code)]

mod a2a;
mod app;
pub mod client;
mod containment;
mod dto;
mod errors;
mod event_view;
pub mod fuzzing;
mod guard;
mod json;
pub mod mcp;
mod metrics;
pub mod openapi;
mod options;
mod otlp;
mod outward;
mod question_view;
mod routes;
mod server;
mod transcript;
mod webhook;

pub use options::{InTheOpen, ServeOptions};
pub use server::{Serves, serve};
