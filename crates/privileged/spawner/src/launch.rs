//! From nothing to a running init. Order matters: the child is made before the plan is there, and carries nothing out
//! before it is admitted, mapped and in its cgroups.
use crate::admit::{self, Admitted};
use crate::bounds::Bounds;
use crate::cgroup::Group;
use crate::errand::Rooms;
use crate::identity::{self, Claims, Identity, userns_fault};
use crate::{facts, hooks, idmap, out_of_reach, reads};
use bastle_contract::socket::{self, MAX_DESCRIPTORS};
use bastle_contract::{
    Authority, Birth, Code, Fault, HostFacts, IdMapping, LaunchPlan, LimitKind, RunId, ToChild, ToSpawner,
};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use rustix::process::{DumpableBehavior, Signal, WaitId, WaitIdOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// A child in its own namespaces that waits for a plan. Dropped, it ends: its line closes.
pub(crate) struct Prepared {
    pid: u32,
    pidfd: OwnedFd,
    line: OwnedFd,
    mounts: Option<OwnedFd>,
    user: Option<OwnedFd>,
    mapping: IdMapping,
    claim: Option<OwnedFd>,
    /// What the sandbox must not reach.
    out_of_reach: Option<OwnedFd>,
    /// For the owner of the workspace, when the spawner is root.
    owners: Option<idmap::Blank>,
}

/// A sandbox and everything that must be undone at its end.
pub(crate) struct Running {
    pub(crate) run: RunId,
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) group: Group,
    pub(crate) wall_ms: Option<u64>,
    pub(crate) started: Instant,
    /// Keeps the mounts of the run until everything has been reported: taking them down takes the kernel a while.
    pub(crate) mounts: Option<OwnedFd>,
    /// Tells which files are read; or why it cannot.
    pub(crate) reads: Result<OwnedFd, String>,
    /// What errands into the sandbox need beside its mounts.
    pub(crate) rooms: Option<Rooms>,
    /// For whom it is, where it is not the spawner's own user.
    pub(crate) bounds: Option<Bounds>,
    /// What the sandbox must not reach.
    pub(crate) _out_of_reach: Option<OwnedFd>,
    /// Holds the uid of the run.
    pub(crate) _claim: Option<OwnedFd>,
}

/// Makes the child, while whoever wants a sandbox is still thinking about what it shall be.
pub(crate) fn prepare(init: crate::Init, claims: Claims) -> Result<Prepared, Fault> {
    prepare_for(init, claims, None)
}

