//! Takes connections from a listener: few at a time until they have said what they want, and never in a spin.
//!
//! **Trust:** the listeners were made inside the sandbox's network namespace; whoever connects is the agent.
use crate::limits::MAX_HANDSHAKES;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right to be among the connections that have not yet said what they want. Dropped when one has.
#[derive(Debug)]
pub(crate) struct Handshake {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Places for connections that have not yet said what they want.
#[derive(Clone, Debug)]
pub(crate) struct Handshakes(Arc<Semaphore>);

impl Handshakes {
    /// All free.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_HANDSHAKES)))
    }

    /// A place, once one is free.
    pub(crate) async fn take(&self) -> Handshake {
        match Arc::clone(&self.0).acquire_owned().await {
            Ok(permit) => Handshake {
                _permit: Some(permit),
            },
            // The semaphore is never closed; without a permit the connection is served all the same.
            Err(_) => Handshake { _permit: None },
        }
    }
}

/// Serves a listener until it is dropped. Connections beyond the limit wait in the kernel's backlog.
pub(crate) async fn accept_loop<F, S>(listener: TcpListener, handshakes: Handshakes, serve: F)
where
    F: Fn(TcpStream, Handshake) -> S,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        let handshake = handshakes.take().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers must not wait for each other; without it they are slower, not wrong.
                drop(stream.set_nodelay(true));
                tokio::spawn(serve(stream, handshake));
            }
            // No descriptors or memory: they come back when a connection ends. Trying at once would only spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
