//! Many runs under one roof: the registry, the queue, batches, write scopes, questions, tokens, profiles, events.
//!
//! Runs inside `bastle serve`, as its user. It starts one keeper per run and never stands between a keeper and its
//! sandbox: when the daemon goes, runs live on, and the next daemon finds them again.
//! **Trust:** its state directory is its own; what events carry comes from agents and is data.
mod access;
mod acting;
mod adopt;
mod approvals;
mod authority;
mod children;
mod conversations;
mod documents;
mod entry;
mod errands;
mod follow;
mod foreground;
mod hooks;
mod housekeeping;
mod ingest;
mod inner;
mod keepers;
mod naming;
mod planning;
mod preset_choice;
mod principals;
mod profiles;
mod queue;
mod reading;
mod removing;
mod rows;
mod scopes;
mod spawning;
mod tail;
mod talk;
#[cfg(test)]
mod tests;
mod tokens;
mod types;
mod words;

pub use access::{
    Approval, ApprovalQuery, ApprovalState, Caller, PrincipalKind, ProfileRecord, Role, Token, TokenWish,
    Verb, Verdict,
};
pub use conversations::{MessageClaim, Receiver, TaskQuery, TaskRow};
pub use principals::Declared;
pub use types::{
    Acted, BatchRecord, BatchReport, DEFAULT_TIMEOUT, DEFAULT_TURNS, EventFilter, FleetOptions, Health,
    MAX_BATCH, MetricsSnapshot, OnConflict, Page, RunQuery, RunRecord, RunRequest, SpawnRequest, Spawned,
    Stats, StatsRow, StopHow, StoredEvent, Via, Which,
};

use crate::live::Scope;
use crate::load::Sources;
use crate::review::Fate;
use crate::runs::{OutputReader, RunDir};
use bastle_contract::{AbsPath, Code, Fault, RunId};
use bastle_policy::AuthorityCeiling;
use inner::Inner;
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use words::{allow, now_ms};

/// The fleet. Clones are the same one.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
    threads: Arc<Threads>,
}

/// A state directory that nobody else has. Let go when dropped.
pub struct Claim {
    options: FleetOptions,
    lock: std::fs::File,
}

