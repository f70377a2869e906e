//! The other end of a further command or a connection: somebody's terminal, pipes or socket, and the run's stream.
//!
//! Runs as the invoking user. The run is the user's own; what it sends is untrusted bytes, written where the caller
//! wants them and never looked at.
use crate::live::{self, Command};
use crate::signals::{Signals, Wish};
use crate::streams::RawTerminal;
use bastle_contract::runs::TtySize;
use bastle_contract::stream::{StreamFrame, StreamKind, StreamReader, frames};
use bastle_contract::{Code, ExitCode, Fault, RunId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use serde::Deserialize;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PART: usize = 32 * 1024;
const KILL: u8 = 9;

/// How a further command ended.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Its exit code, as a shell reports it; 125 to 127 where it did not run.
    pub code: u8,
    /// The signal that killed it.
    #[serde(default)]
    pub signal: Option<u8>,
    /// Why it did not run, or was ended.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// What a further command is connected to here.
pub struct Ends<'a> {
    /// Where its input comes from; `None`: it has none.
    pub input: Option<BorrowedFd<'a>>,
    /// Where its output goes.
    pub output: &'a mut dyn Write,
    /// Where its errors go.
    pub errors: &'a mut dyn Write,
    /// Whether it has a terminal, and ours is to be its.
    pub terminal: bool,
    /// Whether signals for this process are passed on to it.
    pub signals: Heed,
    /// After which time it is killed.
    pub within: Option<Duration>,
}

/// Whose signals are meant for a further command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heed {
    /// Those of this process, for the rest of its life.
    Ours,
    /// Nobody's: this process is somebody's daemon or library.
    Nobodys,
}

impl<'a> Ends<'a> {
    /// Pipes; no terminal, no signal, no limit of time.
    pub fn piped(
        input: Option<BorrowedFd<'a>>,
        output: &'a mut dyn Write,
        errors: &'a mut dyn Write,
    ) -> Self {
        Self {
            input,
            output,
            errors,
            terminal: false,
            signals: Heed::Nobodys,
            within: None,
        }
    }
}

/// The size of the terminal that standard output is.
#[must_use]
pub fn terminal_size() -> TtySize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => TtySize {
            rows: size.ws_row.min(1000),
            cols: size.ws_col.min(1000),
        },
        Ok(_) | Err(_) => TtySize { rows: 24, cols: 80 },
    }
}

/// Starts a command in a living run and stays with it to its end.
pub fn exec(state: &Path, run: &RunId, command: &Command, ends: Ends<'_>) -> Result<Finished, Vec<Fault>> {
    let (stream, _) = live::stream(state, run, command)?;
    stay(stream, ends)
}

/// Stays with a command whose stream is there already.
pub fn stay(stream: UnixStream, ends: Ends<'_>) -> Result<Finished, Vec<Fault>> {
    let signals = match ends.signals {
        Heed::Ours => Signals::register_beside().map_err(|fault| vec![fault])?,
        Heed::Nobodys => Signals::none(),
    };
    let until = ends.within.map(|within| Instant::now() + within);
    // From here on every key is the command's; as it was again when this is dropped.
    let terminal = if ends.terminal {
        RawTerminal::enter().ok()
    } else {
        None
    };
    let session = Session {
        stream,
        reader: StreamReader::default(),
        waiting: Vec::new(),
        signalled: false,
        ends,
        until,
        overdue: false,
    };
    let finished = session.run(&signals);
    drop(terminal);
    finished.map_err(|fault| vec![fault])
}

/// Connects to a port inside a living run; both sides speak frames on what is given back.
pub fn dial(state: &Path, run: &RunId, port: u16) -> Result<UnixStream, Vec<Fault>> {
    live::stream(state, run, &Command::Dial { port }).map(|(stream, _)| stream)
}

struct Session<'a> {
    stream: UnixStream,
    reader: StreamReader,
    /// Frames that did not go out yet.
    waiting: Vec<u8>,
    /// A signal was passed on already: the next one ends us, and with us the command.
    signalled: bool,
    ends: Ends<'a>,
    /// When it is killed.
    until: Option<Instant>,
    /// It was told to die for its time.
    overdue: bool,
}

#[derive(Clone, Copy)]
enum Source {
    Run,
    Input,
    Signal(usize),
}

