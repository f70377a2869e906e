//! The host backend: no fence at all, for machines that can have none. It checks names and paths before the start,
//! holds wall time and output, and records; nothing stops a program that means harm.
//!
//! **Deliberately absent:** any way here but through [`NotAFence`], which only the command line makes.
mod child;
mod gate;

use crate::execute::Receipt;
use crate::load::Loaded;
use crate::lookup::look_up;
use crate::pipeline::{Launch, plan_digest, recorded};
use crate::place::Place;
use crate::record::Record;
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::{
    Authority, BackendKind, CapabilityStatement, CgroupFacts, Code, EnvName, ExitCode, Fault, HostFacts,
    IdMapping, LandlockParts, LaunchPlan, LimitKind, Stdio, Waiver,
};
use bastle_policy::{LaunchRequest, Planned, Verdict};
use std::path::PathBuf;

/// The operator's word that they know what they give up.
#[derive(Clone, Copy, Debug)]
pub struct NotAFence(());

/// An unfenced launch that was checked and not started.
pub struct Unfenced {
    /// The plan and its story.
    pub planned: Planned,
    /// Of the host only what needs no spawner.
    pub facts: HostFacts,
    effective: serde_json::Value,
}

/// Limits that nothing holds without a fence: given up with it, by name, and recorded.
const GIVEN_UP: [LimitKind; 9] = [
    LimitKind::Cpu,
    LimitKind::Memory,
    LimitKind::Pids,
    LimitKind::Disk,
    LimitKind::Inodes,
    LimitKind::Files,
    LimitKind::BytesWritten,
    LimitKind::FileSize,
    LimitKind::DiskReserve,
];

impl NotAFence {
    /// For the flag of that name on the command line, and nothing else.
    #[must_use]
    pub fn i_understand_this_is_not_a_fence() -> Self {
        Self(())
    }
}

/// Judges and plans.
pub fn prepare(
    place: &Place,
    loaded: &Loaded,
    launch: Launch,
    _consent: NotAFence,
) -> Result<Unfenced, Fault> {
    gate::check(launch.argv.as_slice(), &place.cwd, &place.workspace)?;
    let waivers = GIVEN_UP
        .into_iter()
        .filter(|limit| loaded.effective.limit(*limit).is_some())
        .map(Waiver::Limit)
        .collect();
    let said: Vec<EnvName> = launch.env.iter().map(|(name, _)| name.clone()).collect();
    let request = LaunchRequest {
        run: launch.run,
        argv: launch.argv,
        cwd: place.cwd.clone(),
        stdio: Stdio::Pipes,
        env: launch.env,
        host_env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        backend: BackendKind::Host,
        waivers,
        debuggers: launch.debuggers,
        approval: launch.approval,
    };
    let grant = match bastle_policy::decide_launch(&loaded.effective, request) {
        Verdict::Granted(grant) => grant,
        Verdict::NeedsApproval(fault) | Verdict::Denied(fault) => return Err(fault),
    };
    let facts = facts();
    let mut planned =
        bastle_policy::plan(grant, &facts, &look_up(&bastle_policy::needs(&loaded.effective))?)?;
    unfence(&mut planned.plan, &said)?;
    Ok(Unfenced {
        planned,
        facts,
        effective: recorded(&loaded.effective.canonical()),
    })
}

/// Records, runs and seals.
pub fn run(place: &Place, unfenced: Unfenced, _consent: NotAFence) -> Result<Receipt, Fault> {
    let Unfenced {
        planned,
        facts,
        effective,
    } = unfenced;
    let mut plan = planned.plan;
    let mut record = Record::open(&place.state, &plan.run)?;
    record.durable(&AuditEvent::RunPlanned {
        policy: plan.policy.clone(),
        plan: plan_digest(&plan)?,
        argv: plan.argv.clone(),
        backend: plan.backend,
        waivers: plan.waivers.clone(),
        effective,
    })?;
    let identity = IdMapping {
        inside: facts.uid,
        outside: facts.uid,
    };
    record.durable(&AuditEvent::Statement(CapabilityStatement {
        fence: "none: SOFT_SANDBOX=true".to_owned(),
        identity,
        probes: Vec::new(),
    }))?;
    let private = Private::make(place, &plan)?;
    private.point_at(&mut plan);
    let outcome = child::run(&plan, &mut record);
    drop(private);
    close(outcome, record)
}

