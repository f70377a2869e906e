//! A run of the native backend as a sandbox: its socket, its files and its tree behind one face.
//!
//! **Trust:** the run is the invoking user's own. What it answers is parsed strictly; what its commands print is bytes.
use super::{
    Capabilities, ExecRequest, GrantRequest, Granted, Operation, Revoked, Sandbox, Standing, unsupported,
};
use crate::beside::{self, Ends, Finished};
use crate::keeper;
use crate::live::{self, Command};
use crate::processes;
use crate::review::{self, Fate};
use crate::runs::{RunDir, now_ms};
use crate::workspaces::Which;
use bastle_audit::{AuditEvent, Payload};
use bastle_contract::runs::{RunFile, RunState};
use bastle_contract::{AbsPath, BackendKind, CapabilityStatement, Code, Digest, Fault, RunId, Usage};
use bastle_workspace::discard::Discard;
use bastle_workspace::meta::{Snapshot, SnapshotName};
use bastle_workspace::place::Place;
use bastle_workspace::rollback::RolledBack;
use bastle_workspace::snapshot::Taken;
use bastle_workspace::workspace::Workspace;
use rustix::event::Timespec;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a run whose keeper may have been killed is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a run may take to be gone: its work is kept and its record is sealed meanwhile.
const AFTERWARDS: Duration = Duration::from_secs(120);
/// Records of a log that are looked through for the statement; it is among the first.
const MOST_RECORDS: usize = 64;

/// One run.
#[derive(Clone, Debug)]
pub struct NativeSandbox {
    state: PathBuf,
    id: RunId,
    /// Where its files are; `None` for a run at somebody's terminal.
    dir: Option<RunDir>,
}

impl NativeSandbox {
    /// Lets it go on also where a file system has less left than the reserve: for the rest of the run.
    pub fn resume_by_force(&self) -> Result<Standing, Vec<Fault>> {
        let answer = self.ask(&Command::Resume { force: true })?;
        self.read(answer)
    }

    /// A run that has a keeper.
    #[must_use]
    pub fn kept(state: &Path, dir: RunDir) -> Self {
        Self {
            state: state.to_path_buf(),
            id: dir.name().clone(),
            dir: Some(dir),
        }
    }

    /// A run that lives, or lived, at somebody's terminal.
    #[must_use]
    pub fn living(state: &Path, id: RunId) -> Self {
        Self {
            state: state.to_path_buf(),
            id,
            dir: None,
        }
    }

    /// The run of that name, if there is something of it.
    ///
    /// # Errors
    /// When there is not.
    pub fn find(state: &Path, id: &RunId) -> Result<Self, Fault> {
        if let Ok(dir) = RunDir::open(state, id) {
            return Ok(Self::kept(state, dir));
        }
        let copied = Place::new(state.to_path_buf()).meta(id).is_ok();
        if copied || live::connect(state, id).is_ok() {
            return Ok(Self::living(state, id.clone()));
        }
        Err(Fault::new(
            Code::RunMissing,
            format!("there is no run {id}"),
            "neither alive nor ended",
        )
        .help("bastle ps -a"))
    }

    /// Its tree, where it has one of its own.
    fn space(&self, operation: Operation) -> Result<Workspace, Fault> {
        let place = Place::new(self.state.clone());
        match Workspace::open(&place, &self.id) {
            Err(fault) if fault.code == Code::WorkspaceMissing => Err(unsupported(
                &format!("the run {}", self.id),
                operation,
                "it works in the project itself and has no tree of its own",
            )
            .help("bastle run --workspace copy -- CMD")),
            opened => opened,
        }
    }

    fn ask(&self, command: &Command) -> Result<Value, Vec<Fault>> {
        if let Some(dir) = &self.dir {
            let file = keeper::settle(dir).map_err(|fault| vec![fault])?;
            if file.state.is_final() {
                let what = format!("the run {} has ended", self.id);
                let fault = Fault::new(Code::UsageArgument, what, format!("it is {}", file.state));
                return Err(vec![fault.help("bastle ps")]);
            }
        }
        live::ask(&self.state, &self.id, command)
    }

