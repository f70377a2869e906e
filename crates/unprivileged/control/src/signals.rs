//! Signals as descriptors: each arrival is one readable byte.
use bastle_contract::{Code, Fault};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use std::os::unix::net::UnixStream;

/// What a signal means to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Pass it on to the agent.
    PassOn(u8),
    /// The terminal changed its size.
    Resized,
    /// Suspend everything.
    Suspend,
    /// Go on.
    Resume,
}

/// The signals a run listens to.
pub(crate) struct Signals(Vec<(Wish, UnixStream)>);

impl Signals {
    /// Registers them for the rest of the process's life.
    pub(crate) fn register() -> Result<Self, Fault> {
        let listened = [
            (SIGINT, Wish::PassOn(2)),
            (SIGTERM, Wish::PassOn(15)),
            (SIGHUP, Wish::PassOn(1)),
            (SIGQUIT, Wish::PassOn(3)),
            (SIGWINCH, Wish::Resized),
            (SIGTSTP, Wish::Suspend),
            (SIGCONT, Wish::Resume),
        ];
        let register = |(signal, wish)| -> std::io::Result<(Wish, UnixStream)> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            Ok((wish, ours))
        };
        let registered = listened
            .into_iter()
            .map(register)
            .collect::<std::io::Result<Vec<_>>>();
        registered
            .map(Self)
            .map_err(|error| Fault::new(Code::FenceStep, "cannot listen to signals", error.to_string()))
    }

    /// For waiting, in the order of [`Self::take`]'s index.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &UnixStream> {
        self.0.iter().map(|(_, stream)| stream)
    }

    /// What the stream at `index` stands for, with its bytes taken.
    pub(crate) fn take(&self, index: usize) -> Option<Wish> {
        let (wish, stream) = self.0.get(index)?;
        let mut bytes = [0; 64];
        match rustix::io::read(stream, &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => None,
            Ok(_) => Some(*wish),
            Err(_) => None,
        }
    }
}
