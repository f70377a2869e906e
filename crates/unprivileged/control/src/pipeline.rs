//! The walk of one request: judged, planned, recorded, launched. No step is reachable without the value of the one before.
use crate::execute::{Receipt, execute};
use crate::load::Loaded;
use crate::lookup::look_up;
use crate::place::Place;
use crate::record::Record;
use crate::spawner::Spawner;
use crate::voice::Voice;
use bastle_audit::AuditEvent;
use bastle_contract::{Argv, BackendKind, Code, Digest, EnvName, Fault, HostFacts, RunId, Stdio, Waiver};
use bastle_policy::{LaunchRequest, Planned, Verdict};

/// What a person asked for.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Name of the run; see [`crate::new_run_id`].
    pub run: RunId,
    /// What to run.
    pub argv: Argv,
    /// `--env`.
    pub env: Vec<(EnvName, String)>,
    /// Terminal or pipes.
    pub stdio: Stdio,
    /// Limits given up by name.
    pub waivers: Vec<Waiver>,
    /// Whether debuggers work inside.
    pub debuggers: bool,
}

/// A launch that is planned and not started: all that a dry run shows.
pub struct Ready {
    /// The plan and its story.
    pub planned: Planned,
    /// The host.
    pub facts: HostFacts,
    spawner: Spawner,
    effective: serde_json::Value,
}

impl Ready {
    /// The plan and the spawner that waits for it.
    pub(crate) fn into_parts(self) -> (bastle_contract::LaunchPlan, Spawner) {
        (self.planned.plan, self.spawner)
    }
}

/// Judges and plans. The spawner was started before, so that it looks at the host while the policy is read here.
pub fn prepare(place: &Place, loaded: &Loaded, spawner: Spawner, launch: Launch) -> Result<Ready, Fault> {
    let request = LaunchRequest {
        run: launch.run,
        argv: launch.argv,
        cwd: place.cwd.clone(),
        stdio: launch.stdio,
        env: launch.env,
        host_env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        backend: BackendKind::Native,
        waivers: launch.waivers,
        debuggers: launch.debuggers,
    };
    let grant = match bastle_policy::decide_launch(&loaded.effective, request) {
        Verdict::Granted(grant) => grant,
        Verdict::NeedsApproval(fault) | Verdict::Denied(fault) => return Err(fault),
    };
    // A policy that contradicts its own tests is not the one its author meant.
    if let Some(fault) = bastle_policy::selftest(&loaded.effective)
        .iter()
        .find_map(bastle_policy::TestReport::fault)
    {
        return Err(fault);
    }
    // Before the look around: a directory that comes into being later could not be covered.
    std::fs::create_dir_all(&place.state).map_err(|error| {
        Fault::new(
            Code::StateDir,
            format!("cannot make {}", place.state.display()),
            error.to_string(),
        )
        .help("set XDG_STATE_HOME to a writable directory")
    })?;
    let fs = look_up(&bastle_policy::needs(&loaded.effective))?;
    let facts = spawner.facts()?;
    let planned = bastle_policy::plan(grant, &facts, &fs)?;
    let effective = recorded(&loaded.effective.canonical());
    Ok(Ready {
        planned,
        facts,
        spawner,
        effective,
    })
}

/// Carries the plan out, and records it before the agent gets the word.
pub fn run(place: &Place, ready: Ready, voice: &mut dyn Voice) -> Result<Receipt, Fault> {
    let Ready {
        planned,
        facts: _,
        spawner,
        effective,
    } = ready;
    let plan = planned.plan;
    let digest = plan_digest(&plan)?;
    let record = || {
        let mut record = Record::open(&place.state, &plan.run)?;
        record.durable(&AuditEvent::RunPlanned {
            policy: plan.policy.clone(),
            plan: digest,
            argv: plan.argv.clone(),
            backend: plan.backend,
            waivers: plan.waivers.clone(),
            effective,
        })?;
        Ok(record)
    };
    execute(&plan, spawner, record, voice)
}

/// The effective policy for the record: its rules as a list, without the values of variables.
pub(crate) fn recorded(canonical: &str) -> serde_json::Value {
    let line = |line: &str| match line.strip_prefix("env.set ").and_then(|set| set.split_once('=')) {
        Some((name, _)) => format!("env.set {name}=[redacted]"),
        None => line.to_owned(),
    };
    canonical.lines().map(line).collect()
}

/// The digest of the plan as it is handed over.
pub(crate) fn plan_digest(plan: &bastle_contract::LaunchPlan) -> Result<Digest, Fault> {
    let fault = |why: String| Fault::new(Code::FenceStep, "cannot digest the plan", why);
    let bytes = serde_json::to_vec(plan).map_err(|error| fault(error.to_string()))?;
    Digest::try_from(blake3::hash(&bytes).to_hex().to_string()).map_err(|error| fault(error.to_string()))
}
