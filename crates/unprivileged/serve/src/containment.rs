//! What the daemon says about containment: the result of the newest trial, with its age.
//!
//! A trial is made at the start, after a run that did not get its fence, and when somebody asks and the last one is old.
use crate::app::App;
use crate::dto::time;
use crate::errors::Refusal;
use bastle_contract::Code;
use bastle_control::containment::{Containment, ContainmentVerdict};
use bastle_control::is_spawner_bound;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::ToSchema;

/// What holds agents, as the newest trial run showed it.
#[derive(Serialize, ToSchema)]
#[schema(as = Containment)]
pub(crate) struct ContainmentForm {
    /// The backend that built the trial's sandbox; `none` where none was built.
    provider: String,
    /// Whether a sandbox was built and every probe in it held. A run that cannot have it is not started.
    pub(crate) enforced: bool,
    /// `enforced`, `not-enforced` or `inconclusive`.
    verdict: &'static str,
    /// When the trial ended.
    pub(crate) probed_at: String,
    /// How long ago that was, in milliseconds.
    pub(crate) age_ms: u64,
    /// How long the trial took, in milliseconds.
    probe_ms: u64,
    /// What enforced it, as the statement of the trial says.
    fence: Option<String>,
    /// The mechanisms of the guarantees that held.
    layers: Vec<String>,
    /// Every guarantee that was probed.
    guarantees: Vec<GuaranteeForm>,
    /// Why it is not enforced, or not known: the code and what failed.
    pub(crate) problem: Option<String>,
}

/// One guarantee.
#[derive(Serialize, ToSchema)]
#[schema(as = ContainmentGuarantee)]
pub(crate) struct GuaranteeForm {
    /// Its name.
    guarantee: String,
    /// What holds it.
    mechanism: &'static str,
    /// `held`, `broken` or `inconclusive`.
    verdict: &'static str,
    /// How many probes tried it.
    probes: u32,
}

impl From<Containment> for ContainmentForm {
    fn from(known: Containment) -> Self {
        let mut layers: Vec<String> = Vec::new();
        let held = known
            .guarantees
            .iter()
            .filter(|one| one.verdict == bastle_contract::Verdict::Held);
        for one in held {
            if !layers.iter().any(|layer| layer == one.mechanism) {
                layers.push(one.mechanism.to_owned());
            }
        }
        Self {
            enforced: known.verdict == ContainmentVerdict::Enforced,
            verdict: word(known.verdict),
            probed_at: time(known.probed_at_ms),
            age_ms: millis(known.age()),
            probe_ms: millis(known.took),
            layers,
            guarantees: known.guarantees.iter().map(GuaranteeForm::of).collect(),
            // Its reason may hold paths of this host.
            problem: known
                .problem
                .map(|fault| format!("{}: {}", fault.code, fault.code.info().title)),
            provider: known.backend.unwrap_or_else(|| "none".to_owned()),
            fence: known.fence,
        }
    }
}

impl GuaranteeForm {
    fn of(one: &bastle_control::containment::GuaranteeReport) -> Self {
        Self {
            guarantee: one.guarantee.to_string(),
            mechanism: one.mechanism,
            verdict: match one.verdict {
                bastle_contract::Verdict::Held => "held",
                bastle_contract::Verdict::Broken => "broken",
                bastle_contract::Verdict::Inconclusive => "inconclusive",
            },
            probes: one.probes,
        }
    }
}

/// The word of a verdict.
pub(crate) fn word(verdict: ContainmentVerdict) -> &'static str {
    match verdict {
        ContainmentVerdict::Enforced => "enforced",
        ContainmentVerdict::NotEnforced => "not-enforced",
        ContainmentVerdict::Inconclusive => "inconclusive",
    }
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A count of failures that no daemon reaches: no earlier result counts.
const NO_SPAWNER: u64 = u64::MAX;

impl App {
    /// A fresh result. However many ask, one trial is made and one thread waits for it.
    pub(crate) async fn contained(&self) -> Result<Containment, Refusal> {
        // A spawner that is gone is seen at once, whatever the age of the last trial.
        let failures = match is_spawner_bound() {
            true => self.fleet.fence_failures(),
            false => NO_SPAWNER,
        };
        if let Some(known) = self.containment.fresh(failures) {
            return Ok(known);
        }
        let _one = self.probing.lock().await;
        let cache = Arc::clone(&self.containment);
        let base = base(self);
        let trial = move || cache.get(failures, || Containment::probe(&base));
        let probed = tokio::task::spawn_blocking(trial).await;
        probed.map_err(|error| {
            Refusal::new(
                Code::ApiInternal,
                "the containment probe failed",
                error.to_string(),
            )
        })
    }
}

/// Where trials keep their state.
fn base(app: &App) -> PathBuf {
    app.state.join("daemon/probe")
}

/// Makes a trial at the start and after every run that did not get its fence, until the daemon ends.
pub(crate) async fn watch(app: App) {
    let (mut newest, mut closing) = (app.newest.clone(), app.closing.clone());
    // What a daemon left that was killed during a trial. There may be nothing.
    drop(std::fs::remove_dir_all(base(&app)));
    loop {
        let failures = app.fleet.fence_failures();
        if let Err(refusal) = app.contained().await {
            eprintln!(
                "bastle: the containment probe failed: {:?}",
                refusal.faults.first()
            );
        }
        while app.fleet.fence_failures() == failures {
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return },
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }
}
