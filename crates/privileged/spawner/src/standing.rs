//! A sandbox that stands before anybody asks for it: for a plan that this caller came with twice.
//!
//! **Trust:** nothing is assumed of what comes. The plan is admitted again, must be the same to the last rule but for the
//! run, the command and its environment, and everything of the host that the sandbox shows is opened once more with the
//! caller's rights: what is not the very same file any more, or not the caller's to open, is built anew. So it is when
//! anything was mounted or unmounted on the host since.
use crate::Init;
use crate::bounds::{Bounds, Which};
use crate::cgroup::Group;
use crate::identity::Claims;
use crate::launch::{self, Prepared, Running};
use bastle_contract::{
    AbsPath, Access, Claim, Fault, FromChild, HostFacts, LaunchPlan, LimitMechanism, MountKind, Network,
    Stdio, ToChild, socket,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The sandbox.
pub(crate) struct Standing {
    prepared: Prepared,
    plan: LaunchPlan,
    group: Group,
    reads: Result<OwnedFd, String>,
    shown: Vec<Shown>,
    table: MountTable,
    begun: Instant,
    stands: bool,
}

/// How old one may be that is given out: its caller may come, change its mind and come again.
const OLDEST: Duration = Duration::from_secs(30);

/// The host's mounts as they were: whether any came or went since. What lies below a path that is shown may be another's.
struct MountTable(OwnedFd);

impl MountTable {
    fn now() -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(
            "/proc/self/mountinfo",
            flags,
            Mode::empty(),
        )?))
    }

    /// The kernel says so once of every open table.
    fn is_the_same(&self) -> bool {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let changed = &mut [PollFd::new(&self.0, PollFlags::PRI)];
        rustix::event::poll(changed, Some(&at_once)) == Ok(0)
    }
}

/// Something of the host that is shown or covered, and which file it was; `None`: none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    path: AbsPath,
    access: Access,
    file: Option<Which>,
}

/// Whether a sandbox for this plan can stand before its run is known: its limits need no group named for the run, it has
/// pipes, nothing travels beside it, and nobody outside has to answer while it is proven.
pub(crate) fn can_stand(plan: &LaunchPlan) -> bool {
    let by_group = |mechanism| matches!(mechanism, LimitMechanism::CgroupV1 | LimitMechanism::CgroupV2);
    let layered = |kind: &MountKind| matches!(kind, MountKind::Overlay { .. });
    plan.stdio == Stdio::Pipes
        && plan.network == Network::None
        && plan.attachments.is_none()
        && !plan.limits.iter().any(|rule| by_group(rule.mechanism))
        && !plan.mounts.iter().any(|mount| layered(&mount.kind))
}

/// Whether the fences of two plans are the same. Without `..`: whatever is added to plans must be the same too, or be part
/// of a claim.
pub(crate) fn is_same_fence(one: &LaunchPlan, other: &LaunchPlan) -> bool {
    let LaunchPlan {
        // What a claim brings.
        run: _,
        argv: _,
        env: _,
        policy,
        backend,
        mounts,
        landlock,
        landlock_parts,
        guard,
        network,
        limits,
        cwd,
        stdio,
        debuggers,
        exec,
        attachments,
        guarantees,
        waivers,
    } = one;
    *policy == other.policy
        && *backend == other.backend
        && *mounts == other.mounts
        && *landlock == other.landlock
        && *landlock_parts == other.landlock_parts
        && *guard == other.guard
        && *network == other.network
        && *limits == other.limits
        && *cwd == other.cwd
        && *stdio == other.stdio
        && *debuggers == other.debuggers
        && *exec == other.exec
        && *attachments == other.attachments
        && *guarantees == other.guarantees
        && *waivers == other.waivers
}

impl Standing {
    /// Begins to build: it goes on by itself. The plan was admitted within these bounds.
    pub(crate) fn build(
        (init, claims): (Init, Claims),
        plan: LaunchPlan,
        facts: &HostFacts,
        bounds: &Bounds,
    ) -> Result<Self, Fault> {
        // Before anything is opened to be shown: what changes after this look is noticed when it is claimed.
        let table = MountTable::now().map_err(|error| launch::fault("mount table", &error))?;
        let shown = look(&plan, bounds).map_err(|error| launch::fault("look", &error))?;
        let mut prepared = launch::prepare_for(init, claims, Some(plan.clone()))?;
        let begun = Group::create(&plan, &facts.cgroup).and_then(|group| {
            let reads = launch::release(&plan, &group, facts, (&mut prepared, Some(bounds)))?;
            Ok((group, reads))
        });
        match begun {
            Ok((group, reads)) => Ok(Self {
                prepared,
                plan,
                group,
                reads,
                shown,
                table,
                begun: Instant::now(),
                stands: false,
            }),
            Err(cause) => Err(launch::abandon(prepared).err().unwrap_or(cause)),
        }
    }

