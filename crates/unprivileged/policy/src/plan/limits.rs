//! Limits, each with what holds it on this host; one that cannot be held stops the launch unless waived by name.
use super::{PlanLine, built_in, limit_probe};
use crate::effective::{Effective, Origin};
use crate::layers::LayerKind;
use crate::net::NetMode;
use crate::request::LaunchRequest;
use crate::units::{show_duration, show_size};
use bastle_contract::egress::{EGRESS_CPU, EGRESS_CPU_BURST, EGRESS_MEMORY};
use bastle_contract::{
    Authority, CgroupFlavour, Code, Controller, Fault, Guarantee, HostFacts, Lack, LimitKind, LimitMechanism,
    LimitRule, Mechanism, Waiver,
};

/// Size of the private HOME and TMPDIR when no layer limits the disk.
const SCRATCH: u64 = 4 << 30;

pub(super) fn build(
    effective: &Effective,
    request: &LaunchRequest,
    host: &HostFacts,
    listing: &mut Vec<PlanLine>,
) -> Result<Vec<LimitRule>, Fault> {
    let mut rules = Vec::new();
    for (limit, value) in &effective.limits {
        check_range(*limit, value.value, &value.origin)?;
        let mechanism = match mechanism(*limit, value.value, host) {
            Some(mechanism) => lighter(mechanism, *limit, &value.origin, host),
            None => waived(request, *limit, value.value, &value.origin, unheld(*limit, host))?,
        };
        listing.push(line(*limit, value.value, &value.origin, mechanism));
        rules.push(LimitRule {
            limit: *limit,
            value: value.value,
            mechanism,
        });
    }
    if !rules.iter().any(|rule| rule.limit == LimitKind::Disk) {
        let rule = LimitRule {
            limit: LimitKind::Disk,
            value: scratch(host),
            mechanism: LimitMechanism::Tmpfs,
        };
        listing.push(line(rule.limit, rule.value, &built_in(), rule.mechanism));
        rules.push(rule);
    }
    let stated = |limit| rules.iter().any(|rule: &LimitRule| rule.limit == limit);
    if !stated(LimitKind::Memory) && host.memory > 0 {
        let rule = default_memory(host);
        listing.push(line(rule.limit, rule.value, &built_in(), rule.mechanism));
        rules.push(rule);
    }
    rules.sort_by_key(|rule| rule.limit);
    list_egress(effective, listing);
    Ok(rules)
}

/// Sustained processor time of the run's egress in thousandths of a processor: a run that is held to less than
/// [`EGRESS_CPU`] cannot get more of the host by way of its proxy.
#[must_use]
pub fn egress_cpu(effective: &Effective) -> u64 {
    let stated = effective
        .limits
        .iter()
        .find(|(limit, _)| *limit == LimitKind::Cpu);
    stated.map_or(EGRESS_CPU, |(_, value)| value.value.min(EGRESS_CPU))
}

/// The limits of the egress process itself, which is outside the sandbox and works for the agent.
fn list_egress(effective: &Effective, listing: &mut Vec<PlanLine>) {
    match effective.net.mode {
        NetMode::None | NetMode::Offline => return,
        NetMode::Allowlist | NetMode::Open => {}
    }
    let cpu = show(LimitKind::Cpu, egress_cpu(effective));
    let lines = [
        (
            format!("egress memory {}", show_size(EGRESS_MEMORY)),
            Mechanism::Rlimit,
            "of the egress process; beyond it egress aborts and the run ends".to_owned(),
        ),
        (
            format!("egress cpu {cpu}"),
            Mechanism::Proxy,
            format!("sustained, with a burst of {EGRESS_CPU_BURST}s; beyond it requests and bytes wait"),
        ),
    ];
    for (rule, mechanism, note) in lines {
        listing.push(PlanLine {
            section: "limits".to_owned(),
            rule,
            origin: built_in(),
            mechanism,
            probe: None,
            note,
        });
    }
}

/// A tmpfs is memory: on a small host the private directories get a quarter of it.
fn scratch(host: &HostFacts) -> u64 {
    const LEAST: u64 = 64 << 20;
    match host.memory {
        0 => SCRATCH,
        memory => SCRATCH.min((memory / 4).max(LEAST)),
    }
}

/// Four fifths of the host's memory where no layer says how much. Of what the host has and not of what is free now: two
/// runs of one policy have the same fence. A cgroup of the unified hierarchy is there anyway; elsewhere joining one would
/// cost milliseconds at every start, and a watchdog holds it.
fn default_memory(host: &HostFacts) -> LimitRule {
    let (least, most) = LimitKind::Memory.range();
    let mechanism = match cgroup(host, Controller::Memory) {
        Some(LimitMechanism::CgroupV2) => LimitMechanism::CgroupV2,
        Some(_) | None => LimitMechanism::Watchdog,
    };
    LimitRule {
        limit: LimitKind::Memory,
        value: (host.memory / 5 * 4).clamp(least, most),
        mechanism,
    }
}

