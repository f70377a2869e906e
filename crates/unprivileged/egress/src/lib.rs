//! The only way out of a sandbox: proxy, resolver, TLS, credentials, budgets.
//!
//! **Trust:** its own process and uid. It reads the agent's bytes and the internet's bytes and trusts neither; it
//! trusts the table that control hands it. It has no file system and executes nothing.
//!
//! The walk of a connection: a face (`accept`, `proxy`, `socks`, `transparent`, `dns`) parses it into one canonical
//! host → the table judges the name before any lookup → every resolved address is checked and one is dialled → the
//! bytes are passed through after the ClientHello named the same host, or each request inside is judged (`inspect`).
#![forbid(unsafe_code)]

mod accept;
mod broker;
mod budget;
mod canary;
mod carry;
mod cpu;
mod denial;
mod denials;
mod dial;
mod dns;
pub mod fuzzing;
mod git;
mod header_name;
mod hello;
mod http1;
mod inspect;
mod limits;
mod link;
mod local;
mod memory;
mod proxy;
mod record;
mod relay;
mod resolve;
mod rpc;
mod scrub;
mod secrets;
mod serve;
mod socks;
mod standalone;
mod state;
mod stream;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod transparent;
mod tunnel;
mod upstream;
mod usage;
mod via;

pub use broker::serve_files;
pub use serve::{bound_memory, serve};
pub use standalone::{Order, Standalone, Verbosity, settle, stand, tell_fault, told_fault};
pub use tls::preload_roots;
