//! Standing still and going on: a run stands still while a person paused it, while its own process is suspended, or
//! while a question is open; and goes on only when none of these holds.
use super::Relay;
use bastle_audit::AuditEvent;
use bastle_contract::runs::RunState;
use bastle_contract::{Code, Fault, ToInit};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The signal that asks a program to end.
pub(super) const TERMINATE: u8 = 15;

/// Why a driven agent needs input that has nothing to do.
const IDLE: &str = "idle: the agent waits for what it is told";

/// What makes a run stand still.
#[derive(Default)]
pub(crate) struct Standing {
    /// A person paused it.
    paused: bool,
    /// The process of a run at a terminal was suspended.
    pub(super) suspended: bool,
    /// Somebody ends it: who is frozen hears no signal.
    stopping: bool,
    frozen: bool,
    /// The agent has the word.
    begun: bool,
    told: Option<(RunState, Option<String>)>,
}

impl Standing {
    /// The agent starts.
    pub(super) fn begin(&mut self) {
        self.begun = true;
        self.told = Some((RunState::Running, None));
    }
}

impl Relay<'_> {
    /// Freezes or thaws the tree, as it must be now, and tells.
    pub(super) fn stand(&mut self) -> Result<(), Fault> {
        let asked = self.net.as_ref().is_some_and(|net| !net.questions.is_empty());
        let Standing {
            paused,
            suspended,
            stopping,
            frozen,
            ..
        } = self.standing;
        let still = !stopping && (paused || suspended || asked);
        if still && !frozen {
            self.freeze();
            self.record.durable(&AuditEvent::Paused)?;
        } else if !still && frozen {
            self.thaw();
            self.record.durable(&AuditEvent::Resumed)?;
        }
        self.standing.frozen = still;
        if self.standing.begun && !self.ended {
            let now = self.standing_state();
            if self.standing.told.as_ref() != Some(&now) {
                self.voice.state(now.0, now.1.as_deref());
                self.standing.told = Some(now);
            }
        }
        Ok(())
    }

    /// Where the run is, and why.
    pub(super) fn standing_state(&self) -> (RunState, Option<String>) {
        let question = self.net.as_ref().and_then(|net| net.questions.front());
        match question {
            _ if !self.standing.begun => (RunState::Building, None),
            _ if self.standing.stopping => (RunState::Running, Some("stopping".to_owned())),
            _ if self.standing.paused => (RunState::Suspended, Some("paused".to_owned())),
            _ if self.standing.suspended => (RunState::Suspended, Some("suspended".to_owned())),
            Some(asked) => (
                RunState::NeedsInput,
                Some(format!("{} {}", asked.id, asked.about().words())),
            ),
            None if self.idles() => (RunState::NeedsInput, Some(IDLE.to_owned())),
            None => (RunState::Running, None),
        }
    }

    /// A person makes it stand still.
    pub(super) fn pause(&mut self) -> Result<Result<Value, Vec<Fault>>, Fault> {
        if !self.standing.begun || self.standing.stopping || self.ended {
            return Ok(Err(vec![
                Fault::new(
                    Code::UsageArgument,
                    format!("the run {} cannot be paused now", self.plan.run),
                    "it has not begun yet, or it is being ended",
                )
                .help(format!("bastle inspect {}", self.plan.run)),
            ]));
        }
        self.standing.paused = true;
        self.stand()?;
        Ok(Ok(json!({ "paused": self.plan.run })))
    }

    /// A person lets it go on; an open question still holds it.
    pub(super) fn go_on(&mut self) -> Result<Result<Value, Vec<Fault>>, Fault> {
        self.standing.paused = false;
        self.stand()?;
        let (state, reason) = self.standing_state();
        Ok(Ok(
            json!({ "resumed": self.plan.run, "state": state, "reason": reason }),
        ))
    }

    /// Ends the run: asked to, and killed when the grace is over. Asked again, the shorter grace holds.
    pub(super) fn stop(&mut self, grace: Duration, by: &str) {
        if !self.standing.stopping {
            self.standing.stopping = true;
            self.voice.stopping(by);
        }
        if grace.is_zero() {
            self.kill();
            return;
        }
        // Who is frozen hears nothing: first it goes on.
        if self.standing.frozen {
            self.thaw();
        }
        self.tell_init(&ToInit::Signal { signal: TERMINATE });
        let until = Instant::now() + grace;
        self.patience = Some(self.patience.map_or(until, |known| known.min(until)));
    }
}