/// The probe that proves a limit, where one can.
pub(super) fn probe(limit: LimitKind, mechanism: LimitMechanism) -> Option<Guarantee> {
    match mechanism {
        // A watchdog and the free space cannot be tried without using up what they guard.
        LimitMechanism::Waived
        | LimitMechanism::Watchdog
        | LimitMechanism::FreeSpace
        | LimitMechanism::FreeSpaceShare => None,
        LimitMechanism::CgroupV2
        | LimitMechanism::CgroupV1
        | LimitMechanism::Rlimit
        | LimitMechanism::RlimitAndWatchdog
        | LimitMechanism::Affinity
        | LimitMechanism::Tmpfs
        | LimitMechanism::WriteGuard
        | LimitMechanism::TmpfsAndWriteGuard
        | LimitMechanism::Relay
        | LimitMechanism::Timer => limit_probe(limit),
    }
}

/// Moving a process into an old-style cgroup costs milliseconds of every start. The number of processes of a preset is
/// a backstop that the rlimit of the sandbox's own user namespace holds as well; one that a person states gets the
/// cgroup, which also tells when it was hit.
fn lighter(mechanism: LimitMechanism, limit: LimitKind, origin: &Origin, host: &HostFacts) -> LimitMechanism {
    match (mechanism, limit, origin.layer) {
        (LimitMechanism::CgroupV1, LimitKind::Pids, LayerKind::Floor | LayerKind::Preset)
            if rlimit_binds_processes(host) =>
        {
            LimitMechanism::Rlimit
        }
        (LimitMechanism::FreeSpace, LimitKind::DiskReserve, LayerKind::Floor | LayerKind::Preset) => {
            LimitMechanism::FreeSpaceShare
        }
        _ => mechanism,
    }
}

/// Limits of the host backend: those that a timer, an rlimit or the relay holds.
pub(super) fn unfenced(
    effective: &Effective,
    request: &LaunchRequest,
    listing: &mut Vec<PlanLine>,
) -> Result<Vec<LimitRule>, Fault> {
    let mut rules = Vec::new();
    for (limit, value) in &effective.limits {
        check_range(*limit, value.value, &value.origin)?;
        let mechanism = match limit {
            LimitKind::WallTime => LimitMechanism::Timer,
            LimitKind::CpuTime | LimitKind::OpenFiles => LimitMechanism::Rlimit,
            LimitKind::Output => LimitMechanism::Relay,
            LimitKind::Cpu
            | LimitKind::Memory
            | LimitKind::Pids
            | LimitKind::Disk
            | LimitKind::Inodes
            | LimitKind::Files
            | LimitKind::BytesWritten
            | LimitKind::FileSize
            | LimitKind::DiskReserve => waived(
                request,
                *limit,
                value.value,
                &value.origin,
                ("the host backend has no fence that holds it".to_owned(), None),
            )?,
        };
        listing.push(line(*limit, value.value, &value.origin, mechanism));
        rules.push(LimitRule {
            limit: *limit,
            value: value.value,
            mechanism,
        });
    }
    Ok(rules)
}

fn check_range(limit: LimitKind, value: u64, origin: &Origin) -> Result<(), Fault> {
    let (least, most) = limit.range();
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Fault::new(
        Code::LimitInvalid,
        format!(
            "limits.{limit} = {} ({origin}) cannot be held",
            show(limit, value)
        ),
        format!(
            "it must lie between {} and {}",
            show(limit, least),
            show(limit, most)
        ),
    ))
}

fn waived(
    request: &LaunchRequest,
    limit: LimitKind,
    value: u64,
    origin: &Origin,
    (why, fix): (String, Option<String>),
) -> Result<LimitMechanism, Fault> {
    if request.waivers.contains(&Waiver::Limit(limit)) {
        return Ok(LimitMechanism::Waived);
    }
    let fault = Fault::new(
        Code::LimitUnheld,
        format!(
            "limits.{limit} = {} ({origin}) cannot be held here",
            show(limit, value)
        ),
        why,
    );
    let fault = fix.into_iter().fold(fault, Fault::help);
    Err(fault
        .help("bastle doctor shows what is missing")
        .help(format!("to run without it: bastle run --waive {limit} ...")))
}

/// Why nothing holds a limit on this host, and what changes that.
fn unheld(limit: LimitKind, host: &HostFacts) -> (String, Option<String>) {
    let without = match limit {
        LimitKind::Cpu => "parts of a processor take the cpu controller of a cgroup",
        LimitKind::Pids => "an rlimit does not bind user id 0 (RLIMIT_NPROC, getrlimit(2))",
        _ => return ("this host offers nothing that holds it".to_owned(), None),
    };
    match &host.cgroup.problem {
        Some(problem) => (format!("{without}, and {}", problem.why()), problem.fix()),
        None => (format!("{without}, and no cgroup can be used"), None),
    }
}

