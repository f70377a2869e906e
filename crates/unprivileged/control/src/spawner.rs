//! The spawner: a child of this process over a socket pair, with no file and nothing to connect to; or a worker of the
//! spawner daemon, where one is named or the system has one.
//!
//! **Trust:** a daemon that this user did not name is believed only if it is root's.
use bastle_contract::spawner::{SOCKET_VARIABLE, SYSTEM_SOCKET, ToDaemon};
use bastle_contract::{
    Code, Fault, FromSpawner, HostFacts, LaunchPlan, MAX_PLAN, ToSpawner, WIRE_VERSION, seal, socket,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{WaitId, WaitIdOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The hidden verb under which the binary is the spawner.
pub const SPAWNER_VERB: &str = "__spawner";

/// A spawner that has not been asked for anything yet, or serves its one run.
pub struct Spawner {
    process: Process,
    socket: OwnedFd,
    /// The connection in its place, where a daemon was busy at first.
    again: OnceLock<OwnedFd>,
}

/// How its end is waited for.
enum Process {
    /// A fresh image, started here.
    Child(Child),
    /// A copy of this process, made by the binary before anything else.
    Early(OwnedFd),
    /// Somebody else's, at this socket: it ends when the connection does.
    Remote(PathBuf),
}

/// How long a daemon may take to answer at all.
const ANSWERS_WITHIN: i64 = 30;
/// How long a daemon may be asked again that serves no more at the moment, and how often.
const BUSY_FOR: Duration = Duration::from_secs(20);
const BUSY_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The one that the binary made at its very start, until somebody wants it.
static EARLY: Mutex<Option<(OwnedFd, OwnedFd)>> = Mutex::new(None);

/// Hands over the line to a spawner made before anything else, and what its end is waited for through.
pub fn offer_spawner(socket: OwnedFd, pidfd: OwnedFd) {
    if let Ok(mut early) = EARLY.lock() {
        *early = Some((socket, pidfd));
    }
}

impl Spawner {
    /// Connects to the daemon where there is one; takes the one that was made at the start; or starts a fresh image of
    /// this binary with an empty environment and one descriptor. Asks nothing yet.
    pub fn start() -> Result<Self, Fault> {
        Self::start_of(None)
    }

    /// The same, with another binary than this one.
    pub(crate) fn start_of(program: Option<&Path>) -> Result<Self, Fault> {
        let again = OnceLock::new();
        if let Some((socket, path)) = connect()? {
            return Ok(Self {
                process: Process::Remote(path),
                socket,
                again,
            });
        }
        if let Some((socket, pidfd)) = EARLY.lock().ok().and_then(|mut early| early.take()) {
            return Ok(Self {
                process: Process::Early(pidfd),
                socket,
                again,
            });
        }
        let fault = |why: String| Fault::new(Code::FenceLost, "cannot start the spawner", why);
        let (ours, theirs) = socket::pair().map_err(|error| fault(error.to_string()))?;
        let mut command = Command::new(program.unwrap_or_else(|| Path::new("/proc/self/exe")));
        command
            .arg(SPAWNER_VERB)
            .env_clear()
            .stdin(theirs)
            .current_dir("/");
        // A group of its own: ^C at a terminal goes to the whole group, and what ends a run is decided here.
        command.process_group(0);
        #[cfg(feature = "test-hooks")]
        for name in ["BASTLE_TEST_WITHOUT", "BASTLE_TEST_LANDLOCK", "BASTLE_TEST_PANIC"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let child = command.spawn().map_err(|error| fault(error.to_string()))?;
        Ok(Self {
            process: Process::Child(child),
            socket: ours,
            again,
        })
    }

    /// Its first word: what this host has.
    pub fn facts(&self) -> Result<HostFacts, Fault> {
        let word = match &self.process {
            Process::Remote(path) => self.first_answer(path)?,
            Process::Child(_) | Process::Early(_) => self.receive()?,
        };
        match word {
            FromSpawner::Hello {
                version: WIRE_VERSION,
                facts,
            } => Ok(facts),
            FromSpawner::Refused(fault) => Err(fault),
            other => Err(lost(format!("unexpected greeting {other:?}"))),
        }
    }

    /// A daemon that has too much to do just now is asked again: many runs are started at once, and its rate is low.
    fn first_answer(&self, path: &Path) -> Result<FromSpawner, Fault> {
        let until = Instant::now() + BUSY_FOR;
        await_answer(&self.socket)?;
        let mut word = self.receive()?;
        loop {
            match word {
                FromSpawner::Refused(fault) if fault.code == Code::SpawnRate && Instant::now() < until => {}
                other => return Ok(other),
            }
            rustix::event::poll(&mut [], Some(&BUSY_PAUSE)).unwrap_or_default();
            let socket = greet(path).map_err(|error| lost(error.to_string()))?;
            await_answer(&socket)?;
            word = hear(&socket)?.0;
            if matches!(word, FromSpawner::Hello { .. }) && self.again.set(socket).is_err() {
                return Err(lost("it was asked twice".to_owned()));
            }
        }
    }

    fn line(&self) -> &OwnedFd {
        self.again.get().unwrap_or(&self.socket)
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
        self.launch_document(&document(plan)?, plan, events, attachments, streams)
    }

    /// The same for a plan that is a document already.
    pub(crate) fn launch_document(
        &self,
        document: &OwnedFd,
        plan: &LaunchPlan,
        events: BorrowedFd<'_>,
        attachments: &[u8],
        streams: &[OwnedFd],
    ) -> Result<(), Fault> {
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
        socket::send(self.line(), frame, descriptors).map_err(|error| lost(error.to_string()))
    }

    /// Its next word.
    pub fn receive(&self) -> Result<FromSpawner, Fault> {
        self.receive_with().map(|(frame, _)| frame)
    }

    /// Its next word and the descriptors that come along.
    pub(crate) fn receive_with(&self) -> Result<(FromSpawner, Vec<OwnedFd>), Fault> {
        hear(self.line())
    }

    /// The descriptor to poll: readable when a frame has come.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.line().as_fd()
    }

    /// Lets go of it and waits for its end: it cleans up as soon as the socket closes.
    pub fn close(self) -> std::io::Result<ExitStatus> {
        self.let_go().wait()
    }

    /// Lets go of it: it cleans up as soon as the socket closes.
    pub(crate) fn let_go(self) -> Closing {
        let Self {
            process,
            socket,
            again,
        } = self;
        drop((socket, again));
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
            Process::Remote(_) => Ok(ExitStatus::from_raw(0)),
        }
    }
}

/// A daemon that says nothing must not hold a run up for ever.
fn await_answer(socket: &OwnedFd) -> Result<(), Fault> {
    let mut waiting = [PollFd::new(socket, PollFlags::IN)];
    let within = Timespec {
        tv_sec: ANSWERS_WITHIN,
        tv_nsec: 0,
    };
    loop {
        match rustix::event::poll(&mut waiting, Some(&within)) {
            Ok(0) => return Err(lost(format!("no answer within {ANSWERS_WITHIN} s"))),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(lost(error.to_string())),
        }
    }
}

/// The next word on a connection, and the descriptors that come along.
fn hear(socket: &OwnedFd) -> Result<(FromSpawner, Vec<OwnedFd>), Fault> {
    let received = match socket::receive(socket) {
        // A daemon that refused at once closed what was still on its way; its reason waits behind this error.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => socket::receive(socket),
        other => other,
    };
    match received {
        Ok(Some(received)) => Ok(received),
        Ok(None) => Err(lost("it closed its socket".to_owned())),
        Err(error) => Err(lost(error.to_string())),
    }
}

/// Whether a run of this process would use a daemon: then a spawner of its own would be made for nothing.
#[must_use]
pub fn has_spawner_daemon() -> bool {
    match named() {
        Named::Path(_) => true,
        Named::Never => false,
        Named::Nothing => !rustix::process::geteuid().is_root() && Path::new(SYSTEM_SOCKET).exists(),
    }
}

/// Whether the spawner that runs are sent to is there: always where each run has one of its own.
///
/// A stream socket cannot connect to a packet socket: the kernel answers `EPROTOTYPE` while some process has it bound, else
/// `ECONNREFUSED` (unix(7)). The spawner sees nothing of it.
#[must_use]
pub fn is_spawner_bound() -> bool {
    let Named::Path(path) = named() else {
        return true;
    };
    let asked = SocketAddrUnix::new(Path::new(&path)).and_then(|address| {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)
    });
    matches!(asked, Ok(()) | Err(Errno::PROTOTYPE))
}

