//! A minimal `/dev`: seven nodes of the host, an own pseudo-terminal file system, private shared memory.
use super::place::{Root, restrict};
use super::scratch::Scratch;
use crate::step::Step;
use bastle_contract::{AbsPath, Fault};
use bastle_sys::mount::Attributes;
use bastle_sys::tree;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The nodes that exist inside, besides `ptmx` and `pts`.
pub(crate) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Clones the host's nodes; making own ones is not possible without root.
pub(crate) fn open_nodes() -> Result<Vec<OwnedFd>, Fault> {
    let mut nodes = Vec::new();
    for name in DEVICES {
        let path = format!("/dev/{name}");
        let tree = tree::clone_host(Path::new(&path)).step("device node", &path)?;
        restrict(&tree, Attributes::NO_SUID.and(Attributes::NO_EXEC)).step("device node", &path)?;
        nodes.push(tree);
    }
    Ok(nodes)
}

/// Puts everything below `at`.
pub(crate) fn mount(root: &Root, scratch: &Scratch, at: &AbsPath, nodes: Vec<OwnedFd>) -> Result<(), Fault> {
    let below = |name: &str| at.join(name).step("device node", name);
    for (name, node) in DEVICES.iter().zip(nodes) {
        root.attach_file(&below(name)?, node)?;
    }
    root.attach_dir(&below("pts")?, terminals()?)?;
    root.attach_dir(&below("shm")?, scratch.directory(0o1777)?)?;
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        root.symlink(&below(name)?, target)?;
    }
    Ok(())
}

fn terminals() -> Result<OwnedFd, Fault> {
    let what = "own pseudo-terminals";
    let fs = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).step(what, "fsopen")?;
    for (key, value) in [("ptmxmode", "0666"), ("mode", "0620")] {
        rustix::mount::fsconfig_set_string(&fs, key, value).step(what, key)?;
    }
    rustix::mount::fsconfig_create(&fs).step(what, "create")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(what, "fsmount")
}
