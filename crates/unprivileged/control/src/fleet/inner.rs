//! What all parts of the fleet share: options, records, and the bells that wake its threads.
use super::FleetOptions;
use super::follow::Order;
use super::reading;
use super::words::{either_way, now_ms};
use crate::keeper::Mother;
use crate::store::Store;
use bastle_contract::{AbsPath, Code, Fault, RunId};
use bastle_policy::AuthorityCeiling;
use rustix::event::EventfdFlags;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long the lock of a daemon that is dead is waited for.
const LEFTOVER: Duration = Duration::from_secs(5);
/// Between two looks at it.
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

/// Called with the newest number.
type Wake = Box<dyn Fn(u64) + Send + Sync>;

/// A bell: rung any number of times, heard once.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

pub(super) struct Inner {
    pub(super) options: FleetOptions,
    pub(super) store: Store,
    pub(super) since_ms: u64,
    pub(super) spawn_failures: AtomicU64,
    /// Runs that did not get their fence since the daemon started.
    pub(super) fence_failures: AtomicU64,
    /// Most runs that live at once.
    pub(super) max_parallel: AtomicU32,
    /// The daemon's default of the authority ceiling.
    ceiling: RwLock<AuthorityCeiling>,
    /// Wakes the follower.
    pub(super) wake: OwnedFd,
    orders: Mutex<Vec<Order>>,
    queue: Bell,
    errands: Bell,
    /// Entries of the journal that whoever wrote them is about to finish: run and act.
    in_hand: Mutex<BTreeSet<(String, String)>>,
    closing: AtomicBool,
    prune: AtomicBool,
    wakers: Mutex<Vec<Wake>>,
    changes: Mutex<u64>,
    changed: Condvar,
    trouble: Mutex<Option<String>>,
    /// Keepers are copies of it.
    mother: Mutex<Option<Mother>>,
    /// The right to this state directory.
    lock: Mutex<Option<File>>,
}

/// See [`Inner::take_in_hand`].
pub(super) struct InHand<'i> {
    inner: &'i Inner,
    entry: (String, String),
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        held(&self.inner.in_hand).remove(&self.entry);
    }
}

/// Whoever panicked with one of these locks left a value that is still good: lists and flags.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell {
    fn ring(&self) {
        *held(&self.rung) = true;
        self.heard.notify_all();
    }

    /// Waits until it is rung.
    fn wait(&self) {
        let mut rung = held(&self.rung);
        while !*rung {
            rung = self.heard.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
        *rung = false;
    }
}

