//! Takes connections from a listener: few at a time until they have said what they want, and never in a spin.
//!
//! **Trust:** the listeners were made inside the sandbox's network namespace; whoever connects is the agent.
use crate::cpu::CpuAccount;
use crate::limits::{MAX_HANDSHAKES, NEAR_BUFFER};
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
pub(crate) struct Handshakes {
    places: Arc<Semaphore>,
    cpu: Arc<CpuAccount>,
}

impl Handshakes {
    /// All free.
    pub(crate) fn new(cpu: Arc<CpuAccount>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            cpu,
        }
    }

    /// A place, once one is free and there is processor time for whoever gets it.
    pub(crate) async fn take(&self) -> Handshake {
        self.cpu.turn().await;
        match Arc::clone(&self.places).acquire_owned().await {
            Ok(permit) => Handshake {
                _permit: Some(permit),
            },
            // The semaphore is never closed; without a permit the connection is served all the same.
            Err(_) => Handshake { _permit: None },
        }
    }
}

/// What is sent to clients of this listener waits in a small buffer, because they are on this machine: there is no
/// distance to fill, and what waits for long has left the processor's cache before it is read. Said once: a connection
/// has what its listener has. Without it the kernel chooses, and floods are slower.
pub(crate) fn near(listener: TcpListener) -> TcpListener {
    let _slower = rustix::net::sockopt::set_socket_send_buffer_size(&listener, NEAR_BUFFER).is_err();
    listener
}

/// Serves a listener until it is dropped. Connections beyond the limit wait in the kernel's backlog.
pub(crate) fn accept_loop<F, S>(
    listener: TcpListener,
    handshakes: Handshakes,
    serve: F,
) -> impl Future<Output = ()>
where
    F: Fn(TcpStream, Handshake) -> S,
    S: Future<Output = ()> + Send + 'static,
{
    // Small answers must not wait for each other; without it they are slower, not wrong. Said once, and before the
    // first one: a connection has what its listener has.
    let _slower = rustix::net::sockopt::set_tcp_nodelay(&listener, true).is_err();
    async move {
        loop {
            let handshake = handshakes.take().await;
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream, handshake))),
                // No descriptors or memory: they come back when a connection ends. Trying at once would only spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_for_a_client_on_this_machine_is_little() {
        let buffer = async |listener: TcpListener| {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            rustix::net::sockopt::socket_send_buffer_size(&stream).unwrap()
        };
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert_eq!(buffer(near(bind().await)).await, 2 * NEAR_BUFFER);
        assert_ne!(buffer(bind().await).await, 2 * NEAR_BUFFER);
    }

    #[tokio::test]
    async fn small_answers_on_a_connection_do_not_wait_for_each_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let serving = tokio::spawn(accept_loop(
            listener,
            Handshakes::new(Arc::new(CpuAccount::unbounded())),
            move |stream, _| {
                tell.send(stream.nodelay()).unwrap();
                std::future::ready(())
            },
        ));
        let _client = TcpStream::connect(address).await.unwrap();
        assert!(told.recv().await.unwrap().unwrap());
        serving.abort();
    }
}
