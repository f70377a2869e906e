//! Whether the native fence works here and now: found by a trial run, told with its age.
//!
//! A trial costs a sandbox, so its result is kept for a while, and however many ask at once, one trial is made for them.
//! **Trust:** the statement is what probes inside the trial's sandbox reported; nothing is taken from configuration.
use crate::trial::{Outcome, Scratch, Trial, TrialSettings};
use bastle_contract::{CapabilityStatement, Code, Fault, Guarantee, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a good result is told before another trial is made.
pub const FRESH_FOR: Duration = Duration::from_secs(60);
/// How long another one is: what was repaired is to be seen soon.
pub const DOUBTED_FOR: Duration = Duration::from_secs(5);
/// A trial that takes longer has failed.
const TRIAL_WITHIN: Duration = Duration::from_secs(30);

/// What a trial showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainmentVerdict {
    /// A sandbox was built, and every probe in it held.
    Enforced,
    /// No sandbox could be built, or a probe in it did not hold: runs are refused.
    NotEnforced,
    /// The trial says nothing about the fence: the spawner was busy, or a policy of the host refuses the trial's command.
    Inconclusive,
}

/// One guarantee of the trial's sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuaranteeReport {
    /// The guarantee that was tried.
    pub guarantee: Guarantee,
    /// What holds it.
    pub mechanism: &'static str,
    /// The worst verdict of its probes.
    pub verdict: Verdict,
    /// How many probes tried it.
    pub probes: u32,
}

/// The result of one trial.
#[derive(Clone, Debug)]
pub struct Containment {
    /// Whether the fence held in the trial.
    pub verdict: ContainmentVerdict,
    /// When the trial ended, milliseconds since 1970.
    pub probed_at_ms: u64,
    /// How long it took.
    pub took: Duration,
    /// The backend that ran the trial, as its receipt says.
    pub backend: Option<String>,
    /// What enforced it, as the statement says.
    pub fence: Option<String>,
    /// The guarantees that were probed.
    pub guarantees: Vec<GuaranteeReport>,
    /// Why it is not enforced, or not known.
    pub problem: Option<Fault>,
    at: Instant,
}

impl Containment {
    /// Makes a trial, with its state below `base`: a spawner's ceiling names where runs of a daemon keep theirs. Takes as long
    /// as a run.
    #[must_use]
    pub fn probe(base: &Path) -> Self {
        let began = Instant::now();
        let tried = try_a_run(base);
        match tried {
            Ok(outcome) => Self::from_trial(began, &outcome),
            Err(fault) => Self::of(began, (None, None), Some(fault)),
        }
    }

    /// The result that a trial run made by somebody else shows.
    #[must_use]
    pub fn from_trial(began: Instant, outcome: &Outcome) -> Self {
        let (statement, problem) = judge(outcome);
        let backend = outcome.json["backend"].as_str().map(str::to_owned);
        Self::of(began, (backend, statement.as_ref()), problem)
    }

    fn of(
        began: Instant,
        (backend, statement): (Option<String>, Option<&CapabilityStatement>),
        problem: Option<Fault>,
    ) -> Self {
        let verdict = match (&problem, statement) {
            (Some(fault), _) if says_nothing(fault.code) => ContainmentVerdict::Inconclusive,
            (None, Some(_)) => ContainmentVerdict::Enforced,
            (Some(_), _) | (None, None) => ContainmentVerdict::NotEnforced,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            verdict,
            probed_at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            took: began.elapsed(),
            backend,
            fence: statement.map(|statement| statement.fence.clone()),
            guarantees: statement.map(guarantees).unwrap_or_default(),
            problem,
            at: Instant::now(),
        }
    }

