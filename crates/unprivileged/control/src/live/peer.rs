//! One connection to the run's socket: a line, and for some commands frames in both directions after it.
//!
//! **Trust:** the same user or root, and still bounded: what it sends is parsed as it comes, what it does not read is
//! held up to a bound and never waited for.
use super::words::{Command, MOST_LINE};
use bastle_contract::stream::{self, StreamFrame, StreamKind, StreamReader};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a peer may take for its line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes that wait for a peer to read them.
pub(crate) const MOST_QUEUED: usize = 256 * 1024;
/// Most bytes that are taken from a peer at once.
const MOST_TAKEN: usize = 64 * 1024;

/// What came over the socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A whole command; the peer waits for its answer.
    Command(Command),
    /// A frame of a peer whose command was a streaming one.
    Frame(StreamFrame),
    /// A peer with a stream went away.
    Gone,
}

/// Whether a peer is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Not for now.
    Back,
    /// Again.
    No,
}

/// A connection.
pub(crate) struct Peer {
    pub(super) number: u64,
    stream: UnixStream,
    mode: Mode,
}

enum Mode {
    /// Its line is not whole.
    Speaks { heard: Vec<u8>, until: Instant },
    /// Its command is being carried out; the answer comes later. What it sent after the line is kept.
    Waits { rest: Vec<u8> },
    /// Both sides speak frames.
    Streams(Box<Streaming>),
}

struct Streaming {
    frames: StreamReader,
    out: VecDeque<u8>,
    /// Nothing is taken from it for now.
    held: bool,
    /// The last frame is queued.
    last: bool,
}

/// What listening to a peer gave.
pub(super) enum Listened {
    /// It stays.
    Stays,
    /// It is to be let go, with this said to it.
    Refused(String),
    /// It went away, or spoke too long.
    Gone,
}

impl Peer {
    pub(super) fn new(number: u64, stream: UnixStream) -> Self {
        let mode = Mode::Speaks {
            heard: Vec::new(),
            until: Instant::now() + PATIENCE,
        };
        Self { number, stream, mode }
    }

    /// What is waited for; `None`: nothing for now.
    pub(crate) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let flags = match &self.mode {
            Mode::Speaks { .. } => PollFlags::IN,
            Mode::Waits { .. } => return None,
            Mode::Streams(streaming) => {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, !streaming.held);
                flags.set(PollFlags::OUT, !streaming.out.is_empty());
                flags
            }
        };
        // Without a wish of ours the kernel would still tell of its end, again and again.
        (!flags.is_empty()).then(|| (self.stream.as_fd(), flags))
    }

    /// When its time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Speaks { until, .. } => Some(*until),
            Mode::Waits { .. } | Mode::Streams(_) => None,
        }
    }

    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.mode, Mode::Streams(_))
    }

    /// Takes what has come, and sends what waits.
    pub(super) fn listen(&mut self, told: &mut Vec<(u64, Heard)>) -> Listened {
        match &mut self.mode {
            Mode::Waits { .. } => Listened::Stays,
            Mode::Speaks { heard, until } => match line(&mut self.stream, heard) {
                Line::Part if Instant::now() < *until => Listened::Stays,
                Line::Part | Line::Gone => Listened::Gone,
                Line::Whole { line, rest } => match Command::parse(&line) {
                    Ok(command) => {
                        self.mode = Mode::Waits { rest };
                        told.push((self.number, Heard::Command(command)));
                        Listened::Stays
                    }
                    Err(why) => Listened::Refused(why),
                },
            },
            Mode::Streams(streaming) => {
                if streaming.exchange(&mut self.stream, self.number, told) {
                    Listened::Stays
                } else {
                    Listened::Gone
                }
            }
        }
    }

    /// One line. A peer that does not read it does not want it.
    pub(super) fn say(&mut self, value: &serde_json::Value) {
        drop(self.stream.write_all(format!("{value}\n").as_bytes()));
    }

    /// Answers its command; from now on both sides speak frames. Gives back those that came already.
    pub(super) fn begin(&mut self, answer: &serde_json::Value, told: &mut Vec<(u64, Heard)>) -> bool {
        let Mode::Waits { rest } = &mut self.mode else {
            return false;
        };
        let mut streaming = Streaming {
            frames: StreamReader::default(),
            out: VecDeque::from(format!("{answer}\n").into_bytes()),
            held: false,
            last: false,
        };
        let rest = std::mem::take(rest);
        let whole = streaming.take(&rest, self.number, told) && streaming.flush(&mut self.stream);
        self.mode = Mode::Streams(Box::new(streaming));
        whole
    }

    /// Bytes of payload that fit now.
    pub(crate) fn room(&self) -> usize {
        match &self.mode {
            // A frame has a few bytes more than it carries; what is longer than one becomes several.
            Mode::Streams(streaming) if !streaming.last => {
                MOST_QUEUED.saturating_sub(streaming.out.len() + 64)
            }
            Mode::Streams(_) | Mode::Speaks { .. } | Mode::Waits { .. } => 0,
        }
    }

    /// Queues a frame; `false` where it does not fit, and nothing of it is sent.
    pub(crate) fn queue(&mut self, kind: StreamKind, payload: &[u8]) -> bool {
        if payload.len() > self.room() {
            return false;
        }
        let Mode::Streams(streaming) = &mut self.mode else {
            return false;
        };
        streaming.out.extend(stream::frames(kind, payload));
        streaming.last |= kind == StreamKind::Ended;
        // A connection that broke is noticed where it is listened to.
        streaming.flush(&mut self.stream);
        true
    }

    /// Sends what waits; `false` when the peer is gone.
    pub(crate) fn flush(&mut self) -> bool {
        match &mut self.mode {
            Mode::Streams(streaming) => streaming.flush(&mut self.stream),
            Mode::Speaks { .. } | Mode::Waits { .. } => false,
        }
    }

    /// Whether its last frame was sent.
    pub(crate) fn is_done(&self) -> bool {
        match &self.mode {
            Mode::Streams(streaming) => streaming.last && streaming.out.is_empty(),
            Mode::Speaks { .. } | Mode::Waits { .. } => false,
        }
    }

    /// Whether anything is taken from it.
    pub(super) fn hold(&mut self, held: Held) {
        if let Mode::Streams(streaming) = &mut self.mode {
            streaming.held = held == Held::Back;
        }
    }
}

impl Streaming {
    /// `false` when the peer is gone, or what it sends are no frames.
    fn exchange(&mut self, stream: &mut UnixStream, number: u64, told: &mut Vec<(u64, Heard)>) -> bool {
        if !self.flush(stream) {
            return false;
        }
        if self.held {
            return true;
        }
        let mut bytes = vec![0; MOST_TAKEN];
        match stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => self.take(&bytes[..count], number, told),
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn take(&mut self, bytes: &[u8], number: u64, told: &mut Vec<(u64, Heard)>) -> bool {
        self.frames.push(bytes);
        loop {
            match self.frames.next_frame() {
                Ok(Some(frame)) => told.push((number, Heard::Frame(frame))),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn flush(&mut self, stream: &mut UnixStream) -> bool {
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            match stream.write(front) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

enum Line {
    Part,
    Gone,
    Whole { line: Vec<u8>, rest: Vec<u8> },
}

fn line(stream: &mut UnixStream, heard: &mut Vec<u8>) -> Line {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Line::Gone,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Line::Part,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Line::Gone,
        }
        if let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(heard);
            let mut rest = line.split_off(end);
            rest.drain(..1);
            return Line::Whole { line, rest };
        }
        if heard.len() > MOST_LINE {
            return Line::Gone;
        }
    }
}
