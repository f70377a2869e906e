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
use rustix::net::{RecvFlags, Shutdown, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    let half_closed = AtomicBool::new(false);
    // A broken side ends both: nobody is left to hear the rest.
    match tokio::try_join!(out.run(&half_closed), inn.run(&half_closed)) {
        Ok(((), ())) | Err(Ended::Closed) => Ended::Closed,
        Err(Ended::Budget) => Ended::Budget,
    }
}

/// How bytes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// A little at a time: a buffer on the stack is the shortest way.
    Trickle,
    /// More than a buffer holds: they stay in the kernel.
    Flood,
}

/// What one turn found at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing more for now.
    Empty,
    /// The buffer was filled: there is more.
    Full,
    /// Its end.
    End,
}

impl Lane<'_> {
    /// Moves bytes to the source's end, and tells the other side of it. The lane that ends last need not: both
    /// connections are closed then.
    async fn run(self, half_closed: &AtomicBool) -> Result<(), Ended> {
        let mut pace = Pace::Trickle;
        loop {
            self.from.readable().await.map_err(|_| Ended::Closed)?;
            self.state.cpu.turn().await;
            let pipe = match pace {
                Pace::Trickle => None,
                // No descriptors left: the buffer is slower and needs none.
                Pace::Flood => self.state.pipes.take().ok(),
            };
            let before = self.moved.load(Ordering::Relaxed);
            let turn = match pipe {
                Some(pipe) => self.drain(pipe).await?,
                None => self.copy_once().await?,
            };
            pace = match turn {
                Turn::End if half_closed.swap(true, Ordering::Relaxed) => return Ok(()),
                Turn::End => {
                    return rustix::net::shutdown(self.to, Shutdown::Write).map_err(|_| Ended::Closed);
                }
                Turn::Full => Pace::Flood,
                Turn::Empty if self.moved.load(Ordering::Relaxed) - before < PIECE as u64 => Pace::Trickle,
                Turn::Empty => pace,
            };
        }
    }

    /// Moves bytes through the pipe until the source has none. It is filled again whenever it was emptied a little: the
    /// source can go on while the other side is full, and it is the reader, not the source, that wakes this process next.
    async fn drain(&self, pipe: Pipe) -> Result<Turn, Ended> {
        let mut source = Ok(());
        let mut held = 0;
        let mut rounds = 0_u32;
        loop {
            if held > 0 {
                // A pipe with no place left says the same as a source with no bytes, so the source stays readable as far
                // as anybody knows. That it has ended is told again; that it broke is told once.
                match source.and_then(|()| self.top_up(&pipe, held)) {
                    Ok(more) => held += more,
                    Err(broke) => source = Err(broke),
                }
            } else {
                // What it said before it broke is delivered.
                source?;
                let taken = self
                    .from
                    .try_io(Interest::READABLE, || Ok(self.take(&pipe, PIPE_SIZE)?));
                match taken {
                    Ok(0) => {
                        self.state.pipes.give_back(pipe);
                        return Ok(Turn::End);
                    }
                    Ok(taken) => held = taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.state.pipes.give_back(pipe);
                        return Ok(Turn::Empty);
                    }
                    Err(_) => return Err(Ended::Closed),
                }
            }
            held -= self.give(&pipe, held).await?;
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(16) {
                // One fast tunnel must not keep a worker from all others.
                tokio::task::yield_now().await;
                self.state.cpu.turn().await;
            }
        }
    }

    fn take(&self, pipe: &Pipe, most: usize) -> Result<usize, Errno> {
        retry(|| splice(self.from, None, &pipe.inn, None, most, flags()))
    }

    /// Takes what is there and fits beside what the pipe holds.
    fn top_up(&self, pipe: &Pipe, held: usize) -> Result<usize, Ended> {
        match PIPE_SIZE.saturating_sub(held) {
            0 => Ok(0),
            room => match self.take(pipe, room) {
                Ok(more) => Ok(more),
                Err(Errno::AGAIN) => Ok(0),
                Err(_) => Err(Ended::Closed),
            },
        }
    }

    /// Gives the other side of what the pipe holds what it takes. Waits when that is nothing.
    async fn give(&self, pipe: &Pipe, held: usize) -> Result<usize, Ended> {
        let given = self.to.try_io(Interest::WRITABLE, || {
            Ok(retry(|| splice(&pipe.out, None, self.to, None, held, flags()))?)
        });
        match given {
            Ok(given) if (1..=held).contains(&given) => {
                self.count(given as u64).await?;
                Ok(given)
            }
            // Nothing taken from a pipe that holds bytes: it must not be used again.
            Ok(_) => Err(Ended::Closed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.to.writable().await.map_err(|_| Ended::Closed)?;
                Ok(0)
            }
            Err(_) => Err(Ended::Closed),
        }
    }

    /// Moves at most one buffer.
    async fn copy_once(&self) -> Result<Turn, Ended> {
        let (turn, read, rest) = self.copy_now()?;
        let mut rest = rest.as_slice();
        while !rest.is_empty() {
            self.to.writable().await.map_err(|_| Ended::Closed)?;
            let written = written(self.to.try_write(rest))?;
            rest = &rest[written..];
        }
        self.count(read as u64).await?;
        Ok(turn)
    }

    /// The same without waiting: what was read, and what of it the other side did not take. Not part of the task,
    /// which would be as large as the buffer.
    fn copy_now(&self) -> Result<(Turn, usize, Vec<u8>), Ended> {
        let mut buffer = [MaybeUninit::uninit(); PIECE];
        let mut taken: &[u8] = &[];
        let outcome = self.from.try_io(Interest::READABLE, || {
            let ((bytes, _), _) = recv(self.from, &mut buffer, RecvFlags::empty())?;
            taken = bytes;
            // Less than was asked for: the source is empty, and need not be asked again to hear that.
            match bytes.len() {
                0 => Ok(Turn::End),
                PIECE => Ok(Turn::Full),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        let turn = match outcome {
            Ok(turn) => turn,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Turn::Empty,
            Err(_) => return Err(Ended::Closed),
        };
        if taken.is_empty() {
            return Ok((turn, 0, Vec::new()));
        }
        let written = written(self.to.try_write(taken))?;
        Ok((turn, taken.len(), taken[written..].to_vec()))
    }

    async fn count(&self, bytes: u64) -> Result<(), Ended> {
        if bytes == 0 {
            return Ok(());
        }
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

/// How much the other side took: nothing when it is full.
fn written(outcome: io::Result<usize>) -> Result<usize, Ended> {
    match outcome {
        Ok(written) => Ok(written),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Ended::Closed),
    }
}

fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

fn retry(call: impl Fn() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{egress, table};
    use crate::tunnel::Admission;
    use crate::via::Via;
    use bastle_contract::egress::Face;
    use bastle_policy::Host;
    use std::sync::Arc;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    fn lane<'a>(state: &'a State, from: &'a TcpStream, to: &'a TcpStream, moved: &'a AtomicU64) -> Lane<'a> {
        Lane {
            state,
            from,
            to,
            moved,
            kind: BudgetKind::BytesOut,
        }
    }

    #[tokio::test]
    async fn without_descriptors_for_a_pipe_bytes_still_arrive_whole() {
        let egress = egress(table("{}", &[])).await;
        let ((mut source, from), (to, mut sink)) = (pair().await, pair().await);
        let moved = AtomicU64::new(0);
        let lane = lane(&egress.state, &from, &to, &moved);
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
            if lane.copy_once().await.unwrap() == Turn::End {
                break;
            }
        }
        sending.await.unwrap();
        assert!(reading.await.unwrap() == expected);
        assert_eq!(moved.load(Ordering::Relaxed), 3_000_000);
    }

    #[tokio::test]
    async fn a_trickle_that_becomes_a_flood_arrives_whole_and_each_end_is_heard() {
        let egress = egress(table("{}", &[])).await;
        let ((mut agent, mut client), (mut server, mut site)) = (pair().await, pair().await);
        let via = Via {
            host: Host::new("a.example").unwrap(),
            port: 443,
            face: Face::Connect,
        };
        let place = egress.state.tunnels.place().unwrap();
        let live = egress.state.tunnels.list(place, via, Admission::Pass, None);
        let state = Arc::clone(&egress.state);
        let relaying = tokio::spawn(async move {
            let early = (Bytes::from_static(b"early"), Bytes::new());
            let ended = relay(&state, live.tunnel(), &mut client, &mut server, early).await;
            let moved = [&live.tunnel().sent, &live.tunnel().received];
            (ended, moved.map(|bytes| bytes.load(Ordering::Relaxed)))
        });
        // A little, far more than a buffer, exactly a buffer, a little.
        let pieces = [1, 3_000_000, PIECE, 2];
        let asking = tokio::spawn(async move {
            for (letter, size) in (b'a'..).zip(pieces) {
                agent.write_all(&vec![letter; size]).await.unwrap();
                // The next one does not begin before this one has passed.
                let mut heard = [0];
                agent.read_exact(&mut heard).await.unwrap();
                assert_eq!(heard[0], letter);
            }
            agent.shutdown().await.unwrap();
            // What is said after one side has finished is heard still.
            let mut rest = Vec::new();
            agent.read_to_end(&mut rest).await.unwrap();
            rest
        });
        let mut early = [0; 5];
        site.read_exact(&mut early).await.unwrap();
        assert_eq!(&early, b"early");
        for (letter, size) in (b'a'..).zip(pieces) {
            let mut got = vec![0; size];
            site.read_exact(&mut got).await.unwrap();
            assert!(got.iter().all(|byte| *byte == letter));
            site.write_all(&[letter]).await.unwrap();
        }
        assert_eq!(site.read(&mut early).await.unwrap(), 0, "the end is heard");
        site.write_all(&vec![b'z'; 1_000_000]).await.unwrap();
        drop(site);
        let rest = asking.await.unwrap();
        assert!(rest.len() == 1_000_000 && rest.iter().all(|byte| *byte == b'z'));
        let sent = (5 + pieces.iter().sum::<usize>()) as u64;
        assert_eq!(relaying.await.unwrap(), (Ended::Closed, [sent, 1_000_004]));
    }

    #[tokio::test]
    async fn what_is_taken_while_the_other_side_is_full_arrives_in_order_and_is_counted() {
        let egress = egress(table("{}", &[])).await;
        let ((mut source, from), (to, mut sink)) = (pair().await, pair().await);
        rustix::net::sockopt::set_socket_send_buffer_size(&to, 16 * 1024).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&sink, 16 * 1024).unwrap();
        let moved = AtomicU64::new(0);
        let lane = lane(&egress.state, &from, &to, &moved);
        let payload: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let expected = payload.clone();
        let sending = tokio::spawn(async move {
            source.write_all(&payload).await.unwrap();
        });
        let reading = tokio::spawn(async move {
            let mut got = Vec::new();
            let mut part = vec![0; 7_777];
            while let Ok(read @ 1..) = sink.read(&mut part).await {
                got.extend_from_slice(&part[..read]);
                // The other side is full again before this one goes on.
                tokio::task::yield_now().await;
            }
            got
        });
        loop {
            from.readable().await.unwrap();
            if lane.drain(egress.state.pipes.take().unwrap()).await.unwrap() == Turn::End {
                break;
            }
        }
        sending.await.unwrap();
        drop(to);
        assert!(reading.await.unwrap() == expected);
        assert_eq!(moved.load(Ordering::Relaxed), 8_000_000);
        assert_eq!(egress.state.pipes.resting.lock().unwrap().len(), 1, "given back");
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
