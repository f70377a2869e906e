//! A worker: one process, one connection, one run at a time. It is a copy of the mother, may be made ahead, and serves one
//! caller for as long as it lives: after a run it may wait for the next one of the same, never for one of another.
//!
//! It does not end with the daemon: the run goes on, and its caller's connection is the worker's own.
use super::line::{FromWorker, Task, Then, ToWorker};
use super::registry::{Entry, Registered, Registry};
use crate::bounds::Bounds;
use crate::identity::Claims;
use crate::{Init, Moment, Outcome, Readied};
use bastle_contract::{Code, Fault, HostFacts, RunId, socket};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::cell::RefCell;
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
    let mut readied = Readied::make(init, Claims::Byte, || facts.clone())?;
    let mut whose = None;
    loop {
        match await_word(line, &mut readied)? {
            // The daemon is gone or needs it no more, and nobody will ask again.
            None => return Ok(0),
            Some((ToWorker::Renew, _)) => {
                if let Some(bounds) = &whose {
                    readied.renew(bounds)?;
                    tell_if_standing(line, &readied)?;
                }
            }
            Some((ToWorker::Serve(task), mut descriptors)) => {
                let Task {
                    bounds,
                    since_ms,
                    then,
                } = task;
                let (Some(recorded), Some(connection)) = (descriptors.pop(), descriptors.pop()) else {
                    return Err(io::Error::other("no connection came"));
                };
                let ends = (connection, recorded);
                let code = serve_one(line, registry, &mut readied, (ends, since_ms, &bounds))?;
                match then {
                    Then::End => return Ok(code),
                    Then::Wait => socket::send(line, &FromWorker::Free, &[])?,
                }
                // One that was not taken: its caller changed its mind.
                tell_if_standing(line, &readied)?;
                whose = Some(bounds);
            }
        }
    }
}

fn tell_if_standing(line: &OwnedFd, readied: &Readied) -> io::Result<()> {
    if readied.stands() {
        socket::send(line, &FromWorker::Stands, &[])?;
    }
    Ok(())
}

/// The next word of the mother; meanwhile a sandbox may come to stand.
fn await_word(line: &OwnedFd, readied: &mut Readied) -> io::Result<Option<(ToWorker, Vec<OwnedFd>)>> {
    loop {
        let mut waiting = vec![PollFd::new(line, PollFlags::IN)];
        waiting.extend(
            readied
                .under_way()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        match rustix::event::poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
        if is(0) {
            return socket::receive::<ToWorker>(line);
        }
        if is(1) && readied.hear().map_err(io::Error::other)? {
            socket::send(line, &FromWorker::Stands, &[])?;
        }
    }
}

/// The connection of a run, and the pipe that says when its acceptance is on record.
type Ends = (OwnedFd, OwnedFd);

/// One run, from its connection to its end.
fn serve_one(
    line: &OwnedFd,
    registry: &Registry,
    readied: &mut Readied,
    ((connection, recorded), since_ms, bounds): (Ends, u64, &Bounds),
) -> io::Result<u8> {
    rustix::io::ioctl_fionbio(&connection, false)?;
    let entry = Entry {
        uid: bounds.caller.uid,
        pid: std::process::id(),
        since_ms,
        run: None,
    };
    let registered = RefCell::new(None);
    let mut on_record = false;
    let mut first = |moment| match moment {
        Moment::Greeted => {
            let entered = registry
                .register(entry.clone())
                .map_err(|error| unregistered(&error))?;
            *registered.borrow_mut() = Some(entered);
            Ok(())
        }
        Moment::Launching if on_record => Ok(()),
        // The front says so when it is on disk, and closes its end when it will not be.
        Moment::Launching => {
            let mut byte = [0];
            let said = rustix::io::retry_on_intr(|| rustix::io::read(&recorded, &mut byte));
            on_record = said == Ok(1);
            if on_record { Ok(()) } else { Err(unrecorded()) }
        }
    };
    let mut tell = |outcome: Outcome<'_>| match outcome {
        Outcome::Launched(run) => launched(line, registry, registered.borrow_mut().as_mut(), run),
        // A daemon that is gone needs no news.
        Outcome::Refused(fault) => drop(socket::send(line, &FromWorker::Refused(fault.clone()), &[])),
    };
    Ok(readied.serve(&connection, Some(bounds.clone()), &mut first, &mut tell))
}

/// The name is for people: an entry without it counts as well.
fn launched(line: &OwnedFd, registry: &Registry, registered: Option<&mut Registered>, run: &RunId) {
    drop(registered.map(|registered| registered.name(registry, run.clone())));
    drop(socket::send(
        line,
        &FromWorker::Launched { run: run.clone() },
        &[],
    ));
}

/// The fault for an acceptance that did not come onto the disk.
fn unrecorded() -> Fault {
    Fault::new(
        Code::AuditWrite,
        "the spawner cannot write its audit log",
        "the run was accepted, and that is not on the disk",
    )
    .help("free disk space, then: systemctl restart bastle-spawner")
}

fn unregistered(error: &io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        "the spawner cannot note that the run exists",
        error.to_string(),
    )
    .help("check the space and the permissions of the directory beside its socket")
}
