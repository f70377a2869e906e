//! The mother: makes workers, ahead and on demand, reaps them, and reads the ceiling. It has the rights, and hears the
//! front, its workers and signals; never a caller.
use super::ceiling::Ceiling;
use super::judge::FIRST_TICKET;
use super::line::{FromWorker, Task, ToFront, ToMother};
use super::registry::{Adopted, Registry};
use super::worker;
use crate::Init;
use crate::bounds::{Bounds, Caller};
use bastle_contract::{Code, Fault, FromSpawner, HostFacts, seal, socket};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// How long nothing may happen before those who wait are made up to their number: making one takes the processor from
/// the run that was just asked for.
const CALM: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// The process.
pub(super) struct Mother {
    pub(super) front: OwnedFd,
    pub(super) signals: OwnedFd,
    pub(super) registry: Registry,
    pub(super) ceiling: Ceiling,
    /// Where the ceiling came from; `None`: not from a file.
    pub(super) source: Option<PathBuf>,
    pub(super) init: Init,
    /// What this host has: it is the same for every worker, and asking costs each of them.
    pub(super) facts: HostFacts,
    /// How many workers wait.
    pub(super) warm: usize,
    pub(super) adopted: Vec<(u64, Adopted)>,
    pub(super) workers: Vec<Worker>,
}

/// A process that serves a run, or will.
pub(super) struct Worker {
    pid: u32,
    line: OwnedFd,
    /// `None`: it waits.
    ticket: Option<u64>,
}

/// Why the mother ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to.
    Told,
    /// The front is gone.
    FrontLost,
}

/// What one round of waiting found.
struct Ready {
    /// Nothing, for a while.
    calm: bool,
    front: bool,
    signals: bool,
    /// Places of workers that spoke or ended.
    workers: Vec<usize>,
    /// Places of adopted ones that ended.
    adopted: Vec<usize>,
}

impl Mother {
    /// Serves until told to stop. Workers live on.
    pub(super) fn run(&mut self) -> io::Result<End> {
        self.refill();
        let mut pause = None;
        loop {
            let ready = self.wait(pause)?;
            // Words of workers before their end, and both before new ones come.
            for place in ready.workers.into_iter().rev() {
                self.hear_worker(place)?;
            }
            for place in ready.adopted.into_iter().rev() {
                let (ticket, ended) = self.adopted.swap_remove(place);
                self.forget(ended.entry.pid);
                self.tell(&ToFront::Ended { ticket })?;
            }
            if ready.signals && self.hear_signal()? {
                return Ok(End::Told);
            }
            if ready.front && !self.hear_front()? {
                return Ok(End::FrontLost);
            }
            // Off the path of whoever was just served, unless soon nobody would be left to serve.
            pause = if ready.calm || self.waiting() * 2 < self.warm {
                // Where that failed, it is tried again when something happens and not before.
                self.refill();
                None
            } else {
                (self.waiting() < self.warm).then_some(&CALM)
            };
        }
    }

