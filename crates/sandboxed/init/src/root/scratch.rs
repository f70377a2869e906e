//! The run's private writable space: one tmpfs, so that its size is one number the kernel holds.
use super::place::{Root, remove_directory};
use crate::step::Step;
use bastle_contract::{AbsPath, Fault};
use bastle_sys::mount::Attributes;
use bastle_sys::tree;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};
use std::cell::Cell;
use std::os::fd::OwnedFd;

/// Bytes when the policy states no disk limit.
const DEFAULT_SIZE: u64 = 4 << 30;
/// Files when the policy states no inode limit.
const DEFAULT_INODES: u64 = 1 << 20;
const NAME: &str = ".scratch";

/// The scratch tmpfs while the root is built.
pub(crate) struct Scratch {
    dir: OwnedFd,
    next: Cell<u32>,
}

impl Scratch {
    /// Mounts it at a passing name: directories can be cloned only from an attached mount.
    pub(crate) fn create(root: &Root, size: Option<u64>, inodes: Option<u64>) -> Result<Self, Fault> {
        let what = "scratch tmpfs";
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step(what, "fsopen")?;
        let options = [
            ("size", size.unwrap_or(DEFAULT_SIZE).to_string()),
            ("nr_inodes", inodes.unwrap_or(DEFAULT_INODES).to_string()),
            ("mode", "0755".to_owned()),
        ];
        for (key, value) in &options {
            rustix::mount::fsconfig_set_string(&fs, *key, value.as_str()).step(what, key)?;
        }
        rustix::mount::fsconfig_create(&fs).step(what, "create")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount =
            rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(what, "fsmount")?;
        root.attach_dir(&place()?, mount)?;
        let dir = root.existing(&place()?)?.ok_or("vanished").step(what, NAME)?;
        root.owns_also(&dir)?;
        Ok(Self {
            dir,
            next: Cell::new(0),
        })
    }

    /// A new directory of it as a detached mount.
    pub(crate) fn directory(&self, mode: u32) -> Result<OwnedFd, Fault> {
        let number = self.next.replace(self.next.get() + 1);
        let name = number.to_string();
        rustix::fs::mkdirat(&self.dir, &name, Mode::from_raw_mode(0o700)).step("scratch directory", &name)?;
        let dir = rustix::fs::openat(
            &self.dir,
            &name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .step("scratch directory", &name)?;
        // After mkdir, because the umask would take bits such as the sticky one's neighbours away.
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode)).step("scratch directory", &name)?;
        tree::detach(&dir, Attributes::default()).step("scratch directory", &name)
    }

    /// Takes the passing name away; the clones keep the tmpfs alive.
    pub(crate) fn close(self, root: &Root) -> Result<(), Fault> {
        rustix::process::fchdir(root.mount()).step("scratch tmpfs", NAME)?;
        rustix::mount::unmount(NAME, UnmountFlags::DETACH).step("scratch tmpfs", NAME)?;
        remove_directory(root, NAME).step("scratch tmpfs", NAME)
    }
}

fn place() -> Result<AbsPath, Fault> {
    AbsPath::new(format!("/{NAME}")).step("scratch tmpfs", NAME)
}
