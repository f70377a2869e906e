//! A terminal or pipes of this process, connected to a stream of a living run: keys there, bytes here.
//!
//! **Trust:** what comes is printed as it came; whoever shows an agent's bytes at a terminal decided so before.
use crate::streams::{RawTerminal, write_all};
use bastle_contract::runs::TtySize;
use bastle_contract::stream::{StreamFrame, StreamKind, StreamReader, frames};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// What a session is to be.
#[derive(Clone, Debug, Default)]
pub struct SessionWish {
    /// Whether what is typed is sent.
    pub input: bool,
    /// Whether the other end is a terminal: then every key goes there, and its size follows ours.
    pub tty: bool,
    /// Keys that leave; only where every key is passed on.
    pub leave: Vec<u8>,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The other end told its last word.
    Ended(serde_json::Value),
    /// Left by the keys, or because this process was told to end.
    Left,
    /// The connection broke off.
    Broken,
}

/// Connects the streams of this process until one side ends.
pub fn session(stream: UnixStream, wish: &SessionWish) -> io::Result<SessionEnd> {
    let mut session = Session::begin(stream, wish)?;
    let end = session.run();
    drop(session.terminal.take());
    end
}

struct Session<'a> {
    wish: &'a SessionWish,
    stream: UnixStream,
    frames: StreamReader,
    /// What waits to be sent.
    out: Vec<u8>,
    keys: Keys<'a>,
    input: bool,
    terminal: Option<RawTerminal>,
    resized: Line,
    told_to_end: Line,
}

/// Our end, and the other one: kept, so that an end does not look like a word where no signal has it.
type Line = (UnixStream, UnixStream);

impl<'a> Session<'a> {
    fn begin(stream: UnixStream, wish: &'a SessionWish) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let raw = wish.input && wish.tty && io::stdin().is_terminal();
        let terminal = raw.then(RawTerminal::enter).transpose()?;
        let leave = if terminal.is_some() {
            wish.leave.as_slice()
        } else {
            &[]
        };
        let mut session = Self {
            wish,
            stream,
            frames: StreamReader::default(),
            out: Vec::new(),
            keys: Keys { leave, held: 0 },
            input: wish.input,
            resized: signal(&[SIGWINCH])?,
            // A terminal in raw mode must not stay so when this process is ended.
            told_to_end: signal(if terminal.is_some() {
                &[SIGTERM, SIGHUP]
            } else {
                &[]
            })?,
            terminal,
        };
        session.resize();
        Ok(session)
    }

    fn run(&mut self) -> io::Result<SessionEnd> {
        loop {
            let (readable, writable, typed, resized, ends) = self.wait()?;
            if ends {
                return Ok(SessionEnd::Left);
            }
            if resized {
                drain(&mut self.resized.0);
                self.resize();
            }
            if typed && self.typed()? == Typed::Leave {
                return Ok(SessionEnd::Left);
            }
            if (writable || !self.out.is_empty()) && !self.send()? {
                self.out.clear();
                self.input = false;
            }
            if readable && let Some(end) = self.receive()? {
                return Ok(end);
            }
        }
    }

    fn wait(&self) -> io::Result<(bool, bool, bool, bool, bool)> {
        let stdin = io::stdin();
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.out.is_empty());
        // Nothing is read that cannot be sent yet.
        let typing = self.input && self.out.is_empty();
        let mut waiting = vec![
            PollFd::from_borrowed_fd(self.stream.as_fd(), flags),
            PollFd::from_borrowed_fd(self.resized.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.told_to_end.0.as_fd(), PollFlags::IN),
        ];
        if typing {
            waiting.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        match rustix::event::poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((false, false, false, false, false)),
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| waiting.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let writable = waiting
            .first()
            .is_some_and(|fd| fd.revents().contains(PollFlags::OUT));
        let readable = waiting
            .first()
            .is_some_and(|fd| fd.revents().intersects(!PollFlags::OUT));
        Ok((readable, writable, ready(3), ready(1), ready(2)))
    }

