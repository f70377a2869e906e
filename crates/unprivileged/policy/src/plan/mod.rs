//! From a grant to a complete [`LaunchPlan`]: every choice is made here, executing it makes none.
//!
//! **Trust:** paths and facts come from the host as control found them. A symlink that the agent may have made is
//! never followed out of what the policy grants; the spawner opens every path again without following links.
mod budgets;
mod caches;
mod egress;
mod environment;
mod facts;
mod files;
mod grants;
mod guard;
mod led;
mod limits;
mod live;
mod mounts;
mod network;
mod openings;
mod programs;
mod render;
mod shown;

pub use budgets::{countable, uncounted_hosts};
pub use caches::{LentCache, LentPlace};
pub use egress::EgressMaterial;
pub use facts::{
    FsFacts, Led, LedAs, Needs, PathFact, PathKind, TreeNeed, hidden_below, needs, needs_of, writes_below,
};
pub use files::{GivenFile, HOME, PROGRAMS};
pub use led::Ways;
pub use limits::egress_cpu;
pub(crate) use limits::show as show_limit;
pub(crate) use openings::shown_in;
pub use render::{Rendered, render_dry_run};
pub use shown::refuse_shown;

use crate::effective::{Effective, Origin};
use crate::layers::LayerKind;
use crate::request::{Grant, LaunchRequest};
use bastle_contract::{
    BackendKind, Code, Fault, Guarantee, HostFacts, LandlockParts, LaunchPlan, LimitKind, LimitMechanism,
    Mechanism, Network, Waiver,
};
use serde::Serialize;

/// A plan and the story of each rule in it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What the spawner executes.
    pub plan: LaunchPlan,
    /// One line per rule.
    pub listing: Vec<PlanLine>,
    /// Programs that every allow list of commands names without a path.
    names: std::collections::BTreeSet<String>,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanLine {
    /// `fs.read`, `limits`, …
    pub section: String,
    /// The rule.
    pub rule: String,
    /// Where it stands.
    pub origin: Origin,
    /// What holds it.
    pub mechanism: Mechanism,
    /// The probe that proves it before the agent starts.
    pub probe: Option<Guarantee>,
    /// What else there is to say; empty when nothing.
    pub note: String,
}

/// The fence itself: proven for every native run.
const FENCE: [Guarantee; 18] = [
    Guarantee::ReadsConfined,
    Guarantee::WritesConfined,
    Guarantee::NetConfined,
    Guarantee::ProcessesHidden,
    Guarantee::IpcIsolated,
    Guarantee::UtsIsolated,
    Guarantee::CgroupIsolated,
    Guarantee::UnprivilegedUid,
    Guarantee::NoCapabilities,
    Guarantee::NoNewPrivs,
    Guarantee::SyscallsFiltered,
    Guarantee::NoNestedNamespaces,
    Guarantee::OwnSession,
    Guarantee::NoInheritedDescriptors,
    Guarantee::EnvironmentCleared,
    Guarantee::DevicesMinimal,
    Guarantee::ProcMasked,
    Guarantee::NoCoreDumps,
];

/// Plans a granted launch for this host.
pub fn plan(grant: Grant, host: &HostFacts, fs: &FsFacts) -> Result<Planned, Fault> {
    let (request, effective) = grant.into_parts();
    match request.backend {
        BackendKind::Native => native(request, &effective, host, fs),
        BackendKind::Host => unfenced(request, &effective, fs),
    }
}

/// Whether the native fence can be built here at all. Asked before anything is started for a run, so that the host is
/// named as the cause and not the first process that cannot be fenced.
pub fn check_host(host: &HostFacts) -> Result<(), Fault> {
    if host.landlock.reach_the_floor() {
        return Ok(());
    }
    Err(Fault::new(
        Code::FenceLandlock,
        format!("the fence needs Landlock ABI {}", LandlockParts::FLOOR),
        format!("this kernel ({}) has {}", host.kernel, host.landlock_abi),
    )
    .help("use Linux 5.19 or newer with landlock in the lsm= list")
    .help("bastle doctor prints how this distribution gets one"))
}

