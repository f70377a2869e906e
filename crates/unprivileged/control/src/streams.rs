//! The agent's standard streams, seen from here: three pipes, or one terminal of its own.
use bastle_contract::{Code, Fault, Stdio};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Our ends. A closed one is `None`.
#[derive(Default)]
pub(crate) struct Streams {
    /// Where the agent's input is written.
    pub(crate) input: Option<OwnedFd>,
    /// Where its output is read.
    pub(crate) output: Option<OwnedFd>,
    /// Where its errors are read; with a terminal they come with the output.
    pub(crate) errors: Option<OwnedFd>,
}

/// A terminal in raw mode, as it was again when dropped.
pub(crate) struct RawTerminal {
    before: Termios,
}

/// Terminal when both ends here are one, else pipes.
#[must_use]
pub fn choose() -> Stdio {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    if !(stdin.is_terminal() && stdout.is_terminal()) {
        return Stdio::Pipes;
    }
    match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Stdio::Pty {
            rows: size.ws_row,
            cols: size.ws_col,
        },
        Ok(_) | Err(_) => Stdio::Pty { rows: 24, cols: 80 },
    }
}

impl Streams {
    /// Makes the pipes; the agent's ends come second. Nothing is made for a terminal: its master comes from init.
    pub(crate) fn open(stdio: Stdio) -> Result<(Self, Vec<OwnedFd>), Fault> {
        if stdio != Stdio::Pipes {
            return Ok((Self::default(), Vec::new()));
        }
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| {
                Fault::new(
                    Code::FenceStep,
                    "cannot make the agent's streams",
                    error.to_string(),
                )
            })
        };
        let ((stdin, input), (output, stdout), (errors, stderr)) = (pipe()?, pipe()?, pipe()?);
        rustix::io::ioctl_fionbio(&input, true).map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "cannot make the agent's streams",
                error.to_string(),
            )
        })?;
        Ok((
            Self {
                input: Some(input),
                output: Some(output),
                errors: Some(errors),
            },
            vec![stdin, stdout, stderr],
        ))
    }

    /// Takes the master of the agent's terminal.
    pub(crate) fn attach(&mut self, master: OwnedFd) -> Result<(), Fault> {
        let copy = rustix::io::fcntl_dupfd_cloexec(&master, 3).map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "cannot use the agent's terminal",
                error.to_string(),
            )
        })?;
        // A program that does not read its terminal must not hold us up.
        rustix::io::ioctl_fionbio(&master, true).map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "cannot use the agent's terminal",
                error.to_string(),
            )
        })?;
        self.input = Some(copy);
        self.output = Some(master);
        Ok(())
    }

    /// Passes the size of our terminal on to the agent's.
    pub(crate) fn resize(&self) -> Result<(), Errno> {
        let (Some(master), Ok(size)) = (&self.output, rustix::termios::tcgetwinsize(std::io::stdout()))
        else {
            return Ok(());
        };
        rustix::termios::tcsetwinsize(master, size)
    }
}

impl RawTerminal {
    /// Every key goes to the agent's terminal, which interprets it.
    pub(crate) fn enter() -> Result<Self, Errno> {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let restored = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
        debug_assert!(restored.is_ok() || restored == Err(Errno::IO) || restored == Err(Errno::NOTTY));
    }
}

/// Writes all of `bytes`, waiting where the reader is slow. `false` when nobody reads any more.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<bool, Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut waiting = [rustix::event::PollFd::from_borrowed_fd(
                    to.as_fd(),
                    rustix::event::PollFlags::OUT,
                )];
                match rustix::event::poll(&mut waiting, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Errno::PIPE | Errno::IO) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads what is there; a closed or broken stream becomes `None`.
pub(crate) fn take(stream: &mut Option<OwnedFd>) -> Vec<u8> {
    let Some(fd) = stream else { return Vec::new() };
    let mut bytes = Vec::with_capacity(64 * 1024);
    match rustix::io::read(&*fd, spare_capacity(&mut bytes)) {
        Ok(count) if count > 0 => return bytes,
        Err(Errno::INTR | Errno::AGAIN) => return Vec::new(),
        Ok(_) | Err(_) => *stream = None,
    }
    Vec::new()
}