/// The same; with a plan it needs no other.
pub(crate) fn prepare_for(
    init: crate::Init,
    claims: Claims,
    plan: Option<LaunchPlan>,
) -> Result<Prepared, Fault> {
    let Identity {
        mapping,
        claim,
        authority,
    } = identity::choose(claims)?;
    let (line, theirs) = socket::pair().map_err(|error| fault("line", &error))?;
    let host_namespaces = own_namespaces();
    let (told, out_of_reach) = out_of_reach::hold(facts::landlock());
    let by_root = authority.is_root();
    let cannot = |error| userns_fault("cannot make the namespaces of the sandbox", &error, &authority);
    let (pid, pidfd) = match clone_shown(namespaces()).map_err(cannot)? {
        Cloned::Child => {
            drop(line);
            init(Birth {
                identity: mapping,
                by_root,
                line: theirs,
                host_namespaces,
                out_of_reach: told,
                plan,
            })
        }
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop(theirs);
    // Before it changes its identity. Only speed hangs on it, and whether paths can be granted later.
    let held = |name: &str| {
        std::fs::File::open(format!("/proc/{pid}/ns/{name}"))
            .map(OwnedFd::from)
            .ok()
    };
    let (mounts, user) = (held("mnt"), held("user"));
    let gid = if by_root {
        mapping.outside
    } else {
        rustix::process::getegid().as_raw()
    };
    let mapped =
        identity::write_maps(pid, mapping, gid, &authority).and_then(|()| tell(&line, &ToChild::Mapped, &[]));
    let owners = if by_root {
        Some(idmap::Blank::make()?)
    } else {
        None
    };
    let prepared = Prepared {
        pid,
        pidfd,
        line,
        mounts,
        user,
        mapping,
        claim,
        out_of_reach,
        owners,
    };
    match mapped {
        Ok(()) => Ok(prepared),
        Err(cause) => Err(abandon(prepared).err().unwrap_or(cause)),
    }
}

impl Prepared {
    /// The line to the child.
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// The run that it became.
    pub(crate) fn into_running(
        self,
        plan: &LaunchPlan,
        group: Group,
        reads: Result<OwnedFd, String>,
        bounds: Option<Bounds>,
    ) -> Running {
        let Self {
            pid,
            pidfd,
            line: _,
            mounts,
            user,
            mapping,
            claim,
            out_of_reach,
            owners: _,
        } = self;
        Running {
            run: plan.run.clone(),
            pid,
            pidfd,
            group,
            wall_ms: plan.limit(LimitKind::WallTime).map(|rule| rule.value),
            started: Instant::now(),
            mounts,
            reads,
            rooms: user.map(|user| Rooms {
                user,
                identity: mapping,
            }),
            bounds,
            _out_of_reach: out_of_reach,
            _claim: claim,
        }
    }
}

/// Has the child carry the plan out. On any failure nothing is left: the child is dead, the group goes with its value.
/// Gives back the plan as well: it may come again.
pub(crate) fn launch(
    frame: &ToSpawner,
    descriptors: Vec<OwnedFd>,
    facts: &HostFacts,
    prepared: Result<Prepared, Fault>,
    bounds: Option<Bounds>,
) -> Result<(Running, LaunchPlan), Fault> {
    let started = Instant::now();
    let mut prepared = prepared?;
    // Whatever the frame is: the child reads and does nothing before it is released.
    let parts: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let told = tell(&prepared.line, &ToChild::Plan, &parts);
    let settled = told
        .and_then(|()| admit::admit(frame, descriptors, (facts.landlock, bounds.as_ref())))
        .map(Admitted::into_plan)
        // It goes on by itself while the binds are opened here.
        .and_then(|plan| tell(&prepared.line, &ToChild::Admitted, &[]).map(|()| plan))
        .and_then(|plan| Group::create(&plan, &facts.cgroup).map(|group| (plan, group)));
    let (plan, group) = match settled {
        Ok(settled) => settled,
        Err(cause) => return Err(abandon(prepared).err().unwrap_or(cause)),
    };
    let reads = match release(&plan, &group, facts, (&mut prepared, bounds.as_ref())) {
        Ok(reads) => reads,
        // Before the group goes: its member must be dead, or its directories stay.
        Err(cause) => return Err(abandon(prepared).err().unwrap_or(cause)),
    };
    let mut running = prepared.into_running(&plan, group, reads, bounds);
    running.started = started;
    Ok((running, plan))
}

/// Binds and limits, then the word.
pub(crate) fn release(
    plan: &LaunchPlan,
    group: &Group,
    facts: &HostFacts,
    (prepared, bounds): (&mut Prepared, Option<&Bounds>),
) -> Result<Result<OwnedFd, String>, Fault> {
    let mut seen = Err("it needs root".to_owned());
    if facts.authority.is_root() {
        let sources = idmap::open_sources(plan, prepared.mapping, prepared.owners.take(), bounds)?;
        // Before the first of them is inside: nothing is opened there unseen.
        seen = reads::watch(plan, &sources).map_err(|error| error.to_string());
        for some in sources.chunks(MAX_DESCRIPTORS) {
            let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            tell(&prepared.line, &ToChild::Sources, &some)?;
        }
    }
    if hooks::enforces("cgroup") {
        group.join(prepared.pid)?;
    }
    let word = ToChild::Release {
        fence: fence(plan, group, &facts.authority),
        cgroups: group.evidence().to_vec(),
    };
    tell(&prepared.line, &word, &[])?;
    Ok(seen)
}

/// What enforces the plan, for the statement.
fn fence(plan: &LaunchPlan, group: &Group, authority: &Authority) -> String {
    let fence = plan.landlock_parts.fence(group.describe());
    match authority {
        Authority::Root | Authority::User => fence,
        Authority::UserZero { .. } => format!("{fence} (uid 0 outside, without capabilities)"),
    }
}

fn tell(line: &OwnedFd, frame: &ToChild, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
    socket::send(line, frame, descriptors).map_err(|error| fault("line to the sandbox", &error))
}

/// Ends a child that will not be used.
pub(crate) fn abandon(prepared: Prepared) -> Result<(), Fault> {
    let pidfd = &prepared.pidfd;
    rustix::process::pidfd_send_signal(pidfd, Signal::KILL)
        .map_err(|error| fault("abandon", &error.into()))?;
    rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
        .map_err(|error| fault("abandon", &error.into()))?;
    Ok(())
}

/// Makes a child that does not hide from this process, which may not look into everything: it is given its maps, and its
/// namespaces are held. A process that acted for its caller hides, and so would its copy.
pub(crate) fn clone_shown(namespaces: Namespaces) -> std::io::Result<Cloned> {
    let shown = rustix::process::dumpable_behavior()? == DumpableBehavior::Dumpable;
    if !shown {
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    }
    let cloned = clone_into(namespaces, None);
    if !shown && !matches!(cloned, Ok(Cloned::Child)) {
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    cloned
}

fn namespaces() -> Namespaces {
    let layers = [
        ("mount-namespace", Namespaces::MOUNT),
        ("pid-namespace", Namespaces::PID),
        ("net-namespace", Namespaces::NET),
        ("ipc-namespace", Namespaces::IPC),
        ("uts-namespace", Namespaces::UTS),
    ];
    layers
        .into_iter()
        .filter(|(name, _)| hooks::enforces(name))
        .fold(Namespaces::USER, |all, (_, one)| all.and(one))
}

/// The inode numbers of this process's namespaces, for init to compare with.
fn own_namespaces() -> Vec<(&'static str, u64)> {
    ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
        .into_iter()
        .map(|name| {
            (
                name,
                std::fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino()),
            )
        })
        .collect()
}

pub(crate) fn fault(step: &str, cause: &std::io::Error) -> Fault {
    Fault::new(
        Code::FenceStep,
        format!("cannot launch the sandbox ({step})"),
        cause.to_string(),
    )
    .help("bastle doctor")
}
