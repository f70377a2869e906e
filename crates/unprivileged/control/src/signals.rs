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
    /// End the run in order.
    Stop,
    /// Read the rules again.
    Reload,
    /// It means nothing here.
    Nothing,
}

/// The signals a run listens to.
pub(crate) struct Signals(Vec<(Wish, UnixStream)>);

impl Signals {
    /// Registers them for the rest of the process's life: for a run at a terminal or between pipes.
    pub(crate) fn register() -> Result<Self, Fault> {
        Self::listen(vec![
            (SIGINT, Wish::PassOn(2)),
            (SIGTERM, Wish::PassOn(15)),
            (SIGHUP, Wish::PassOn(1)),
            (SIGQUIT, Wish::PassOn(3)),
            (SIGWINCH, Wish::Resized),
            (SIGTSTP, Wish::Suspend),
            (SIGCONT, Wish::Resume),
        ])
    }

    /// For a run that nobody sits at.
    pub(crate) fn register_kept() -> Result<Self, Fault> {
        Self::listen(vec![
            (SIGTERM, Wish::Stop),
            (SIGINT, Wish::Stop),
            (SIGQUIT, Wish::Stop),
            (SIGHUP, Wish::Reload),
            (SIGTSTP, Wish::Nothing),
        ])
    }

    /// None at all.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// For somebody who stays with a further command of a run.
    pub(crate) fn register_beside() -> Result<Self, Fault> {
        Self::listen(vec![
            (SIGINT, Wish::PassOn(2)),
            (SIGTERM, Wish::PassOn(15)),
            (SIGHUP, Wish::PassOn(1)),
            (SIGQUIT, Wish::PassOn(3)),
            (SIGWINCH, Wish::Resized),
        ])
    }

    fn listen(listened: Vec<(i32, Wish)>) -> Result<Self, Fault> {
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
