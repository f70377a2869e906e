//! The socket to control: frames in and out, descriptors, sealed documents.
//!
//! **Trust:** control is trusted, yet every frame is parsed within its limits and a document is read only if it is
//! sealed, so that it cannot change between its check and its use.
use bastle_contract::egress::{FromEgress, MAX_EGRESS_DOCUMENT, ToEgress};
use bastle_contract::socket;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// Our end of the socket. The type is that of a byte stream because it alone can wait for readiness without unsafe
/// code; its own reading and writing are never used, so the boundaries of messages are kept.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UnixStream,
}

impl Link {
    /// Takes the socket over; must be called inside the runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixStream::from_std(socket)?,
        })
    }

    /// The next frame; `None` when control is gone.
    pub(crate) async fn receive(&self) -> io::Result<Option<(ToEgress, Vec<OwnedFd>)>> {
        let receive = || socket::receive(self.socket.as_fd());
        match self.socket.async_io(Interest::READABLE, receive).await {
            // Control went away with frames of ours unread.
            Err(error) if is_gone(&error) => Ok(None),
            other => other,
        }
    }

    /// Sends a frame; waits while control's queue is full.
    pub(crate) async fn send(&self, frame: &FromEgress) -> io::Result<()> {
        self.send_with(frame, None).await
    }

    /// Sends a frame and the descriptor that belongs to it.
    pub(crate) async fn send_with(&self, frame: &FromEgress, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let descriptors: Vec<_> = descriptor.map(AsFd::as_fd).into_iter().collect();
        let send = || socket::send(self.socket.as_fd(), frame, &descriptors);
        self.socket.async_io(Interest::WRITABLE, send).await
    }
}

/// Whether an error says that control is gone, which is how this process is meant to end.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Reads a JSON document from a sealed memfd. Its bytes are wiped afterwards: it may hold secrets.
pub(crate) fn read_document<T: DeserializeOwned>(document: &OwnedFd) -> io::Result<T> {
    bastle_contract::check_sealed(document, "the document").map_err(io::Error::other)?;
    let size = usize::try_from(rustix::fs::fstat(document)?.st_size).map_err(io::Error::other)?;
    if size > MAX_EGRESS_DOCUMENT {
        return Err(io::Error::other("the document is larger than the limit"));
    }
    let mut bytes = Zeroizing::new(vec![0; size]);
    let mut at = 0;
    while at < size {
        match rustix::io::pread(document, &mut bytes[at..], at as u64)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            n => at += n,
        }
    }
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}