    /// How long ago the trial ended.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

fn try_a_run(base: &Path) -> Result<Outcome, Fault> {
    std::fs::create_dir_all(base).map_err(|error| {
        Fault::new(
            Code::StateDir,
            "no directory for the trial run",
            error.to_string(),
        )
    })?;
    let (scratch, kept) = (Scratch::make()?, Scratch::make_in(base)?);
    let (workspace, state) = (scratch.dir("project")?, kept.dir("state")?);
    // A person's policy says what their runs may do, not whether the fence works.
    let settings = scratch.dir("config")?;
    Trial {
        // As runs of a daemon are: the tree lies in its state directory.
        mode: "copy",
        flags: &["--quiet"],
        command: &["true"],
        workspace: &workspace,
        state: &state,
        settings: TrialSettings::In(&settings),
        within: TRIAL_WITHIN,
    }
    .run()
}

/// The statement of a trial in which everything held, or what is wrong. Never neither.
fn judge(outcome: &Outcome) -> (Option<CapabilityStatement>, Option<Fault>) {
    let statement = serde_json::from_value::<CapabilityStatement>(outcome.json["statement"].clone()).ok();
    let lost = |why: String| Fault::new(Code::FenceLost, "the trial run failed", why);
    if outcome.code != 0 {
        let problem = outcome.fault().map(|(code, what, why)| {
            let code = Code::parse(&code).unwrap_or(Code::FenceLost);
            Fault::new(code, what, why)
        });
        let ended = || lost(format!("it ended with code {}", outcome.code));
        return (statement, Some(problem.unwrap_or_else(ended)));
    }
    match statement {
        None => (None, Some(lost("it gave no statement".to_owned()))),
        Some(statement) if statement.probes.is_empty() => (None, Some(lost("nothing was probed".to_owned()))),
        Some(statement) => {
            let failures = statement.failures(&[]);
            let problem = (!failures.is_empty())
                .then(|| Fault::new(Code::FenceProbe, "a guarantee does not hold", failures.join("; ")));
            (Some(statement), problem)
        }
    }
}

/// Whether a run that ended with this failed to get its fence, or lost it.
pub(crate) fn is_about_the_fence(code: Code) -> bool {
    matches!(
        code,
        Code::FenceUserns
            | Code::FenceStep
            | Code::FenceLandlock
            | Code::FenceProbe
            | Code::FenceLost
            | Code::SpawnCaller
            | Code::SpawnVersion
            | Code::SpawnFrame
            | Code::SpawnCeiling
            | Code::SpawnSocket
    )
}

/// Whether a refusal is about something else than the fence.
fn says_nothing(code: Code) -> bool {
    matches!(
        code,
        Code::SpawnRate
            | Code::SpawnWorkers
            | Code::SpawnPath
            | Code::SpawnLimit
            | Code::SpawnKind
            | Code::ExecDenied
            | Code::ExecCommand
    )
}

fn guarantees(statement: &CapabilityStatement) -> Vec<GuaranteeReport> {
    let mut all: BTreeMap<String, GuaranteeReport> = BTreeMap::new();
    for probe in &statement.probes {
        let report = all
            .entry(probe.guarantee.to_string())
            .or_insert_with(|| GuaranteeReport {
                guarantee: probe.guarantee,
                mechanism: mechanism(probe.guarantee),
                verdict: Verdict::Held,
                probes: 0,
            });
        report.probes += 1;
        report.verdict = match (report.verdict, probe.verdict) {
            (Verdict::Broken, _) | (_, Verdict::Broken) => Verdict::Broken,
            (Verdict::Inconclusive, _) | (_, Verdict::Inconclusive) => Verdict::Inconclusive,
            (Verdict::Held, Verdict::Held) => Verdict::Held,
        };
    }
    all.into_values().collect()
}

/// What holds a guarantee.
fn mechanism(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::ReadsConfined | Guarantee::WritesConfined => "constructed root and Landlock",
        Guarantee::SecretsHidden | Guarantee::DevicesMinimal | Guarantee::ProcMasked => "constructed root",
        Guarantee::NamesGuarded | Guarantee::WritesCounted => "write guard (seccomp user notification)",
        Guarantee::LandlockFs
        | Guarantee::LandlockTruncate
        | Guarantee::LandlockIoctl
        | Guarantee::LandlockScopes
        | Guarantee::LandlockUnix => "Landlock",
        Guarantee::TruncateByMount => "read-only mounts",
        Guarantee::IoctlByDevices => "device nodes, mounts without devices, and seccomp",
        Guarantee::SignalsByPidNamespace => "PID namespace",
        Guarantee::ProcWritesByMount => "read-only mount of /proc",
        Guarantee::StagedGrantsByMode => "mode of the directory",
        Guarantee::PathSocketsByMountNamespace => "constructed root in a mount namespace",
        Guarantee::EgressConfined => "empty mount namespace, Landlock and seccomp of egress",
        Guarantee::AbstractSocketsByNetNamespace => "network namespace",
        Guarantee::NetConfined => "network namespace and egress",
        Guarantee::ProcessesHidden => "PID namespace",
        Guarantee::IpcIsolated => "IPC namespace and Landlock scopes",
        Guarantee::UtsIsolated => "UTS namespace",
        Guarantee::CgroupIsolated => "cgroup namespace",
        Guarantee::UnprivilegedUid => "user namespace",
        Guarantee::NoCapabilities => "capability sets",
        Guarantee::NoNewPrivs => "no_new_privs",
        Guarantee::SyscallsFiltered | Guarantee::NoNestedNamespaces => "seccomp",
        Guarantee::OwnSession => "session of its own",
        Guarantee::NoInheritedDescriptors => "descriptors closed before execve",
        Guarantee::EnvironmentCleared => "environment built from the plan",
        Guarantee::NoCoreDumps | Guarantee::OpenFilesLimited | Guarantee::FileSizeLimited => "rlimit",
        Guarantee::ProgramsListed => "Landlock and execve judged by init",
        Guarantee::PidsLimited | Guarantee::MemoryLimited | Guarantee::CpuLimited => "cgroup or rlimit",
        Guarantee::DiskLimited => "tmpfs size and write guard",
    }
}

