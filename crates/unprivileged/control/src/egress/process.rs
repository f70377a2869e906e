//! The egress process as a child of this one, over a socket pair. It is fenced before it reads a byte of the agent;
//! secrets and rules reach it in sealed memory.
use super::{Attendance, Setup};
use crate::voice::AfterLoss;
use bastle_contract::egress::{EGRESS_MEMORY, Faces, FromEgress, MAX_EGRESS_DOCUMENT, SecretValue, ToEgress};
use bastle_contract::{Code, Fault, ProbeResult, WIRE_VERSION, seal, socket};
use bastle_policy::NetPolicy;
use bastle_sys::usage::{Used, at_the_end_of};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The hidden verb under which the binary is egress.
pub const EGRESS_VERB: &str = "__egress";
/// How long egress may take for its last words.
const FAREWELL: Duration = Duration::from_secs(2);
/// Where the host's roots of trust are, if not in the usual place: all of the environment that egress gets.
const KEPT: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    #[cfg(feature = "test-hooks")]
    "BASTLE_TEST_LANDLOCK",
    #[cfg(feature = "test-hooks")]
    "BASTLE_TEST_WITHOUT",
];

/// An egress process.
#[derive(Debug)]
pub struct Egress {
    child: Child,
    socket: OwnedFd,
    /// What it used; `None` while its end was not waited for.
    used: Option<Used>,
}

/// What egress made for the run.
pub(crate) struct Ready {
    /// Certificate of the run's own authority.
    pub(crate) authority: Option<String>,
    /// What it wants back should it have to be started again; opaque to control.
    pub(crate) kept: Vec<OwnedFd>,
    /// What it found out about its own fence.
    pub(crate) probes: Vec<ProbeResult>,
}

