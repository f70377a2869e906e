//! As root: the kernel tells which files the run opens through its own mounts.
//!
//! **Trust:** only marks mounts that were opened for this run. Nothing that is told is read here: the group is handed to
//! control before anything happens in it.
use bastle_contract::{LaunchPlan, MountKind};
use bastle_sys::fanotify::{self, Watched};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Watches what the run was granted, and of the system which programs are started. `sources` are the detached mounts of
/// the plan, in its order.
pub(crate) fn watch(plan: &LaunchPlan, sources: &[OwnedFd]) -> io::Result<OwnedFd> {
    // What lies below an overlay is opened through a mount that is made inside, after this, and is not marked: a claim
    // would be false.
    if plan
        .mounts
        .iter()
        .any(|mount| matches!(mount.kind, MountKind::Overlay { .. }))
    {
        return Err(io::Error::other("the workspace is an overlay"));
    }
    let group = fanotify::group()?;
    let owned = plan.mounts.iter().flat_map(|entry| {
        let owned = entry.kind.is_owned();
        entry.kind.sources().into_iter().flatten().map(move |_| owned)
    });
    for (source, owned) in sources.iter().zip(owned) {
        let what = if owned {
            Watched::Everything
        } else {
            Watched::Programs
        };
        fanotify::watch(group.as_fd(), source.as_fd(), what)?;
    }
    Ok(group)
}