/// Ends the threads when the last clone goes.
struct Threads {
    inner: Arc<Inner>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    fn stop(&self) {
        let running = match self.running.lock() {
            Ok(mut running) => std::mem::take(&mut *running),
            Err(_) => return,
        };
        if running.is_empty() {
            return;
        }
        self.inner.begin_closing();
        for thread in running {
            // One that panicked has ended as well.
            drop(thread.join());
        }
        let closed = self
            .inner
            .store
            .write(|db| rows::own_event(db, None, "daemon", &json!({"state": "stopped"}), now_ms()));
        if let Err(fault) = closed {
            self.inner.trouble(&fault.to_string());
        }
        self.inner.closed();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Fleet {
    /// Takes the state directory for itself and does nothing yet.
    pub fn claim(options: FleetOptions) -> Result<Claim, Fault> {
        // Its threads come and go; what one of them planned with, the next one uses.
        bastle_sys::memory::share_heap();
        let lock = inner::take(&options.state)?;
        Ok(Claim { options, lock })
    }

    /// Takes the state directory for itself, finds runs again, and begins to work.
    pub fn open(options: FleetOptions) -> Result<Self, Fault> {
        Self::begin(Self::claim(options)?)
    }

    /// Finds runs again in a state directory that was taken, and begins to work.
    pub fn begin(claim: Claim) -> Result<Self, Fault> {
        let inner = Arc::new(Inner::open(claim.options, claim.lock)?);
        let failed = |error: std::io::Error| {
            Fault::new(Code::StateDir, "the daemon cannot follow runs", error.to_string())
                .help("sysctl fs.inotify.max_user_instances")
        };
        inner
            .store
            .write(|db| rows::own_event(db, None, "daemon", &json!({"state": "started"}), now_ms()))?;
        tokens::make_local(&inner)?;
        // Each run holds the rules against itself; ones that cannot be used are told here, before any run.
        crate::anomaly::rules_of(&inner.options.state)?;
        let mut follower = follow::Follower::new(Arc::clone(&inner)).map_err(failed)?;
        for note in crate::review::repair_marked(&inner.options.state) {
            inner.trouble(&note);
        }
        adopt::recover(&inner, &mut follower)?;
        let (for_queue, for_errands) = (Arc::clone(&inner), Arc::clone(&inner));
        let started = [
            named("follower", move || follower.work()),
            named("queue", move || queue::work(&for_queue)),
            named("errands", move || errands::work(&for_errands)),
        ];
        let threads = Arc::new(Threads {
            inner: Arc::clone(&inner),
            running: Mutex::new(Vec::new()),
        });
        for thread in started {
            let thread = thread.map_err(failed)?;
            if let Ok(mut running) = threads.running.lock() {
                running.push(thread);
            }
        }
        inner.wake_queue();
        inner.errand();
        Ok(Self { inner, threads })
    }

    /// Stops working; what was begun is finished at the next start. Runs live on.
    pub fn close(self) {
        self.threads.stop();
    }

    /// Other runs may live at once from now on. Those that live, live on.
    pub fn allow_at_once(&self, most: u32) {
        self.inner
            .max_parallel
            .store(most, std::sync::atomic::Ordering::Relaxed);
        self.inner.wake_queue();
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.inner.options.state
    }

    /// The file with the token of the local command line.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        tokens::local_file(&self.inner)
    }

    /// Starts one or many runs: all of them, or none unless the request says otherwise.
    pub fn spawn(&self, caller: &Caller, request: SpawnRequest) -> Result<BatchReport, Vec<Fault>> {
        spawning::spawn(&self.inner, caller, &request)
    }

    /// The full name for a name or a unique beginning of it.
    pub fn resolve(&self, text: &str) -> Result<RunId, Fault> {
        self.inner.store.read(|db| acting::resolve(db, text))
    }

    /// One run.
    pub fn run(&self, name: &RunId) -> Result<RunRecord, Fault> {
        let found = self.inner.store.read(|db| rows::one(db, name))?;
        Ok(rows::with_file(self.state(), found))
    }

    /// Runs by name, a page at a time.
    pub fn runs(&self, query: &RunQuery) -> Result<Page<RunRecord>, Fault> {
        reading::runs(&self.inner, query)
    }

    /// What was asked for.
    pub fn spec(&self, name: &RunId) -> Result<bastle_contract::runs::LaunchSpec, Fault> {
        self.inner.store.read(|db| rows::spec(db, name))
    }

    /// Ends runs.
    pub fn stop(&self, caller: &Caller, which: &Which, how: StopHow) -> Result<Vec<Acted>, Fault> {
        acting::stop(&self.inner, caller, which, how)
    }

    /// Makes a run stand still.
    pub fn pause(&self, caller: &Caller, name: &RunId) -> Result<(), Fault> {
        acting::freeze(&self.inner, caller, name, "pause")
    }

    /// Lets it go on.
    pub fn resume(&self, caller: &Caller, name: &RunId) -> Result<(), Fault> {
        acting::freeze(&self.inner, caller, name, "resume")
    }

    /// Removes a run that ended, with its copy, to the trash. `discard` is the digest of work that may be lost, or its
    /// beginning.
    pub fn remove(&self, caller: &Caller, name: &RunId, discard: Option<String>) -> Result<(), Fault> {
        removing::remove(&self.inner, caller, name, (discard, Fate::Trash))
    }

    /// The same without the trash: its room is free at once.
    pub fn remove_at_once(
        &self,
        caller: &Caller,
        name: &RunId,
        discard: Option<String>,
    ) -> Result<(), Fault> {
        removing::remove(&self.inner, caller, name, (discard, Fate::AtOnce))
    }

    /// A connection to the run's own socket.
    pub fn live(&self, name: &RunId) -> Result<UnixStream, Fault> {
        talk::connect(self.state(), name)
    }

    /// Says one thing to the run's own socket and gives its answer.
    pub fn ask(&self, name: &RunId, command: &Value) -> Result<Value, Fault> {
        talk::ask(self.state(), name, command)
    }

    /// What it printed.
    pub fn output(&self, name: &RunId) -> Result<OutputReader, Fault> {
        RunDir::open(self.state(), name)?.printed()
    }

    /// Events after number `since`, at most `most`.
    pub fn events(&self, since: u64, filter: &EventFilter, most: usize) -> Result<Vec<StoredEvent>, Fault> {
        reading::events(&self.inner, since, filter, most)
    }

    /// The newest events, newest last, at most `most`.
    pub fn recent_events(&self, filter: &EventFilter, most: usize) -> Result<Vec<StoredEvent>, Fault> {
        reading::recent(&self.inner, filter, most)
    }

    /// Number of the newest event.
    pub fn newest_event(&self) -> Result<u64, Fault> {
        self.inner.store.read(reading::newest)
    }

    /// Calls `wake` with the newest number whenever events were added. It must return at once.
    pub fn on_events(&self, wake: Box<dyn Fn(u64) + Send + Sync>) {
        self.inner.add_waker(wake);
    }

    /// Batches, newest first, after the cursor.
    pub fn batches(&self, after: Option<&str>, limit: usize) -> Result<Page<BatchRecord>, Fault> {
        reading::batches(&self.inner, after, limit)
    }

    /// One batch.
    pub fn batch(&self, id: &str) -> Result<BatchRecord, Fault> {
        self.inner.store.read(|db| reading::one_batch(db, id))
    }

    /// Questions, oldest first.
    pub fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<Approval>, Fault> {
        approvals::list(&self.inner, query)
    }

    /// One question.
    pub fn approval(&self, id: u64) -> Result<Approval, Fault> {
        self.inner.store.read(|db| approvals::one(db, id))
    }

    /// Answers a question. The first answer wins; one for another request than is open is refused.
    pub fn answer(
        &self,
        caller: &Caller,
        id: u64,
        hash: Option<&str>,
        verdict: Verdict,
        scope: Scope,
        message: Option<&str>,
    ) -> Result<Approval, Fault> {
        let said = approvals::Said {
            hash,
            verdict,
            scope,
            message,
        };
        approvals::answer(&self.inner, caller, id, &said)
    }

    /// Refuses a program that would widen what its own runs, or runs below them, may do: as much as answering with yes.
    pub fn may_approve(&self, caller: &Caller, run: &RunId) -> Result<(), Fault> {
        self.inner
            .store
            .read(|db| principals::refuse_own(db, caller, run))
    }

    /// Makes a token. The secret is told here and nowhere else.
    pub fn token_create(&self, caller: &Caller, wish: TokenWish) -> Result<(Token, String), Fault> {
        tokens::create(&self.inner, caller, &wish)
    }

    /// Whether a token is neither revoked nor expired.
    pub fn token_holds(&self, id: &str) -> Result<bool, Fault> {
        tokens::holds(&self.inner, id)
    }

    /// All tokens, without their secrets.
    pub fn tokens(&self) -> Result<Vec<Token>, Fault> {
        tokens::all(&self.inner)
    }

    /// Takes a token back, at once.
    pub fn token_revoke(&self, caller: &Caller, id: &str) -> Result<Token, Fault> {
        tokens::revoke(&self.inner, caller, id)
    }

    /// Who has this secret. Nobody, while the records cannot be read.
    #[must_use]
    pub fn authenticate(&self, secret: &str) -> Option<Caller> {
        tokens::authenticate(&self.inner, secret)
    }

    /// All profiles.
    pub fn profiles(&self) -> Result<Vec<ProfileRecord>, Fault> {
        profiles::all(&self.inner)
    }

    /// One profile.
    pub fn profile(&self, name: &str) -> Result<ProfileRecord, Fault> {
        profiles::one(&self.inner, name)
    }

    /// Keeps a profile.
    pub fn profile_put(
        &self,
        caller: &Caller,
        name: &str,
        document: &Value,
    ) -> Result<ProfileRecord, Vec<Fault>> {
        profiles::put(&self.inner, caller, name, document)
    }

    /// Removes a kept profile.
    pub fn profile_remove(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        profiles::remove(&self.inner, caller, name)
    }

    /// What would be put before the prompt of such a run, were this caller to ask for it.
    pub fn preamble(&self, caller: &Caller, request: &RunRequest) -> Result<String, Vec<Fault>> {
        planning::Planner::new(&self.inner, caller).preamble(request)
    }

    /// The most that a caller may give to a run, every default filled in; `None`: an admin, who is held to nothing.
    pub fn ceiling_of(&self, caller: &Caller) -> Result<Option<AuthorityCeiling>, Fault> {
        authority::of_caller(&self.inner, caller)
    }

    /// Refuses whoever may not act inside a run: execute, speak, read or change its tree, widen it.
    pub fn may_enter(&self, caller: &Caller, run: &RunId) -> Result<(), Fault> {
        entry::may_enter(&self.inner, caller, run)
    }

    /// Whether a caller is told what questions of a run ask, in words.
    #[must_use]
    pub fn may_read_questions(&self, caller: &Caller, run: &RunId) -> bool {
        entry::may_read_questions(&self.inner, caller, run)
    }

    /// Refuses whoever may not show a living run this path.
    pub fn may_grant(&self, caller: &Caller, path: &AbsPath) -> Result<(), Fault> {
        authority::may_grant(&self.inner, caller, path)
    }

    /// Refuses whoever may not open what this rule names to a living run.
    pub fn may_allow(&self, caller: &Caller, rule: &str) -> Result<(), Fault> {
        authority::may_allow(caller, &self.inner.ceiling(), rule)
    }

    /// What a policy comes to for a caller: with a project as a run of theirs there would have it.
    pub fn policy_for(
        &self,
        caller: &Caller,
        workspace: &str,
        sources: Sources,
    ) -> Result<bastle_policy::Effective, Vec<Fault>> {
        authority::policy_for(&self.inner, caller, workspace, sources)
    }

    /// Another default of the authority ceiling holds from now on. Runs that live keep theirs.
    pub fn change_ceiling(&self, ceiling: AuthorityCeiling) -> Result<(), Fault> {
        self.inner.change_ceiling(ceiling)
    }

    /// What was put before the prompt of a run.
    pub fn preamble_of(&self, name: &RunId) -> Result<Option<String>, Fault> {
        self.inner.store.read(|db| reading::preamble(db, name))
    }

    /// Sums.
    pub fn stats(&self) -> Result<Stats, Fault> {
        reading::stats(&self.inner)
    }

    /// Whether it works.
    #[must_use]
    pub fn health(&self) -> Health {
        reading::health(&self.inner)
    }

    /// Runs that did not get their fence, or lost it, since the daemon started.
    #[must_use]
    pub fn fence_failures(&self) -> u64 {
        self.inner
            .fence_failures
            .load(std::sync::atomic::Ordering::Acquire)
    }

    /// The preset and the policy document of a profile.
    pub fn profile_policy(
        &self,
        name: &str,
    ) -> Result<(Option<String>, bastle_policy::Document), Vec<Fault>> {
        let profile = profiles::load(&self.inner, name)?;
        Ok((profile.preset.clone(), profile.document()))
    }

    /// Numbers for a monitoring system.
    pub fn metrics(&self) -> Result<MetricsSnapshot, Fault> {
        reading::metrics(&self.inner)
    }

    /// Copies the records to a new file while it works.
    pub fn backup(&self, caller: &Caller, to: &Path) -> Result<(), Fault> {
        allow(caller, Verb::Administer, "the records")?;
        self.inner.store.backup(to)
    }

    /// Copies the records of a state directory to a new file, whether a daemon has it or not.
    pub fn copy_records(state: &Path, to: &Path) -> Result<(), Fault> {
        crate::store::copy(&state.join("daemon"), to)
    }

    /// Removes runs that ended more than `older` ago and whose work was taken over; the names of those removed.
    pub fn prune(&self, caller: &Caller, older: Duration) -> Result<Vec<RunId>, Fault> {
        removing::prune(&self.inner, caller, older)
    }
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("fleet-{name}"))
        .spawn(work)
}
