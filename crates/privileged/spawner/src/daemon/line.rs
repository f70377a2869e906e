//! What the processes of the daemon say to each other: the front, which hears callers; the mother, which makes workers;
//! and the workers.
//!
//! **Trust:** the front has no rights and could be taken over by a caller. The mother therefore takes only connections
//! from it, asks the kernel itself whose they are, and uses its own copy of the ceiling.
use crate::bounds::Bounds;
use bastle_contract::{Fault, RunId};
use serde::{Deserialize, Serialize};

/// From the front to the mother.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(super) enum ToMother {
    /// It is fenced, and hears.
    Ready,
    /// It cannot go on.
    Failed(Fault),
    /// A run is wanted, and there is room. Descriptors: the connection, and a pipe: a byte comes when the acceptance is on
    /// disk, and none if it cannot be.
    Serve {
        /// Names it in every answer.
        ticket: u64,
        /// When it was accepted, for people.
        since_ms: u64,
    },
}

/// From the mother to the front.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(super) enum ToFront {
    /// Another ceiling is in force. Descriptor: the document, sealed.
    Ceiling,
    /// A process has the connection.
    Started { ticket: u64, pid: u32 },
    /// It made a run.
    Launched { ticket: u64, run: RunId },
    /// It made none.
    Refused { ticket: u64, fault: Fault },
    /// It is gone.
    Ended { ticket: u64 },
    /// The end.
    Stop,
}

/// What a worker does when its run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Then {
    /// It ends.
    End,
    /// It gets ready for another run of the same caller.
    Wait,
}

/// From the mother to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(super) enum ToWorker {
    /// Serve a run.
    Serve(Task),
    /// Get ready for the next one: nobody is in a hurry now.
    Renew,
}

/// One task. Descriptors: the connection, and the pipe that says when it is on record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    /// For whom.
    pub(super) bounds: Bounds,
    /// Since when.
    pub(super) since_ms: u64,
    /// What follows.
    pub(super) then: Then,
}

/// From a worker to the mother.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub(super) enum FromWorker {
    /// The run exists.
    Launched { run: RunId },
    /// It was refused.
    Refused(Fault),
    /// The run is over, and everything of it gone: another one of the same caller is welcome.
    Free,
    /// The sandbox for the next one stands already.
    Stands,
}
