//! The mother of keepers: a process that does nothing but copy itself. Its copies become keepers.
//!
//! The image of the program is relocated once for all of them, and what every keeper reads first is read once: pages
//! that nobody writes are shared. It is a fresh image, has one thread, and holds nothing but its line and the
//! environment that keepers have; the daemon makes it when the first run is started and another when it is gone.
//!
//! **Trust:** the other end of its line is the daemon. Keepers are children of the daemon, not of the mother, and close
//! the line before they do anything: neither end of the two is noticed by a run.
use super::{KEEP_VERB, MOTHER_VERB};
use bastle_contract::{Code, Fault, RunId, socket};
use bastle_sys::clone::{Cloned, clone_sibling};
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// Stands where the name of the run will be: as long as the longest name, and none itself.
const UNNAMED: &str = "------------------------------------------------";
/// Keepers of one mother. They know of each other where in memory things lie, so it is not for ever the same.
const MOST_BORN: u32 = 256;
/// How long making a copy may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the daemon asks for.
#[derive(Serialize, Deserialize)]
struct Wanted {
    name: RunId,
}

/// What became of it; the descriptor of the process comes with it.
#[derive(Serialize, Deserialize)]
enum Told {
    Born { pid: u32 },
    Failed(String),
}

/// A mother that lives, seen from the daemon.
pub(crate) struct Mother {
    child: Child,
    line: OwnedFd,
    born: u32,
}

impl Mother {
    /// Starts one, for runs below this state directory, with the arguments and variables that `command` has already.
    pub(crate) fn start(mut command: Command, state: &Path) -> io::Result<Self> {
        let (ours, theirs) = socket::pair()?;
        set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
        let child = command
            .arg(MOTHER_VERB)
            .arg(state)
            .arg(UNNAMED)
            .stdin(theirs)
            // A group of its own: after ^C at a terminal the daemon may still start what it promised.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            child,
            line: ours,
            born: 0,
        })
    }

    /// Whether another one is to take its place.
    pub(crate) fn is_worn(&self) -> bool {
        self.born >= MOST_BORN
    }

    /// Makes the keeper of a run: a child of this process.
    pub(crate) fn bear(&mut self, name: &RunId) -> io::Result<(Pid, OwnedFd)> {
        self.born += 1;
        socket::send(&self.line, &Wanted { name: name.clone() }, &[])?;
        let gone = || io::Error::other("the mother of keepers is gone");
        let (told, mut descriptors) = socket::receive::<Told>(&self.line)?.ok_or_else(gone)?;
        match told {
            Told::Born { pid } => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                pid.zip(descriptors.pop()).ok_or_else(gone)
            }
            Told::Failed(why) => Err(io::Error::other(why)),
        }
    }
}

impl Drop for Mother {
    fn drop(&mut self) {
        // She holds nothing that could be lost. One that ended already is only taken off the list.
        match self.child.kill().and_then(|()| self.child.wait()) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// Which of the copies this is.
pub enum Born {
    /// A keeper, with the arguments of one.
    Keeper,
    /// The mother herself, and the daemon is gone.
    Nobody,
}

/// Serves the line at standard input until its other end is closed. To be called before any thread exists.
pub fn bear() -> Result<Born, Fault> {
    let lost = |error: io::Error| {
        Fault::new(
            Code::FenceLost,
            "the mother of keepers cannot work",
            error.to_string(),
        )
    };
    warm();
    let line = alone().map_err(lost)?;
    while let Some((Wanted { name }, _)) = socket::receive(&line).map_err(lost)? {
        match clone_sibling() {
            Ok(Cloned::Child) => {
                drop(line);
                call_it(&name).map_err(lost)?;
                return Ok(Born::Keeper);
            }
            Ok(Cloned::Parent { pid, pidfd }) => {
                socket::send(&line, &Told::Born { pid }, &[pidfd.as_fd()]).map_err(lost)?;
            }
            Err(error) => socket::send(&line, &Told::Failed(error.to_string()), &[]).map_err(lost)?,
        }
    }
    Ok(Born::Nobody)
}

/// Reads what is part of this build and every keeper needs. What is broken there is told by who uses it.
fn warm() {
    match bastle_policy::default_layers("default") {
        Ok(_) | Err(_) => {}
    }
    bastle_sys::memory::give_back();
}

/// Leaves nothing open but the line and streams of nobody; gives back the line.
fn alone() -> io::Result<OwnedFd> {
    let line = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    bastle_sys::fd::close_all_except(&[line.as_raw_fd()])?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::process::chdir("/")?;
    Ok(line)
}

/// From now on this process is what one is that was started as the keeper of the run.
fn call_it(name: &RunId) -> io::Result<()> {
    bastle_sys::environment::replace_argument(1, KEEP_VERB)?;
    bastle_sys::environment::replace_argument(3, name.as_str())
}
