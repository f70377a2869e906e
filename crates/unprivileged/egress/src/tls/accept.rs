//! The handshake with the agent's client: its name must be the one the connection was judged by.
//!
//! **Trust:** reads the agent's bytes. Until the name is checked nothing is signed.
use super::Authority;
use crate::limits::HEAD_DEADLINE;
use crate::via::Via;
use bastle_policy::Host;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Alert `unrecognized_name`, fatal, in a record of its own: what a client prints as a wrong name.
const WRONG_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// A finished handshake.
pub(crate) struct Accepted<S> {
    /// The connection.
    pub(crate) stream: TlsStream<S>,
    /// Whether the client chose HTTP/2.
    pub(crate) h2: bool,
}

/// Why there was none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Declined {
    /// The client named another host, or none. It has been told.
    #[error("the TLS handshake names {0}")]
    Name(String),
    /// The client gave up or does not speak TLS.
    #[error("the TLS handshake failed: {0}")]
    Failed(String),
}

/// Answers as the host of `via`.
pub(crate) async fn accept<S>(authority: &Authority, via: &Via, client: S) -> Result<Accepted<S>, Declined>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let deadline = Instant::now() + HEAD_DEADLINE;
    let slow = |_| Declined::Failed("it did not finish in time".to_owned());
    let failed = |error: std::io::Error| Declined::Failed(error.to_string());
    let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client);
    let mut start = timeout_at(deadline, acceptor)
        .await
        .map_err(slow)?
        .map_err(failed)?;
    let named = start.client_hello().server_name().map(str::to_owned);
    let fits = match named.as_deref().map(Host::new) {
        Some(Ok(host)) => host == via.host,
        Some(Err(_)) => false,
        // A name cannot be sent for an address.
        None => via.host.is_literal(),
    };
    if !fits {
        // The client may already be gone; it is refused either way.
        if timeout_at(deadline, start.io.write_all(&WRONG_NAME))
            .await
            .is_ok()
        {
            drop(timeout_at(deadline, start.io.shutdown()).await);
        }
        return Err(Declined::Name(named.unwrap_or_else(|| "no host".to_owned())));
    }
    let config = authority
        .server(&via.host)
        .map_err(|fault| Declined::Failed(fault.why))?;
    let stream = timeout_at(deadline, start.into_stream(config))
        .await
        .map_err(slow)?
        .map_err(failed)?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(super::H2);
    Ok(Accepted { stream, h2 })
}
