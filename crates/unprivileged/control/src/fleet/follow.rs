//! One thread that follows every run: its file of events, and the life of its keeper.
//!
//! Events are read from the files that keepers write, not from their sockets: a keeper is never slowed down, a reader
//! that was away goes on where it was, and what a dead keeper wrote is still there. The kernel tells when a file grew
//! (inotify) and when a keeper ended (a descriptor of the process), so nothing is asked again and again.
mod files;

use super::ingest::{self, Fresh};
use super::keepers::{self, Kept, Started};
use super::tail::Tail;
use super::words::{either_way, now_ms};
use super::{Inner, foreground, rows};
use crate::runs::{EventReader, RunDir, make_findings_directory, with_findings};
use crate::store::{int, uint};
use bastle_contract::runs::RunFile;
use bastle_contract::{Fault, RunId};
use rustix::event::epoll;
use rustix::fs::inotify;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const FILES: u64 = 1;
/// Keepers have keys from here on.
const KEEPERS: u64 = 16;
/// Most events of one run that are recorded at once.
const MOST_AT_ONCE: usize = 256;
/// How often a run is looked at that the kernel cannot tell about.
const BLIND: Duration = Duration::from_secs(1);
/// How often old things are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// How often runs are looked for that ended long ago.
const PRUNING: Duration = Duration::from_secs(3600);

/// What the follower is told.
pub(super) enum Order {
    /// A run is to be followed; the keeper is our child if it was started here.
    Follow(RunId, Option<Started>),
    /// A run was removed.
    Forget(RunId),
}

struct Followed {
    dir: RunDir,
    tail: Tail,
    events: Option<i32>,
    directory: Option<i32>,
    child: Option<Started>,
    keeper: Option<(u64, OwnedFd)>,
}

pub(super) struct Follower {
    inner: Arc<Inner>,
    epoll: OwnedFd,
    inotify: OwnedFd,
    runs: BTreeMap<RunId, Followed>,
    watches: BTreeMap<i32, RunId>,
    keys: BTreeMap<u64, RunId>,
    next_key: u64,
    /// The directory of all runs, and those in it that are not whole yet.
    all: Option<i32>,
    unborn: BTreeMap<i32, RunId>,
    /// The directory of findings in the foreground, and the runs whose files grew.
    findings: Option<i32>,
    unusual: BTreeSet<RunId>,
    blind: BTreeSet<RunId>,
    /// Runs whose news could not be read or recorded: nothing tells about those again.
    late: BTreeSet<RunId>,
    next_housekeeping: Instant,
    next_pruning: Instant,
}

impl Follower {
    pub(super) fn new(inner: Arc<Inner>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64;
        epoll::add(&epoll, &inner.wake, data(WAKE), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &inotify, data(FILES), epoll::EventFlags::IN)?;
        let runs = inner.options.state.join("runs");
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        let all = inotify::add_watch(&inotify, &runs, flags).ok();
        let findings = make_findings_directory(&inner.options.state).and_then(|directory| {
            let grew = inotify::WatchFlags::MODIFY;
            Ok(inotify::add_watch(&inotify, &directory, grew)?)
        });
        let findings = findings
            .inspect_err(|error| inner.trouble(&format!("findings: {error}")))
            .ok();
        // After the watch: what is written meanwhile is told.
        let unusual = foreground::recover(&inner);
        Ok(Self {
            inner,
            epoll,
            inotify,
            runs: BTreeMap::new(),
            watches: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: KEEPERS,
            all,
            unborn: BTreeMap::new(),
            findings,
            unusual,
            blind: BTreeSet::new(),
            late: BTreeSet::new(),
            next_housekeeping: Instant::now(),
            // At once: a daemon that is restarted often cleans up all the same.
            next_pruning: Instant::now(),
        })
    }

    /// Follows until the fleet is closed.
    pub(super) fn work(mut self) {
        while !self.inner.is_closing() {
            let mut dirty = BTreeSet::new();
            if self.wait(&mut dirty).is_err() {
                // Nothing can be followed any more; runs live on and are found again at the next start.
                self.inner.trouble("the follower of runs stopped");
                return;
            }
            for order in self.inner.orders() {
                match order {
                    Order::Follow(name, child) => {
                        self.follow(&name, child);
                        dirty.insert(name);
                    }
                    Order::Forget(name) => self.forget(&name),
                }
            }
            self.catch_up(dirty);
            self.unusual = foreground::take(&self.inner, std::mem::take(&mut self.unusual));
            if Instant::now() >= self.next_housekeeping {
                self.next_housekeeping = Instant::now() + HOUSEKEEPING;
                super::housekeeping::tidy_up(&self.inner);
                if self.findings.is_none() {
                    // The kernel tells nothing about them.
                    self.unusual.extend(with_findings(&self.inner.options.state));
                }
                bastle_sys::memory::give_back();
                // What could not be done before is tried again.
                self.inner.errand();
                if Instant::now() >= self.next_pruning {
                    self.next_pruning = Instant::now() + PRUNING;
                    self.inner.errand_of_time();
                }
            }
        }
    }

