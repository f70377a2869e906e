//! Frames between control, spawner and init: one JSON object per seqpacket message, at most [`MAX_FRAME`] bytes.
//!
//! The plan itself travels as a sealed memfd (at most [`MAX_PLAN`] bytes) beside the `Launch` frame, because
//! the largest policy compiles to more than a frame holds and a sealed file cannot change after it was checked.
use crate::grants::{Cover, GrantOrder};
use crate::runs::TtySize;
use crate::{AbsPath, Argv, CapabilityStatement, EnvName, Event, Fault, HostFacts, ReadSight, Usage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these frames; both ends are the same binary today, and a daemon of another build must refuse.
pub const WIRE_VERSION: u32 = 1;

/// Largest frame. Derived from the largest event: 4 KiB of target and 4 KiB of arguments, escaped sixfold.
pub const MAX_FRAME: usize = 64 * 1024;

/// Largest plan: 4096 mounts of a few hundred bytes each.
pub const MAX_PLAN: usize = 1024 * 1024;

/// Most further commands of one run at once. One that ended counts as long as a process it started lives.
pub const MAX_EXECS: usize = 64;

/// Most connections into the sandbox that are being made at once.
pub const MAX_DIALS: usize = 64;

/// A command that is started beside the agent, in the same fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecWish {
    /// What is executed.
    pub argv: Argv,
    /// Variables beside the plan's; one of the same name replaces the plan's.
    pub env: Vec<(EnvName, String)>,
    /// Where it starts; default where the agent started.
    pub cwd: Option<AbsPath>,
    /// A terminal of its own instead of three pipes.
    pub tty: Option<TtySize>,
}

/// From control to the spawner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToSpawner {
    /// Build a sandbox. Descriptors: the plan (sealed memfd), init's end of the event socket, where the plan has
    /// attachments these (sealed memfd), then for pipes stdin, stdout, stderr.
    Launch {
        /// [`WIRE_VERSION`].
        version: u32,
    },
    /// End the run: everything is killed.
    Kill,
    /// Freeze the whole tree.
    Freeze,
    /// Let it go on.
    Thaw,
    /// Bring a path into the sandbox. Descriptor: what was judged (`O_PATH`). Answered by `Granted` or `GrantFailed`.
    Grant {
        /// What, and how.
        order: GrantOrder,
    },
    /// Take a granted path out of the sandbox. Answered by `Withdrawn` or `GrantFailed`.
    Withdraw {
        /// Its path on the host.
        path: AbsPath,
    },
    /// Cover names again whose mounts came off because the host replaced the files. Answered by `Covered` or `CoverFailed`.
    Cover {
        /// Paths inside, and how each is covered; at most [`MAX_COVERS`](crate::grants::MAX_COVERS).
        covers: Vec<Cover>,
    },
}

/// From the spawner to control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromSpawner {
    /// First frame: what this host has.
    Hello {
        /// [`WIRE_VERSION`].
        version: u32,
        /// The host.
        facts: HostFacts,
    },
    /// The sandbox exists; init goes on by itself.
    Launched {
        /// Host process id of init.
        pid: u32,
        /// cgroup directories that were made.
        cgroups: Vec<String>,
        /// Whether the reading of files is seen. If so, descriptors: what tells of it, and the run's mount namespace,
        /// in which its paths are read.
        reads: ReadSight,
    },
    /// It could not be built, or a request was refused. Nothing is left behind.
    Refused(Fault),
    /// Freeze or thaw took effect.
    Done,
    /// A granted path is inside.
    Granted {
        /// Its path on the host.
        path: AbsPath,
        /// Whether it can be reached inside under that path as well.
        alias: bool,
    },
    /// A granted path is out.
    Withdrawn {
        /// Its path on the host.
        path: AbsPath,
        /// Processes that still have a file of it open for reading.
        holders: u32,
        /// Processes that were ended because they held a directory of it, or a file open for writing.
        ended: u32,
    },
    /// A path could not be brought in, or taken out. Where it could not be brought in, nothing of it is inside.
    GrantFailed {
        /// Its path on the host.
        path: AbsPath,
        /// The fault that a person is shown.
        fault: Fault,
    },
    /// The names are covered, as far as they exist.
    Covered {
        /// How many covers were put on.
        count: u32,
    },
    /// A name could not be covered.
    CoverFailed {
        /// The fault that a person is shown.
        fault: Fault,
    },
    /// A limit held by the spawner was hit.
    Event(Event),
    /// Everything of the run is gone.
    Ended {
        /// What the run used, as far as the spawner knows.
        usage: Usage,
        /// Why it was killed, if it was: `timeout`, `stopped`, `memory`.
        killed: Option<String>,
    },
}

