//! Who may ask, how often, and whether there is room: the books of the front. Decides; does nothing.
use super::bucket::Bucket;
use super::ceiling::{Ceiling, Named};
use super::registry::Entry;
use crate::bounds::{Caller, Reach};
use bastle_contract::spawner::{FromDaemon, MAX_LISTED, Probed, ToDaemon, WorkerSeen};
use bastle_contract::{Code, Fault, HostFacts, MAX_FRAME, RunId, WIRE_VERSION};
use rustix::net::RecvFlags;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a connection may say nothing.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// Connections that have said nothing yet.
const MOST_HALF_OPEN: usize = 256;
/// The same, of one caller.
const MOST_HALF_OPEN_EACH: usize = 32;

/// A connection that has said nothing yet.
pub(super) struct Half {
    pub(super) connection: OwnedFd,
    pub(super) until: Instant,
    /// Nobody, where the kernel could not say.
    caller: Caller,
    pid: u32,
}

/// What becomes of a connection.
pub(super) enum Judged {
    /// It gets the fault.
    Refuse(Half, Fault),
    /// It gets an answer.
    Answer(Half, FromDaemon),
    /// It gets a worker.
    Serve(Half, u64),
}

/// One run, or a place kept for one.
struct Worker {
    uid: u32,
    pid: u32,
    since_ms: u64,
    run: Option<RunId>,
    /// It was handed over, and nobody has said yet that it arrived.
    under_way: bool,
}

/// What the front knows.
pub(super) struct Books {
    ceiling: Ceiling,
    facts: HostFacts,
    workers: BTreeMap<u64, Worker>,
    buckets: HashMap<u32, Bucket>,
    next: u64,
}

impl Half {
    /// User and process.
    pub(super) fn who(&self) -> (u32, u32) {
        (self.caller.uid, self.pid)
    }
}

/// Tickets of workers that an earlier daemon made: its own begin above.
pub(super) const FIRST_TICKET: u64 = 1 << 32;

impl Books {
    pub(super) fn new(ceiling: Ceiling, facts: HostFacts, adopted: &[Entry]) -> Self {
        let adopted = adopted.iter().enumerate().map(|(index, entry)| {
            let worker = Worker {
                uid: entry.uid,
                pid: entry.pid,
                since_ms: entry.since_ms,
                run: entry.run.clone(),
                under_way: false,
            };
            (index as u64, worker)
        });
        Self {
            ceiling,
            facts,
            workers: adopted.collect(),
            buckets: HashMap::new(),
            next: FIRST_TICKET,
        }
    }

    /// Another ceiling holds. Runs that live keep what they have.
    pub(super) fn change(&mut self, ceiling: Ceiling) {
        self.ceiling = ceiling;
    }

    /// How many were handed over and have not arrived.
    pub(super) fn under_way(&self) -> usize {
        self.workers.values().filter(|worker| worker.under_way).count()
    }

    /// Judges a new connection by who made it.
    pub(super) fn welcome(
        &mut self,
        connection: OwnedFd,
        waiting: &[Half],
        now: Instant,
    ) -> Result<Half, Box<Judged>> {
        let (caller, pid, known) = match Caller::of(&connection) {
            Ok((caller, pid)) => (caller, pid, true),
            Err(_) => (
                Caller {
                    uid: u32::MAX,
                    gid: u32::MAX,
                    groups: Vec::new(),
                },
                0,
                false,
            ),
        };
        let half = Half {
            connection,
            until: now + SILENCE,
            caller,
            pid,
        };
        let Some(named) = self.ceiling.find(&half.caller).filter(|_| known) else {
            let fault = not_named(&half.caller);
            return Err(Box::new(Judged::Refuse(half, fault)));
        };
        let rate = named.rate;
        self.buckets
            .retain(|uid, bucket| *uid == half.caller.uid || !bucket.is_idle(now));
        let bucket = self.buckets.entry(half.caller.uid);
        if let Err(wait) = bucket.or_insert_with(|| Bucket::full(rate, now)).take(rate, now) {
            return Err(Box::new(Judged::Refuse(half, too_fast(wait))));
        }
        let own = waiting.iter().filter(|other| other.caller.uid == half.caller.uid);
        if waiting.len() >= MOST_HALF_OPEN || own.count() >= MOST_HALF_OPEN_EACH {
            return Err(Box::new(Judged::Refuse(half, too_silent())));
        }
        Ok(half)
    }

    /// Judges a first word.
    pub(super) fn judge(&mut self, half: Half, word: &ToDaemon) -> Judged {
        // The ceiling may have changed since it was welcomed.
        let Some(named) = self.ceiling.find(&half.caller) else {
            let fault = not_named(&half.caller);
            return Judged::Refuse(half, fault);
        };
        match word {
            ToDaemon::List { .. } => {
                let listed = self.list(&half.caller);
                Judged::Answer(half, listed)
            }
            ToDaemon::Probe { .. } => {
                let probed = self.probe(&half.caller, named);
                Judged::Answer(half, FromDaemon::Probed(Box::new(probed)))
            }
            ToDaemon::Hello { .. } => {
                let own = self.count(half.caller.uid);
                let room = [
                    (own, named.max_workers, "of this caller"),
                    (self.workers.len(), self.ceiling.max_workers, "of all callers"),
                ];
                let full = room.into_iter().find(|(count, most, _)| *count >= *most as usize);
                if let Some((count, _, whose)) = full {
                    return Judged::Refuse(half, no_room(count, whose));
                }
                let ticket = self.next;
                self.next += 1;
                let worker = Worker {
                    uid: half.caller.uid,
                    pid: 0,
                    since_ms: now_ms(),
                    run: None,
                    under_way: true,
                };
                self.workers.insert(ticket, worker);
                Judged::Serve(half, ticket)
            }
        }
    }