impl Inner {
    /// Opens the records of a state directory that was taken.
    pub(super) fn open(options: FleetOptions, lock: File) -> Result<Self, Fault> {
        let store = Store::open(&options.state.join("daemon"))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| unusable(&options.state, &error.into()))?;
        Ok(Self {
            max_parallel: AtomicU32::new(options.max_parallel),
            ceiling: RwLock::new(settled_roots(options.ceiling.clone())?),
            options,
            store,
            since_ms: now_ms(),
            spawn_failures: AtomicU64::new(0),
            fence_failures: AtomicU64::new(0),
            wake,
            orders: Mutex::new(Vec::new()),
            // Whatever waits from before is looked at once.
            queue: Bell::default(),
            errands: Bell::default(),
            in_hand: Mutex::new(BTreeSet::new()),
            closing: AtomicBool::new(false),
            prune: AtomicBool::new(false),
            wakers: Mutex::new(Vec::new()),
            changes: Mutex::new(0),
            changed: Condvar::new(),
            trouble: Mutex::new(None),
            mother: Mutex::new(None),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// The daemon's default of the authority ceiling.
    pub(super) fn ceiling(&self) -> AuthorityCeiling {
        self.ceiling
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Another default holds for every request from now on.
    pub(super) fn change_ceiling(&self, ceiling: AuthorityCeiling) -> Result<(), Fault> {
        let ceiling = settled_roots(ceiling)?;
        *self.ceiling.write().unwrap_or_else(PoisonError::into_inner) = ceiling;
        Ok(())
    }

    /// Whether the fleet is being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Tells every thread to end.
    pub(super) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.queue.ring();
        self.errands.ring();
        self.ring_follower();
    }

    /// For one keeper after the other.
    pub(super) fn with_mother<T>(&self, ask: impl FnOnce(&mut Option<Mother>) -> T) -> T {
        ask(&mut held(&self.mother))
    }

    /// Nothing is written after this, and another daemon may begin.
    pub(super) fn closed(&self) {
        drop(held(&self.mother).take());
        self.store.close();
        if let Some(lock) = held(&self.lock).take() {
            // By name: a copy of this process that is about to become a keeper still has the file open.
            either_way(rustix::fs::flock(&lock, FlockOperation::Unlock));
        }
    }

    /// Waits for the queue's bell; `false` when the fleet is closed.
    pub(super) fn wait_for_queue(&self) -> bool {
        self.queue.wait();
        !self.is_closing()
    }

    /// Something may start.
    pub(super) fn wake_queue(&self) {
        self.queue.ring();
    }

    /// Waits for an errand; `false` when the fleet is closed.
    pub(super) fn wait_for_errand(&self) -> bool {
        self.errands.wait();
        !self.is_closing()
    }

    /// Keeps an entry of the journal from those who do errands, from before it is written until this value is gone.
    pub(super) fn take_in_hand(&self, run: &RunId, act: &str) -> InHand<'_> {
        let entry = (run.as_str().to_owned(), act.to_owned());
        held(&self.in_hand).insert(entry.clone());
        InHand { inner: self, entry }
    }

    /// Whether somebody else is about to finish it.
    pub(super) fn is_in_hand(&self, run: &RunId, act: &str) -> bool {
        held(&self.in_hand).contains(&(run.as_str().to_owned(), act.to_owned()))
    }

    /// There is something in the journal.
    pub(super) fn errand(&self) {
        self.errands.ring();
    }

    /// It is time to look for what ended long ago.
    pub(super) fn errand_of_time(&self) {
        self.prune.store(true, Ordering::Release);
        self.errands.ring();
    }

    /// Whether it is; asked once.
    pub(super) fn is_time_to_prune(&self) -> bool {
        self.prune.swap(false, Ordering::AcqRel)
    }

    /// Tells the follower something.
    pub(super) fn order(&self, order: Order) {
        held(&self.orders).push(order);
        self.ring_follower();
    }

    /// What the follower was told.
    pub(super) fn orders(&self) -> Vec<Order> {
        std::mem::take(&mut *held(&self.orders))
    }

    fn ring_follower(&self) {
        // A counter that is full wakes just as well.
        either_way(rustix::io::write(&self.wake, &1u64.to_ne_bytes()));
    }

    /// Adds somebody to wake.
    pub(super) fn add_waker(&self, wake: Wake) {
        held(&self.wakers).push(wake);
    }

    /// Events were added: wakes everybody.
    pub(super) fn told(&self) {
        *held(&self.changes) += 1;
        self.changed.notify_all();
        let wakers = held(&self.wakers);
        if wakers.is_empty() {
            return;
        }
        if let Ok(newest) = self.store.read(reading::newest) {
            wakers.iter().for_each(|wake| wake(newest));
        }
    }

    /// How often something changed.
    pub(super) fn changes(&self) -> u64 {
        *held(&self.changes)
    }

    /// Waits until something changes after `seen`, at most so long.
    pub(super) fn wait_for_change(&self, seen: u64, most: Duration) {
        let changes = held(&self.changes);
        drop(self.changed.wait_timeout_while(changes, most, |now| *now == seen));
    }

    /// Counts a run that was refused because of its fence: what is known of containment is doubted then.
    pub(super) fn ended_with(&self, fault: Option<&Fault>) {
        if fault.is_some_and(|fault| crate::containment::is_about_the_fence(fault.code)) {
            self.fence_failures.fetch_add(1, Ordering::Release);
        }
    }

    /// Something went wrong that nobody asked for: kept for whoever looks at the health.
    pub(super) fn trouble(&self, what: &str) {
        *held(&self.trouble) = Some(what.to_owned());
    }

    /// What went wrong last.
    pub(super) fn last_trouble(&self) -> Option<String> {
        held(&self.trouble).clone()
    }
}

/// The ceiling with its roots where they really are; one that is not there yet is where it will be.
fn settled_roots(ceiling: AuthorityCeiling) -> Result<AuthorityCeiling, Fault> {
    ceiling.settle_roots(|root| {
        AbsPath::from_path(&crate::place::settled(root.as_path())).map_err(|error| {
            Fault::new(
                Code::UsageArgument,
                format!("the root {root} of the ceiling cannot be used"),
                error.to_string(),
            )
        })
    })
}

fn unusable(state: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        format!("cannot use {}", state.display()),
        error.to_string(),
    )
    .help("set XDG_STATE_HOME to a writable directory")
}

/// The number that the holder wrote.
fn holder(file: &mut File) -> String {
    let mut pid = String::new();
    drop(file.seek(SeekFrom::Start(0)));
    drop(file.take(32).read_to_string(&mut pid));
    pid.trim().to_owned()
}

/// Whether a process of this number lives.
fn lives(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).is_ok())
}

/// Tries the lock. A daemon that was killed while it started a keeper leaves it held for a moment, by the copy of itself
/// that is about to become the keeper: that one is waited for, a daemon that lives is not.
fn lock(file: &mut File) -> std::io::Result<bool> {
    let deadline = Instant::now() + LEFTOVER;
    loop {
        match rustix::fs::flock(&*file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if lives(&holder(file)) || Instant::now() >= deadline => {
                return Ok(false);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                // Nothing tells when another process lets a lock go.
                either_way(rustix::event::poll(&mut [], Some(&MOMENT)));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the state directory for this process; its number is written for whoever comes second.
pub(super) fn take(state: &Path) -> Result<File, Fault> {
    let fail = |error: std::io::Error| unusable(state, &error);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state.join("runs"))
        .map_err(fail)?;
    let path = state.join("daemon.lock");
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(fail)?;
    if !lock(&mut file).map_err(fail)? {
        return Err(Fault::new(
            Code::StateBusy,
            format!("another daemon has {}", state.display()),
            format!("it is process {}", holder(&mut file)),
        )
        .help("bastle daemon status"));
    }
    file.set_len(0).map_err(fail)?;
    file.seek(SeekFrom::Start(0)).map_err(fail)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
        .map_err(fail)?;
    Ok(file)
}
