//! Standing still and going on: a run stands still while a person paused it, while its own process is suspended, or
//! while a question is open; and goes on only when none of these holds.
use super::Relay;
use super::reserve::Force;
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::runs::RunState;
use bastle_contract::{Code, ExitCode, Fault, ToInit};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The signal that asks a program to end.
pub(super) const TERMINATE: u8 = 15;

/// Why a driven agent needs input that has nothing to do.
const IDLE: &str = "idle: the agent waits for a message";

/// What makes a run stand still.
#[derive(Default)]
pub(crate) struct Standing {
    /// A person paused it.
    paused: bool,
    /// The process of a run at a terminal was suspended.
    pub(super) suspended: bool,
    /// A name is open that must be covered first.
    pub(super) covering: bool,
    /// A file system has too little left: which.
    pub(super) short: Option<String>,
    /// Somebody ends it: who is frozen hears no signal.
    stopping: bool,
    frozen: bool,
    /// Processes that went on by themselves since it was frozen by signals.
    awake: u32,
    /// Whether that it stands still is on record.
    recorded: bool,
    /// The fence is proven: the agent may have the word.
    proven: bool,
    /// The agent has the word.
    begun: bool,
    told: Option<(RunState, Option<String>)>,
}

impl Standing {
    /// Whether the agent has the word.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether the fence is proven.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// The agent may start, once nothing makes the run stand still.
    pub(super) fn proven(&mut self) {
        self.proven = true;
    }

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
            covering,
            recorded,
            ..
        } = &self.standing;
        let (paused, suspended, stopping, frozen) = (*paused, *suspended, *stopping, *frozen);
        let (covering, recorded) = (*covering, *recorded);
        let short = self.standing.short.is_some();
        let told = !stopping && (paused || suspended || asked || short);
        // Also while it is being ended: an open name must not be used to end well.
        let still = told || covering;
        if !self.standing.begun {
            // Nothing runs yet that could be frozen: the agent is not given the word.
            if self.standing.proven && !still && !stopping {
                self.set_off();
            }
        } else if still && !frozen {
            self.freeze();
        } else if !still && frozen {
            self.thaw();
            self.standing.awake = 0;
        }
        self.standing.frozen = still && self.standing.begun;
        self.standing.recorded = told;
        if told && !recorded {
            self.record.durable(&AuditEvent::Paused)?;
        } else if !told && recorded {
            self.record.durable(&AuditEvent::Resumed)?;
        }
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
        if let (Some(why), true, false) = (&self.standing.short, self.standing.begun, self.standing.stopping)
        {
            return super::reserve::state(why);
        }
        match question {
            _ if !self.standing.begun => (RunState::Building, None),
            _ if self.standing.stopping => (RunState::Running, Some("stopping".to_owned())),
            _ if self.standing.paused => (RunState::Suspended, Some(self.pause_reason())),
            _ if self.standing.suspended => (RunState::Suspended, Some("suspended".to_owned())),
            Some(asked) => (
                RunState::NeedsInput,
                Some(format!("{} {}", asked.id, asked.about().words())),
            ),
            None if self.idles() => (RunState::NeedsInput, Some(IDLE.to_owned())),
            None => (RunState::Running, None),
        }
    }

    /// By what the pause holds, and whether it does: signals promise less than a cgroup.
    fn pause_reason(&self) -> String {
        match (self.freezes(), self.standing.awake) {
            (true, _) => "paused".to_owned(),
            (false, 0) => "paused by signals (no cgroup)".to_owned(),
            (false, count) => format!(
                "pause does not hold (no cgroup): {count} of its processes continue themselves and are stopped again"
            ),
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

    /// Without a cgroup processes are stopped by signals, and some go on by themselves: a pause that does not hold is told.
    pub(super) fn awake(&mut self, count: u32) -> Result<(), Fault> {
        // Too late when the run was resumed meanwhile.
        if self.standing.frozen {
            self.standing.awake = count;
        }
        self.voice.happened("pause", json!({ "awake": count }));
        let text = format!(
            "the run is stopped by signals, since it has no cgroup, and {count} of its processes went on by themselves; they \
             are stopped again whenever they are seen, and calls that change names wait"
        );
        let topic = "pause".to_owned();
        self.record.append(&AuditEvent::Note { topic, text })?;
        self.stand()
    }

    /// A person lets it go on; an open question still holds it.
    pub(super) fn go_on(&mut self, force: Force) -> Result<Result<Value, Vec<Fault>>, Fault> {
        if let Err(fault) = self.lift_reserve(force) {
            return Ok(Err(vec![fault]));
        }
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
        if grace.is_zero() || !self.standing.begun {
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

    /// Passes a signal on to the agent. One that has not started yet is not started any more.
    pub(super) fn signal_agent(&mut self, signal: u8) {
        if self.standing.begun {
            self.tell_init(&ToInit::Signal { signal });
            return;
        }
        self.standing.stopping = true;
        self.ending.exit = Exit::Signal(signal);
        self.kill();
    }

    /// A run that ended before its agent was started, and for no reason that was told, is not silent about it.
    pub(super) fn explain(&mut self) {
        let told = self.ending.fault.is_some() || self.ending.killed.is_some();
        if !told && !self.standing.begun && self.ending.exit == Exit::Unknown {
            let fault = Fault::new(
                Code::FenceLost,
                "the sandbox ended before the agent was started",
                "its init is gone without a word",
            );
            self.ending.fault = Some((ExitCode::Failed as u8, fault.help("bastle doctor")));
        }
    }
}
