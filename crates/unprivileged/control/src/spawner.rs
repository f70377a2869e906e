//! The spawner as a child of this process, over a socket pair: no daemon, no file, nothing to connect to.
use bastle_contract::{
    Code, Fault, FromSpawner, HostFacts, LaunchPlan, MAX_PLAN, ToSpawner, WIRE_VERSION, seal, socket,
};
use rustix::process::{WaitId, WaitIdOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;

/// The hidden verb under which the binary is the spawner.
pub const SPAWNER_VERB: &str = "__spawner";

/// A spawner that has not been asked for anything yet, or serves its one run.
pub struct Spawner {
    process: Process,
    socket: OwnedFd,
}

/// How its end is waited for.
enum Process {
    /// A fresh image, started here.
    Child(Child),
    /// A copy of this process, made by the binary before anything else.
    Early(OwnedFd),
}

/// The one that the binary made at its very start, until somebody wants it.
static EARLY: Mutex<Option<(OwnedFd, OwnedFd)>> = Mutex::new(None);

/// Hands over the line to a spawner made before anything else, and what its end is waited for through.
pub fn offer_spawner(socket: OwnedFd, pidfd: OwnedFd) {
    if let Ok(mut early) = EARLY.lock() {
        *early = Some((socket, pidfd));
    }
}

impl Spawner {
    /// Takes the one that was made at the start, or starts a fresh image of this binary with an empty environment and
    /// one descriptor. Asks nothing yet.
    pub fn start() -> Result<Self, Fault> {
        if let Some((socket, pidfd)) = EARLY.lock().ok().and_then(|mut early| early.take()) {
            return Ok(Self {
                process: Process::Early(pidfd),
                socket,
            });
        }
        let fault = |why: String| Fault::new(Code::FenceLost, "cannot start the spawner", why);
        let (ours, theirs) = socket::pair().map_err(|error| fault(error.to_string()))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(SPAWNER_VERB)
            .env_clear()
            .stdin(theirs)
            .current_dir("/");
        // A group of its own: ^C at a terminal goes to the whole group, and what ends a run is decided here.
        command.process_group(0);
        #[cfg(feature = "test-hooks")]
        if let Ok(layer) = std::env::var("BASTLE_TEST_WITHOUT") {
            command.env("BASTLE_TEST_WITHOUT", layer);
        }
        let child = command.spawn().map_err(|error| fault(error.to_string()))?;
        Ok(Self {
            process: Process::Child(child),
            socket: ours,
        })
    }

    /// Its first word: what this host has.
    pub fn facts(&self) -> Result<HostFacts, Fault> {
        match self.receive()? {
            FromSpawner::Hello {
                version: WIRE_VERSION,
                facts,
            } => Ok(facts),
            FromSpawner::Refused(fault) => Err(fault),
            other => Err(lost(format!("unexpected greeting {other:?}"))),
        }
    }

    /// Hands it a plan, init's end of the event socket, the attachments if the plan has any, and the agent's ends of
    /// the streams.
    pub fn launch(
        &self,
        plan: &LaunchPlan,
        events: BorrowedFd<'_>,
        attachments: &[u8],
        streams: &[OwnedFd],
    ) -> Result<(), Fault> {
        let document = document(plan)?;
        let attached = match plan.attachments {
            Some(_) => Some(seal("bastle-attachments", attachments).map_err(|error| {
                Fault::new(
                    Code::FenceStep,
                    "cannot hand the attachments over",
                    error.to_string(),
                )
            })?),
            None => None,
        };
        let mut descriptors = vec![document.as_fd(), events];
        descriptors.extend(attached.as_ref().map(AsFd::as_fd));
        descriptors.extend(streams.iter().map(AsFd::as_fd));
        self.send_with(
            &ToSpawner::Launch {
                version: WIRE_VERSION,
            },
            &descriptors,
        )
    }

    /// Sends a request.
    pub fn send(&self, frame: &ToSpawner) -> Result<(), Fault> {
        self.send_with(frame, &[])
    }

    pub(crate) fn send_with(&self, frame: &ToSpawner, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        socket::send(&self.socket, frame, descriptors).map_err(|error| lost(error.to_string()))
    }

    /// Its next word.
    pub fn receive(&self) -> Result<FromSpawner, Fault> {
        self.receive_with().map(|(frame, _)| frame)
    }

    /// Its next word and the descriptors that come along.
    pub(crate) fn receive_with(&self) -> Result<(FromSpawner, Vec<OwnedFd>), Fault> {
        match socket::receive(&self.socket) {
            Ok(Some(received)) => Ok(received),
            Ok(None) => Err(lost("it closed its socket".to_owned())),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// For waiting.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Lets go of it and waits for its end: it cleans up as soon as the socket closes.
    pub fn close(self) -> std::io::Result<ExitStatus> {
        self.let_go().wait()
    }

    /// Lets go of it: it cleans up as soon as the socket closes.
    pub(crate) fn let_go(self) -> Closing {
        let Self { process, socket } = self;
        drop(socket);
        Closing(process)
    }
}

/// A spawner that ends.
pub(crate) struct Closing(Process);

impl Closing {
    /// Waits for its end.
    pub(crate) fn wait(self) -> std::io::Result<ExitStatus> {
        match self.0 {
            Process::Child(mut child) => child.wait(),
            Process::Early(pidfd) => {
                let ended = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
                let code = ended.and_then(|status| status.exit_status());
                // A signal's number stands in the low bits; which one it was does not matter here.
                Ok(ExitStatus::from_raw(code.map_or(1, |code| code << 8)))
            }
        }
    }
}

/// The plan in memory that nobody can change any more.
fn document(plan: &LaunchPlan) -> Result<OwnedFd, Fault> {
    let fault = |why: String| Fault::new(Code::FenceStep, "cannot hand the plan over", why);
    let bytes = serde_json::to_vec(plan).map_err(|error| fault(error.to_string()))?;
    if bytes.len() > MAX_PLAN {
        let why = format!("it has {} bytes, at most {MAX_PLAN} are accepted", bytes.len());
        return Err(fault(why).help("grant directories instead of single files, or hide fewer names"));
    }
    seal("bastle-plan", &bytes).map_err(|error| fault(error.to_string()))
}

fn lost(why: String) -> Fault {
    Fault::new(Code::FenceLost, "lost the spawner", why)
}
