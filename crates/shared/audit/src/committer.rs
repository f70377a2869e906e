//! Group commit: many producers, one thread that writes and syncs. One sync serves everybody who waits.
use crate::AuditError;
use crate::chain::{RecordId, Scribe};
use crate::dir::Dir;
use crate::event::AuditEvent;
use crate::medium::Sink;
use crate::writer::{AuditWriter, Seal};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The thread that makes records durable.
pub struct Committer {
    shared: Arc<Shared>,
    sink: Sink,
}

/// A producer's end. Clones share the log; when the last one is gone without [`Handle::seal`], everything appended
/// is written and the log stays unsealed.
#[derive(Clone, Debug)]
pub struct Handle {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Sink>>>,
}

struct Shared {
    state: Mutex<State>,
    /// The thread has something to do.
    work: Condvar,
    /// Something became durable, was written, or failed.
    progress: Condvar,
}

struct State {
    /// Gone once sealed.
    log: Option<(Scribe, Dir)>,
    /// Lines nobody has written yet.
    pending: Vec<u8>,
    /// Last record that is in `pending` or further.
    appended: u64,
    /// Last record that somebody waits for.
    wanted: u64,
    /// Last record that is durable.
    durable: u64,
    failed: Option<String>,
    closing: bool,
}

/// Lines that may wait for the thread; a producer that would exceed this waits. Some thousand records: a disk that
/// stalls for a moment stops nobody, one that hangs stops the run instead of filling memory.
const MOST_PENDING: usize = 4 * 1024 * 1024;

impl Committer {
    /// Hands `writer` to a thread of its own.
    pub fn spawn(writer: AuditWriter) -> Result<Handle, AuditError> {
        let AuditWriter {
            scribe,
            mut sink,
            dir,
            // The parent of such a writer tells the index how the log ended, and the anchor with it.
            unanchored: _,
            warning: _,
        } = writer;
        sink.check()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                appended: scribe.at().sequence,
                wanted: 0,
                durable: 0,
                pending: std::mem::take(sink.buffer()),
                log: Some((scribe, dir)),
                failed: None,
                closing: false,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let committer = Self {
            shared: Arc::clone(&shared),
            sink,
        };
        let thread = thread::Builder::new()
            .name("audit".into())
            .spawn(move || committer.run())
            .map_err(|e| AuditError::io("start a thread for", std::path::Path::new("the audit log"), e))?;
        let thread = Mutex::new(Some(thread));
        Ok(Handle {
            owner: Arc::new(Owner { shared, thread }),
        })
    }

    fn run(mut self) -> Sink {
        let mut state = lock(&self.shared.state);
        loop {
            let idle = |s: &mut State| {
                s.failed.is_some() && !s.closing
                    || s.pending.is_empty() && s.wanted <= s.durable && !s.closing
            };
            state = wait(self.shared.work.wait_while(state, idle));
            if state.failed.is_some()
                || (state.closing && state.pending.is_empty() && state.wanted <= state.durable)
            {
                return self.sink;
            }
            // Everything that gathered while the last sync ran goes out with the next.
            std::mem::swap(&mut state.pending, self.sink.buffer());
            let (reached, sync) = (state.appended, state.wanted > state.durable);
            drop(state);
            let done = if sync { self.sink.sync() } else { self.sink.flush() };
            state = lock(&self.shared.state);
            match done {
                Ok(()) if sync => state.durable = reached,
                Ok(()) => {}
                Err(error) => state.failed = Some(error.story()),
            }
            self.shared.progress.notify_all();
        }
    }
}

impl Handle {
    /// Numbers and links the event at once and leaves writing to the thread. Waits while too much is waiting.
    pub fn append(&self, event: &AuditEvent) -> Result<RecordId, AuditError> {
        let shared = &self.owner.shared;
        let mut state = wait(shared.progress.wait_while(lock(&shared.state), |s| {
            s.pending.len() >= MOST_PENDING && s.failed.is_none()
        }));
        state.check()?;
        let State { log, pending, .. } = &mut *state;
        let (scribe, _) = log.as_mut().ok_or(AuditError::Closed)?;
        let begin_empty = pending.is_empty();
        let id = scribe.append(event, pending)?;
        state.appended = state.log.as_ref().map_or(0, |(scribe, _)| scribe.at().sequence);
        drop(state);
        if begin_empty {
            shared.work.notify_one();
        }
        Ok(id)
    }

    /// Waits until everything appended so far is durable.
    pub fn commit(&self) -> Result<(), AuditError> {
        let shared = &self.owner.shared;
        let mut state = lock(&shared.state);
        state.check()?;
        if state.log.is_none() {
            return Err(AuditError::Closed);
        }
        let target = state.appended;
        state.wanted = state.wanted.max(target);
        shared.work.notify_one();
        let state = wait(
            shared
                .progress
                .wait_while(state, |s| s.durable < target && s.failed.is_none()),
        );
        state.check()
    }

    /// Adds a record and waits until it is durable.
    pub fn append_durable(&self, event: &AuditEvent) -> Result<RecordId, AuditError> {
        let id = self.append(event)?;
        self.commit()?;
        Ok(id)
    }

    /// Ends the log for all handles.
    pub fn seal(&self) -> Result<Seal, AuditError> {
        self.writer()?.seal()
    }

    /// Ends the log for all handles without telling the index: see [`AuditWriter::end`].
    pub fn end(&self) -> Result<(), AuditError> {
        self.writer()?.end()
    }

    /// Stops the thread and takes the log back.
    fn writer(&self) -> Result<AuditWriter, AuditError> {
        let (scribe, dir) = lock(&self.owner.shared.state)
            .log
            .take()
            .ok_or(AuditError::Closed)?;
        let sink = self.owner.stop()?;
        lock(&self.owner.shared.state).check()?;
        Ok(AuditWriter {
            scribe,
            sink,
            dir,
            unanchored: None,
            warning: None,
        })
    }
}

impl State {
    fn check(&self) -> Result<(), AuditError> {
        match &self.failed {
            Some(cause) => Err(AuditError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

impl Owner {
    /// Lets the thread write what is left and takes its sink.
    fn stop(&self) -> Result<Sink, AuditError> {
        lock(&self.shared.state).closing = true;
        self.shared.work.notify_one();
        let thread = lock(&self.thread).take().ok_or(AuditError::Closed)?;
        thread.join().map_err(|_| AuditError::Poisoned {
            cause: "the thread that writes the log ended unexpectedly".into(),
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Sealed already, or left unsealed with everything written; either way there is nobody left to tell.
        drop(self.stop());
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Committer")
    }
}

/// A panic elsewhere cannot leave the state half-changed: every change is complete before anything can fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
