//! The faces of egress on loopback, with real sockets and real TLS: what is denied, how it is said, what is recorded.
mod denied;
mod dns;
mod limits;
mod names;
mod process;
mod socks;
mod tunnels;
