//! Admission: the last check before anything is done. Does not trust the plan; its types check themselves again here,
//! and what a caller of the daemon asks for is held against the ceiling.
use crate::bounds::Bounds;
use bastle_contract::{
    BackendKind, Code, Fault, LandlockParts, LaunchParts, LaunchPlan, LimitKind, LimitMechanism, LimitRule,
    ToSpawner, WIRE_VERSION,
};
use std::os::fd::OwnedFd;

/// Most bytes of environment in a plan of somebody else.
const MOST_ENVIRONMENT: usize = 256 * 1024;

/// A plan that may be executed. Made only here.
pub(crate) struct Admitted {
    parts: LaunchParts,
}

impl Admitted {
    /// The plan, for the one function that executes it.
    pub(crate) fn into_plan(self) -> LaunchPlan {
        self.parts.plan
    }

    /// The same with what came along, for a sandbox that stands already.
    pub(crate) fn into_parts(self) -> LaunchParts {
        self.parts
    }
}

/// Checks a launch frame, its descriptors and the plan behind the first of them. Without bounds the spawner is its
/// caller's own and has no more rights than it.
pub(crate) fn admit(
    frame: &ToSpawner,
    descriptors: Vec<OwnedFd>,
    (landlock, bounds): (LandlockParts, Option<&Bounds>),
) -> Result<Admitted, Fault> {
    let ToSpawner::Launch { version } = frame else {
        return Err(refused("the first frame must be a launch"));
    };
    if *version != WIRE_VERSION {
        return Err(refused(format!(
            "frame version {version}, this spawner speaks {WIRE_VERSION}"
        )));
    }
    let parts = LaunchParts::read(descriptors).map_err(refused)?;
    let plan = &parts.plan;
    plan.check()
        .map_err(|error| Fault::new(Code::FenceStep, "the plan was refused", error.to_string()))?;
    if plan.backend != BackendKind::Native {
        return Err(Fault::new(
            Code::FenceBackend,
            format!("the spawner does not serve backend {}", plan.backend),
            "",
        ));
    }
    whole(plan, landlock)?;
    if let Some(bounds) = bounds {
        within(plan, bounds)?;
    }
    Ok(Admitted { parts })
}

/// Refuses a plan whose Landlock parts are not exactly those of this kernel, for every caller.
fn whole(plan: &LaunchPlan, landlock: LandlockParts) -> Result<(), Fault> {
    let parts = plan.landlock_parts;
    // Given up by name, where there is nothing to give up. Who may do that is the ceiling's to say.
    if plan.is_without_landlock() && !landlock.reach_the_floor() {
        return Ok(());
    }
    let why = if !parts.reach_the_floor() {
        format!("a fence needs Landlock ABI {} or newer", LandlockParts::FLOOR)
    } else if parts != landlock {
        format!("it asks Landlock for {parts}, and the kernel has {landlock}")
    } else {
        return Ok(());
    };
    Err(Fault::new(Code::FenceLandlock, "the spawner refused the plan", why).help("bastle doctor"))
}

/// Holds the plan against the ceiling. The plan is carried out as it is: what is missing is refused, not added.
fn within(plan: &LaunchPlan, bounds: &Bounds) -> Result<(), Fault> {
    let allowance = &bounds.allowance;
    if !allowance.backends.contains(&plan.backend) {
        return Err(kind(format!(
            "backend {} is not among its backends",
            plan.backend
        )));
    }
    let parts = plan.landlock_parts;
    let least = LandlockParts::up_to(allowance.landlock_abi);
    if !parts.covers(least) {
        let why = format!(
            "min_landlock_abi is {}, and this kernel has of Landlock: {parts}",
            allowance.landlock_abi
        );
        return Err(kind(why).help("use Linux 6.12 or newer, or have /etc/bastle/ceiling.json changed"));
    }
    let given_up = plan
        .limits
        .iter()
        .find(|rule| rule.mechanism == LimitMechanism::Waived);
    if !allowance.unconfined && (given_up.is_some() || !plan.waivers.is_empty()) {
        return Err(kind("a limit is given up"));
    }
    let environment: usize = plan
        .env
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 2)
        .sum();
    if environment > MOST_ENVIRONMENT {
        let why = format!("the environment has {environment} bytes, at most {MOST_ENVIRONMENT} are accepted");
        return Err(refused(why));
    }
    for mount in &plan.mounts {
        for (source, access) in mount.kind.sources().into_iter().flatten() {
            if !bounds.allows(source, access) {
                return Err(outside(source, bounds));
            }
        }
    }
    limits(plan, &allowance.limits)
}

