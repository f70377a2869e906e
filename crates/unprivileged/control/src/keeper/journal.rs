//! What a keeper writes about its run: numbered events, and where the run is. A state is on disk before anybody is told.
use crate::runs::{EventLog, RunDir, now_ms};
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{Code, Fault};
use serde_json::{Value, json};

/// The open journal of one run.
pub(super) struct Journal {
    dir: RunDir,
    events: EventLog,
    pub(super) file: RunFile,
}

impl Journal {
    /// Opens it; the caller holds the run's lock.
    pub(super) fn open(dir: &RunDir) -> Result<Self, Fault> {
        Ok(Self {
            dir: dir.clone(),
            events: dir.events()?,
            file: dir.file()?,
        })
    }

    /// Something happened. Given to the kernel, not to the disk.
    pub(super) fn event(&mut self, kind: &str, data: Value) -> Result<(), Fault> {
        self.events
            .append(kind, data)
            .map_err(|error| cannot(&error))
            .map(|event| self.file.last_event = event.seq)
    }

    /// Something happened that somebody may act upon: on disk when this returns.
    pub(super) fn durable(&mut self, kind: &str, data: Value) -> Result<(), Fault> {
        self.event(kind, data)?;
        self.events.sync().map_err(|error| cannot(&error))
    }

    /// Something unusual happened: counted where whoever lists runs looks.
    pub(super) fn finding(&mut self, severity: &str) -> Result<(), Fault> {
        self.file.findings.add(severity);
        self.dir.put(&self.file)
    }

    /// The run is somewhere else in its life.
    pub(super) fn state(&mut self, state: RunState, reason: Option<&str>) -> Result<(), Fault> {
        self.durable("state", json!({ "state": state, "reason": reason }))?;
        self.file.state = state;
        self.file.reason = reason.map(str::to_owned);
        match state {
            RunState::Running if self.file.started_ms.is_none() => self.file.started_ms = Some(now_ms()),
            state if state.is_final() => self.file.ended_ms = Some(now_ms()),
            _ => {}
        }
        self.dir.put(&self.file)
    }
}

fn cannot(error: &std::io::Error) -> Fault {
    Fault::new(
        Code::StateDir,
        "cannot write the events of the run",
        error.to_string(),
    )
    .help("free disk space, or set XDG_STATE_HOME to a writable directory")
}