    /// How many workers wait.
    fn waiting(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| worker.ticket.is_none())
            .count()
    }

    /// Waits until something happens, or for the pause.
    fn wait(&self, pause: Option<&Timespec>) -> io::Result<Ready> {
        let mut waiting = vec![
            PollFd::new(&self.front, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        waiting.extend(
            self.workers
                .iter()
                .map(|worker| PollFd::new(&worker.line, PollFlags::IN)),
        );
        waiting.extend(
            self.adopted
                .iter()
                .map(|(_, adopted)| PollFd::new(&adopted.pidfd, PollFlags::IN)),
        );
        let calm = match rustix::event::poll(&mut waiting, pause) {
            Ok(count) => count == 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        let is = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let count = self.workers.len();
        let places = |from: usize, count: usize| (0..count).filter(|place| is(from + place)).collect();
        Ok(Ready {
            calm,
            front: is(0),
            signals: is(1),
            workers: places(2, count),
            adopted: places(2 + count, self.adopted.len()),
        })
    }

    /// A word of the front; `false` when it is gone.
    fn hear_front(&mut self) -> io::Result<bool> {
        let (word, mut descriptors) = match socket::receive::<ToMother>(&self.front) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (ToMother::Serve { ticket, since_ms }, Some(connection)) = (word, descriptors.pop()) else {
            return Err(io::Error::other("the front says what it cannot mean"));
        };
        match self.hand_on((ticket, since_ms), &connection) {
            Ok(pid) => self.tell(&ToFront::Started { ticket, pid })?,
            Err(fault) => {
                // The connection does not block; a caller that takes nothing is let go.
                drop(socket::send(
                    &connection,
                    &FromSpawner::Refused(fault.clone()),
                    &[],
                ));
                self.tell(&ToFront::Refused { ticket, fault })?;
                self.tell(&ToFront::Ended { ticket })?;
            }
        }
        Ok(true)
    }

    /// Gives a connection to a worker, for whom the kernel says it is.
    fn hand_on(&mut self, (ticket, since_ms): (u64, u64), connection: &OwnedFd) -> Result<u32, Fault> {
        let failed = |error: io::Error| {
            Fault::new(
                Code::FenceLost,
                "the spawner cannot start a worker",
                error.to_string(),
            )
        };
        let (caller, _) = Caller::of(connection).map_err(failed)?;
        let named = self.ceiling.find(&caller).ok_or_else(|| {
            Fault::new(
                Code::SpawnCaller,
                format!("the spawner does not serve uid {}", caller.uid),
                "its ceiling file has changed",
            )
        })?;
        let task = Task {
            bounds: Bounds {
                caller,
                allowance: named.allowance.clone(),
            },
            since_ms,
        };
        loop {
            let waiting = self.workers.iter().position(|worker| worker.ticket.is_none());
            let (place, fresh) = match waiting {
                Some(place) => (place, false),
                None => (self.make().map_err(failed)?, true),
            };
            let worker = &mut self.workers[place];
            match socket::send(&worker.line, &task, &[connection.as_fd()]) {
                Ok(()) => {
                    worker.ticket = Some(ticket);
                    return Ok(worker.pid);
                }
                Err(error) if fresh => return Err(failed(error)),
                // It ended while it waited; it is reaped when its signal is heard.
                Err(_) => drop(self.workers.swap_remove(place)),
            }
        }
    }

    /// Makes a worker; gives its place.
    fn make(&mut self) -> io::Result<usize> {
        let (ours, theirs) = socket::pair()?;
        match clone_into(Namespaces::NONE, None)? {
            Cloned::Child => worker::live(&theirs, &self.registry, (self.init, &self.facts)),
            Cloned::Parent { pid, pidfd: _ } => {
                self.workers.push(Worker {
                    pid,
                    line: ours,
                    ticket: None,
                });
                Ok(self.workers.len() - 1)
            }
        }
    }

    /// As many as are to wait. Where none can be made now, those who ask are told why, and it is tried again then.
    fn refill(&mut self) {
        for _ in self.waiting()..self.warm {
            if let Err(error) = self.make() {
                eprintln!("bastle: no worker can be made ahead: {error}");
                return;
            }
        }
    }

    /// An entry that stays behind is found without its lock by the next daemon.
    fn forget(&self, pid: u32) {
        if let Err(error) = self.registry.forget_worker(pid) {
            eprintln!("bastle: the entry of worker {pid} stays behind: {error}");
        }
    }

    /// A worker's word, or its end.
    fn hear_worker(&mut self, place: usize) -> io::Result<()> {
        let worker = &self.workers[place];
        let word = socket::receive::<FromWorker>(&worker.line);
        let word = match (word, worker.ticket) {
            (Ok(Some((FromWorker::Launched { run }, _))), Some(ticket)) => ToFront::Launched { ticket, run },
            (Ok(Some((FromWorker::Refused(fault), _))), Some(ticket)) => ToFront::Refused { ticket, fault },
            // It ended, or speaks before it was asked.
            (Ok(Some(_)), None) | (Ok(None) | Err(_), _) => {
                let gone = self.workers.swap_remove(place);
                self.forget(gone.pid);
                let Some(ticket) = gone.ticket else {
                    return Ok(());
                };
                ToFront::Ended { ticket }
            }
        };
        self.tell(&word)
    }

    /// `true` when told to stop.
    fn hear_signal(&mut self) -> io::Result<bool> {
        // Each record of the kernel has 128 bytes and begins with the number.
        let mut bytes = [0_u8; 128];
        let mut stop = false;
        while let Ok(128) = rustix::io::read(&self.signals, &mut bytes) {
            let number = bytes.first_chunk::<4>().map(|number| i32::from_ne_bytes(*number));
            match number {
                Some(libc::SIGCHLD) => reap()?,
                Some(libc::SIGHUP) => self.reload()?,
                Some(_) | None => stop = true,
            }
        }
        Ok(stop)
    }

    /// Reads the ceiling again. A file that is refused changes nothing.
    fn reload(&mut self) -> io::Result<()> {
        let Some(source) = &self.source else {
            eprintln!("bastle: the spawner has no ceiling file to read again");
            return Ok(());
        };
        match Ceiling::load(source) {
            Ok(ceiling) => {
                let document = seal("bastle-ceiling", &serde_json::to_vec(&ceiling)?)?;
                self.ceiling = ceiling;
                socket::send(&self.front, &ToFront::Ceiling, &[document.as_fd()])?;
                eprintln!("bastle: the ceiling was read again");
            }
            Err(fault) => eprintln!("bastle: {fault}; the old ceiling stays"),
        }
        Ok(())
    }

    fn tell(&self, word: &ToFront) -> io::Result<()> {
        socket::send(&self.front, word, &[])
    }
}

/// Numbers those that an earlier daemon made.
pub(super) fn numbered(adopted: Vec<Adopted>) -> Vec<(u64, Adopted)> {
    (0..FIRST_TICKET).zip(adopted).collect()
}

/// Takes the status of every child that ended: their lines have told the rest.
fn reap() -> io::Result<()> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for the front's end after it was told.
pub(super) fn wait_for(pid: u32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(_) | Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