    fn wait(&mut self, dirty: &mut BTreeSet<RunId>) -> std::io::Result<()> {
        let mut most = self.next_housekeeping.saturating_duration_since(Instant::now());
        if !self.blind.is_empty() || !self.late.is_empty() || !self.unusual.is_empty() {
            most = most.min(BLIND);
        }
        let timeout = rustix::time::Timespec::try_from(most).ok();
        let mut events = Vec::with_capacity(64);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let key = event.data.u64();
            match key {
                WAKE => {
                    let mut counter = [0; 8];
                    // Only resets the counter; the orders themselves are in a list.
                    either_way(rustix::io::read(&self.inner.wake, &mut counter));
                }
                FILES => self.files(dirty)?,
                _ => {
                    if let Some(name) = self.keys.get(&key) {
                        dirty.insert(name.clone());
                    }
                }
            }
        }
        dirty.extend(self.blind.iter().cloned());
        dirty.append(&mut self.late);
        Ok(())
    }

    /// Begins to follow a run, or takes the child of one that is followed.
    pub(super) fn follow(&mut self, name: &RunId, child: Option<Started>) {
        if !self.runs.contains_key(name) {
            // Whole by now, and watched from here on for its own sake.
            self.unborn.retain(|_, unborn| unborn != name);
            let Ok(dir) = RunDir::open(&self.inner.options.state, name) else {
                self.inner.trouble(&format!("the directory of {name} is gone"));
                return;
            };
            let place = self.inner.store.read(|db| {
                Ok(db
                    .prepare_cached("SELECT events_at, last_event FROM runs WHERE name = ?1")?
                    .query_row([name.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?)
            });
            let Ok((at, last)) = place.inspect_err(|fault| self.inner.trouble(&fault.to_string())) else {
                return;
            };
            // There must be a file to watch. Opened as a reader does it: whoever would write cuts off a line that is not
            // whole, and its keeper may be writing it.
            drop(EventReader::open(&dir.events_path(), 0));
            let tail = Tail::new(dir.events_path(), uint(at), uint(last));
            let modify = inotify::WatchFlags::MODIFY;
            let events = inotify::add_watch(&self.inotify, dir.events_path(), modify).ok();
            let moved = inotify::WatchFlags::MOVED_TO;
            let directory = inotify::add_watch(&self.inotify, dir.path(), moved).ok();
            for wd in events.iter().chain(&directory) {
                self.watches.insert(*wd, name.clone());
            }
            if events.is_none() || directory.is_none() {
                self.blind.insert(name.clone());
            }
            let followed = Followed {
                dir,
                tail,
                events,
                directory,
                child: None,
                keeper: None,
            };
            self.runs.insert(name.clone(), followed);
        }
        if let Some(mut child) = child {
            self.watch_keeper(name, child.watched.take());
            if let Some(followed) = self.runs.get_mut(name) {
                followed.child = Some(child);
            }
        }
    }

    fn watch_keeper(&mut self, name: &RunId, keeper: Option<OwnedFd>) {
        let Some(followed) = self.runs.get_mut(name) else {
            return;
        };
        let key = self.next_key;
        self.next_key += 1;
        if let Some((old, _)) = followed.keeper.take() {
            self.keys.remove(&old);
        }
        let added = keeper.filter(|keeper| {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&self.epoll, keeper.as_fd(), data, epoll::EventFlags::IN).is_ok()
        });
        match added {
            Some(keeper) => {
                self.keys.insert(key, name.clone());
                followed.keeper = Some((key, keeper));
                if followed.events.is_some() && followed.directory.is_some() {
                    self.blind.remove(name);
                }
            }
            None => {
                self.blind.insert(name.clone());
            }
        }
    }

    fn forget(&mut self, name: &RunId) {
        let Some(followed) = self.runs.remove(name) else {
            return;
        };
        for wd in followed.events.iter().chain(&followed.directory) {
            self.watches.remove(wd);
            // The kernel removed it already when the file went.
            either_way(inotify::remove_watch(&self.inotify, *wd));
        }
        if let Some((key, _)) = followed.keeper {
            self.keys.remove(&key);
        }
        self.blind.remove(name);
        if let Some(child) = &followed.child {
            // Only so that nothing is left of it.
            let _ended = child.has_ended();
        }
    }

    /// Records what happened to these runs, together, until there is nothing new.
    pub(super) fn catch_up(&mut self, mut dirty: BTreeSet<RunId>) {
        while !dirty.is_empty() && !self.inner.is_closing() {
            let gone = self.gone(&dirty);
            let mut read = Vec::new();
            let mut again = BTreeSet::new();
            let mut unread = BTreeSet::new();
            for name in &dirty {
                let Some(followed) = self.runs.get_mut(name) else {
                    continue;
                };
                let before = followed.tail.clone();
                match followed.tail.read(MOST_AT_ONCE) {
                    Ok(found) => {
                        if found.more {
                            again.insert(name.clone());
                        }
                        read.push((name.clone(), before, found.events));
                    }
                    Err(error) => {
                        unread.insert(name.clone());
                        self.inner.trouble(&format!("the events of {name}: {error}"));
                    }
                }
            }
            let ended: Vec<(RunId, Option<RunFile>)> = gone
                .into_iter()
                .filter(|(name, _)| !again.contains(name) && !unread.contains(name))
                .collect();
            // It is not over before everything it told is recorded.
            self.late.append(&mut unread);
            if let Err(fault) = self.record(&read, &ended) {
                // Not recorded: read again from the same place the next time.
                for (name, before, _) in &read {
                    if let Some(followed) = self.runs.get_mut(name) {
                        followed.tail.back(before);
                        self.late.insert(name.clone());
                    }
                }
                self.inner.trouble(&fault.to_string());
                return;
            }
            for (name, _) in &ended {
                self.forget(name);
            }
            dirty = again;
        }
    }

    /// Which of these have no keeper any more, with how they ended. `None`: back to the queue.
    fn gone(&mut self, dirty: &BTreeSet<RunId>) -> Vec<(RunId, Option<RunFile>)> {
        let mut gone = Vec::new();
        for name in dirty {
            match self.look(name) {
                Ok(Some(end)) => gone.push((name.clone(), end)),
                Ok(None) => {}
                Err(fault) => self.inner.trouble(&fault.to_string()),
            }
        }
        gone
    }

    /// Whether the keeper of a run is gone, and how it ended.
    fn look(&mut self, name: &RunId) -> Result<Option<Option<RunFile>>, Fault> {
        let Some(followed) = self.runs.get_mut(name) else {
            return Ok(None);
        };
        if let Some(child) = &mut followed.child {
            if !child.has_ended() {
                return Ok(None);
            }
            followed.child = None;
        } else if let Some((_, keeper)) = &followed.keeper
            && !has_ended(keeper)
        {
            return Ok(None);
        }
        let dir = followed.dir.clone();
        let mine = followed.keeper.is_some();
        let file = dir.file()?;
        if file.state == bastle_contract::runs::RunState::Queued && !mine {
            // Somebody else's, who is about to start it: to try its lock would be in the way.
            return Ok(None);
        }
        let fail = |error: std::io::Error| {
            Fault::new(
                bastle_contract::Code::StateDir,
                format!("cannot look at the lock of {name}"),
                error.to_string(),
            )
        };
        match keepers::kept(&dir).map_err(fail)? {
            Kept::Yes => {
                // Another process keeps it than the one that was watched.
                let watched = keepers::watch(&dir.file()?);
                self.watch_keeper(name, watched);
                self.inner.store.write(|db| rows::set_phase(db, name, "kept"))?;
                Ok(None)
            }
            lock @ Kept::No(_) => Ok(Some(Some(keepers::bury(&dir, &lock, "lost")?))),
        }
    }

    /// Everything in one transaction; then whoever waits is woken.
    fn record(
        &mut self,
        read: &[(RunId, Tail, Vec<bastle_contract::runs::RunEvent>)],
        ended: &[(RunId, Option<RunFile>)],
    ) -> Result<(), Fault> {
        if ended.is_empty() && read.iter().all(|(_, _, events)| events.is_empty()) {
            return Ok(());
        }
        let patience = u64::try_from(self.inner.options.patience.as_millis()).unwrap_or(u64::MAX);
        let runs = &self.runs;
        let errands = self.inner.store.write(|db| {
            for (name, _, events) in read {
                let at = runs.get(name).map_or(0, |followed| followed.tail.at());
                let fresh = Fresh {
                    run: name,
                    events,
                    at,
                };
                ingest::take(db, &fresh, patience)?;
                db.prepare_cached("UPDATE runs SET phase = 'kept' WHERE name = ?1 AND phase = 'starting'")?
                    .execute([name.as_str()])?;
            }
            let mut children = Vec::new();
            for (name, file) in ended {
                match file {
                    Some(file) => rows::finish(db, file)?,
                    None => rows::set_phase(db, name, "queued")?,
                }
                children.extend(super::children::living(db, name)?);
            }
            for child in &children {
                db.prepare_cached("INSERT INTO journal(time_ms, run, act) VALUES (?1, ?2, 'stop')")?
                    .execute(rusqlite::params![int(now_ms()), child.as_str()])?;
            }
            Ok(!children.is_empty())
        })?;
        for (_, file) in ended {
            self.inner
                .ended_with(file.as_ref().and_then(|file| file.fault.as_ref()));
        }
        self.inner.told();
        if !ended.is_empty() {
            self.inner.wake_queue();
        }
        if errands {
            self.inner.errand();
        }
        Ok(())
    }
}

fn has_ended(keeper: &OwnedFd) -> bool {
    let mut polled = [rustix::event::PollFd::new(keeper, rustix::event::PollFlags::IN)];
    let now = rustix::time::Timespec::default();
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1..))
}
