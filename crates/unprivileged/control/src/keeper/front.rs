//! Where the agent's input comes from and its output goes: the streams of this process, or the files of a kept run and
//! whoever is attached to it.
use super::driven::Driven;
use super::feed::Feed;
use crate::live::Peer;
use crate::runs::{OutputLog, RunDir};

/// What stands behind a run.
pub(crate) enum Front {
    /// The streams of this process.
    Own,
    /// Files, and peers of the run's socket.
    Kept(Box<Kept>),
}

/// What stands behind a run without a terminal.
pub(crate) struct Kept {
    pub(crate) dir: RunDir,
    pub(crate) log: OutputLog,
    /// Given to the agent first.
    pub(crate) input: Vec<u8>,
    pub(crate) then: Then,
    /// Where the agent is spoken to in its own protocol.
    pub(crate) driven: Option<Driven>,
    /// For whom alone the run is: it ends when that peer goes.
    pub(crate) holder: Option<u64>,
    /// Who is shown what, by the number of the peer.
    pub(crate) feeds: Vec<(u64, Feed)>,
    /// Peers that were there when the agent ended: they are told the end when it is written.
    pub(crate) left: Vec<(Peer, Feed)>,
}

/// What follows the first input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// What peers send.
    Peers,
    /// What is said through the agent's driver.
    Words,
    /// The end.
    End,
}

impl Front {
    pub(crate) fn kept(&mut self) -> Option<&mut Kept> {
        match self {
            Self::Own => None,
            Self::Kept(kept) => Some(kept),
        }
    }

    pub(crate) fn kept_ref(&self) -> Option<&Kept> {
        match self {
            Self::Own => None,
            Self::Kept(kept) => Some(kept),
        }
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own)
    }
}
