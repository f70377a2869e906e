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
    BackendKind, Code, Fault, Guarantee, HostFacts, LaunchPlan, LimitKind, LimitMechanism, Mechanism, Network,
};
use serde::Serialize;

/// The Landlock ABI every plan needs: 6 has the scopes for signals and abstract sockets.
const LANDLOCK_ABI: u32 = 6;

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
const FENCE: [Guarantee; 19] = [
    Guarantee::ReadsConfined,
    Guarantee::WritesConfined,
    Guarantee::LandlockEnforced,
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

fn native(
    request: LaunchRequest,
    effective: &Effective,
    host: &HostFacts,
    fs: &FsFacts,
) -> Result<Planned, Fault> {
    if host.landlock_abi < LANDLOCK_ABI {
        return Err(Fault::new(
            Code::FenceLandlock,
            format!("the plan needs Landlock ABI {LANDLOCK_ABI}"),
            format!("this kernel ({}) has {}", host.kernel, host.landlock_abi),
        )
        .help("use Linux 6.12 or newer with landlock in the lsm= list"));
    }
    let mut listing = Vec::new();
    let programs = programs::build(effective, &request, fs, &mut listing);
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
    guarantees.sort();
    guarantees.dedup();
    let plan = LaunchPlan {
        run: request.run,
        policy: effective.digest(),
        backend: BackendKind::Native,
        landlock: mounts.landlock,
        mounts: mounts.mounts,
        landlock_abi: LANDLOCK_ABI,
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
        landlock_abi: 0,
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
