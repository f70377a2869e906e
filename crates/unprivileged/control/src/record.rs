//! The run's audit log, with the counts a receipt needs. No record, no effect: every failure here ends the run.
//!
//! Very many records of one sort are counted and not kept, so that an agent cannot fill the disk with them; the first of
//! each kind is kept whatever came before it, and a sample of the others (`kinds.rs`), so that a flood hides nothing.
mod kinds;
#[cfg(test)]
mod tests;

use bastle_audit::{AuditError, AuditEvent, AuditWriter};
use bastle_contract::{Code, Denied, ExecSeen, Fault, LimitHit, LimitLost, RunId};
use kinds::Kinds;
use std::path::Path;
use std::time::Instant;

/// Denials that are kept one by one: about 5 MiB.
const MOST_DENIALS: u64 = 5_000;
/// Denials that wait for the disk, each.
const DURABLE_DENIALS: u64 = 100;
/// Started programs that are kept one by one: about 20 MiB.
const MOST_PROGRAMS: u64 = 20_000;
/// Requests, lookups and their ends that are kept one by one: about 500 MiB. What is held back until it is recorded
/// is always kept.
const MOST_NET: u64 = 400_000;

/// Programs after which it is told that there were as many.
pub(crate) const PROGRAMS_STEP: u64 = 256;

/// Whether a record can be left out when there are very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// An effect waits for it.
    Always,
    /// Nothing does.
    WhileFew,
}

/// The open log of one run.
pub struct Record {
    writer: AuditWriter,
    pub(crate) denials: u64,
    programs: u64,
    net: u64,
    /// Kinds of denials, programs (the system's apart) and network records beyond those kept one by one.
    of_denials: Kinds,
    of_programs: Kinds,
    of_system: Kinds,
    of_net: Kinds,
    pub(crate) limits: Vec<LimitHit>,
    pub(crate) cgroups: Vec<String>,
}

impl Record {
    /// Opens a new log below the state directory.
    pub fn open(state: &Path, run: &RunId) -> Result<Self, Fault> {
        let writer = AuditWriter::create(state, run).map_err(|error| cannot(&error))?;
        Ok(Self::of(writer))
    }

    /// The same for an agent that is told its trace: the log belongs to the same one.
    pub(crate) fn open_in_trace(
        state: &Path,
        run: &RunId,
        env: &[(bastle_contract::EnvName, String)],
    ) -> Result<Self, Fault> {
        let told = env
            .iter()
            .find(|(name, _)| name.as_str() == bastle_contract::TRACE_VARIABLE)
            .and_then(|(_, value)| bastle_contract::TraceParent::parse(value).ok());
        let Some(trace) = told else {
            return Self::open(state, run);
        };
        let writer =
            AuditWriter::create_with_trace(state, run, trace.trace).map_err(|error| cannot(&error))?;
        Ok(Self::of(writer))
    }

    /// Takes up the log of a run whose writer died; `None` when it is closed already, or somebody writes it.
    pub(crate) fn resume(state: &Path, run: &RunId) -> Result<Option<Self>, Fault> {
        match AuditWriter::resume(state, run) {
            Ok((writer, _)) => Ok(Some(Self::of(writer))),
            Err(AuditError::Sealed { .. } | AuditError::Busy { .. } | AuditError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.fault()),
        }
    }