    /// Reads an answer into what it should be.
    fn read<T: serde::de::DeserializeOwned>(&self, answer: Value) -> Result<T, Vec<Fault>> {
        serde_json::from_value(answer).map_err(|error| {
            let what = format!("the answer of {} cannot be understood", self.id);
            vec![Fault::new(Code::FenceLost, what, error.to_string())]
        })
    }

    /// Asks it to end, and kills it after the grace; wherever it is in its life. One that has ended stays as it is.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn ask_to_end(&self, grace: Duration) -> Result<(), Vec<Fault>> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let command = if grace.is_zero() {
            Command::Kill {}
        } else {
            Command::Stop { grace_ms }
        };
        let Some(dir) = &self.dir else {
            return match self.is_alive() {
                Ok(false) => Ok(()),
                Ok(true) | Err(_) => live::ask(&self.state, &self.id, &command).map(|_| ()),
            };
        };
        let one = |fault| vec![fault];
        let file = keeper::settle(dir).map_err(one)?;
        if file.state.is_final() {
            return Ok(());
        }
        if file.state == RunState::Queued && keeper::cancel_queued(dir).map_err(one)? {
            return Ok(());
        }
        match live::ask(&self.state, dir.name(), &command) {
            Ok(_) => Ok(()),
            // No socket yet, or no more: it is being built, or its end is being written.
            Err(_) => match dir.file().map_err(one)?.state {
                RunState::Building | RunState::Queued => keeper::interrupt(dir).map_err(one),
                RunState::Running
                | RunState::NeedsInput
                | RunState::NeedsCredential
                | RunState::Suspended
                | RunState::Completed
                | RunState::Failed
                | RunState::Cancelled
                | RunState::Refused => Ok(()),
            },
        }
    }

    /// Waits until it is gone; its file, where it has one.
    ///
    /// # Errors
    /// When it is not by then.
    pub fn gone(&self, until: Instant) -> Result<Option<RunFile>, Fault> {
        let still = || {
            let what = format!("the run {} has not ended yet", self.id);
            Fault::new(Code::FenceLost, what, "its grace is over").help(format!("bastle kill {}", self.id))
        };
        let Some(dir) = &self.dir else {
            // Its socket goes with it.
            while live::connect(&self.state, &self.id).is_ok() {
                if Instant::now() >= until {
                    return Err(still());
                }
                let moment = Timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                match rustix::event::poll(&mut [], Some(&moment)) {
                    Ok(_) | Err(_) => {}
                }
            }
            return Ok(None);
        };
        let waiter = dir.waiter();
        loop {
            let file = keeper::settle(dir)?;
            if file.state.is_final() {
                return Ok(Some(file));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(still());
            }
            waiter.wait(left.min(LOOK_AGAIN));
        }
    }

    /// What the probes found, from the record.
    fn statement(&self) -> Option<CapabilityStatement> {
        let records = bastle_audit::show(&self.state, &self.id).ok()?;
        let mut records = records.take(MOST_RECORDS).flatten();
        records.find_map(|record| match record.payload()? {
            Payload::Event(AuditEvent::Statement(statement)) => Some(statement),
            Payload::Event(_) | Payload::Mark(_) => None,
        })
    }
}

impl Sandbox for NativeSandbox {
    fn id(&self) -> &RunId {
        &self.id
    }

    fn capabilities(&self) -> Result<Capabilities, Fault> {
        let mut lacks = Vec::new();
        for operation in [Operation::Snapshot, Operation::Restore] {
            match self.space(operation) {
                Ok(_) => {}
                Err(fault) if fault.code == Code::BackendUnsupported => lacks.push((operation, fault.why)),
                Err(fault) => return Err(fault),
            }
        }
        Ok(Capabilities {
            backend: BackendKind::Native,
            lacks,
            statement: self.statement(),
        })
    }

