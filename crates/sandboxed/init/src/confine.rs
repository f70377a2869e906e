//! The last restrictions: no new privileges, Landlock, rlimits, affinity. Inherited by the agent and never undone.
use crate::hooks;
use crate::programs::Programs;
use crate::step::Step;
use bastle_contract::grants::{self, BROKER_SOCKET};
use bastle_contract::{
    Access, Code, Fault, LandlockPart, LandlockParts, LandlockRule, LaunchPlan, LimitKind, LimitMechanism,
};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::FileType;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;

/// The ABI whose rights are known here. Which of them are handled is said by the parts of the plan.
pub(crate) const LANDLOCK: ABI = ABI::V9;

/// The limit at which no core is written to a file and none is piped to the host's handler.
pub(crate) const NO_CORE: u64 = 1;

/// Sets `no_new_privs`: set-uid programs have no effect from here on.
pub(crate) fn no_new_privs() -> Result<(), Fault> {
    rustix::thread::set_no_new_privs(true).step("no_new_privs", "prctl")
}

/// Restricts this process and its children to the plan's paths. Anything less than full enforcement is an error.
///
/// With a list of programs, execution is granted to those files alone.
pub(crate) fn landlock(plan: &LaunchPlan, programs: Option<&Programs>) -> Result<(), Fault> {
    let parts = plan.landlock_parts;
    if plan.is_without_landlock() && !available().reach_the_floor() {
        return Ok(());
    }
    if !parts.reach_the_floor() || !available().covers(parts) {
        let what = format!("Landlock has to hold {parts}, the kernel has {}", available());
        return Err(
            Fault::new(Code::FenceLandlock, what, "an older kernel would leave a gap").help("bastle doctor"),
        );
    }
    let what = "Landlock";
    let handled = rights(parts);
    let mut ruleset = nothing_granted(parts)?;
    // Listing the constructed root shows planned names only, and programs expect to be able to.
    let root = PathFd::new("/").step(what, "/")?;
    ruleset = ruleset
        .add_rule(PathBeneath::new(root, AccessFs::ReadDir))
        .step(what, "/")?;
    for LandlockRule { path, access } in &plan.landlock {
        let fd = PathFd::new(path.as_path()).step(what, path)?;
        let granted = match access {
            Access::ReadOnly => AccessFs::from_read(LANDLOCK) & handled,
            // A socket that was made in the sandbox needs no rule. One of the host's is no file of the agent's, wherever it lies.
            Access::ReadWrite => handled & !AccessFs::ResolveUnix,
        };
        let granted = match programs {
            Some(_) if hooks::enforces("exec-list") => granted & !AccessFs::Execute,
            Some(_) | None => granted,
        };
        let stat = rustix::fs::fstat(&fd).step(what, path)?;
        let granted = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            granted
        } else {
            granted & AccessFs::from_file(LANDLOCK)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, granted)).step(what, path)?;
    }
    if parts.has(LandlockPart::Unix) && grants::has_room(plan) {
        // The one socket that is made before this domain and that the agent is to reach.
        let fd = PathFd::new(BROKER_SOCKET).step(what, BROKER_SOCKET)?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(fd, AccessFs::ResolveUnix))
            .step(what, BROKER_SOCKET)?;
    }
    for path in programs.into_iter().flat_map(Programs::executable) {
        let fd = match PathFd::new(path.as_path()) {
            Ok(fd) => fd,
            // A helper that is not there: whatever names it does not start.
            Err(_) if !path.as_path().exists() => continue,
            Err(cause) => return Err(cause).step(what, path),
        };
        let granted = AccessFs::Execute | AccessFs::ReadFile;
        ruleset = ruleset.add_rule(PathBeneath::new(fd, granted)).step(what, path)?;
    }
    restrict(ruleset)
}

/// The parts that this kernel has.
pub(crate) fn available() -> LandlockParts {
    let features = bastle_sys::landlock::features();
    hooks::landlock(LandlockParts::found(|part| match part {
        LandlockPart::Fs => features.files,
        LandlockPart::Truncate => features.truncate,
        LandlockPart::Ioctl => features.ioctl,
        LandlockPart::Scopes => features.scopes,
        LandlockPart::Unix => features.unix,
    }))
}

