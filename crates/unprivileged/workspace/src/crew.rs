//! A few threads on one heap of work, for walks and copies.
//!
//! **Trust:** none of its own; the first error stops everybody.
use bastle_contract::{Code, Fault};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the waiting caller is asked to show progress.
const TICK: Duration = Duration::from_millis(100);
/// More threads than this only wait for the same directory locks of the file system.
const MOST_THREADS: usize = 8;
/// Threads that only wait for the disk.
const WAITING_THREADS: usize = 32;
/// Items of a list that one thread takes at a time.
const PIECE: usize = 64;

struct State<T> {
    heap: Vec<T>,
    busy: usize,
    left: usize,
    failed: Option<Fault>,
}

/// Where workers put more work.
pub(crate) struct Heap<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Heap<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work for whoever is free.
    pub(crate) fn push(&self, items: impl IntoIterator<Item = T>) {
        self.lock().heap.extend(items);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(item) = state.heap.pop() {
                state.busy += 1;
                return Some(item);
            }
            if state.busy == 0 {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, result: Result<(), Fault>) {
        let mut state = self.lock();
        state.busy -= 1;
        if let Err(fault) = result {
            state.failed.get_or_insert(fault);
        }
        if state.failed.is_some() || state.busy == 0 {
            self.changed.notify_all();
        }
    }
}

/// A worker's place. Left in every way, so that nobody waits for one that is gone.
struct Seat<'a, T>(&'a Heap<T>);

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.left -= 1;
        if thread::panicking() {
            let lost = Fault::new(Code::WorkspaceIo, "a worker thread ended unexpectedly", "");
            state.failed.get_or_insert(lost);
        }
        self.0.changed.notify_all();
    }
}

/// How many work at once.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(2, |n| n.get().clamp(2, MOST_THREADS))
}

/// Works off what only waits for the disk, by more threads than there are processors: the file system writes its
/// journal once for all who wait at the same time.
pub(crate) fn wait<T: Send>(
    items: Vec<T>,
    each: impl Fn(T) -> Result<(), Fault> + Sync,
) -> Result<(), Fault> {
    if items.is_empty() {
        return Ok(());
    }
    let threads = items.len().min(WAITING_THREADS);
    staffed(threads, items, |item, (): &mut (), _| each(item), || {}).map(drop)
}

/// Works off `first` and everything that is pushed meanwhile; returns each worker's own findings.
pub(crate) fn work<T, S>(
    first: Vec<T>,
    each: impl Fn(T, &mut S, &Heap<T>) -> Result<(), Fault> + Sync,
    tick: impl FnMut(),
) -> Result<Vec<S>, Fault>
where
    T: Send,
    S: Default + Send,
{
    staffed(threads(), first, each, tick)
}

/// Applies `each` to pieces of a list by several threads, and answers what they found in the order of the list. What fits
/// one piece is worked off by the caller's own thread.
pub(crate) fn by_piece<T: Sync, R: Send>(
    items: &[T],
    each: impl Fn(&[T]) -> Result<Vec<R>, Fault> + Sync,
) -> Result<Vec<R>, Fault> {
    if items.len() <= PIECE {
        return each(items);
    }
    // The heap gives the last one first.
    let pieces = items.chunks(PIECE).enumerate().rev().collect();
    let shares = work(
        pieces,
        |(number, piece): (usize, &[T]), share: &mut Vec<(usize, Vec<R>)>, _| {
            share.push((number, each(piece)?));
            Ok(())
        },
        || {},
    )?;
    let mut found: Vec<(usize, Vec<R>)> = shares.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().flat_map(|(_, results)| results).collect())
}

fn staffed<T, S>(
    threads: usize,
    first: Vec<T>,
    each: impl Fn(T, &mut S, &Heap<T>) -> Result<(), Fault> + Sync,
    mut tick: impl FnMut(),
) -> Result<Vec<S>, Fault>
where
    T: Send,
    S: Default + Send,
{
    let heap = Heap {
        state: Mutex::new(State {
            heap: first,
            busy: 0,
            left: threads,
            failed: None,
        }),
        changed: Condvar::new(),
    };
    let worker = || {
        let _seat = Seat(&heap);
        let mut own = S::default();
        while let Some(item) = heap.next() {
            let result = each(item, &mut own, &heap);
            heap.done(result);
        }
        own
    };
    let results = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let mut state = heap.lock();
        while state.left > 0 {
            let (next, waited) = heap
                .changed
                .wait_timeout(state, TICK)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                tick();
            }
        }
        drop(state);
        handles
            .into_iter()
            .filter_map(|handle| handle.join().ok())
            .collect::<Vec<_>>()
    });
    match heap.lock().failed.take() {
        Some(fault) => Err(fault),
        None => Ok(results),
    }
}
