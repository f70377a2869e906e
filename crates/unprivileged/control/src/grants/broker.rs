//! The file broker as a child of this process, over a socket pair. It is fenced before it reads a byte of the agent and
//! has no files; it is started when the agent first knocks, so that a run that never asks pays nothing.
use bastle_contract::grants::{FromBroker, ToBroker};
use bastle_contract::{Code, Fault, WIRE_VERSION, socket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The hidden verb under which the binary is the broker.
pub const BROKER_VERB: &str = "__broker";
/// How often a lost broker is replaced.
const MOST_STARTS: u32 = 4;

/// The broker of one run.
#[derive(Default)]
pub(crate) struct Broker {
    listener: Option<OwnedFd>,
    process: Option<Process>,
    starts: u32,
}

struct Process {
    child: Child,
    socket: OwnedFd,
}

impl Broker {
    /// The listener, made inside.
    pub(crate) fn offer(&mut self, listener: Option<OwnedFd>) {
        self.listener = listener;
    }

    /// The listener, while nobody serves it.
    pub(crate) fn knock(&self) -> Option<BorrowedFd<'_>> {
        let wanted = self.process.is_none() && self.starts < MOST_STARTS;
        self.listener.as_ref().filter(|_| wanted).map(AsFd::as_fd)
    }

    /// The line to the process.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.socket.as_fd())
    }

    /// Somebody knocks: starts the process and hands it the listener.
    pub(crate) fn start(&mut self) -> Result<(), Fault> {
        let fault = |why: std::io::Error| {
            Fault::new(Code::GrantFailed, "cannot start the file broker", why.to_string())
        };
        self.starts += 1;
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        let (ours, theirs) = socket::pair().map_err(fault)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(BROKER_VERB)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .current_dir("/");
        // A group of its own: ^C at a terminal goes to the whole group, and what ends a run is decided here.
        command.process_group(0);
        let child = command.spawn().map_err(fault)?;
        // One that does not read must not hold the run up.
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| fault(error.into()))?;
        let process = Process { child, socket: ours };
        let serve = ToBroker::Serve {
            version: WIRE_VERSION,
        };
        socket::send(&process.socket, &serve, &[listener.as_fd()]).map_err(fault)?;
        self.process = Some(process);
        Ok(())
    }

    /// Its next word; an error when it is gone or says nonsense.
    pub(crate) fn receive(&self) -> std::io::Result<Option<(FromBroker, Vec<OwnedFd>)>> {
        let Some(process) = &self.process else {
            return Ok(None);
        };
        match socket::receive(&process.socket) {
            Ok(Some(word)) => Ok(Some(word)),
            Ok(None) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells it something. One that cannot take it is ended: what it does not hear it would not obey.
    pub(crate) fn tell(&mut self, frame: &ToBroker, descriptor: Option<BorrowedFd<'_>>) {
        let Some(process) = &self.process else { return };
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if socket::send(&process.socket, frame, &descriptors).is_err() {
            self.end();
        }
    }

    /// Ends the process; another knock starts the next.
    pub(crate) fn end(&mut self) {
        self.process = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It holds nothing that needs an orderly end, and nothing of it may outlive the run.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