impl Session<'_> {
    fn run(mut self, signals: &Signals) -> Result<Finished, Fault> {
        self.stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        if self.ends.input.is_none() {
            self.waiting = frames(StreamKind::Input, b"");
        }
        loop {
            for source in self.wait(signals)? {
                match source {
                    Source::Run => {
                        if let Some(finished) = self.hear()? {
                            return Ok(finished);
                        }
                    }
                    Source::Input => self.take_input()?,
                    Source::Signal(index) => {
                        if let Some(ended) = signals.take(index).and_then(|wish| self.obey(wish)) {
                            return Ok(ended);
                        }
                    }
                }
            }
            if self.until.is_some_and(|until| Instant::now() >= until) {
                self.until = None;
                self.overdue = true;
                self.waiting.extend(frames(StreamKind::Signal, &[KILL]));
            }
            self.send()?;
        }
    }

    fn wait(&self, signals: &Signals) -> Result<Vec<Source>, Fault> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.waiting.is_empty());
        let mut sources = vec![Source::Run];
        let mut waiting = vec![PollFd::new(&self.stream, flags)];
        // Read only what can be sent: a command that does not read holds its feeder back.
        if let (Some(input), true) = (self.ends.input, self.waiting.is_empty()) {
            sources.push(Source::Input);
            waiting.push(PollFd::from_borrowed_fd(input, PollFlags::IN));
        }
        for (index, stream) in signals.streams().enumerate() {
            sources.push(Source::Signal(index));
            waiting.push(PollFd::new(stream, PollFlags::IN));
        }
        let left = self.until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match rustix::event::poll(&mut waiting, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(lost(&errno.into())),
        }
        let ready = sources.into_iter().zip(&waiting);
        Ok(ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    fn take_input(&mut self) -> Result<(), Fault> {
        let Some(input) = self.ends.input else {
            return Ok(());
        };
        let mut bytes = vec![0; PART];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) => {
                self.ends.input = None;
                self.waiting.extend(frames(StreamKind::Input, b""));
            }
            Ok(count) => self.waiting.extend(frames(StreamKind::Input, &bytes[..count])),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => {
                let what = "cannot read the input for the command";
                return Err(Fault::new(Code::ExecFailed, what, errno.to_string()));
            }
        }
        Ok(())
    }

    /// A second signal ends us; the run then ends the command.
    fn obey(&mut self, wish: Wish) -> Option<Finished> {
        match wish {
            Wish::PassOn(signal) if self.signalled => {
                return Some(Finished {
                    code: 128 + signal,
                    signal: Some(signal),
                    fault: None,
                });
            }
            Wish::PassOn(signal) => {
                self.signalled = true;
                self.waiting.extend(frames(StreamKind::Signal, &[signal]));
            }
            Wish::Resized if self.ends.terminal => {
                let size = serde_json::json!(terminal_size()).to_string();
                self.waiting.extend(frames(StreamKind::Resize, size.as_bytes()));
            }
            Wish::Resized | Wish::Suspend | Wish::Resume | Wish::Stop | Wish::Reload | Wish::Nothing => {}
        }
        None
    }

    fn send(&mut self) -> Result<(), Fault> {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Also when the run is gone: its last words are still to be read.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Option<Finished>, Fault> {
        let mut bytes = vec![0; PART];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) => Err(lost(&std::io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.reader.push(&bytes[..count]);
                while let Some(frame) = self
                    .reader
                    .next_frame()
                    .map_err(|error| lost(&std::io::Error::other(error)))?
                {
                    if let Some(finished) = self.show(&frame)? {
                        return Ok(Some(finished));
                    }
                }
                Ok(None)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(errno) => Err(lost(&errno.into())),
        }
    }

    /// One that was killed for its time says so.
    fn judged(&self, finished: Finished) -> Finished {
        if !self.overdue || finished.signal != Some(KILL) {
            return finished;
        }
        let why = format!("it took longer than {:?}", self.ends.within.unwrap_or_default());
        Finished {
            code: ExitCode::Timeout as u8,
            fault: Some(Fault::new(Code::ExecTime, "the command was killed", why)),
            ..finished
        }
    }

    fn show(&mut self, frame: &StreamFrame) -> Result<Option<Finished>, Fault> {
        let written = match frame.kind {
            StreamKind::Output => write(self.ends.output, &frame.payload),
            StreamKind::Errors => write(self.ends.errors, &frame.payload),
            StreamKind::Ended => {
                let finished: Finished = serde_json::from_slice(&frame.payload)
                    .map_err(|error| lost(&std::io::Error::other(error)))?;
                return Ok(Some(self.judged(finished)));
            }
            StreamKind::Input | StreamKind::Resize | StreamKind::Event | StreamKind::Signal => Ok(()),
        };
        written.map(|()| None).map_err(|error| {
            Fault::new(
                Code::ExecFailed,
                "cannot pass the command's output on",
                error.to_string(),
            )
        })
    }
}

fn write(to: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn lost(error: &std::io::Error) -> Fault {
    Fault::new(
        Code::FenceLost,
        "the connection to the run broke off",
        error.to_string(),
    )
    .help("bastle ps -a")
}
