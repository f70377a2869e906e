//! What every handler is given: the fleet, the settings, the counters.
//!
//! **Trust:** handlers reach the fleet only with a caller that was recognised; the fleet checks it again.
use crate::errors::Refusal;
use crate::guard::{Admission, Rate, Streams};
use crate::metrics::Metrics;
use bastle_contract::{Code, RunId};
use bastle_control::fleet::{Caller, Fleet, RunRecord, Verb};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// Shared by all requests.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) fleet: Fleet,
    /// What can be changed while it serves; replaced as a whole.
    pub(crate) settings: RwLock<Arc<Settings>>,
    pub(crate) streams: Streams,
    pub(crate) metrics: Metrics,
    /// Number of the newest event.
    pub(crate) newest: watch::Receiver<u64>,
    /// Whether the daemon is ending.
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) state: PathBuf,
    /// Where events are told over WebSocket, for whoever asks.
    pub(crate) ws_url: String,
    /// What the newest trial run showed of the fence.
    pub(crate) containment: Arc<bastle_control::containment::ContainmentCache>,
    /// Held by whoever makes a trial; the others wait without a thread.
    pub(crate) probing: tokio::sync::Mutex<()>,
    /// What the agent protocol's face needs.
    pub(crate) a2a: crate::a2a::Face,
}

/// Whom it serves, and how often.
pub(crate) struct Settings {
    pub(crate) admission: Admission,
    pub(crate) rate: Rate,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl App {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The settings of this moment.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other settings hold for every request from now on.
    pub(crate) fn change(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Calls the fleet where waiting is allowed.
    pub(crate) async fn ask<T, E>(
        &self,
        work: impl FnOnce(&Fleet) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        E: Into<Refusal> + Send + 'static,
    {
        let fleet = self.fleet.clone();
        match tokio::task::spawn_blocking(move || work(&fleet)).await {
            Ok(done) => done.map_err(Into::into),
            Err(error) => Err(Refusal::new(
                Code::ApiInternal,
                "a part of the daemon failed",
                error.to_string(),
            )),
        }
    }

    /// The run that a caller names, if it is one of theirs for this. Others' runs do not exist for them.
    pub(crate) async fn named(&self, caller: &Caller, verb: Verb, text: &str) -> Result<RunId, Refusal> {
        let asked = text.to_owned();
        if text.is_empty() || text.len() > RunId::MAX {
            return Err(Refusal::new(Code::RunMissing, "there is no such run", ""));
        }
        let missing = Refusal::new(
            Code::RunMissing,
            format!("there is no run {}", crate::dto::plain(text)),
            "",
        )
        .help("GET /api/v1/runs");
        let name = match RunId::try_from(asked.clone()) {
            Ok(_) => match self.ask(move |fleet| fleet.resolve(&asked)).await {
                Ok(name) => name,
                // A near name, or several that begin so, are told only to whoever may see all of them; to others it is the
                // same words whether a run is not there or not theirs.
                Err(refusal) => {
                    let code = refusal.faults.first().map(|fault| fault.code);
                    let held = caller.run.is_some() || caller.prefix.is_some();
                    let inside = code.is_some_and(|code| crate::errors::status_of(code).is_server_error());
                    return Err(if held && !inside { missing } else { refusal });
                }
            },
            Err(_) => return Err(missing),
        };
        if !caller.may_on(Verb::Read, &name) {
            return Err(missing);
        }
        if !caller.may_on(verb, &name) {
            return Err(Refusal::new(
                Code::ApiForbidden,
                "this token does not allow that",
                "",
            ));
        }
        Ok(name)
    }

    /// The run that a caller names to act inside it: one of theirs, with no more authority than they have.
    pub(crate) async fn entered(&self, caller: &Caller, verb: Verb, text: &str) -> Result<RunId, Refusal> {
        let name = self.named(caller, verb, text).await?;
        let (who, run) = (caller.clone(), name.clone());
        self.ask(move |fleet| fleet.may_enter(&who, &run)).await?;
        Ok(name)
    }

    /// The run itself.
    pub(crate) async fn run(&self, caller: &Caller, verb: Verb, text: &str) -> Result<RunRecord, Refusal> {
        let name = self.named(caller, verb, text).await?;
        self.ask(move |fleet| fleet.run(&name)).await
    }
}