/// The newest result, and the one trial that is under way.
#[derive(Default)]
pub struct ContainmentCache {
    state: Mutex<CacheState>,
    ended: Condvar,
}

#[derive(Default)]
struct CacheState {
    latest: Option<Containment>,
    /// The failures that had been counted when it was made.
    failures: u64,
    probing: bool,
    /// Trials that ended.
    trials: u64,
}

impl CacheState {
    fn fresh(&self, failures: u64) -> Option<&Containment> {
        let fresh = |known: &&Containment| match known.verdict {
            ContainmentVerdict::Enforced => known.age() < FRESH_FOR && self.failures == failures,
            ContainmentVerdict::NotEnforced | ContainmentVerdict::Inconclusive => known.age() < DOUBTED_FOR,
        };
        self.latest.as_ref().filter(fresh)
    }
}

impl ContainmentCache {
    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest result, if it is fresh: not old, and no run failed to get its fence since. `failures` counts those.
    #[must_use]
    pub fn fresh(&self, failures: u64) -> Option<Containment> {
        self.state().fresh(failures).cloned()
    }

    /// The newest result, however old.
    #[must_use]
    pub fn latest(&self) -> Option<Containment> {
        self.state().latest.clone()
    }

    /// A fresh result: the one that is there, or that of the trial under way, or that of `trial`, called here. Blocks.
    pub fn get(&self, failures: u64, trial: impl FnOnce() -> Containment) -> Containment {
        let mut state = self.state();
        loop {
            if let Some(known) = state.fresh(failures) {
                return known.clone();
            }
            if !state.probing {
                break;
            }
            let before = state.trials;
            state = self
                .ended
                .wait_while(state, |state| state.probing && state.trials == before)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.probing = true;
        drop(state);
        let mut over = TrialUnderWay {
            cache: self,
            made: None,
        };
        let made = trial();
        over.made = Some((made.clone(), failures));
        drop(over);
        made
    }
}

/// Ends the trial for whoever waits, also when it panics.
struct TrialUnderWay<'c> {
    cache: &'c ContainmentCache,
    made: Option<(Containment, u64)>,
}