    /// What an anchor has against the index of all logs, once; this log has it as a note.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.writer.take_warning()
    }

    fn of(writer: AuditWriter) -> Self {
        Self {
            writer,
            denials: 0,
            programs: 0,
            net: 0,
            of_denials: Kinds::denials(),
            of_programs: Kinds::named(),
            of_system: Kinds::system(),
            of_net: Kinds::named(),
            limits: Vec::new(),
            cgroups: Vec::new(),
        }
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

    /// A denial; its id is the same everywhere it is shown. `None` once there are too many to keep one by one: an
    /// agent must not fill the disk with its own failures.
    pub(crate) fn denied(&mut self, denied: &Denied) -> Result<Option<String>, Fault> {
        self.denials += 1;
        if self.denials > MOST_DENIALS {
            let kind = kinds::of_denial(denied);
            if !self.of_denials.keeps_name(kind, &denied.target, Instant::now()) {
                return Ok(None);
            }
        }
        let event = AuditEvent::Denied(denied.clone());
        let id = self.writer.append(&event).map_err(|error| cannot(&error))?;
        // The first ones wait for the disk; a burst must not be slowed down by it.
        if self.denials <= DURABLE_DENIALS {
            self.writer.sync().map_err(|error| cannot(&error))?;
        }
        Ok(Some(id.uid))
    }

    /// A program that was started.
    pub(crate) fn exec(&mut self, seen: ExecSeen) -> Result<(), Fault> {
        self.programs += 1;
        if self.programs > MOST_PROGRAMS && !self.keeps_program(&seen) {
            Ok(())
        } else {
            self.append(&AuditEvent::Exec(seen))
        }
    }

    /// Names that the agent makes up take no room of the system's programs.
    fn keeps_program(&mut self, seen: &ExecSeen) -> bool {
        let now = Instant::now();
        match kinds::of_system_program(seen) {
            Some(program) => self.of_system.keeps(program, now),
            None => self.of_programs.keeps(kinds::of_program(seen), now),
        }
    }

    /// Whether it is time to tell how many programs were started: once for each [`PROGRAMS_STEP`] of them.
    pub(crate) fn programs_step(&self) -> bool {
        self.programs > 0 && self.programs.is_multiple_of(PROGRAMS_STEP)
    }

    /// Something of the network, in memory: the caller flushes or syncs once for all that came together.
    pub(crate) fn net(&mut self, event: &AuditEvent, keep: Keep) -> Result<(), Fault> {
        self.net += 1;
        if self.net > MOST_NET
            && keep == Keep::WhileFew
            && !self.of_net.keeps(kinds::of_network(event), Instant::now())
        {
            return Ok(());
        }
        self.writer
            .append(event)
            .map(|_| ())
            .map_err(|error| cannot(&error))
    }

    /// What became of a file, in memory: the record of the whole follows and takes all to the kernel.
    pub(crate) fn file(&mut self, event: &AuditEvent) -> Result<(), Fault> {
        self.writer
            .append(event)
            .map(|_| ())
            .map_err(|error| cannot(&error))
    }

    /// Hands everything to the kernel.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.writer.flush().map_err(|error| cannot(&error))
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self) -> Result<(), Fault> {
        self.writer.sync().map_err(|error| cannot(&error))
    }

    /// A limit that was hit.
    pub(crate) fn limit(&mut self, hit: &LimitHit) -> Result<(), Fault> {
        self.limits.push(hit.clone());
        self.durable(&AuditEvent::Limit(hit.clone()))
    }

    /// A limit that does not hold any more.
    pub(crate) fn limit_lost(&mut self, lost: LimitLost) -> Result<(), Fault> {
        self.durable(&AuditEvent::LimitLost(lost))
    }

    /// Closes the log for good, with a word on what was only counted.
    pub(crate) fn seal(mut self) -> Result<u64, Fault> {
        let counted = [
            ("denials", self.denials, MOST_DENIALS, vec![&self.of_denials]),
            (
                "programs",
                self.programs,
                MOST_PROGRAMS,
                vec![&self.of_system, &self.of_programs],
            ),
            ("network", self.net, MOST_NET, vec![&self.of_net]),
        ];
        let flooded = counted.into_iter().filter(|(_, seen, most, _)| seen > most);
        let notes = flooded.map(|(topic, seen, most, kinds)| {
            let mut text = format!("{} more were counted and not kept one by one", seen - most);
            let told: Vec<String> = kinds.iter().map(|kinds| kinds.told()).collect();
            let of_kinds: Vec<String> = told.into_iter().filter(|told| !told.is_empty()).collect();
            if !of_kinds.is_empty() {
                let kept: u64 = kinds.iter().map(|kinds| kinds.kept()).sum();
                text = format!("{text}, a sample of {kept} was kept: {}", of_kinds.join(", "));
            }
            AuditEvent::Note {
                topic: topic.to_owned(),
                text,
            }
        });
        for note in notes.collect::<Vec<_>>() {
            self.append(&note)?;
        }
        self.writer
            .seal()
            .map(|seal| seal.records)
            .map_err(|error| cannot(&error))
    }
}

fn cannot(error: &bastle_audit::AuditError) -> Fault {
    if let bastle_audit::AuditError::Exists { run } = error {
        return Fault::new(
            Code::UsageArgument,
            format!("the name {run} was used before"),
            "its audit log stays when a run is removed, and a log is of one run",
        )
        .help("leave --name out, or take another name")
        .help(format!("what became of the first one: bastle audit show {run}"));
    }
    Fault::new(Code::AuditWrite, "cannot write the audit log", error.to_string())
        .help("free disk space, or set XDG_STATE_HOME to a writable directory")
}