/// Every bounded limit must be there once, at most as high, and held by something the fence has.
fn limits(plan: &LaunchPlan, most: &[(LimitKind, u64)]) -> Result<(), Fault> {
    for (index, rule) in plan.limits.iter().enumerate() {
        if plan.limits[..index].iter().any(|other| other.limit == rule.limit) {
            return Err(too_high(rule.limit, "it is stated twice".to_owned()));
        }
    }
    for (limit, most) in most {
        match plan.limit(*limit) {
            None => {
                let why = format!("the ceiling is {most}, and the plan has no such limit");
                return Err(too_high(*limit, why));
            }
            Some(rule) if rule.value > *most => {
                let why = format!("the ceiling is {most}, the plan says {}", rule.value);
                return Err(too_high(*limit, why));
            }
            Some(rule) if !is_held(rule) => {
                return Err(too_high(*limit, "nothing in the fence holds it".to_owned()));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether what the plan names for a limit is what holds it here. A plan that named something else would not be bound.
fn is_held(rule: &LimitRule) -> bool {
    use LimitMechanism as By;
    let cgroup = matches!(rule.mechanism, By::CgroupV1 | By::CgroupV2);
    match rule.limit {
        LimitKind::WallTime => rule.mechanism == By::Timer,
        LimitKind::CpuTime | LimitKind::OpenFiles | LimitKind::FileSize => rule.mechanism == By::Rlimit,
        LimitKind::Cpu => cgroup || rule.mechanism == By::Affinity,
        LimitKind::Memory => cgroup || rule.mechanism == By::RlimitAndWatchdog,
        LimitKind::Pids => cgroup || rule.mechanism == By::Rlimit,
        // The private directories alone would leave the workspace open.
        LimitKind::Disk | LimitKind::Inodes => rule.mechanism == By::TmpfsAndWriteGuard,
        LimitKind::Files | LimitKind::BytesWritten => rule.mechanism == By::WriteGuard,
        // Held by the relay, which is the caller's own.
        LimitKind::Output | LimitKind::DiskReserve => false,
    }
}

/// The fault for a path that the ceiling does not cover.
pub(crate) fn outside(path: impl std::fmt::Display, bounds: &Bounds) -> Fault {
    let roots = bounds.roots();
    Fault::new(
        Code::SpawnPath,
        format!("{path} lies outside the ceiling of the spawner"),
        format!(
            "uid {} may have shown what lies below: {roots}",
            bounds.caller.uid
        ),
    )
    .help("work below one of these, or have /etc/bastle/ceiling.json changed")
}

fn too_high(limit: LimitKind, why: String) -> Fault {
    Fault::new(
        Code::SpawnLimit,
        format!("limits.{limit} is not within the ceiling of the spawner"),
        why,
    )
    .help(format!("set limits.{limit} in a policy, at most as high"))
}

fn kind(why: impl Into<String>) -> Fault {
    Fault::new(
        Code::SpawnKind,
        "the ceiling of the spawner does not allow this run",
        why,
    )
}

/// The fault for bytes that are no frame.
pub(crate) fn malformed(error: &std::io::Error) -> Fault {
    refused(error.to_string())
}

fn refused(why: impl Into<String>) -> Fault {
    Fault::new(Code::FenceStep, "the spawner refused the launch", why)
}

#[cfg(test)]
#[path = "admit_tests.rs"]
pub(crate) mod tests;
