//! The spawner as a child of this process, over a socket pair: no daemon, no file, nothing to connect to.
use bastle_contract::{
    Code, Fault, FromSpawner, HostFacts, LaunchPlan, MAX_PLAN, ToSpawner, WIRE_VERSION, socket,
};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

/// The hidden verb under which the binary is the spawner.
pub const SPAWNER_VERB: &str = "__spawner";

/// A spawner that has not been asked for anything yet, or serves its one run.
pub struct Spawner {
    child: Child,
    socket: OwnedFd,
}

impl Spawner {
    /// Starts it: a fresh image of this binary with an empty environment and one descriptor. Asks nothing yet.
    pub fn start() -> Result<Self, Fault> {
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
        Ok(Self { child, socket: ours })
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

    /// Hands it a plan, init's end of the event socket, and the agent's ends of the streams.
    pub fn launch(
        &self,
        plan: &LaunchPlan,
        events: BorrowedFd<'_>,
        streams: &[OwnedFd],
    ) -> Result<(), Fault> {
        let document = sealed(plan)?;
        let mut descriptors = vec![document.as_fd(), events];
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

    fn send_with(&self, frame: &ToSpawner, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        socket::send(&self.socket, frame, descriptors).map_err(|error| lost(error.to_string()))
    }

    /// Its next word.
    pub fn receive(&self) -> Result<FromSpawner, Fault> {
        match socket::receive(&self.socket) {
            Ok(Some((frame, _))) => Ok(frame),
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
        let Self { mut child, socket } = self;
        drop(socket);
        child.wait()
    }
}

/// The plan in memory that nobody can change any more.
fn sealed(plan: &LaunchPlan) -> Result<OwnedFd, Fault> {
    let fault = |why: String| Fault::new(Code::FenceStep, "cannot hand the plan over", why);
    let bytes = serde_json::to_vec(plan).map_err(|error| fault(error.to_string()))?;
    if bytes.len() > MAX_PLAN {
        let why = format!("it has {} bytes, at most {MAX_PLAN} are accepted", bytes.len());
        return Err(fault(why).help("grant directories instead of single files, or hide fewer names"));
    }
    let fd = rustix::fs::memfd_create("bastle-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| fault(error.to_string()))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(&bytes).map_err(|error| fault(error.to_string()))?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(|error| fault(error.to_string()))?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(|error| fault(error.to_string()))?;
    Ok(file.into())
}

fn lost(why: String) -> Fault {
    Fault::new(Code::FenceLost, "lost the spawner", why)
}