impl Drop for TrialUnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        state.probing = false;
        state.trials += 1;
        if let Some((made, failures)) = self.made.take() {
            state.failures = failures;
            state.latest = Some(made);
        }
        self.cache.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn failed(code: Code) -> Containment {
        let fault = Fault::new(code, "gone", "");
        Containment::of(Instant::now(), (None, None), Some(fault))
    }

    fn enforced() -> Containment {
        let held = outcome(0, serde_json::json!({ "statement": statement("HELD") }));
        Containment::from_trial(Instant::now(), &held)
    }

    fn statement(verdict: &str) -> serde_json::Value {
        serde_json::json!({ "fence": "f", "identity": { "inside": 1, "outside": 1 }, "probes": [{
            "guarantee": "no-new-privs", "attempt": "a", "expected": "e", "observed": "o", "control": "c", "verdict": verdict,
        }] })
    }

    fn outcome(code: i32, json: serde_json::Value) -> Outcome {
        Outcome {
            code,
            json,
            output: String::new(),
        }
    }

    #[test]
    fn a_flood_of_questions_makes_one_trial() {
        let cache = ContainmentCache::default();
        let trials = AtomicUsize::new(0);
        let all_wait = std::sync::Barrier::new(32);
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    all_wait.wait();
                    drop(cache.get(0, || {
                        trials.fetch_add(1, Ordering::SeqCst);
                        enforced()
                    }));
                });
            }
        });
        assert_eq!(trials.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_run_that_failed_to_get_its_fence_makes_the_result_stale() {
        let cache = ContainmentCache::default();
        drop(cache.get(0, enforced));
        assert!(cache.fresh(0).is_some());
        assert!(cache.fresh(1).is_none(), "a failure since");
        assert_eq!(
            cache.get(1, || failed(Code::SpawnSocket)).verdict,
            ContainmentVerdict::NotEnforced
        );
        assert!(cache.fresh(1).is_some());
    }

    #[test]
    fn a_trial_that_panics_holds_nobody_up() {
        let cache = ContainmentCache::default();
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(cache.get(0, || panic!("trial")));
        }));
        assert!(tried.is_err() && cache.latest().is_none());
        drop(cache.get(0, enforced));
        assert!(cache.latest().is_some());
    }

    #[test]
    fn nothing_is_called_enforced_without_probes_that_held() {
        let verdict = |code: i32, json: serde_json::Value| {
            Containment::from_trial(Instant::now(), &outcome(code, json)).verdict
        };
        let with = |statement: serde_json::Value| serde_json::json!({ "statement": statement });
        assert_eq!(verdict(0, with(statement("HELD"))), ContainmentVerdict::Enforced);
        for (code, json) in [
            (0, with(statement("BROKEN"))),
            (0, with(statement("INCONCLUSIVE"))),
            (1, with(statement("HELD"))),
            (
                0,
                with(
                    serde_json::json!({ "fence": "f", "identity": { "inside": 1, "outside": 1 }, "probes": [] }),
                ),
            ),
            (0, serde_json::Value::Null),
            (
                125,
                serde_json::json!({ "schema": "bastle.error/v1", "code": "BST-SPAWN-009", "what": "w", "why": "y" }),
            ),
        ] {
            assert_eq!(
                verdict(code, json.clone()),
                ContainmentVerdict::NotEnforced,
                "{json}"
            );
        }
        let busy = serde_json::json!({ "schema": "bastle.error/v1", "code": "BST-SPAWN-002", "what": "w", "why": "y" });
        assert_eq!(verdict(125, busy), ContainmentVerdict::Inconclusive);
    }
}
