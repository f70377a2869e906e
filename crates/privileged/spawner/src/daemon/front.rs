//! The front: accepts connections, judges who asks, counts, and hands what may go on to the mother.
//!
//! **Trust:** it is the one process of the daemon that reads what callers send, so it has no rights of its own and only
//! what was open before. One thread, one loop; no caller can make it wait or grow.
use super::ceiling::Ceiling;
use super::journal::Journal;
use super::judge::{self, Books, Half, Judged};
use super::line::{ToFront, ToMother};
use bastle_contract::spawner::FromDaemon;
use bastle_contract::{Code, Fault, HostFacts, read_sealed, socket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use serde_json::json;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections that are accepted in one round: then those that wait longer get their turn.
const PER_ROUND: usize = 64;
/// Connections on their way to a worker. More would fill the line to the mother.
const MOST_UNDER_WAY: usize = 32;
/// How long records of things that have happened already may wait for the disk.
const SOON: Duration = Duration::from_millis(200);

/// The process.
pub(super) struct Front {
    listener: OwnedFd,
    line: OwnedFd,
    journal: Journal,
    books: Books,
    half: Vec<Half>,
    /// Where first words are received.
    buffer: Vec<u8>,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

impl Front {
    pub(super) fn new(
        (listener, line): (OwnedFd, OwnedFd),
        journal: Journal,
        (ceiling, facts): (Ceiling, HostFacts),
        adopted: &[super::registry::Entry],
    ) -> Self {
        Self {
            listener,
            line,
            journal,
            books: Books::new(ceiling, facts, adopted),
            half: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Serves until the mother is gone or says so.
    pub(super) fn run(mut self) -> io::Result<()> {
        loop {
            let (spoke, knock, words) = self.wait()?;
            if spoke && self.hear()? == Next::End {
                break;
            }
            let now = Instant::now();
            let mut judged = Vec::new();
            self.first_words(&words, now, &mut judged);
            if knock {
                // Whoever knocks mostly has said already what it wants.
                let new = self.accept(now, &mut judged)?;
                self.first_words(&new, now, &mut judged);
            }
            self.expire(now, &mut judged);
            self.settle(judged, now)?;
        }
        // Nobody is left to tell; the mother looks at the log itself.
        self.journal.end().map_err(io::Error::other)
    }

    /// Waits for the mother, a new connection, or the first word on one.
    fn wait(&mut self) -> io::Result<(bool, bool, Vec<usize>)> {
        let paused = self.books.under_way() >= MOST_UNDER_WAY;
        let mut waiting = vec![
            PollFd::new(&self.line, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        if !paused {
            let half = self.half.iter();
            waiting.extend(half.map(|half| PollFd::new(&half.connection, PollFlags::IN)));
        }
        let timeout = timeout(&self.half, &self.journal);
        match rustix::event::poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let words = (2..waiting.len())
            .filter(|index| is(*index))
            .map(|index| index - 2)
            .collect();
        Ok((is(0), is(1), words))
    }

    /// Everything that the mother says.
    fn hear(&mut self) -> io::Result<Next> {
        loop {
            let (word, descriptors) = match socket::receive::<ToFront>(&self.line) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(Next::End),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::GoOn),
                Err(error) => return Err(error),
            };
            match word {
                ToFront::Stop => return Ok(Next::End),
                ToFront::Ceiling => {
                    let document = descriptors
                        .first()
                        .ok_or_else(|| io::Error::other("no ceiling came"))?;
                    let ceiling = read_sealed(document, super::MOST_CEILING, "the ceiling");
                    self.books.change(ceiling.map_err(io::Error::other)?);
                    self.note(&json!({ "verdict": "reloaded" }));
                }
                ToFront::Started { ticket, pid } => self.books.started(ticket, pid),
                ToFront::Launched { ticket, run } => {
                    let uid = self.books.launched(ticket, run.clone());
                    self.note(&json!({ "verdict": "launched", "worker": ticket, "uid": uid, "run": run }));
                }
                ToFront::Refused { ticket, fault } => {
                    let record = json!({
                        "verdict": "refused", "worker": ticket, "uid": self.books.uid(ticket),
                        "code": fault.code, "what": fault.what, "why": fault.why,
                    });
                    self.note(&record);
                }
                ToFront::Ended { ticket } => {
                    let uid = self.books.ended(ticket);
                    self.note(&json!({ "verdict": "ended", "worker": ticket, "uid": uid }));
                }
            }
        }
    }

    /// Records what has happened already. Should that fail, the next request is refused.
    fn note(&mut self, what: &serde_json::Value) {
        drop(self.journal.record(what));
    }

    /// Accepts whoever knocks; the places of those that may speak.
    fn accept(&mut self, now: Instant, judged: &mut Vec<Judged>) -> io::Result<Vec<usize>> {
        let first = self.half.len();
        for _ in 0..PER_ROUND {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let connection = match rustix::net::accept_with(&self.listener, flags) {
                Ok(connection) => connection,
                Err(Errno::AGAIN) => break,
                // The caller is gone again, or too many descriptors are open: the next round finds out.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::MFILE | Errno::NFILE) => break,
                Err(error) => return Err(error.into()),
            };
            match self.books.welcome(connection, &self.half, now) {
                Ok(half) => self.half.push(half),
                Err(refused) => judged.push(*refused),
            }
        }
        Ok((first..self.half.len()).collect())
    }

    /// Reads the first frame of every connection that sent one. From behind, so that places stay as they are.
    fn first_words(&mut self, places: &[usize], now: Instant, judged: &mut Vec<Judged>) {
        for place in places.iter().rev() {
            if self.books.under_way() >= MOST_UNDER_WAY || *place >= self.half.len() {
                continue;
            }
            let word = judge::first_word(&self.half[*place], &mut self.buffer);
            let Some(word) = word else { continue };
            let half = self.half.swap_remove(*place);
            match word {
                Ok(None) => {}
                Ok(Some(word)) => judged.push(self.books.judge(half, &word)),
                Err(fault) => judged.push(Judged::Refuse(half, fault)),
            }
        }
        // Those that could not have their turn are not to be punished for it.
        if self.books.under_way() >= MOST_UNDER_WAY {
            for half in &mut self.half {
                half.until = half.until.max(now + judge::SILENCE / 2);
            }
        }
    }

    fn expire(&mut self, now: Instant, judged: &mut Vec<Judged>) {
        let late = |half: &Half| half.until <= now;
        while let Some(place) = self.half.iter().position(late) {
            let half = self.half.swap_remove(place);
            let fault = Fault::new(
                Code::SpawnFrame,
                "the spawner closed a connection on which nothing was said",
                "",
            );
            judged.push(Judged::Refuse(half, fault));
        }
    }

    /// Records everything of this round and makes it durable once. Nothing has an effect before: answers wait for it, and
    /// whoever serves a run waits for the word; what leads up to that goes on meanwhile.
    fn settle(&mut self, judged: Vec<Judged>, now: Instant) -> io::Result<()> {
        if judged.is_empty() {
            if self.journal.is_pending() {
                drop(self.journal.commit());
            }
            return Ok(());
        }
        let mut recorded = Ok(());
        let mut served = Vec::new();
        for one in &judged {
            let next = match one {
                Judged::Refuse(half, fault) => self.journal.refusal(half.who(), fault, now),
                Judged::Serve(half, ticket) => {
                    let (uid, pid) = half.who();
                    let what = json!({ "verdict": "accepted", "worker": ticket, "uid": uid, "pid": pid });
                    served.push((*ticket, self.pass_on(half, *ticket)?));
                    self.journal.record(&what)
                }
                Judged::Answer(..) => Ok(()),
            };
            recorded = recorded.and(next);
        }
        let recorded = recorded.and_then(|()| self.journal.commit());
        for word in served.iter().filter_map(|(_, word)| word.as_ref()) {
            if recorded.is_ok() {
                // A worker that is gone needs none.
                rustix::io::write(word, &[1]).unwrap_or_default();
            }
        }
        for one in judged {
            match one {
                Judged::Refuse(half, fault) => answer(&half, &FromDaemon::Refused(fault)),
                Judged::Answer(half, word) => answer(&half, &word),
                Judged::Serve(half, ticket) => {
                    if served
                        .iter()
                        .any(|(other, word)| *other == ticket && word.is_none())
                    {
                        self.books.ended(ticket);
                        answer(&half, &FromDaemon::Refused(too_many_open()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands a connection to the mother; gives what the word is said through. Closed without one, it means no. `None`: it
    /// was not handed on, because nothing more can be opened.
    fn pass_on(&self, half: &Half, ticket: u64) -> io::Result<Option<OwnedFd>> {
        let Ok((theirs, ours)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
            return Ok(None);
        };
        let since_ms = self.books.since(ticket);
        let word = ToMother::Serve { ticket, since_ms };
        socket::send(&self.line, &word, &[half.connection.as_fd(), theirs.as_fd()])?;
        Ok(Some(ours))
    }
}

fn too_many_open() -> Fault {
    Fault::new(Code::SpawnRate, "too many connections to the spawner at once", "")
}

/// Answers and lets the connection go. A caller that is gone, or takes nothing, has itself to blame.
fn answer(half: &Half, word: &FromDaemon) {
    // What was sent and not read would reach the caller as an error, before the answer.
    let mut rest = [0_u8; 1];
    rustix::net::recv(&half.connection, &mut rest, RecvFlags::DONTWAIT).unwrap_or_default();
    drop(socket::send(&half.connection, word, &[]));
}

fn timeout(half: &[Half], journal: &Journal) -> Option<Timespec> {
    let deadline = half.iter().map(|half| half.until).min();
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let soon = journal.is_pending().then_some(SOON);
    let wait = left.into_iter().chain(soon).min()?;
    Some(Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    })
}
