//! A client connection of which the first bytes were already read.
//!
//! **Trust:** carries the agent's bytes unchanged.
use crate::cpu::CpuAccount;
use bytes::{Buf, Bytes};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Replays `prefix`, then goes on reading from the socket.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    prefix: Bytes,
}

impl Client {
    /// A client whose first bytes are `prefix`.
    pub(crate) fn new(stream: TcpStream, prefix: Bytes) -> Self {
        Self { stream, prefix }
    }

    /// The socket and what was read of it and not yet used.
    pub(crate) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.prefix)
    }
}

/// A client whose bytes are looked into: none is read of it and none written to it while there is no processor time for
/// that. What a server sends waits too, because nobody takes it.
#[derive(Debug)]
pub(crate) struct Paced {
    client: Client,
    cpu: Arc<CpuAccount>,
    // One for each direction: they may be waited for by different tasks.
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// At the pace of this account.
    pub(crate) fn new(client: Client, cpu: Arc<CpuAccount>) -> Self {
        Self {
            client,
            cpu,
            reading: None,
            writing: None,
        }
    }
}

/// Ready while there is processor time left.
fn poll_turn(cpu: &CpuAccount, waiting: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<()> {
    loop {
        if let Some(sleep) = waiting {
            ready!(sleep.as_mut().poll(context));
            *waiting = None;
        }
        match cpu.wait() {
            None => return Poll::Ready(()),
            Some(wait) => *waiting = Some(Box::pin(tokio::time::sleep(wait))),
        }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        ready!(poll_turn(&own.cpu, &mut own.reading, context));
        Pin::new(&mut own.client).poll_read(context, buffer)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        ready!(poll_turn(&own.cpu, &mut own.writing, context));
        Pin::new(&mut own.client).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        ready!(poll_turn(&own.cpu, &mut own.writing, context));
        Pin::new(&mut own.client).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.client.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(context)
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let n = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..n]);
        self.prefix.advance(n);
        if self.prefix.is_empty() {
            // An empty `Bytes` still holds its allocation: an idle connection must not.
            self.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
