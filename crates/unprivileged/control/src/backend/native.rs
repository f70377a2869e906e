//! The native backend: runs that have a keeper each, below one state directory.
//!
//! **Trust:** the state directory is the invoking user's own. The keeper is this binary, or one that the caller names.
use super::{Destroyed, Health, IsolationBackend, NativeSandbox, Probe, Sandbox};
use crate::keeper;
use crate::live;
use crate::runs::{RunDir, now_ms, read_events};
use crate::spawner::Spawner;
use bastle_contract::runs::{LaunchSpec, RunFile, RunState};
use bastle_contract::{BackendKind, Code, Fault, HostFacts, RunId};
use bastle_workspace::place::Place;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long building may take before its start is no longer waited for.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Last words of a keeper that are shown.
const MOST_WORDS: u64 = 2000;

/// Namespaces, a constructed root, Landlock, seccomp and cgroups.
#[derive(Clone, Debug)]
pub struct NativeBackend {
    state: PathBuf,
    program: Option<PathBuf>,
}

impl NativeBackend {
    /// The runs of a state directory.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            state: state.to_path_buf(),
            program: None,
        }
    }

    /// The same with another binary as keeper, for a caller that is not bastle itself.
    #[must_use]
    pub fn with_program(self, program: &Path) -> Self {
        Self {
            program: Some(program.to_path_buf()),
            ..self
        }
    }

    /// Starts what was asked for. The directory and the file of the run as it stands then.
    ///
    /// # Errors
    /// As [`IsolationBackend::create`].
    pub fn start(&self, spec: &LaunchSpec) -> Result<(RunDir, RunFile), Vec<Fault>> {
        let one = |fault| vec![fault];
        let dir = RunDir::create(&self.state, spec, now_ms()).map_err(one)?;
        let file = match keeper::start(&self.state, &dir, self.program.as_deref(), PATIENCE) {
            Ok(file) => file,
            Err(fault) => {
                // Nobody was promised it yet.
                drop(dir.remove());
                return Err(one(fault));
            }
        };
        match file.state {
            RunState::Refused => {
                let faults = faults(&dir, &file);
                drop(dir.remove());
                Err(faults)
            }
            RunState::Failed if file.reason.as_deref() == Some("lost") => Err(one(lost(&dir))),
            RunState::Queued => {
                let fault = lost(&dir);
                drop(dir.remove());
                Err(one(fault))
            }
            RunState::Building
            | RunState::Running
            | RunState::NeedsInput
            | RunState::NeedsCredential
            | RunState::Suspended
            | RunState::Completed
            | RunState::Failed
            | RunState::Cancelled => Ok((dir, file)),
        }
    }

    /// What the kernel and the spawner offer here.
    fn facts(&self) -> Result<HostFacts, Fault> {
        let spawner = Spawner::start_of(self.program.as_deref())?;
        let facts = spawner.facts();
        // It has built nothing; its end says nothing more.
        drop(spawner.close());
        facts
    }
}

impl IsolationBackend for NativeBackend {
    fn name(&self) -> BackendKind {
        BackendKind::Native
    }

    fn probe(&self) -> Probe {
        match self.facts() {
            Ok(facts) => Probe {
                available: true,
                fence: facts.landlock.fence(""),
                fault: None,
            },
            Err(fault) => Probe {
                available: false,
                fence: "none".to_owned(),
                fault: Some(fault),
            },
        }
    }

    fn create(&self, spec: &LaunchSpec) -> Result<Box<dyn Sandbox>, Vec<Fault>> {
        let (dir, _) = self.start(spec)?;
        Ok(Box::new(NativeSandbox::kept(&self.state, dir)))
    }

    fn list(&self) -> Result<Vec<RunId>, Fault> {
        let kept = RunDir::all(&self.state);
        let mut names: Vec<RunId> = kept.iter().map(|dir| dir.name().clone()).collect();
        // Those at somebody's terminal have a socket, and perhaps a copy, and no directory.
        names.extend(live::living(&self.state));
        let place = Place::new(self.state.clone());
        if place.work().exists() {
            names.extend(place.runs()?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn get(&self, id: &RunId) -> Result<Box<dyn Sandbox>, Fault> {
        NativeSandbox::find(&self.state, id).map(|sandbox| Box::new(sandbox) as Box<dyn Sandbox>)
    }

    fn destroy_all(&self) -> Result<Vec<Destroyed>, Fault> {
        let destroy = |id: RunId| Destroyed {
            outcome: match self.get(&id) {
                Ok(sandbox) => sandbox.destroy(None),
                Err(fault) => Err(vec![fault]),
            },
            id,
        };
        Ok(self.list()?.into_iter().map(destroy).collect())
    }

    fn health(&self) -> Health {
        let mut faults = Vec::new();
        if let Err(error) = writable(&self.state) {
            let what = format!("cannot write below {}", self.state.display());
            faults.push(Fault::new(Code::StateDir, what, error.to_string()).help("df -h"));
        }
        faults.extend(self.probe().fault);
        Health {
            alive: live::living(&self.state).len(),
            faults,
        }
    }
}

/// Whether a record could be written now: also a full disk is found.
fn writable(state: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(state)?;
    let file = state.join(format!(".health-{}", std::process::id()));
    let written = std::fs::write(&file, b"x");
    match std::fs::remove_file(&file) {
        Err(error) if written.is_ok() => Err(error),
        Ok(()) | Err(_) => written,
    }
}

/// Why it was refused: everything that was said about it.
fn faults(dir: &RunDir, file: &RunFile) -> Vec<Fault> {
    let mut faults: Vec<Fault> = file.fault.iter().cloned().collect();
    let events = read_events(&dir.events_path(), 0, 1000).unwrap_or_default();
    faults.extend(
        events
            .iter()
            .filter_map(|event| serde_json::from_value(event.data.get("fault")?.clone()).ok()),
    );
    if faults.is_empty() {
        faults.push(lost(dir));
    }
    faults
}

/// The keeper is gone without a word in the files.
fn lost(dir: &RunDir) -> Fault {
    let mut words = String::new();
    if let Ok(file) = std::fs::File::open(dir.path().join("keeper.log")) {
        // What cannot be read was not said.
        drop(file.take(MOST_WORDS).read_to_string(&mut words));
    }
    let why = if words.is_empty() {
        "it was killed".to_owned()
    } else {
        words.trim().to_owned()
    };
    Fault::new(
        Code::FenceLost,
        format!("the keeper of the run {} is gone", dir.name()),
        why,
    )
    .help("bastle doctor")
}
