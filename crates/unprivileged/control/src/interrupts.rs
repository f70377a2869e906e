//! Signals for a program that draws on a terminal: what ends it and what resizes it, as descriptors.
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The two kinds, each readable once a signal of it came.
pub struct Interrupts {
    ends: UnixStream,
    resized: UnixStream,
}

impl Interrupts {
    /// Registers them for the rest of the process's life.
    pub fn register() -> std::io::Result<Self> {
        let listen = |signals: &[i32]| -> std::io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
            }
            Ok(ours)
        };
        Ok(Self {
            ends: listen(&[SIGTERM, SIGHUP, SIGINT])?,
            resized: listen(&[SIGWINCH])?,
        })
    }

    /// For waiting: first what ends, then what resizes.
    #[must_use]
    pub fn waiting(&self) -> [BorrowedFd<'_>; 2] {
        [self.ends.as_fd(), self.resized.as_fd()]
    }

    /// Whether it should end.
    #[must_use]
    pub fn ended(&self) -> bool {
        came(&self.ends)
    }

    /// Whether the terminal has another size.
    #[must_use]
    pub fn resized(&self) -> bool {
        came(&self.resized)
    }
}

fn came(stream: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    loop {
        match rustix::io::read(stream, &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => return any,
            Ok(_) => any = true,
            Err(Errno::INTR) => {}
            Err(_) => return any,
        }
    }
}
