//! The resolver face: answers allowed names with synthetic addresses, and denied ones with "no such name".
//!
//! **Trust:** reads the agent's packets. Nothing it is asked ever leaves: a lookup cannot carry data out.
//!
//! A denied name gets NXDOMAIN, not REFUSED: the common resolver libraries take REFUSED for a broken server, ask again
//! and report a temporary failure, which makes tools retry; "no such name" ends the attempt at once. Where the client
//! speaks EDNS the answer says what it is: extended error 15, "Blocked", with the denial's id.
mod face;
mod packet;
mod synthetic;

pub(crate) use face::{serve_tcp, serve_udp};
pub(crate) use packet::parse_query;
pub(crate) use synthetic::{Synthetic, is_synthetic};