impl Egress {
    /// Starts it: a fresh image of this binary with an empty environment and one descriptor. Asks nothing yet.
    pub fn start() -> Result<Self, Fault> {
        let fault = |why: String| Fault::new(Code::NetLost, "cannot start the egress process", why);
        let (ours, theirs) = socket::pair().map_err(|error| fault(error.to_string()))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(EGRESS_VERB)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null());
        for name in KEPT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // A group of its own: ^C at a terminal goes to the whole group, and what ends a run is decided here.
        command.process_group(0);
        let child = command.spawn().map_err(|error| fault(error.to_string()))?;
        Ok(Self {
            child,
            socket: ours,
            used: None,
        })
    }

    /// Hands it the rules and the secrets. It reads them when it is fenced; nobody waits for that here.
    pub(crate) fn ask(&self, setup: &Setup) -> Result<(), Fault> {
        let (rules, values) = (document(&setup.table)?, document(&setup.secrets.values())?);
        let mut descriptors = vec![rules.as_fd(), values.as_fd()];
        descriptors.extend(setup.kept.iter().map(AsFd::as_fd));
        let canary = setup.canary.as_ref();
        let frame = ToEgress::Configure {
            version: WIRE_VERSION,
            run: setup.run.clone(),
            attended: setup.attendance != Attendance::Nobody,
            cpu: setup.cpu,
            canary: canary.map(|canary| canary.values.clone()).unwrap_or_default(),
        };
        self.send_with(&frame, &descriptors)
    }

    /// Waits for its greeting, and for what it made of [`Self::ask`].
    pub(crate) fn answer(&self) -> Result<Ready, Fault> {
        let probes = match self.receive()? {
            (
                FromEgress::Hello {
                    version: WIRE_VERSION,
                    probes,
                },
                _,
            ) => probes,
            (FromEgress::Refused(fault), _) => return Err(fault),
            (other, _) => return Err(lost(format!("unexpected greeting {other:?}"))),
        };
        match self.receive()? {
            (FromEgress::Ready { authority }, kept) => Ok(Ready {
                authority,
                kept,
                probes,
            }),
            (FromEgress::Refused(fault), _) => Err(fault),
            (other, _) => Err(lost(format!("unexpected answer {other:?}"))),
        }
    }

    /// Hands it the run's listeners.
    pub(crate) fn serve(&self, faces: Faces, listeners: &[OwnedFd]) -> Result<(), Fault> {
        let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
        self.send_with(&ToEgress::Serve { faces }, &descriptors)
    }

    /// Hands it a new table; the answer comes as a frame.
    pub(crate) fn reload(&self, table: &NetPolicy) -> Result<(), Fault> {
        self.send_with(&ToEgress::Reload, &[document(table)?.as_fd()])
    }

    /// Hands it new values of secrets.
    pub(crate) fn secrets(&self, secrets: &[SecretValue]) -> Result<(), Fault> {
        self.send_with(&ToEgress::Secrets, &[document(&secrets)?.as_fd()])
    }

    pub(crate) fn send(&self, frame: &ToEgress) -> Result<(), Fault> {
        self.send_with(frame, &[])
    }

    fn send_with(&self, frame: &ToEgress, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        socket::send(&self.socket, frame, descriptors).map_err(|error| self.last_word(&error))
    }

    /// Why nothing can be sent: what it said itself before it ended, where it said anything.
    fn last_word(&self, error: &std::io::Error) -> Fault {
        // Of one that is there a word may never come.
        if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
            return lost(error.to_string());
        }
        match self.hear() {
            Ok(Some((FromEgress::Refused(fault), _))) => fault,
            Ok(Some(_) | None) | Err(_) => lost(error.to_string()),
        }
    }

    /// Its next word and what came with it.
    pub(crate) fn receive(&self) -> Result<(FromEgress, Vec<OwnedFd>), Fault> {
        match self.hear() {
            Ok(Some(received)) => Ok(received),
            Ok(None) => Err(lost("it closed its socket".to_owned())),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Its next frame, also one that waits behind the news that it ended without reading what it was told.
    fn hear(&self) -> std::io::Result<Option<(FromEgress, Vec<OwnedFd>)>> {
        match socket::receive(&self.socket) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => socket::receive(&self.socket),
            heard => heard,
        }
    }

    /// Whether a word waits to be read.
    pub(crate) fn speaks(&self, within: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// The descriptor to poll: readable when a frame has come.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for a process that closed its socket, and says how it ended, whether another may take its place and what it
    /// used. One that aborted is not replaced: the agent would do to the next one what it did to this one.
    pub(crate) fn lost(mut self, fault: Fault) -> (Fault, AfterLoss, Used) {
        // A process that is ending already keeps the status it has; one that hangs without a socket is of no use.
        self.kill();
        let signal = self.signal();
        let used = self.end();
        if signal != Some(Signal::ABORT.as_raw()) {
            return (fault, AfterLoss::Replaced, used);
        }
        let why = format!(
            "it aborted: an allocation beyond its memory limit of {} MiB, or a defect",
            EGRESS_MEMORY >> 20
        );
        (lost(why), AfterLoss::Ended, used)
    }

    /// The signal that ended it. Waits for its end and leaves what it used to [`Self::end`].
    fn signal(&self) -> Option<i32> {
        let child = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)?;
        loop {
            match waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(status) => return status?.terminating_signal(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Ends it, without waiting until it has.
    pub(crate) fn kill(&mut self) {
        // A number whose end was waited for may be another process's.
        if self.used.is_none() {
            drop(self.child.kill());
        }
    }

    /// Ends it, waits until it has, and gives what it used as the kernel counted it.
    pub(crate) fn end(&mut self) -> Used {
        self.kill();
        // Nothing but this function waits for it; what cannot be told is not invented.
        let child = self.child.id();
        *self
            .used
            .get_or_insert_with(|| at_the_end_of(child).unwrap_or_default())
    }

    /// Tells it that the run is over. One that is gone needs no telling.
    pub(crate) fn dismiss(&self) {
        let _gone = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).is_err();
    }

    /// Gives its last words to `hear`: what it still has to say until it is silent for a moment, then what it says when
    /// it is told that the run is over.
    pub(crate) fn farewell(
        &self,
        silence: Duration,
        mut hear: impl FnMut(FromEgress) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let until = Instant::now() + FAREWELL;
        let mut told = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !self.speaks(if told { left } else { silence.min(left) }) {
                // One that is gone has nothing left to say.
                if told || rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).is_err() {
                    return Ok(());
                }
                told = true;
                continue;
            }
            match socket::receive(&self.socket) {
                Ok(Some((frame, _))) => hear(frame)?,
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        // It holds nothing that needs an orderly end, and nothing of it may outlive the run.
        self.end();
    }
}

/// A document in sealed memory; the copy here is wiped.
fn document<T: serde::Serialize>(value: &T) -> Result<OwnedFd, Fault> {
    let fault = |why: String| Fault::new(Code::NetLost, "cannot configure the egress process", why);
    let bytes = Zeroizing::new(serde_json::to_vec(value).map_err(|error| fault(error.to_string()))?);
    if bytes.len() > MAX_EGRESS_DOCUMENT {
        let why = format!(
            "a document has {} bytes, at most {MAX_EGRESS_DOCUMENT} are accepted",
            bytes.len()
        );
        return Err(fault(why).help("write fewer network rules"));
    }
    seal("bastle-egress", &bytes).map_err(|error| fault(error.to_string()))
}

fn lost(why: String) -> Fault {
    Fault::new(Code::NetLost, "lost the egress process", why)
}
