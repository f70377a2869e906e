//! Model Context Protocol, the side that offers: three revisions behind one address or one pair of pipes.
//!
//! A [`Face`] says what is offered; the [`Desk`] reads messages, keeps what the older revisions need to keep, and speaks.
//! 2026-07-28 keeps nothing between two requests; 2025-11-25 and 2025-06-18 begin with `initialize` and have sessions.
//!
//! **Trust:** every message is untrusted and bounded. Nothing here decides who may do what: a caller is handed to the face
//! as it came.
#![forbid(unsafe_code)]

mod base64;
mod desk;
mod face;
pub mod fuzzing;
mod http;
mod legacy;
mod limits;
mod modern;
mod seal;
mod stdio;
mod words;

pub use crate::base64::{decode as from_base64, encode as to_base64};
pub use crate::http::{Incoming, Reply, answer};
pub use desk::Desk;
pub use face::{About, Asked, Call, Face, Out, Outcome, Wanted, done};
pub use limits::Limits;
pub use stdio::{Stdio, converse};
pub use words::{Era, LEGACY, MODERN, RpcError};
