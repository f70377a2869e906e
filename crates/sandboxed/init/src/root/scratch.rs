//! The run's private writable space: one tmpfs, so that its size is one number the kernel holds.
use super::place::{attach, open_host};
use crate::step::Step;
use bastle_contract::Fault;
use bastle_sys::mount::Attributes;
use bastle_sys::tree;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::cell::Cell;
use std::os::fd::OwnedFd;

/// Bytes when the policy states no disk limit.
const DEFAULT_SIZE: u64 = 4 << 30;
/// Files when the policy states no inode limit.
const DEFAULT_INODES: u64 = 1 << 20;

/// The scratch tmpfs while the root is built.
pub(crate) struct Scratch {
    dir: OwnedFd,
    /// The file system's own context: after mounting it takes new limits.
    fs: OwnedFd,
    next: Cell<u32>,
}

impl Scratch {
    /// Mounts it at `anchor`: directories can be cloned only from an attached mount.
    pub(crate) fn create(anchor: &str) -> Result<Self, Fault> {
        let what = "scratch tmpfs";
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step(what, "fsopen")?;
        let options = [
            ("size", DEFAULT_SIZE.to_string()),
            ("nr_inodes", DEFAULT_INODES.to_string()),
            ("mode", "0755".to_owned()),
        ];
        for (key, value) in &options {
            rustix::mount::fsconfig_set_string(&fs, *key, value.as_str()).step(what, key)?;
        }
        rustix::mount::fsconfig_create(&fs).step(what, "create")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount =
            rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(what, "fsmount")?;
        let place = open_host(anchor).step(what, anchor)?;
        attach(&mount, &place).step(what, anchor)?;
        let dir = open_host(anchor).step(what, anchor)?;
        Ok(Self {
            dir,
            fs,
            next: Cell::new(0),
        })
    }

    /// Holds it to the plan's limits, before anything but its directories is on it.
    pub(crate) fn limit(&self, size: Option<u64>, inodes: Option<u64>) -> Result<(), Fault> {
        let what = "scratch tmpfs";
        let options = [("size", size), ("nr_inodes", inodes)];
        for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            rustix::mount::fsconfig_set_string(&self.fs, key, value.to_string().as_str()).step(what, key)?;
        }
        if size.is_some() || inodes.is_some() {
            rustix::mount::fsconfig_reconfigure(&self.fs).step(what, "limits")?;
        }
        Ok(())
    }

    /// A new directory of it as a detached mount.
    pub(crate) fn directory(&self, mode: u32) -> Result<OwnedFd, Fault> {
        let number = self.next.replace(self.next.get() + 1);
        let name = number.to_string();
        rustix::fs::mkdirat(&self.dir, &name, Mode::from_raw_mode(0o700)).step("scratch directory", &name)?;
        // After mkdir, because the umask would take bits such as the sticky one's neighbours away.
        rustix::fs::chmodat(&self.dir, &name, Mode::from_raw_mode(mode), AtFlags::empty())
            .step("scratch directory", &name)?;
        tree::detach_at(&self.dir, &name, Attributes::default()).step("scratch directory", &name)
    }

    /// An empty directory at its top to mount something on.
    pub(crate) fn mount_point(&self, name: &str) -> Result<OwnedFd, Fault> {
        match rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(cause) => return Err(cause).step("scratch directory", name),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::empty()).step("scratch directory", name)
    }

    /// Removes a mount point that is free again: it would count as a file of the run's.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Fault> {
        rustix::fs::unlinkat(&self.dir, name, AtFlags::REMOVEDIR).step("scratch directory", name)
    }

    /// Its topmost directory.
    pub(crate) fn top(&self) -> &OwnedFd {
        &self.dir
    }
}