/// From init to control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum FromInit {
    /// The fence stands and was probed; init waits for [`ToInit::Go`]. With a terminal, its master comes along.
    Ready {
        /// What the probes found.
        statement: CapabilityStatement,
        /// How long each step took, in microseconds, in order.
        steps: Vec<(String, u64)>,
    },
    /// A step failed; init exits and takes the sandbox with it.
    Failed(Fault),
    /// The network faces exist. Descriptors: as [`crate::egress::ToEgress::Serve`] wants them; init keeps none.
    Faces,
    /// The socket of the file broker exists. Descriptor: its listener; init keeps none.
    Broker,
    /// Something happened.
    Event(Event),
    /// The agent's program runs.
    Executed,
    /// The agent could not be executed (126 or 127).
    NotExecuted {
        /// Exit code to report.
        code: u8,
        /// The fault that a person is shown.
        fault: Fault,
    },
    /// The agent ended. Remaining processes are being killed.
    Exited {
        /// Exit code, if it exited.
        code: Option<u8>,
        /// Signal, if it was killed.
        signal: Option<u8>,
        /// Counts of the write guard.
        usage: Usage,
    },
    /// Processes that were stopped by signals went on by themselves, or could not be stopped. They are stopped again.
    Awake {
        /// How many were seen at once.
        count: u32,
    },
    /// A further command is executed. With a terminal, its master comes along.
    ExecStarted {
        /// Which.
        id: u32,
    },
    /// A further command ended. What it started may live on.
    ExecExited {
        /// Which.
        id: u32,
        /// Exit code, if it exited.
        code: Option<u8>,
        /// Signal, if it was killed.
        signal: Option<u8>,
    },
    /// A further command was not executed.
    ExecFailed {
        /// Which.
        id: u32,
        /// Exit code to report: 125, 126 or 127.
        code: u8,
        /// The fault that a person is shown.
        fault: Fault,
    },
    /// Connected to a server inside. Descriptor: the connection.
    Dialed {
        /// Which.
        id: u32,
    },
    /// Not connected.
    NotDialed {
        /// Which.
        id: u32,
        /// The fault that a person is shown.
        fault: Fault,
    },
}

/// From control to init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
pub enum ToInit {
    /// The statement is on disk: execute the agent.
    Go,
    /// Pass a signal on to the agent's process group.
    Signal {
        /// Signal number, 1–31.
        signal: u8,
    },
    /// Stop every process but init; used where no cgroup can freeze.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Start a further command. Descriptors without a terminal: stdin, stdout, stderr. Answered by `ExecStarted` and
    /// then `ExecExited`, or by `ExecFailed`.
    Exec {
        /// Names it in every answer.
        id: u32,
        /// What, and how.
        wish: ExecWish,
    },
    /// Pass a signal on to the process group of a further command.
    ExecSignal {
        /// Which.
        id: u32,
        /// Signal number, 1–31.
        signal: u8,
    },
    /// Connect to a port of the sandbox's loopback. Answered by `Dialed` or `NotDialed`.
    Dial {
        /// Names it in the answer.
        id: u32,
        /// The port.
        port: u16,
    },
}

/// Why a frame was refused.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Larger than [`MAX_FRAME`].
    #[error("frame of {0} bytes is larger than {MAX_FRAME}")]
    TooLarge(usize),
    /// Not valid.
    #[error("malformed frame")]
    Malformed(#[source] serde_json::Error),
}

/// A frame's bytes.
pub fn encode<T: Serialize>(frame: &T) -> Result<Vec<u8>, WireError> {
    let bytes = serde_json::to_vec(frame).map_err(WireError::Malformed)?;
    if bytes.len() > MAX_FRAME {
        Err(WireError::TooLarge(bytes.len()))
    } else {
        Ok(bytes)
    }
}

