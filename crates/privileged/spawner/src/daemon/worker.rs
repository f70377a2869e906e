//! A worker: one process, one connection, one run. It is a copy of the mother, may be made ahead, and ends with its run.
//!
//! It does not end with the daemon: the run goes on, and its caller's connection is the worker's own.
use super::line::{FromWorker, Task};
use super::registry::{Entry, Registered, Registry};
use crate::identity::Claims;
use crate::{Init, Outcome, Readied};
use bastle_contract::{Code, Fault, FromSpawner, HostFacts, RunId, socket};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Open files of a process, where no limit says otherwise.
const OPEN_FILES: u64 = 1024;

/// Lives until the run has ended, or until it is not needed. `line` leads to the mother.
pub(super) fn live(line: &OwnedFd, registry: &Registry, (init, facts): (Init, &HostFacts)) -> ! {
    let code = settle(line, registry)
        .and_then(|()| serve(line, registry, (init, facts)))
        .unwrap_or(1);
    bastle_sys::exec::exit(code)
}

/// Leaves everything of the mother's behind but its rights.
fn settle(line: &OwnedFd, registry: &Registry) -> io::Result<()> {
    bastle_sys::fd::close_all_except(&[line.as_raw_fd(), registry.number()])?;
    bastle_sys::signal::default_all();
    bastle_sys::signal::unblock_all()?;
    // What ends a run is decided by its caller, not by a signal to the daemon's group.
    rustix::process::setsid()?;
    // Only a process that can be looked into may be given its maps by one that may not look into everything, and the
    // sandbox is a copy of this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    // The agent's own mask, as everywhere.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let files = Rlimit {
        current: Some(most.map_or(OPEN_FILES, |most| most.min(OPEN_FILES))),
        maximum: most,
    };
    rustix::process::setrlimit(Resource::Nofile, files)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

fn serve(line: &OwnedFd, registry: &Registry, (init, facts): (Init, &HostFacts)) -> io::Result<u8> {
    let readied = Readied::make(init, Claims::Byte, || facts.clone())?;
    let (task, mut descriptors) = match socket::receive::<Task>(line)? {
        Some(received) => received,
        // The daemon is gone, and nobody will ask any more.
        None => return Ok(0),
    };
    let connection = descriptors
        .pop()
        .ok_or_else(|| io::Error::other("no connection came"))?;
    rustix::io::ioctl_fionbio(&connection, false)?;
    let entry = Entry {
        uid: task.bounds.caller.uid,
        pid: std::process::id(),
        since_ms: task.since_ms,
        run: None,
    };
    let mut registered = match registry.register(entry) {
        Ok(registered) => registered,
        Err(error) => {
            let refused = FromSpawner::Refused(unregistered(&error));
            socket::send(&connection, &refused, &[])?;
            return Ok(1);
        }
    };
    let mut tell = |outcome: Outcome<'_>| match outcome {
        Outcome::Launched(run) => launched(line, registry, &mut registered, run),
        // A daemon that is gone needs no news.
        Outcome::Refused(fault) => drop(socket::send(line, &FromWorker::Refused(fault.clone()), &[])),
    };
    Ok(readied.serve(&connection, Some(task.bounds), &mut tell))
}

/// The name is for people: an entry without it counts as well.
fn launched(line: &OwnedFd, registry: &Registry, registered: &mut Registered, run: &RunId) {
    drop(registered.name(registry, run.clone()));
    drop(socket::send(
        line,
        &FromWorker::Launched { run: run.clone() },
        &[],
    ));
}

fn unregistered(error: &io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        "the spawner cannot note that the run exists",
        error.to_string(),
    )
    .help("check the space and the permissions of the directory beside its socket")
}