fn close(outcome: Result<child::Ending, (u8, Fault)>, mut record: Record) -> Result<Receipt, Fault> {
    let (ending, fault) = match outcome {
        Ok(ending) => (ending, None),
        Err((code, fault)) => (child::Ending::default(), Some((code, fault))),
    };
    if let Some((_, fault)) = &fault {
        record.append(&AuditEvent::Refused(fault.clone()))?;
    }
    if ending.discarded > 0 {
        record.append(&AuditEvent::OutputTruncated {
            bytes: ending.discarded,
        })?;
    }
    record.append(&AuditEvent::Ended {
        exit: ending.exit,
        usage: ending.usage,
        reason: ending.killed.clone(),
    })?;
    let code = match (&fault, ending.killed.is_some(), ending.exit) {
        (Some((code, _)), _, _) => *code,
        (None, true, _) => ExitCode::Timeout as u8,
        (None, false, Exit::Code(code)) => code,
        (None, false, Exit::Signal(signal)) => 128 + signal,
        (None, false, Exit::Unknown) => ExitCode::Failed as u8,
    };
    let limits = std::mem::take(&mut record.limits);
    let records = record.seal()?;
    Ok(Receipt {
        code,
        fault: fault.map(|(_, fault)| fault),
        killed: ending.killed,
        usage: ending.usage,
        denials: 0,
        limits,
        discarded: ending.discarded,
        records,
        steps: Vec::new(),
        net: None,
        work: None,
        files: None,
        caches: Vec::new(),
    })
}

/// Variables by which presets tell agents that they are in a sandbox and need none of their own.
const TELL_OF_A_FENCE: [&str; 3] = ["IS_SANDBOX", "SANDBOX", "GEMINI_SANDBOX"];

/// Nothing here may say that there is a fence: neither to the agent nor to a bastle started by it. What the person `said`
/// stays.
fn unfence(plan: &mut LaunchPlan, said: &[EnvName]) -> Result<(), Fault> {
    plan.env.retain(|(name, _)| {
        let tells = TELL_OF_A_FENCE.contains(&name.as_str());
        name.as_str() != "AGENT_IN_SANDBOX" && (!tells || said.contains(name))
    });
    let name = EnvName::try_from("SOFT_SANDBOX".to_owned())
        .map_err(|error| Fault::new(Code::UsageEnv, "cannot mark the run", error.to_string()))?;
    plan.env.retain(|(known, _)| *known != name);
    plan.env.push((name, "true".to_owned()));
    Ok(())
}

fn facts() -> HostFacts {
    let name = rustix::system::uname();
    HostFacts {
        kernel: name.release().to_string_lossy().into_owned(),
        arch: name.machine().to_string_lossy().into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        authority: Authority::of_this_process(),
        landlock_abi: 0,
        landlock: LandlockParts::NONE,
        seccomp_notify: false,
        cpus: 1,
        memory: 0,
        cgroup: CgroupFacts::none(),
    }
}

/// A home and a temporary directory of the run's own, gone with this value: the person's own stay out of the way.
struct Private(PathBuf);

impl Private {
    fn make(place: &Place, plan: &LaunchPlan) -> Result<Self, Fault> {
        use std::os::unix::fs::DirBuilderExt;
        let fault = |error: std::io::Error| {
            Fault::new(
                Code::StateDir,
                "cannot make the run's private directories",
                error.to_string(),
            )
        };
        let private = Self(place.state.join("host").join(plan.run.as_str()));
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for name in ["home", "tmp"] {
            builder.create(private.0.join(name)).map_err(fault)?;
        }
        Ok(private)
    }

    fn point_at(&self, plan: &mut LaunchPlan) {
        for (name, value) in &mut plan.env {
            match name.as_str() {
                "HOME" => *value = self.0.join("home").display().to_string(),
                "TMPDIR" => *value = self.0.join("tmp").display().to_string(),
                _ => {}
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What cannot be removed stays for the person to see; the run itself is over.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
