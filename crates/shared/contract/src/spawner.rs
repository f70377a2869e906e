//! First words on the socket of a spawner that serves many: what a connection is for, and the answers.
//!
//! **Trust:** the daemon trusts nothing here but the shape; who asks it learns from the kernel. After `Hello` the
//! connection speaks the frames of one run, [`crate::ToSpawner`] and [`crate::FromSpawner`].
use crate::{AbsPath, Fault, HostFacts, RunId};
use serde::{Deserialize, Serialize};

/// Where the spawner of the system listens.
pub const SYSTEM_SOCKET: &str = "/run/bastle/spawner.sock";
/// Names another socket, for whoever starts a run.
pub const SOCKET_VARIABLE: &str = "BASTLE_SPAWNER";
/// Most runs in one listing: it has to fit into a frame.
pub const MAX_LISTED: usize = 256;

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToDaemon {
    /// A run is wanted. Answered by [`crate::FromSpawner::Hello`] or `Refused`.
    Hello {
        /// [`crate::WIRE_VERSION`].
        version: u32,
    },
    /// Which runs live. Answered by `Listed`, and the connection ends.
    List {
        /// [`crate::WIRE_VERSION`].
        version: u32,
    },
    /// What the caller may ask for. Answered by `Probed`, and the connection ends.
    Probe {
        /// [`crate::WIRE_VERSION`].
        version: u32,
    },
}

/// The answer to a first frame that wants no run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromDaemon {
    /// The caller's runs; for root everybody's.
    Listed {
        /// At most [`MAX_LISTED`], the oldest first.
        workers: Vec<WorkerSeen>,
        /// How many more there are.
        more: u64,
    },
    /// What there is and what the caller may have of it.
    Probed(Box<Probed>),
    /// Nothing was done. The same shape as [`crate::FromSpawner::Refused`].
    Refused(Fault),
}

/// One run that the spawner serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSeen {
    /// Its name; `None` until its plan came.
    pub run: Option<RunId>,
    /// Whose it is.
    pub uid: u32,
    /// The process that serves it.
    pub pid: u32,
    /// When it was accepted, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What a caller may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probed {
    /// [`crate::WIRE_VERSION`].
    pub version: u32,
    /// The host, as the daemon sees it.
    pub facts: HostFacts,
    /// Runs that live, of everybody.
    pub workers: u64,
    /// How many may.
    pub max_workers: u64,
    /// The caller's runs that live.
    pub own: u64,
    /// How many may.
    pub own_max: u64,
    /// Below what the caller may have paths shown; `None`: whatever it can open itself.
    pub roots: Option<Vec<AbsPath>>,
}

impl ToDaemon {
    /// The version that its sender speaks.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self {
            Self::Hello { version } | Self::List { version } | Self::Probe { version } => *version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, FromSpawner, MAX_FRAME, decode, encode};

    #[test]
    fn a_refusal_reads_the_same_to_whoever_wants_a_run_and_whoever_asks_something() {
        let fault = Fault::new(Code::SpawnCaller, "no", "because").help("ask");
        let bytes = encode(&FromDaemon::Refused(fault.clone())).unwrap();
        assert_eq!(
            decode::<FromSpawner>(&bytes).unwrap(),
            FromSpawner::Refused(fault)
        );
    }

    #[test]
    fn a_first_frame_with_an_unknown_or_doubled_field_or_trailing_bytes_is_refused() {
        for bad in [
            &br#"{"type":"hello"}"#[..],
            br#"{"type":"hello","version":1,"x":1}"#,
            br#"{"type":"hello","version":1,"version":1}"#,
            br#"{"type":"hello","version":-1}"#,
            br#"{"type":"hello","version":1e400}"#,
            br#"{"type":"launch","version":1}"#,
            br#"{"type":"list","version":1} {}"#,
            b"\xef\xbb\xbf{\"type\":\"list\",\"version\":1}",
        ] {
            assert!(
                decode::<ToDaemon>(bad).is_err(),
                "{}",
                String::from_utf8_lossy(bad)
            );
        }
        let good = decode::<ToDaemon>(br#"{"type":"probe","version":7}"#).unwrap();
        assert_eq!(good.version(), 7);
    }

    #[test]
    fn the_longest_listing_fits_into_a_frame() {
        let worker = WorkerSeen {
            run: Some(RunId::try_from("r".repeat(RunId::MAX)).unwrap()),
            uid: u32::MAX,
            pid: u32::MAX,
            since_ms: u64::MAX,
        };
        let listed = FromDaemon::Listed {
            workers: vec![worker; MAX_LISTED],
            more: u64::MAX,
        };
        assert!(encode(&listed).unwrap().len() < MAX_FRAME);
    }
}