/// The kernel counts the processes of user id 0 and refuses none: of root of a container too, but not of a user namespace's,
/// which is another id to the kernel.
fn rlimit_binds_processes(host: &HostFacts) -> bool {
    match &host.authority {
        // Each run has a uid of its own.
        Authority::Root | Authority::User => true,
        Authority::UserZero { lack } => match lack {
            Lack::UnmappedIds => true,
            Lack::Capabilities { .. } => false,
        },
    }
}

fn cgroup(host: &HostFacts, controller: Controller) -> Option<LimitMechanism> {
    host.cgroup.parent(controller)?;
    match host.cgroup.flavour {
        CgroupFlavour::V2 => Some(LimitMechanism::CgroupV2),
        CgroupFlavour::V1 => Some(LimitMechanism::CgroupV1),
        CgroupFlavour::None => None,
    }
}

fn mechanism(limit: LimitKind, value: u64, host: &HostFacts) -> Option<LimitMechanism> {
    let guarded = |mechanism| host.seccomp_notify.then_some(mechanism);
    match limit {
        LimitKind::WallTime => Some(LimitMechanism::Timer),
        LimitKind::CpuTime | LimitKind::OpenFiles => Some(LimitMechanism::Rlimit),
        LimitKind::Cpu => cgroup(host, Controller::Cpu).or_else(|| {
            // Whole processors can be given by affinity; parts of one need a scheduler that counts.
            let whole = value.is_multiple_of(1000) && value / 1000 <= u64::from(host.cpus);
            whole.then_some(LimitMechanism::Affinity)
        }),
        LimitKind::Memory => {
            Some(cgroup(host, Controller::Memory).unwrap_or(LimitMechanism::RlimitAndWatchdog))
        }
        LimitKind::Pids => cgroup(host, Controller::Pids)
            .or_else(|| rlimit_binds_processes(host).then_some(LimitMechanism::Rlimit)),
        LimitKind::Disk | LimitKind::Inodes => guarded(LimitMechanism::TmpfsAndWriteGuard),
        LimitKind::Files | LimitKind::BytesWritten => guarded(LimitMechanism::WriteGuard),
        LimitKind::Output => Some(LimitMechanism::Relay),
        LimitKind::FileSize => Some(LimitMechanism::Rlimit),
        LimitKind::DiskReserve => Some(LimitMechanism::FreeSpace),
    }
}

/// A limit's value in the unit people write.
pub(crate) fn show(limit: LimitKind, value: u64) -> String {
    match limit {
        LimitKind::WallTime => show_duration(value),
        LimitKind::CpuTime => format!("{value}s"),
        LimitKind::Cpu => format!("{}.{:03}", value / 1000, value % 1000),
        LimitKind::Memory
        | LimitKind::Disk
        | LimitKind::BytesWritten
        | LimitKind::Output
        | LimitKind::FileSize
        | LimitKind::DiskReserve => show_size(value),
        LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => value.to_string(),
    }
}

fn line(limit: LimitKind, value: u64, origin: &Origin, mechanism: LimitMechanism) -> PlanLine {
    let (by, note) = match mechanism {
        LimitMechanism::CgroupV2 => (Mechanism::Cgroup, "cgroup v2"),
        LimitMechanism::CgroupV1 => (Mechanism::Cgroup, "cgroup v1"),
        LimitMechanism::Rlimit => (Mechanism::Rlimit, ""),
        LimitMechanism::RlimitAndWatchdog => (Mechanism::Rlimit, "per process; a watchdog holds the sum"),
        LimitMechanism::Affinity => (Mechanism::Seccomp, "CPU affinity that cannot be changed"),
        LimitMechanism::Tmpfs => (Mechanism::Mount, "private HOME and TMPDIR only"),
        LimitMechanism::WriteGuard => (Mechanism::Guard, ""),
        LimitMechanism::TmpfsAndWriteGuard => (
            Mechanism::Guard,
            "private directories by tmpfs, the workspace by the write guard",
        ),
        LimitMechanism::Relay => (Mechanism::Namespace, "the relay to the terminal"),
        LimitMechanism::Timer => (
            Mechanism::Namespace,
            "a timer, then everything in the run is killed",
        ),
        LimitMechanism::Watchdog => (
            Mechanism::Namespace,
            "a watchdog that looks when the host's memory becomes scarce, then everything in the run is killed",
        ),
        LimitMechanism::FreeSpace => (
            Mechanism::Namespace,
            "free space is watched from outside; below it the run is paused",
        ),
        LimitMechanism::FreeSpaceShare => (
            Mechanism::Namespace,
            "or a twentieth of the file system, if that is less; watched from outside, below it the run is paused",
        ),
        LimitMechanism::Waived => (Mechanism::Advisory, "WAIVED: nothing holds this limit"),
    };
    let probe = probe(limit, mechanism);
    PlanLine {
        section: "limits".to_owned(),
        rule: format!("{limit} {}", show(limit, value)),
        origin: origin.clone(),
        mechanism: by,
        probe,
        note: note.to_owned(),
    }
}
