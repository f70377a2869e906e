//! The run's audit log, with the counts a receipt needs. No record, no effect: every failure here ends the run.
use bastle_audit::{AuditEvent, AuditWriter};
use bastle_contract::{Code, Denied, Fault, LimitHit, RunId};
use std::path::Path;

/// The open log of one run.
pub struct Record {
    writer: AuditWriter,
    pub(crate) denials: u64,
    pub(crate) limits: Vec<LimitHit>,
    pub(crate) cgroups: Vec<String>,
}

impl Record {
    /// Opens a new log below the state directory.
    pub fn open(state: &Path, run: &RunId) -> Result<Self, Fault> {
        let writer = AuditWriter::create(state, run).map_err(|error| cannot(&error))?;
        Ok(Self {
            writer,
            denials: 0,
            limits: Vec::new(),
            cgroups: Vec::new(),
        })
    }

    /// Appends without waiting for the disk: for what needs no word of ours to happen.
    pub(crate) fn append(&mut self, event: &AuditEvent) -> Result<(), Fault> {
        self.writer.append(event).map_err(|error| cannot(&error))?;
        self.writer.flush().map_err(|error| cannot(&error))
    }

    /// Appends and waits for the disk.
    pub(crate) fn durable(&mut self, event: &AuditEvent) -> Result<(), Fault> {
        self.writer
            .append_durable(event)
            .map(|_| ())
            .map_err(|error| cannot(&error))
    }

    /// The spawner made the sandbox.
    pub(crate) fn launched(&mut self, pid: u32, cgroups: Vec<String>) -> Result<(), Fault> {
        self.cgroups = cgroups;
        self.append(&AuditEvent::Started { pid })
    }

    /// A denial; its id is the same everywhere it is shown.
    pub(crate) fn denied(&mut self, denied: &Denied) -> Result<String, Fault> {
        self.denials += 1;
        let id = self
            .writer
            .append_durable(&AuditEvent::Denied(denied.clone()))
            .map_err(|error| cannot(&error))?;
        Ok(id.uid)
    }

    /// A limit that was hit.
    pub(crate) fn limit(&mut self, hit: &LimitHit) -> Result<(), Fault> {
        self.limits.push(hit.clone());
        self.durable(&AuditEvent::Limit(hit.clone()))
    }

    /// Closes the log for good.
    pub(crate) fn seal(self) -> Result<u64, Fault> {
        self.writer
            .seal()
            .map(|seal| seal.records)
            .map_err(|error| cannot(&error))
    }
}

fn cannot(error: &bastle_audit::AuditError) -> Fault {
    Fault::new(Code::AuditWrite, "cannot write the audit log", error.to_string())
        .help("free disk space, or set XDG_STATE_HOME to a writable directory")
}
