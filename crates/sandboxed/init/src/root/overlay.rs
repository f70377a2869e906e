//! A host directory that is only read, with a layer of the run's own above it.
//!
//! Runs before confinement, in the sandbox's user namespace, so the kernel keeps its marks in `user.overlay.*`, which
//! nobody can write through the finished mount. Both directories come as descriptors; they have a name only while the
//! overlay is made, in the run's own scratch space.
use super::place::{Root, attach};
use super::scratch::Scratch;
use crate::step::Step;
use bastle_contract::Fault;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};
use std::os::fd::OwnedFd;

/// What an overlay is made of.
pub(super) struct Layers {
    /// Only read.
    pub(super) lower: OwnedFd,
    /// Has `upper` and `work`, on one mount as the kernel wants it.
    pub(super) layer: OwnedFd,
}

/// Makes it, not attached anywhere.
pub(super) fn make(root: &Root, scratch: &Scratch, layers: Layers) -> Result<OwnedFd, Fault> {
    let what = "overlay";
    // Short names of ours, whatever the host's are called: an option ends at a comma and a layer at a colon.
    let places = [(layers.lower, "lower"), (layers.layer, "layer")];
    rustix::process::fchdir(scratch.top()).step(what, "scratch")?;
    for (tree, name) in &places {
        attach(tree, &scratch.mount_point(name)?).step(what, name)?;
    }
    let made = mount();
    for (_, name) in &places {
        rustix::mount::unmount(*name, UnmountFlags::DETACH).step(what, name)?;
    }
    rustix::process::fchdir(root.mount()).step(what, "root")?;
    made
}

fn mount() -> Result<OwnedFd, Fault> {
    let what = "overlay";
    let fs = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step(what, "fsopen")?;
    // With `userxattr` the kernel follows no redirect and keeps no file without its data.
    rustix::mount::fsconfig_set_flag(&fs, "userxattr").step(what, "userxattr")?;
    for (key, value) in [
        ("lowerdir", "lower"),
        ("upperdir", "layer/upper"),
        ("workdir", "layer/work"),
    ] {
        rustix::mount::fsconfig_set_string(&fs, key, value).step(what, key)?;
    }
    rustix::mount::fsconfig_create(&fs).step(what, "create")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(what, "fsmount")
}
