//! The mother: makes workers, ahead and on demand, reaps them, and reads the ceiling. It has the rights, and hears the
//! front, its workers and signals; never a caller.
use super::ceiling::Ceiling;
use super::judge::FIRST_TICKET;
use super::line::{FromWorker, Task, Then, ToFront, ToMother, ToWorker};
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
use std::time::{Duration, Instant};

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

/// How long a worker that served a run waits for another of the same caller: it holds what that run was shown.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// A process that serves a run, or will.
pub(super) struct Worker {
    pid: u32,
    line: OwnedFd,
    /// `None`: it waits.
    ticket: Option<u64>,
    /// Whose it is; `None`: nobody's yet.
    whose: Option<Bounds>,
    /// What it does after its run.
    then: Then,
    /// Since when it waits, and what for.
    since: Instant,
    ready: Kept,
}

/// How far a worker is that waits for another run of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// Its sandbox was used, and it has no other.
    Spent,
    /// It was told to get ready.
    Renewing,
    /// A whole sandbox stands.
    Standing,
}

impl Worker {
    fn waits_for_anybody(&self) -> bool {
        self.ticket.is_none() && self.whose.is_none()
    }

    fn is_kept(&self) -> bool {
        self.ticket.is_none() && self.whose.is_some()
    }

    fn is_spent(&self) -> bool {
        self.is_kept() && self.ready == Kept::Spent
    }
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
            self.let_go();
            // Off the path of whoever was just served, unless soon nobody would be left to serve.
            pause = if ready.calm || (self.waiting() + self.kept()) * 2 < self.warm {
                // Where that failed, it is tried again when something happens and not before.
                self.refill();
                self.renew();
                None
            } else {
                (self.waiting() < self.warm || self.is_any_spent()).then_some(&CALM)
            };
        }
    }

    /// How many workers wait for anybody.
    fn waiting(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| worker.waits_for_anybody())
            .count()
    }

    /// How many wait for their callers, and are ready.
    fn kept(&self) -> usize {
        let ready = |worker: &&Worker| worker.is_kept() && worker.ready != Kept::Spent;
        self.workers.iter().filter(ready).count()
    }

    fn is_any_spent(&self) -> bool {
        self.workers.iter().any(Worker::is_spent)
    }

    /// Has those get ready that have nothing to begin with. One that is gone is noticed by its line.
    fn renew(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.is_spent()) {
            if socket::send(&worker.line, &ToWorker::Renew, &[]).is_ok() {
                worker.ready = Kept::Renewing;
            }
        }
    }

    /// Ends those that waited for their caller long enough.
    fn let_go(&mut self) {
        let now = Instant::now();
        self.workers
            .retain(|worker| !worker.is_kept() || now.saturating_duration_since(worker.since) < KEPT_FOR);
    }

    /// When the first of those that are kept has waited long enough.
    fn next_farewell(&self) -> Option<Duration> {
        let kept = self.workers.iter().filter(|worker| worker.is_kept());
        let first = kept.map(|worker| worker.since).min()?;
        Some((first + KEPT_FOR).saturating_duration_since(Instant::now()))
    }

    /// Who serves a run of this caller: somebody who did before and is ready, best with a sandbox that stands; else
    /// whoever waits; else somebody who has to begin anew.
    fn whoever_waits(&self, bounds: &Bounds) -> Option<usize> {
        let kept = self
            .workers
            .iter()
            .enumerate()
            .filter(|(_, worker)| worker.is_kept());
        let own = kept.filter(|(_, worker)| worker.whose.as_ref() == Some(bounds));
        let best = own.max_by_key(|(_, worker)| worker.ready);
        let anybody = || self.workers.iter().position(Worker::waits_for_anybody);
        match best {
            Some((place, worker)) if worker.ready != Kept::Spent => Some(place),
            Some((place, _)) => anybody().or(Some(place)),
            None => anybody(),
        }
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
        let farewell = self.next_farewell().map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let calm = match rustix::event::poll(&mut waiting, pause.or(farewell.as_ref())) {
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
        let (word, descriptors) = match socket::receive::<ToMother>(&self.front) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (ToMother::Serve { ticket, since_ms }, [connection, recorded]) = (word, descriptors.as_slice())
        else {
            return Err(io::Error::other("the front says what it cannot mean"));
        };
        match self.hand_on((ticket, since_ms), (connection, recorded)) {
            Ok(pid) => self.tell(&ToFront::Started { ticket, pid })?,
            Err(fault) => {
                // The connection does not block; a caller that takes nothing is let go.
                drop(socket::send(
                    connection,
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
    fn hand_on(
        &mut self,
        (ticket, since_ms): (u64, u64),
        (connection, recorded): (&OwnedFd, &OwnedFd),
    ) -> Result<u32, Fault> {
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
            then: Then::End,
        };
        loop {
            let (place, fresh) = match self.whoever_waits(&task.bounds) {
                Some(place) => (place, false),
                None => (self.make().map_err(failed)?, true),
            };
            let belonging = self
                .workers
                .iter()
                .filter(|worker| worker.then == Then::Wait)
                .count();
            let worker = &mut self.workers[place];
            // As many wait for their callers as for anybody; one that does goes on doing so.
            let task = Task {
                then: if worker.then == Then::Wait || belonging < self.warm {
                    Then::Wait
                } else {
                    Then::End
                },
                ..task.clone()
            };
            let (then, whose) = (task.then, task.bounds.clone());
            let word = ToWorker::Serve(task);
            match socket::send(&worker.line, &word, &[connection.as_fd(), recorded.as_fd()]) {
                Ok(()) => {
                    (worker.ticket, worker.then, worker.whose) = (Some(ticket), then, Some(whose));
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
                    whose: None,
                    then: Then::End,
                    since: Instant::now(),
                    ready: Kept::Spent,
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
            (Ok(Some((FromWorker::Free, _))), Some(ticket)) => {
                let free = &mut self.workers[place];
                (free.ticket, free.since, free.ready) = (None, Instant::now(), Kept::Spent);
                let pid = free.pid;
                // Before it is asked again: it notes the next run under the same name.
                self.forget(pid);
                ToFront::Ended { ticket }
            }
            // It may have been given a run while it said so.
            (Ok(Some((FromWorker::Stands, _))), _) => {
                self.workers[place].ready = Kept::Standing;
                return Ok(());
            }
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
                Some(libc::SIGCHLD) => crate::reap()?,
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
                // What waits was made within the old one.
                self.workers.retain(|worker| !worker.is_kept());
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