/// A frame from its bytes; trailing bytes are refused.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    if bytes.len() > MAX_FRAME {
        return Err(WireError::TooLarge(bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(WireError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_with_an_unknown_or_doubled_field_or_trailing_bytes_is_refused() {
        for bad in [
            &br#"{"type":"signal","signal":2,"x":1}"#[..],
            br#"{"type":"signal","signal":2,"signal":3}"#,
            br#"{"type":"go"} x"#,
            br#"{"type":"nonsense"}"#,
            br#"{"type":"signal","signal":300}"#,
            b"",
            b"\xff\xfe",
        ] {
            assert!(decode::<ToInit>(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(decode::<ToInit>(br#"{"type":"go"}"#).unwrap(), ToInit::Go);
    }

    #[test]
    fn an_oversized_or_deeply_nested_frame_is_refused() {
        assert!(matches!(
            decode::<ToInit>(&vec![b' '; MAX_FRAME + 1]),
            Err(WireError::TooLarge(_))
        ));
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(matches!(
            decode::<ToInit>(deep.as_bytes()),
            Err(WireError::Malformed(_))
        ));
    }

    #[test]
    fn a_wish_that_is_empty_loads_code_or_leads_upwards_is_refused_before_it_is_one() {
        let exec = |wish: &str| format!(r#"{{"type":"exec","id":1,"wish":{wish}}}"#);
        for bad in [
            exec(r#"{"argv":[],"env":[],"cwd":null,"tty":null}"#),
            exec(r#"{"argv":["a\u0000"],"env":[],"cwd":null,"tty":null}"#),
            exec(r#"{"argv":["a"],"env":[["LD_PRELOAD","x"]],"cwd":null,"tty":null}"#),
            exec(r#"{"argv":["a"],"env":[],"cwd":"b","tty":null}"#),
            exec(r#"{"argv":["a"],"env":[],"cwd":"/a/../b","tty":null}"#),
            exec(r#"{"argv":["a"],"env":[],"cwd":null,"tty":{"rows":1}}"#),
            exec(r#"{"argv":["a"],"env":[],"cwd":null,"tty":null,"uid":0}"#),
            r#"{"type":"exec","id":-1,"wish":null}"#.to_owned(),
            r#"{"type":"dial","id":1,"port":65536}"#.to_owned(),
            r#"{"type":"dial","id":1,"port":1,"host":"10.0.0.1"}"#.to_owned(),
            r#"{"type":"exec-signal","id":1,"signal":256}"#.to_owned(),
        ] {
            assert!(decode::<ToInit>(bad.as_bytes()).is_err(), "{bad}");
        }
        let good = exec(r#"{"argv":["a"],"env":[["A","b"]],"cwd":"/","tty":{"rows":1,"cols":2}}"#);
        let frame: ToInit = decode(good.as_bytes()).unwrap();
        assert_eq!(decode::<ToInit>(&encode(&frame).unwrap()).unwrap(), frame);
    }

    #[test]
    fn every_word_about_further_commands_and_connections_is_read_by_one_side_alone() {
        let fault = Fault::new(crate::Code::ExecNotFound, "x", "y");
        let told = [
            FromInit::ExecStarted { id: 1 },
            FromInit::ExecExited {
                id: 1,
                code: Some(7),
                signal: None,
            },
            FromInit::ExecFailed {
                id: 1,
                code: 127,
                fault: fault.clone(),
            },
            FromInit::Dialed { id: u32::MAX },
            FromInit::NotDialed { id: 0, fault },
        ];
        for frame in told {
            let bytes = encode(&frame).unwrap();
            assert_eq!(decode::<FromInit>(&bytes).unwrap(), frame);
            assert!(decode::<ToInit>(&bytes).is_err(), "{frame:?}");
        }
    }

    #[test]
    fn frames_survive_a_round_trip() {
        let frame = FromSpawner::Ended {
            usage: Usage::default(),
            killed: Some("timeout".into()),
        };
        assert_eq!(decode::<FromSpawner>(&encode(&frame).unwrap()).unwrap(), frame);
    }
}