    pub(super) fn started(&mut self, ticket: u64, pid: u32) {
        if let Some(worker) = self.workers.get_mut(&ticket) {
            (worker.pid, worker.under_way) = (pid, false);
        }
    }

    pub(super) fn launched(&mut self, ticket: u64, run: RunId) -> Option<u32> {
        let worker = self.workers.get_mut(&ticket)?;
        worker.run = Some(run);
        Some(worker.uid)
    }

    pub(super) fn uid(&self, ticket: u64) -> Option<u32> {
        self.workers.get(&ticket).map(|worker| worker.uid)
    }

    /// When it was accepted.
    pub(super) fn since(&self, ticket: u64) -> u64 {
        self.workers.get(&ticket).map_or(0, |worker| worker.since_ms)
    }

    pub(super) fn ended(&mut self, ticket: u64) -> Option<u32> {
        self.workers.remove(&ticket).map(|worker| worker.uid)
    }

    fn count(&self, uid: u32) -> usize {
        self.workers.values().filter(|worker| worker.uid == uid).count()
    }

    fn list(&self, caller: &Caller) -> FromDaemon {
        let seen = |worker: &&Worker| caller.uid == 0 || worker.uid == caller.uid;
        let all: Vec<&Worker> = self.workers.values().filter(seen).collect();
        let workers = all.iter().take(MAX_LISTED).map(|worker| WorkerSeen {
            run: worker.run.clone(),
            uid: worker.uid,
            pid: worker.pid,
            since_ms: worker.since_ms,
        });
        FromDaemon::Listed {
            workers: workers.collect(),
            more: all.len().saturating_sub(MAX_LISTED) as u64,
        }
    }

    fn probe(&self, caller: &Caller, named: &Named) -> Probed {
        Probed {
            version: WIRE_VERSION,
            facts: self.facts.clone(),
            workers: self.workers.len() as u64,
            max_workers: u64::from(self.ceiling.max_workers),
            own: self.count(caller.uid) as u64,
            own_max: u64::from(named.max_workers),
            roots: match &named.allowance.reach {
                Reach::Anywhere => None,
                Reach::Below(roots) => Some(roots.clone()),
            },
        }
    }
}

/// The first frame of a connection. `None`: there is nothing yet. `Ok(None)`: the caller is gone.
pub(super) fn first_word(half: &Half, bytes: &mut Vec<u8>) -> Option<Result<Option<ToDaemon>, Fault>> {
    // One more than a frame may have: a longer one is noticed.
    bytes.resize(MAX_FRAME + 1, 0);
    // Descriptors that come along are closed by the kernel: a first word has none.
    let length = match rustix::net::recv(&half.connection, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
        Ok((_, 0)) => return Some(Ok(None)),
        Ok((length, _)) => length,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
        Err(_) => return Some(Ok(None)),
    };
    let Some(frame) = bytes.get(..length) else {
        return Some(Err(malformed(format!("it is larger than {MAX_FRAME} bytes"))));
    };
    Some(understand(frame).map(Some))
}

/// A frame of another version may have other fields: its version alone says so.
fn understand(frame: &[u8]) -> Result<ToDaemon, Fault> {
    #[derive(Deserialize)]
    struct Spoken {
        version: u32,
    }
    let word = bastle_contract::decode::<ToDaemon>(frame);
    let spoken = match &word {
        Ok(word) => Some(word.version()),
        Err(_) => serde_json::from_slice::<Spoken>(frame)
            .ok()
            .map(|spoken| spoken.version),
    };
    if let Some(version) = spoken.filter(|version| *version != WIRE_VERSION) {
        return Err(Fault::new(
            Code::SpawnVersion,
            format!("the spawner speaks version {WIRE_VERSION}, not {version}"),
            "it was built from another version than the program that asks",
        )
        .help("install one version of both, then: systemctl restart bastle-spawner"));
    }
    word.map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        malformed(cause.unwrap_or_else(|| error.to_string()))
    })
}

fn malformed(why: String) -> Fault {
    Fault::new(
        Code::SpawnFrame,
        "the spawner does not understand the request",
        why,
    )
}

fn not_named(caller: &Caller) -> Fault {
    Fault::new(
        Code::SpawnCaller,
        format!("the spawner does not serve uid {}", caller.uid),
        "its ceiling file names neither the user nor one of its groups",
    )
    .help("have an administrator add it to /etc/bastle/ceiling.json, then: systemctl reload bastle-spawner")
}

fn too_fast(wait: Duration) -> Fault {
    Fault::new(
        Code::SpawnRate,
        "too many requests to the spawner",
        format!("the next one is served in {} ms", wait.as_millis().max(1)),
    )
}

fn too_silent() -> Fault {
    Fault::new(
        Code::SpawnRate,
        "too many connections to the spawner wait without a word",
        "",
    )
}

fn no_room(count: usize, whose: &str) -> Fault {
    Fault::new(
        Code::SpawnWorkers,
        "the spawner has no room for another run",
        format!("{count} runs {whose} live, and no more may"),
    )
    .help("bastle ps shows them")
}

/// Wall-clock time, for people; nothing is decided by it.
pub(super) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