    fn exec_streaming(&self, request: &ExecRequest, mut ends: Ends<'_>) -> Result<Finished, Vec<Fault>> {
        let ExecRequest {
            argv,
            env,
            cwd,
            tty,
            timeout,
        } = request.clone();
        ends.within = timeout;
        let command = Command::Exec { argv, env, cwd, tty };
        beside::exec(&self.state, &self.id, &command, ends)
    }

    fn is_alive(&self) -> Result<bool, Fault> {
        match &self.dir {
            Some(dir) => Ok(!keeper::settle(dir)?.state.is_final()),
            None => Ok(live::connect(&self.state, &self.id).is_ok()),
        }
    }

    fn suspend(&self) -> Result<(), Vec<Fault>> {
        self.ask(&Command::Pause {}).map(|_| ())
    }

    fn resume(&self) -> Result<Standing, Vec<Fault>> {
        let answer = self.ask(&Command::Resume { force: false })?;
        self.read(answer)
    }

    fn snapshot(&self, name: Option<SnapshotName>) -> Result<Taken, Fault> {
        review::snapshot(&self.space(Operation::Snapshot)?, name)
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, Fault> {
        self.space(Operation::Snapshot)?.snapshots()
    }

    fn restore(&self, which: &Which) -> Result<RolledBack, Fault> {
        review::rollback(&self.space(Operation::Restore)?, which)
    }

    fn grant(&self, request: &GrantRequest) -> Result<Granted, Vec<Fault>> {
        let mut answer = self.ask(&Command::Grant {
            path: request.path.clone(),
            access: request.access,
            way: request.way,
            seconds: request.lasts.map(|lasts| lasts.as_secs()),
            by: None,
        })?;
        self.read(answer["granted"].take())
    }

    fn revoke(&self, path: &AbsPath) -> Result<Revoked, Vec<Fault>> {
        let answer = self.ask(&Command::Withdraw {
            path: path.clone(),
            by: None,
        })?;
        let count = |name: &str| answer[name].as_u64().unwrap_or(0);
        Ok(Revoked {
            holders: count("holders"),
            ended: count("ended"),
        })
    }

    fn resource_usage(&self) -> Result<Usage, Fault> {
        let Some(dir) = &self.dir else {
            let what = format!("what the run {} uses is not known", self.id);
            return Err(Fault::new(Code::RunState, what, "it has no keeper")
                .help("start it in the background: bastle run -d -- CMD"));
        };
        let file = keeper::settle(dir)?;
        let mut usage = file.usage;
        if file.state.is_final() {
            return Ok(usage);
        }
        // While it lives: one look at its processes. What the kernel sums over dead ones is known at the end.
        if let Some(init) = file.init {
            let now = processes::look(&[init]).get(&init).copied().unwrap_or_default();
            usage.cpu_ms = usage.cpu_ms.max(now.cpu_ms);
            usage.peak_memory = usage.peak_memory.max(now.memory);
        }
        usage.wall_ms = file
            .started_ms
            .map_or(0, |started| now_ms().saturating_sub(started));
        Ok(usage)
    }

    fn destroy(&self, discard: Option<&Digest>) -> Result<Vec<PathBuf>, Vec<Fault>> {
        let one = |fault| vec![fault];
        self.ask_to_end(Duration::ZERO)?;
        self.gone(Instant::now() + AFTERWARDS).map_err(one)?;
        let mut gone = match self.space(Operation::Restore) {
            Ok(space) => {
                let discard = discard.map(Discard::from);
                let how = (discard.as_ref(), Fate::Trash);
                review::remove(&self.state, space, how, &review::local_person()).map_err(one)?
            }
            // It worked in the project itself: only its own files go.
            Err(fault) if fault.code == Code::BackendUnsupported => Vec::new(),
            Err(fault) => return Err(one(fault)),
        };
        if let Some(dir) = &self.dir {
            gone.push(review::remove_record(&self.state, dir.clone()).map_err(one)?);
        }
        Ok(gone)
    }
}
