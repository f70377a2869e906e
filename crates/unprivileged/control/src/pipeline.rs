//! The walk of one request: judged, planned, recorded, launched. No step is reachable without the value of the one before.
use crate::caches::{Caches, Lending};
use crate::egress::{Attendance, Egress, Outlet, Rules, Setup, Trusted, reaches};
use crate::execute::{Means, Receipt, execute};
use crate::grants::{self, Grants, Judge};
use crate::keeper::Front;
use crate::load::Loaded;
use crate::lookup::look_up_in;
use crate::newer_kernel::newer_kernel;
use crate::place::Place;
use crate::record::Record;
use crate::relay::{Approvals, Net};
use crate::secrets::{Canary, Secrets};
use crate::spawner::Spawner;
use crate::voice::Voice;
use crate::workspaces::{Making, Work, WorkFacts, WorkWish, refuse_links};
use crate::writers::{self, Entered, Sharing, Writer, settle};
use bastle_audit::AuditEvent;
use bastle_contract::egress::Faces;
use bastle_contract::{
    AbsPath, Argv, BackendKind, Code, Digest, EnvName, Fault, HostFacts, Network, RunId, Stdio, Waiver,
};
use bastle_policy::{FsFacts, Grade, Grant, LaunchApproval, LaunchRequest, LayerKind, Planned, Verdict};
use std::time::{Duration, SystemTime};

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
    /// Who can answer a question.
    pub attendance: Attendance,
    /// Whether a person approved the command line.
    pub approval: LaunchApproval,
    /// The run that started it, if one did.
    pub parent: Option<RunId>,
    /// Whether it starts where another run writes.
    pub sharing: Sharing,
}

/// Processes that were started while the policy was read.
pub struct Helpers {
    /// Builds the sandbox.
    pub spawner: Spawner,
    /// Decides about requests; `None` where it is known before that nothing goes out.
    pub egress: Option<Egress>,
}

/// A launch that is planned and not started: all that a dry run shows.
pub struct Ready {
    /// The plan and its story.
    pub planned: Planned,
    /// The host.
    pub facts: HostFacts,
    spawner: Spawner,
    outlet: Option<Outlet>,
    attachments: Vec<u8>,
    approvals: Approvals,
    effective: serde_json::Value,
    work: Work,
    directories: (Vec<AbsPath>, SystemTime),
    caches: Caches,
    grants: Grants,
    approval: LaunchApproval,
    entered: Option<Entered>,
    sharing: Sharing,
}

impl Ready {
    /// The tree that the agent works in.
    #[must_use]
    pub fn work(&self) -> WorkFacts {
        self.work.facts()
    }

    /// The plan and the spawner that waits for it.
    pub(crate) fn into_parts(self) -> (bastle_contract::LaunchPlan, Spawner) {
        (self.planned.plan, self.spawner)
    }

    /// The run's own certificate authority, where some rule needs to look into TLS.
    #[must_use]
    pub fn has_authority(&self) -> bool {
        self.outlet
            .as_ref()
            .is_some_and(|outlet| outlet.setup.authority.is_some())
    }
}

/// Judges and plans a run in the project itself.
pub fn prepare(
    place: &Place,
    loaded: &Loaded,
    rules: Rules,
    helpers: Helpers,
    launch: Launch,
) -> Result<Ready, Fault> {
    prepare_in(place, loaded, rules, helpers, launch, None)
}

