//! As root: binds are opened with the reach of whoever they are for, and shown with the agent's uid as the owner of what
//! the invoker owns.
use crate::bounds::Bounds;
use bastle_contract::{AbsPath, Access, Code, Fault, IdMapping, LaunchPlan};
use bastle_sys::clone::{Cloned, Namespaces};
use bastle_sys::mount::Attributes;
use bastle_sys::{mount, tree};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Opens every bind of the plan as a detached mount, mapped where the plan says so.
pub(crate) fn open_sources(
    plan: &LaunchPlan,
    identity: IdMapping,
    mut blank: Option<Blank>,
    bounds: Option<&Bounds>,
) -> Result<Vec<OwnedFd>, Fault> {
    let mut maps: BTreeMap<(u32, u32), OwnedFd> = BTreeMap::new();
    let mut sources = Vec::new();
    let wanted = plan.mounts.iter().flat_map(|entry| {
        let owned = entry.kind.is_owned();
        let sources = entry.kind.sources().into_iter().flatten();
        sources.map(move |(source, access)| (source, access, owned))
    });
    for (source, access, owned) in wanted {
        let fault = |step: &str, error: &std::io::Error| {
            Fault::new(
                Code::FenceStep,
                format!("cannot bind {source} ({step})"),
                error.to_string(),
            )
        };
        let path = open(source, access, bounds).map_err(|error| match bounds {
            Some(bounds) => bounds.unopened(source, &error),
            None => fault("open", &error),
        })?;
        let extra = match access {
            Access::ReadOnly if crate::hooks::enforces("read-only-binds") => Attributes::READ_ONLY,
            Access::ReadOnly | Access::ReadWrite => Attributes::default(),
        };
        let detached = tree::detach(&path, extra).map_err(|error| fault("clone", &error))?;
        if owned {
            let stat = rustix::fs::fstat(&path).map_err(|error| fault("stat", &error.into()))?;
            let owner = owner_of(&stat, bounds);
            let map = match maps.entry(owner) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let blank = blank.take().map_or_else(Blank::make, Ok)?;
                    new.insert(blank.map(owner, identity)?)
                }
            };
            mount::set_idmap(detached.as_fd(), map.as_fd()).map_err(|error| {
                Fault::new(
                    Code::FenceIdmap,
                    format!("cannot map the owner of {source}"),
                    error.to_string(),
                )
                .help("start bastle as the owner of the directory instead of root")
            })?;
        }
        sources.push(detached);
    }
    Ok(sources)
}

/// Shows a detached tree with the agent as the owner of what the owner of `path` owns.
pub(crate) fn show_owned(
    detached: &OwnedFd,
    path: &OwnedFd,
    identity: IdMapping,
    bounds: Option<&Bounds>,
) -> Result<(), Fault> {
    let stat = rustix::fs::fstat(path).map_err(|error| fault("stat", error.to_string()))?;
    let map = Blank::make()?.map(owner_of(&stat, bounds), identity)?;
    mount::set_idmap(detached.as_fd(), map.as_fd()).map_err(|error| fault("mount", error.to_string()))
}

/// Opens a host path, for a caller of the daemon with the caller's own rights.
pub(crate) fn open(path: &AbsPath, access: Access, bounds: Option<&Bounds>) -> std::io::Result<OwnedFd> {
    match bounds {
        Some(bounds) => bounds.open(path, access),
        None => tree::open_exactly(path.as_path()),
    }
}

/// Whose files in it appear as the agent's.
fn owner_of(stat: &rustix::fs::Stat, bounds: Option<&Bounds>) -> (u32, u32) {
    bounds.map_or((stat.st_uid, stat.st_gid), |bounds| bounds.owner(stat))
}

/// A user namespace whose only use will be its map. Nobody knows yet whose files it is for.
pub(crate) struct Blank {
    pid: u32,
    /// Lives until its namespace is held by a descriptor, or until the spawner is gone: this end closes.
    keeper: OwnedFd,
}

impl Blank {
    /// Makes one, held by a process that does nothing.
    pub(crate) fn make() -> Result<Self, Fault> {
        let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| fault("pipe", e.to_string()))?;
        let cloned = crate::launch::clone_shown(Namespaces::USER);
        match cloned.map_err(|e| fault("clone", e.to_string()))? {
            Cloned::Child => {
                drop(theirs);
                // Not one descriptor of the spawner's is this process's business, its line to control least of all.
                let closed = bastle_sys::fd::close_all_except(&[ours.as_raw_fd()]);
                let mut byte = [0];
                let waited = rustix::io::read(&ours, &mut byte);
                bastle_sys::exec::exit(u8::from(waited.is_err() || closed.is_err()))
            }
            Cloned::Parent { pid, pidfd: _ } => Ok(Self { pid, keeper: theirs }),
        }
    }

    /// Files of `owner` belong to the agent.
    fn map(self, owner: (u32, u32), identity: IdMapping) -> Result<OwnedFd, Fault> {
        let Self { pid, keeper } = self;
        let made = write_map(pid, "uid_map", owner.0, identity.outside)
            .and_then(|()| write_map(pid, "gid_map", owner.1, identity.outside))
            .and_then(|()| std::fs::File::open(format!("/proc/{pid}/ns/user")));
        // Not waited for: it ends by itself, and is reaped with this process.
        drop(keeper);
        Ok(made.map_err(|e| fault("map", e.to_string()))?.into())
    }
}

fn fault(step: &str, why: String) -> Fault {
    Fault::new(
        Code::FenceIdmap,
        format!("cannot make an owner map ({step})"),
        why,
    )
}

fn write_map(pid: u32, file: &str, from: u32, to: u32) -> std::io::Result<()> {
    std::fs::write(format!("/proc/{pid}/{file}"), format!("{from} {to} 1"))
}
