//! TLS on both sides of an inspected connection.
//!
//! **Trust:** towards the agent we are the server, with a certificate of the run's own authority that only this
//! run's sandbox trusts. Towards the internet we are a client that trusts what the host trusts, and checks the very
//! name that policy judged.
mod accept;
mod authority;
mod roots;
#[cfg(test)]
mod tests;

pub(crate) use accept::{Declined, accept};
pub(crate) use authority::Authority;
pub use roots::preload_roots;
#[cfg(test)]
pub(crate) use roots::testing;
pub(crate) use roots::{Protocols, connect};

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// HTTP/2 in the handshake.
pub(crate) const H2: &[u8] = b"h2";
/// HTTP/1.1 in the handshake.
pub(crate) const HTTP11: &[u8] = b"http/1.1";

/// The one provider of algorithms.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}