/// Judges, makes the tree that was wished for, and plans. The helpers were started before, so that they get ready while
/// the policy is read and files are copied here.
pub fn prepare_in(
    place: &Place,
    loaded: &Loaded,
    rules: Rules,
    helpers: Helpers,
    launch: Launch,
    wish: Option<WorkWish<'_>>,
) -> Result<Ready, Fault> {
    let Helpers { spawner, egress } = helpers;
    let (run, attendance, approval) = (launch.run.clone(), launch.attendance, launch.approval);
    let (parent, sharing) = (launch.parent.clone(), launch.sharing);
    let waived = launch.waivers.contains(&Waiver::LANDLOCK);
    let argv = match &loaded.agent {
        Some(agent) => agent.argv(launch.argv.clone())?,
        None => launch.argv.clone(),
    };
    let request = asked_of_policy(place, launch, argv.clone());
    bastle_policy::refuse_shown(&loaded.effective)?;
    refuse_links(&loaded.effective)?;
    let needs = bastle_policy::needs_of(&loaded.effective, &request);
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
    make_state(place)?;
    let lending = match &wish {
        Some(wish) if wish.making == Making::Never => Lending::Never,
        Some(_) | None => Lending::Now,
    };
    let mut work = match wish {
        Some(wish) => Work::make(place, loaded, &run, &argv, wish)?,
        None => Work::in_place(place),
    };
    let entered = match lending {
        Lending::Never => None,
        Lending::Now => enter(place, loaded, &work, (run.clone(), parent, sharing))?,
    };
    let sources = rules.sources().clone();
    // It makes itself ready while the plan is made here.
    let asked = match egress {
        Some(egress) if reaches(loaded.effective.net.mode) => {
            let asked = ask(place, loaded, rules, egress, (run.clone(), attendance));
            Some(asked.map_err(|fault| if waived { fault } else { cause(&spawner, fault) })?)
        }
        Some(_) | None => None,
    };
    let since = SystemTime::now();
    let mut fs = look_up_in(&needs, work.view())?;
    let facts = spawner.facts()?;
    let mut planned = plan_here(grant, &facts, &fs)?;
    work.rebase(&mut planned)?;
    work.tell(&loaded.effective, &fs);
    let directories = (std::mem::take(&mut fs.directories), since);
    let caches = Caches::lend(place, &loaded.effective, &run, lending)?;
    caches.put_into(&mut planned)?;
    planned.with_grants(&loaded.effective, grants::client())?;
    let grants = Grants::new(Judge::new(place, sources, &loaded.layers, &facts));
    let (outlet, attachments) = asked
        .map(|outlet| connect(outlet, &mut planned))
        .transpose()?
        .unzip();
    let attachments = equip(
        &mut planned,
        loaded,
        outlet.as_ref(),
        attachments.unwrap_or_default(),
    )?;
    Ok(Ready {
        planned,
        facts,
        spawner,
        outlet,
        attachments,
        approvals: approvals(&loaded.effective.budgets),
        effective: recorded(&loaded.effective.canonical()),
        work,
        directories,
        caches,
        grants,
        approval,
        entered,
        sharing,
    })
}

/// What policy decides about.
fn asked_of_policy(place: &Place, launch: Launch, argv: Argv) -> LaunchRequest {
    LaunchRequest {
        run: launch.run,
        argv,
        cwd: place.cwd.clone(),
        stdio: launch.stdio,
        env: launch.env,
        host_env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        backend: BackendKind::Native,
        waivers: launch.waivers,
        debuggers: launch.debuggers,
        approval: launch.approval,
    }
}

/// Takes the places that the run writes outside a copy, so that no other run that lives writes them.
fn enter(
    place: &Place,
    loaded: &Loaded,
    work: &Work,
    (run, parent, sharing): (RunId, Option<RunId>, Sharing),
) -> Result<Option<Entered>, Fault> {
    let mut paths = Vec::new();
    for granted in loaded.effective.granted(Grade::Write) {
        let path = &granted.value;
        if path.is_within(&place.workspace) || place.workspace.is_within(path) {
            let own = if path.is_within(&place.workspace) {
                path
            } else {
                &place.workspace
            };
            if !work.is_copy() {
                paths.push(own.to_string());
            }
        } else if granted.origin.layer == LayerKind::Flags {
            paths.push(settle(path.as_str())?);
        }
    }
    if paths.is_empty() {
        return Ok(None);
    }
    writers::enter(&place.state, &Writer { run, parent, paths }, sharing).map(Some)
}

fn make_state(place: &Place) -> Result<(), Fault> {
    std::fs::create_dir_all(&place.state).map_err(|error| {
        Fault::new(
            Code::StateDir,
            format!("cannot make {}", place.state.display()),
            error.to_string(),
        )
        .help("set XDG_STATE_HOME to a writable directory")
    })
}

/// How long a question waits for its answer, and what silence means.
fn approvals(budgets: &bastle_policy::Budgets) -> Approvals {
    let patience = budgets.approval_timeout.as_ref();
    (
        patience.map(|at| Duration::from_millis(at.value)),
        budgets.on_timeout.as_ref().map(|at| at.value),
    )
}

/// Puts what an agent's preset found on this host into the plan. A copy that holds the value of a secret is not handed
/// over: the placeholder would be a lie.
fn equip(
    planned: &mut Planned,
    loaded: &Loaded,
    outlet: Option<&Outlet>,
    mut attachments: Vec<u8>,
) -> Result<Vec<u8>, Fault> {
    let Some(agent) = &loaded.agent else {
        return Ok(attachments);
    };
    let secrets = outlet.map(|outlet| &outlet.setup.secrets);
    for file in &agent.files {
        if let Some(name) = secrets.and_then(|secrets| secrets.found_in(&file.bytes)) {
            return Err(Fault::new(
                Code::SecretStore,
                format!("the value of {name} would be readable inside"),
                format!("{} holds it, {}", file.to, file.note),
            )
            .help(format!(
                "bastle secret set {name} keeps it; then take it out of that file"
            ))
            .help("--preset none starts the agent without its files"));
        }
    }
    planned.with_programs(&agent.preset, &agent.links)?;
    planned.with_files(&agent.preset, &agent.files, &mut attachments)?;
    Ok(attachments)
}