    /// For waiting until it stands, or is lost.
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.prepared.line()
    }

    /// Whether it is still being built.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.stands
    }

    /// Hears the sandbox; `false` when it will not stand.
    pub(crate) fn hear(&mut self) -> bool {
        let word = socket::receive::<FromChild>(self.prepared.line());
        self.stands = matches!(word, Ok(Some((FromChild::Stands, _))));
        self.stands
    }

    /// Becomes the run of an admitted plan, with the socket to control and the streams; or gives nothing, and is gone: then
    /// it is to be built by order. `last` is asked before it is confirmed.
    pub(crate) fn claim(
        mut self,
        plan: &LaunchPlan,
        descriptors: &[BorrowedFd<'_>],
        bounds: &Bounds,
        last: &mut dyn FnMut() -> Result<(), Fault>,
    ) -> Result<Option<Running>, Fault> {
        // The sandbox gets ready for the run while this process looks whether it may.
        let usable = is_same_fence(&self.plan, plan)
            && self.begun.elapsed() < OLDEST
            && (self.stands || self.hear())
            && self.say(&ToChild::Claim(Claim::of(plan)), descriptors)
            && look(plan, bounds).is_ok_and(|shown| shown == self.shown)
            && self.table.is_the_same();
        let allowed = if usable { last() } else { Ok(()) };
        if !usable || allowed.is_err() || !self.say(&ToChild::Confirmed, &[]) {
            launch::abandon(self.prepared)?;
            return allowed.map(|()| None);
        }
        let Self {
            prepared,
            group,
            reads,
            ..
        } = self;
        Ok(Some(prepared.into_running(
            plan,
            group,
            reads,
            Some(bounds.clone()),
        )))
    }

    /// Whether it was said. A claim that fits into no frame is none.
    fn say(&self, word: &ToChild, descriptors: &[BorrowedFd<'_>]) -> bool {
        socket::send(self.prepared.line(), word, descriptors).is_ok()
    }

    /// Ends it.
    pub(crate) fn abandon(self) -> Result<(), Fault> {
        launch::abandon(self.prepared)
    }
}

/// Opens everything of the host that the plan shows, covers or shows again, with the caller's rights.
fn look(plan: &LaunchPlan, bounds: &Bounds) -> std::io::Result<Vec<Shown>> {
    let sources = plan.mounts.iter().flat_map(|mount| {
        let named = match &mount.kind {
            MountKind::Mask => on_host(plan, &mount.at),
            MountKind::Again { of, .. } => on_host(plan, of),
            MountKind::Bind { .. }
            | MountKind::Overlay { .. }
            | MountKind::Scratch { .. }
            | MountKind::Proc
            | MountKind::Dev
            | MountKind::Symlink { .. }
            | MountKind::File { .. }
            | MountKind::Attached { .. }
            | MountKind::Given { .. } => None,
        };
        let shown = mount.kind.sources().into_iter().flatten();
        shown
            .map(|(path, access)| (path.clone(), access))
            .chain(named.map(|path| (path, Access::ReadOnly)))
    });
    let wanted: Vec<(AbsPath, Access)> = sources.collect();
    let files = bounds.look(&wanted)?;
    Ok(wanted
        .into_iter()
        .zip(files)
        .map(|((path, access), file)| Shown { path, access, file })
        .collect())
}

/// What a path inside is on the host, where it lies in a tree of the host's.
fn on_host(plan: &LaunchPlan, at: &AbsPath) -> Option<AbsPath> {
    let trees = plan.mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind { source, .. } if at.is_within(&mount.at) => Some((&mount.at, source)),
        _ => None,
    });
    let (place, source) = trees.max_by_key(|(place, _)| place.as_str().len())?;
    match at.as_str().strip_prefix(place.as_str())?.trim_start_matches('/') {
        "" => Some(source.clone()),
        below => source.join(below).ok(),
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