/// The rights over files that belong to the parts.
pub(crate) fn rights(parts: LandlockParts) -> BitFlags<AccessFs> {
    let mut rights = AccessFs::from_all(ABI::V2);
    if parts.has(LandlockPart::Truncate) {
        rights |= AccessFs::Truncate;
    }
    if parts.has(LandlockPart::Ioctl) {
        rights |= AccessFs::IoctlDev;
    }
    if parts.has(LandlockPart::Unix) {
        rights |= AccessFs::ResolveUnix;
    }
    rights
}

/// A ruleset about everything that the parts are about; nothing is granted yet.
pub(crate) fn nothing_granted(parts: LandlockParts) -> Result<RulesetCreated, Fault> {
    let what = "Landlock";
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights(parts))
        .step(what, "handled rights")?;
    if parts.has(LandlockPart::Scopes) {
        ruleset = ruleset.scope(Scope::from_all(LANDLOCK)).step(what, "scopes")?;
    }
    ruleset.create().step(what, "ruleset")
}

/// Puts it in force; less than all of it is an error.
pub(crate) fn restrict(ruleset: RulesetCreated) -> Result<(), Fault> {
    let what = "Landlock";
    // `no_new_privs` is a layer of its own, set before; capabilities, still held here, stand in where a test leaves it out.
    let status = ruleset
        .no_new_privs(false)
        .restrict_self()
        .step(what, "restrict_self")?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err("not fully enforced").step(what, "restrict_self")
        }
    }
}

/// Limits that the kernel keeps per process, and the processors.
pub(crate) fn limits(plan: &LaunchPlan) -> Result<(), Fault> {
    // 1 and not 0: the kernel starts a piped core handler, a root process of the host, whatever the limit is, except at 1.
    set(Resource::Core, NO_CORE)?;
    set(Resource::Rtprio, 0)?;
    set(Resource::Memlock, 64 << 20)?;
    set(Resource::Msgqueue, 800 << 10)?;
    for rule in &plan.limits {
        match (rule.limit, rule.mechanism) {
            (LimitKind::CpuTime, _) => set(Resource::Cpu, rule.value)?,
            (LimitKind::OpenFiles, _) => set(Resource::Nofile, rule.value)?,
            (LimitKind::FileSize, LimitMechanism::Rlimit) => set(Resource::Fsize, rule.value)?,
            (LimitKind::Pids, LimitMechanism::Rlimit) => set(Resource::Nproc, rule.value)?,
            // Writable private memory: reserving address space, as runtimes do, stays free.
            (LimitKind::Memory, LimitMechanism::RlimitAndWatchdog) => set(Resource::Data, rule.value)?,
            (LimitKind::Cpu, LimitMechanism::Affinity) => pin(rule.value / 1000)?,
            // One file cannot be larger than all of them; one byte more, so that a full tmpfs answers ENOSPC and no signal.
            (LimitKind::Disk, LimitMechanism::TmpfsAndWriteGuard) => {
                set(Resource::Fsize, rule.value.saturating_add(1))?
            }
            _ => {}
        }
    }
    Ok(())
}

fn set(resource: Resource, value: u64) -> Result<(), Fault> {
    // A hard limit that is lower already stays: the plan's value is held all the more.
    let hard = rustix::process::getrlimit(resource)
        .maximum
        .map_or(value, |maximum| maximum.min(value));
    rustix::process::setrlimit(
        resource,
        Rlimit {
            current: Some(hard),
            maximum: Some(hard),
        },
    )
    .step("rlimit", format!("{resource:?} {value}"))
}

fn pin(cpus: u64) -> Result<(), Fault> {
    let allowed = rustix::thread::sched_getaffinity(None).step("affinity", cpus)?;
    let mut chosen = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .take(usize::try_from(cpus).unwrap_or(usize::MAX))
    {
        chosen.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &chosen).step("affinity", cpus)
}