/// Tells egress its rules and secrets.
fn ask(
    place: &Place,
    loaded: &Loaded,
    mut rules: Rules,
    egress: Egress,
    (run, attendance): (RunId, Attendance),
) -> Result<Outlet, Fault> {
    let table = rules.table().map_err(first)?;
    let secrets = Secrets::fetch(&loaded.effective, place)?;
    let wanted = loaded
        .effective
        .budgets
        .canary
        .as_ref()
        .is_none_or(|canary| canary.value);
    let canary = wanted.then(Canary::make).transpose()?;
    let setup = Setup {
        run,
        attendance,
        cpu: bastle_policy::egress_cpu(&loaded.effective),
        table,
        secrets,
        canary,
        authority: None,
        kept: Vec::new(),
        probes: Vec::new(),
        faces: Faces {
            transparent: Vec::new(),
        },
    };
    setup.ask(&egress)?;
    Ok(Outlet { egress, setup, rules })
}

/// Why egress cannot be asked. Where the kernel lacks what every fence needs, it is the first that fails, and not the cause.
fn cause(spawner: &Spawner, fault: Fault) -> Fault {
    let host = spawner
        .facts()
        .and_then(|facts| bastle_policy::check_host(&facts));
    host.err().unwrap_or(fault)
}

/// Plans for this host. Where its kernel is the cause of a refusal, what this distribution offers is in the help.
fn plan_here(grant: Grant, host: &HostFacts, fs: &FsFacts) -> Result<Planned, Fault> {
    bastle_policy::plan(grant, host, fs).map_err(|fault| {
        if fault.code == Code::FenceLandlock && !host.landlock.reach_the_floor() {
            fault.help(newer_kernel(&host.kernel))
        } else {
            fault
        }
    })
}

/// Hears what egress made, and puts that and its faces into the plan.
fn connect(outlet: Outlet, planned: &mut Planned) -> Result<(Outlet, Vec<u8>), Fault> {
    let Outlet {
        egress,
        mut setup,
        rules,
    } = outlet;
    let trusted = Trusted::look();
    let made = egress.answer()?;
    (setup.authority, setup.kept, setup.probes) = (made.authority, made.kept, made.probes);
    let decoy = setup.canary.as_ref().map(|canary| canary.file.clone());
    let material = trusted.with(setup.authority.as_deref(), setup.secrets.placeholders(), decoy);
    let attachments = planned.with_egress(&setup.table, material)?;
    if let Network::Egress(faces) = &planned.plan.network {
        setup.faces = faces.clone();
    }
    Ok((Outlet { egress, setup, rules }, attachments))
}

/// Rules that were merged once are merged again here: the first fault says what is different.
fn first(faults: Vec<Fault>) -> Fault {
    let none = || Fault::new(Code::PolicyUnreadable, "the network rules cannot be used", "");
    faults.into_iter().next().unwrap_or_else(none)
}

/// Carries the plan out, and records it before the agent gets the word.
pub fn run(place: &Place, ready: Ready, voice: &mut dyn Voice) -> Result<Receipt, Fault> {
    run_behind(place, ready, voice, &mut Front::Own)
}

/// The same, with something else than the streams of this process before the agent.
pub(crate) fn run_behind(
    place: &Place,
    ready: Ready,
    voice: &mut dyn Voice,
    front: &mut Front,
) -> Result<Receipt, Fault> {
    let Ready {
        planned,
        facts,
        spawner,
        outlet,
        attachments,
        approvals,
        effective,
        work,
        directories,
        mut caches,
        grants,
        approval,
        entered,
        sharing,
    } = ready;
    let Planned { plan, listing, .. } = planned;
    // Only a dry run shows these, and a run may wait for days.
    drop((listing, facts));
    let made = work.event();
    let lent = caches.begin();
    let means = Means {
        spawner,
        attachments,
        net: outlet.map(Net::new),
        state: &place.state,
        approvals,
        work,
        directories,
        caches,
        grants: bastle_contract::grants::has_room(&plan).then_some(grants),
        front,
    };
    let record = || {
        let mut record = Record::open_in_trace(&place.state, &plan.run, &plan.env)?;
        record.durable(&AuditEvent::RunPlanned {
            policy: plan.policy.clone(),
            plan: plan_digest(&plan)?,
            argv: plan.argv.clone(),
            backend: plan.backend,
            waivers: plan.waivers.clone(),
            effective,
        })?;
        if approval == LaunchApproval::Person {
            record.append(&AuditEvent::Note {
                topic: "launch".to_owned(),
                text: "the person at the command line approved a command that asks".to_owned(),
            })?;
        }
        if sharing == Sharing::Allowed {
            record.append(&AuditEvent::Note {
                topic: "workspace".to_owned(),
                text: "a person lets the run write where another run writes".to_owned(),
            })?;
        }
        record.append(&made)?;
        for event in &lent {
            record.append(event)?;
        }
        Ok(record)
    };
    let receipt = execute(&plan, means, record, voice);
    // Only now: whoever comes next may write what this run wrote.
    drop(entered);
    receipt
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