/// What the fence is built with of Landlock: all that the kernel has; nothing at all only by a person's word, and only where
/// the kernel has none that it could be built with.
fn landlock_parts(host: &HostFacts, request: &LaunchRequest) -> Result<LandlockParts, Fault> {
    match check_host(host) {
        Ok(()) => Ok(host.landlock),
        Err(_) if request.waivers.contains(&Waiver::LANDLOCK) => Ok(LandlockParts::NONE),
        Err(fault) => Err(fault.help("to run without it, one layer less: bastle run --waive landlock ...")),
    }
}

fn programs_need_landlock() -> Fault {
    Fault::new(
        Code::FenceLandlock,
        "exec.allow needs Landlock",
        "without it a program that is not listed can be started by way of the dynamic loader",
    )
    .help("take exec.allow out of the policy, or use a kernel with Landlock")
}

/// Whether all parts of the Landlock ABI that a policy demands are there: what replaces one does not count then.
fn wanted_parts(effective: &Effective, host: &HostFacts) -> Result<(), Fault> {
    let Some(least) = &effective.min_landlock_abi else {
        return Ok(());
    };
    let wanted = LandlockParts::up_to(u32::try_from(least.value).unwrap_or(u32::MAX));
    if host.landlock.covers(wanted) {
        return Ok(());
    }
    Err(Fault::new(
        Code::FenceLandlock,
        format!("minLandlockAbi is {} and this kernel has less", least.value),
        format!(
            "{}:{}; this kernel ({}) has of Landlock: {}",
            least.origin.file, least.origin.line, host.kernel, host.landlock
        ),
    )
    .help("bastle doctor prints how this distribution gets a newer kernel"))
}

fn native(
    request: LaunchRequest,
    effective: &Effective,
    host: &HostFacts,
    fs: &FsFacts,
) -> Result<Planned, Fault> {
    let landlock = landlock_parts(host, &request)?;
    wanted_parts(effective, host)?;
    let mut listing = Vec::new();
    let programs = programs::build(effective, &request, fs, &mut listing);
    if programs.list.is_some() && landlock == LandlockParts::NONE {
        return Err(programs_need_landlock());
    }
    let mounts = mounts::build(
        effective,
        &request.cwd,
        (fs, programs.list.as_ref()),
        &mut listing,
    )?;
    let guard = guard::build(effective, &mounts.writable, (host, fs), &mut listing)?;
    openings::build(effective, fs, &mut listing)?;
    let limits = limits::build(effective, &request, host, &mut listing)?;
    budgets::build(effective, &mut listing)?;
    let env = environment::build(effective, &request, fs, &mut listing);
    advisory(effective, Allowed::Held, &mut listing);
    let mut guarantees = FENCE.to_vec();
    if programs.list.is_some() {
        guarantees.push(Guarantee::ProgramsListed);
    }
    if mounts
        .mounts
        .iter()
        .any(|mount| mount.kind == bastle_contract::MountKind::Mask)
    {
        guarantees.push(Guarantee::SecretsHidden);
    }
    if guard
        .trees
        .iter()
        .any(|tree| !tree.hide.is_empty() || !tree.protect.is_empty())
    {
        guarantees.push(Guarantee::NamesGuarded);
    }
    guarantees.extend(
        limits
            .iter()
            .filter_map(|rule| limits::probe(rule.limit, rule.mechanism)),
    );
    let counted =
        |m: LimitMechanism| matches!(m, LimitMechanism::WriteGuard | LimitMechanism::TmpfsAndWriteGuard);
    if limits.iter().any(|rule| counted(rule.mechanism)) {
        guarantees.push(Guarantee::WritesCounted);
    }
    let mut plan = LaunchPlan {
        run: request.run,
        policy: effective.digest(),
        backend: BackendKind::Native,
        landlock: mounts.landlock,
        mounts: mounts.mounts,
        landlock_parts: landlock,
        guard,
        network: Network::None,
        limits,
        env,
        cwd: request.cwd,
        argv: request.argv,
        stdio: request.stdio,
        debuggers: request.debuggers,
        exec: programs.list,
        attachments: None,
        guarantees,
        waivers: request.waivers,
    };
    // All that the kernel has is required: a part that fails here would be a hole in what the statement claims.
    let landlock = plan.landlock_guarantees();
    plan.guarantees.extend(landlock);
    plan.guarantees.sort();
    plan.guarantees.dedup();
    checked(plan, listing, programs.names)
}

