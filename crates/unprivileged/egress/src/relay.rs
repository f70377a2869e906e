//! Moves bytes between two sockets inside the kernel: splice(2) through a pipe that is held only while bytes move.
//!
//! **Trust:** sees no byte. Half-closing is kept: what one side has finished saying, the other side hears as finished.
use crate::budget::Flow;
use crate::limits::{MAX_IDLE_PIPES, PIECE, PIPE_SIZE};
use crate::state::State;
use crate::tunnel::Tunnel;
use bastle_contract::egress::BudgetKind;
use bytes::Bytes;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// Pipes that rest. An idle tunnel has none.
#[derive(Debug)]
pub(crate) struct Pipes {
    resting: Mutex<Vec<Pipe>>,
}

#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    inn: OwnedFd,
}

impl Pipes {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            resting: Mutex::default(),
        }
    }

    fn take(&self) -> Result<Pipe, Errno> {
        if let Some(pipe) = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(pipe);
        }
        let (out, inn) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user's pages for pipes are limited; with the default size it is slower, not wrong.
        let _default = fcntl_setpipe_size(&inn, PIPE_SIZE).is_err();
        Ok(Pipe { out, inn })
    }

    /// Only an empty pipe may come back: what is left in one would reach somebody else's peer.
    fn give_back(&self, pipe: Pipe) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < MAX_IDLE_PIPES {
            resting.push(pipe);
        }
    }
}

/// How a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both sides finished, or one broke off.
    Closed,
    /// A budget is used up.
    Budget,
}

/// One direction of a tunnel.
struct Lane<'a> {
    state: &'a State,
    from: &'a TcpStream,
    to: &'a TcpStream,
    moved: &'a AtomicU64,
    kind: BudgetKind,
}

/// Relays until both sides are done. `early` was read from the client already.
pub(crate) async fn relay(
    state: &State,
    tunnel: &Tunnel,
    client: &mut TcpStream,
    server: &mut TcpStream,
    early: (Bytes, Bytes),
) -> Ended {
    let (to_server, to_client) = early;
    if server.write_all(&to_server).await.is_err() || client.write_all(&to_client).await.is_err() {
        return Ended::Closed;
    }
    let ahead = [
        (&tunnel.sent, BudgetKind::BytesOut, to_server),
        (&tunnel.received, BudgetKind::BytesIn, to_client),
    ];
    for (moved, kind, bytes) in ahead {
        moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if state.budget.spend(kind, bytes.len() as u64) == Flow::Stop {
            return Ended::Budget;
        }
    }
    let (client, server) = (&*client, &*server);
    let out = Lane {
        state,
        from: client,
        to: server,
        moved: &tunnel.sent,
        kind: BudgetKind::BytesOut,
    };
    let inn = Lane {
        state,
        from: server,
        to: client,
        moved: &tunnel.received,
        kind: BudgetKind::BytesIn,
    };
    // A broken side ends both: nobody is left to hear the rest.
    match tokio::try_join!(out.run(), inn.run()) {
        Ok(((), ())) | Err(Ended::Closed) => Ended::Closed,
        Err(Ended::Budget) => Ended::Budget,
    }
}

impl Lane<'_> {
    async fn run(self) -> Result<(), Ended> {
        loop {
            self.from.readable().await.map_err(|_| Ended::Closed)?;
            match self.state.pipes.take() {
                Ok(pipe) => {
                    if self.drain(pipe).await? {
                        break;
                    }
                }
                // No descriptors left: a small buffer is slower and needs none.
                Err(_) => {
                    if self.copy_once().await? {
                        break;
                    }
                }
            }
        }
        rustix::net::shutdown(self.to, rustix::net::Shutdown::Write).map_err(|_| Ended::Closed)
    }

    /// Moves bytes until the source has none; `true` at its end.
    async fn drain(&self, pipe: Pipe) -> Result<bool, Ended> {
        let mut rounds = 0_u32;
        loop {
            let taken = self.from.try_io(Interest::READABLE, || {
                retry(|| splice(self.from, None, &pipe.inn, None, PIPE_SIZE, flags()))
            });
            let mut left = match taken {
                Ok(0) => {
                    self.state.pipes.give_back(pipe);
                    return Ok(true);
                }
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.state.pipes.give_back(pipe);
                    return Ok(false);
                }
                Err(_) => return Err(Ended::Closed),
            };
            let all = left as u64;
            while left > 0 {
                let given = self.to.try_io(Interest::WRITABLE, || {
                    retry(|| splice(&pipe.out, None, self.to, None, left, flags()))
                });
                match given {
                    Ok(given) if given > 0 => left = left.saturating_sub(given),
                    // Nothing taken from a pipe that holds bytes: it must not be used again.
                    Ok(_) => return Err(Ended::Closed),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.to.writable().await.map_err(|_| Ended::Closed)?;
                    }
                    Err(_) => return Err(Ended::Closed),
                }
            }
            self.count(all).await?;
            rounds += 1;
            if rounds.is_multiple_of(16) {
                // One fast tunnel must not keep a worker from all others.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn copy_once(&self) -> Result<bool, Ended> {
        let mut buffer = vec![0; PIECE];
        let read = match self.from.try_read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(_) => return Err(Ended::Closed),
        };
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            match self.to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.to.writable().await.map_err(|_| Ended::Closed)?;
                }
                Err(_) => return Err(Ended::Closed),
            }
        }
        self.count(read as u64).await?;
        Ok(false)
    }

    async fn count(&self, bytes: u64) -> Result<(), Ended> {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        match self.state.budget.spend(self.kind, bytes) {
            Flow::Go => Ok(()),
            Flow::Wait => match self.state.budget.clear().await {
                Flow::Go | Flow::Wait => Ok(()),
                Flow::Stop => Err(Ended::Budget),
            },
            Flow::Stop => Err(Ended::Budget),
        }
    }
}

fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

fn retry(call: impl Fn() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{egress, table};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn without_descriptors_for_a_pipe_bytes_still_arrive_whole() {
        let egress = egress(table("{}", &[])).await;
        let ((mut source, from), (to, mut sink)) = (pair().await, pair().await);
        let moved = AtomicU64::new(0);
        let lane = Lane {
            state: &egress.state,
            from: &from,
            to: &to,
            moved: &moved,
            kind: BudgetKind::BytesOut,
        };
        let payload: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = payload.clone();
        let sending = tokio::spawn(async move {
            source.write_all(&payload).await.unwrap();
        });
        let reading = tokio::spawn(async move {
            let mut got = vec![0; 3_000_000];
            sink.read_exact(&mut got).await.unwrap();
            got
        });
        loop {
            from.readable().await.unwrap();
            if lane.copy_once().await.unwrap() {
                break;
            }
        }
        sending.await.unwrap();
        assert!(reading.await.unwrap() == expected);
        assert_eq!(moved.load(Ordering::Relaxed), 3_000_000);
    }

    #[tokio::test]
    async fn pipes_come_back_empty_and_only_a_few_are_kept() {
        let pipes = Pipes::new();
        let many: Vec<Pipe> = (0..MAX_IDLE_PIPES + 5).map(|_| pipes.take().unwrap()).collect();
        for pipe in many {
            pipes.give_back(pipe);
        }
        assert_eq!(pipes.resting.lock().unwrap().len(), MAX_IDLE_PIPES);
    }
}