/// What the environment says about a daemon.
enum Named {
    Path(std::ffi::OsString),
    Never,
    Nothing,
}

fn named() -> Named {
    match std::env::var_os(SOCKET_VARIABLE) {
        Some(path) if path.is_empty() => Named::Never,
        Some(path) => Named::Path(path),
        None => Named::Nothing,
    }
}

/// A connection to the daemon that was named; or to the system's, if there is one that takes it.
fn connect() -> Result<Option<(OwnedFd, PathBuf)>, Fault> {
    match named() {
        Named::Never => Ok(None),
        Named::Path(path) => {
            let path = PathBuf::from(path);
            let connected = greet(&path).map_err(|error| {
                Fault::new(
                    Code::SpawnSocket,
                    format!(
                        "cannot reach the spawner at {} ({SOCKET_VARIABLE})",
                        path.display()
                    ),
                    error.to_string(),
                )
                .help(format!(
                    "{SOCKET_VARIABLE}= bastle run -- CMD runs without the daemon"
                ))
            });
            connected.map(|socket| Some((socket, path)))
        }
        Named::Nothing if rustix::process::geteuid().is_root() => Ok(None),
        // Not there, not for this user, or not alive: then a spawner of one's own does it.
        Named::Nothing => Ok(greet(Path::new(SYSTEM_SOCKET))
            .ok()
            .filter(is_roots)
            .map(|socket| (socket, PathBuf::from(SYSTEM_SOCKET)))),
    }
}

/// Connects and says what is wanted.
fn greet(path: &Path) -> std::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let hello = ToDaemon::Hello {
        version: WIRE_VERSION,
    };
    match socket::send(&socket, &hello, &[]) {
        // Refused already: its answer says why.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(socket),
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

fn is_roots(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root())
}

/// The plan in memory that nobody can change any more.
pub(crate) fn document(plan: &LaunchPlan) -> Result<OwnedFd, Fault> {
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