    fn resize(&mut self) {
        if !(self.wish.tty && self.wish.input) {
            return;
        }
        if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
            && size.ws_row > 0
            && size.ws_col > 0
        {
            let size = TtySize {
                rows: size.ws_row.min(1000),
                cols: size.ws_col.min(1000),
            };
            let bytes = serde_json::to_vec(&size).unwrap_or_default();
            self.out.extend(frames(StreamKind::Resize, &bytes));
        }
    }

    fn typed(&mut self) -> io::Result<Typed> {
        let mut bytes = [0; 16 * 1024];
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => {
                self.input = false;
                self.out.extend(frames(StreamKind::Input, &[]));
                Ok(Typed::On)
            }
            Ok(count) => {
                let (sent, typed) = self.keys.pass(&bytes[..count]);
                if !sent.is_empty() {
                    self.out.extend(frames(StreamKind::Input, &sent));
                }
                Ok(typed)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(Typed::On),
            // A terminal that this process may not read gives no input.
            Err(_) => {
                self.input = false;
                Ok(Typed::On)
            }
        }
    }

    /// `false` when nobody takes it any more; what was said before is still to be read.
    fn send(&mut self) -> io::Result<bool> {
        while !self.out.is_empty() {
            match rustix::io::write(&self.stream, &self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<Option<SessionEnd>> {
        let mut bytes = vec![0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Ok(Some(SessionEnd::Broken)),
            Ok(count) => self.frames.push(&bytes[..count]),
            Err(error) => {
                let later = matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                );
                return Ok((!later).then_some(SessionEnd::Broken));
            }
        }
        while let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
            if let Some(end) = show(&frame)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}

/// Prints what a frame carries; the last one ends the session.
fn show(frame: &StreamFrame) -> io::Result<Option<SessionEnd>> {
    let reads = match frame.kind {
        StreamKind::Output => write_all(io::stdout().as_fd(), &frame.payload)?,
        StreamKind::Errors => write_all(io::stderr().as_fd(), &frame.payload)?,
        StreamKind::Ended => {
            let end = serde_json::from_slice(&frame.payload).unwrap_or_default();
            return Ok(Some(SessionEnd::Ended(end)));
        }
        StreamKind::Input | StreamKind::Resize | StreamKind::Event | StreamKind::Signal => true,
    };
    // Nobody reads what is printed here any more.
    Ok((!reads).then_some(SessionEnd::Left))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Typed {
    On,
    Leave,
}

/// The keys that leave, looked for in what is typed: the first ones are held back until it is clear what follows.
struct Keys<'a> {
    leave: &'a [u8],
    held: usize,
}

impl Keys<'_> {
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, Typed) {
        if self.leave.is_empty() {
            return (typed.to_vec(), Typed::On);
        }
        let mut sent = Vec::with_capacity(typed.len());
        for key in typed {
            if self.leave.get(self.held) != Some(key) {
                sent.extend_from_slice(&self.leave[..self.held]);
                self.held = 0;
            }
            if self.leave.get(self.held) == Some(key) {
                self.held += 1;
                if self.held == self.leave.len() {
                    self.held = 0;
                    return (sent, Typed::Leave);
                }
            } else {
                sent.push(*key);
            }
        }
        (sent, Typed::On)
    }
}

fn signal(signals: &[i32]) -> io::Result<Line> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok((ours, theirs))
}

fn drain(stream: &mut UnixStream) {
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_leave_are_found_however_they_are_cut_and_everything_else_is_passed_on_whole() {
        let leave = [0x1d, b'd'];
        for (typed, sent, left) in [
            (&b"abc"[..], &b"abc"[..], false),
            (b"a\x1dd", b"a", true),
            (b"a\x1dxd", b"a\x1dxd", false),
            (b"\x1d\x1dd", b"\x1d", true),
            (b"\x1d\x1d\x1dx", b"\x1d\x1d\x1dx", false),
        ] {
            for step in 1..=typed.len() {
                let mut keys = Keys {
                    leave: &leave,
                    held: 0,
                };
                let (mut got, mut gone) = (Vec::new(), false);
                for part in typed.chunks(step) {
                    let (bytes, typed) = keys.pass(part);
                    got.extend(bytes);
                    gone |= typed == Typed::Leave;
                }
                assert_eq!(
                    (got.as_slice(), gone),
                    (sent, left),
                    "{typed:?} in steps of {step}"
                );
            }
        }
    }
}