/// The host backend: limits that need no fence, and nothing that claims to be one.
fn unfenced(request: LaunchRequest, effective: &Effective, fs: &FsFacts) -> Result<Planned, Fault> {
    let mut listing = Vec::new();
    let limits = limits::unfenced(effective, &request, &mut listing)?;
    budgets::unfenced(effective, &mut listing);
    let env = environment::build(effective, &request, fs, &mut listing);
    advisory(effective, Allowed::Advice, &mut listing);
    let plan = LaunchPlan {
        run: request.run,
        policy: effective.digest(),
        backend: BackendKind::Host,
        mounts: Vec::new(),
        landlock: Vec::new(),
        landlock_parts: LandlockParts::NONE,
        guard: bastle_contract::Guard::default(),
        network: Network::None,
        limits,
        env,
        cwd: request.cwd,
        argv: request.argv,
        stdio: request.stdio,
        debuggers: request.debuggers,
        exec: None,
        attachments: None,
        guarantees: Vec::new(),
        waivers: request.waivers,
    };
    checked(plan, listing, Default::default())
}

fn checked(
    plan: LaunchPlan,
    listing: Vec<PlanLine>,
    names: std::collections::BTreeSet<String>,
) -> Result<Planned, Fault> {
    match plan.check() {
        Ok(()) => Ok(Planned { plan, listing, names }),
        Err(bastle_contract::PlanError::Limit {
            limit,
            value,
            least,
            most,
        }) => Err(Fault::new(
            Code::LimitInvalid,
            format!("limit {limit} = {value} cannot be held"),
            format!("it lies outside {least} to {most}"),
        )),
        Err(why) => Err(Fault::new(
            Code::FenceStep,
            "the policy compiles to a plan that nobody can execute",
            why.to_string(),
        )),
    }
}

fn limit_probe(limit: LimitKind) -> Option<Guarantee> {
    match limit {
        LimitKind::Pids => Some(Guarantee::PidsLimited),
        LimitKind::Memory => Some(Guarantee::MemoryLimited),
        LimitKind::Cpu => Some(Guarantee::CpuLimited),
        LimitKind::OpenFiles => Some(Guarantee::OpenFilesLimited),
        LimitKind::Disk => Some(Guarantee::DiskLimited),
        LimitKind::Files | LimitKind::BytesWritten | LimitKind::Inodes => Some(Guarantee::WritesCounted),
        LimitKind::FileSize => Some(Guarantee::FileSizeLimited),
        LimitKind::WallTime | LimitKind::CpuTime | LimitKind::Output | LimitKind::DiskReserve => None,
    }
}

/// What became of the allow list of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    /// It is held, and its lines are there already.
    Held,
    /// Nothing holds it.
    Advice,
}

/// Rules that nothing outside the agent holds, and network rules, which the empty namespace makes moot.
fn advisory(effective: &Effective, allowed: Allowed, listing: &mut Vec<PlanLine>) {
    for (section, tiers) in [("exec", &effective.exec), ("tools", &effective.tools)] {
        for tier in tiers {
            let lists = [
                ("allow", tier.allow.as_deref().unwrap_or_default()),
                ("ask", &tier.ask),
                ("deny", &tier.deny),
            ];
            for (name, rule) in lists
                .iter()
                .flat_map(|(name, list)| list.iter().map(move |rule| (name, rule)))
            {
                if section == "exec" && *name == "allow" && allowed == Allowed::Held {
                    continue;
                }
                let program = section == "exec" && *name == "deny" && facts::is_program(&rule.value);
                listing.push(PlanLine {
                    section: format!("{section}.{name}"),
                    rule: rule.value.clone(),
                    origin: rule.origin.clone(),
                    mechanism: if program {
                        Mechanism::Shim
                    } else {
                        Mechanism::Advisory
                    },
                    probe: None,
                    note: if program {
                        "the program file is covered; a copy of it is not".to_owned()
                    } else {
                        String::new()
                    },
                });
            }
        }
    }
    network::list(effective, listing);
}

/// The origin of what bastle adds by itself.
fn built_in() -> Origin {
    Origin {
        layer: LayerKind::Floor,
        file: "built-in".to_owned(),
        line: 0,
    }
}
