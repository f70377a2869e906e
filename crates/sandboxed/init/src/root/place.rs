//! Putting things at paths of the new root, by descriptor, without following a symlink.
use crate::step::Step;
use bastle_contract::{AbsPath, Fault};
use bastle_sys::mount::{Attributes, Depth, set_attributes};
use bastle_sys::tree;
use bastle_sys::walk::{self, Within};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MoveMountFlags;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// The root under construction.
pub(crate) struct Root {
    dir: OwnedFd,
    /// File systems made for this run: only on these may anything be created.
    own: RefCell<Vec<u64>>,
    /// Directories on those file systems that are open already; what is mounted over one takes it out.
    open: RefCell<BTreeMap<AbsPath, Rc<OwnedFd>>>,
}

/// Where the covers of masks are made; removed from view by never being granted and by mode 0.
const MASKS: &str = ".mask";

impl Root {
    /// Opens the tmpfs just mounted at `anchor`.
    pub(crate) fn open(anchor: &str) -> Result<Self, Fault> {
        let dir = rustix::fs::open(
            anchor,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .step("constructed root", anchor)?;
        let device = rustix::fs::fstat(&dir).step("constructed root", anchor)?.st_dev;
        Ok(Self {
            dir,
            own: RefCell::new(vec![device]),
            open: RefCell::new(BTreeMap::new()),
        })
    }

    /// Another file system made for this run: mount points may be created on it too.
    pub(crate) fn owns_also(&self, directory: &OwnedFd) -> Result<(), Fault> {
        let device = rustix::fs::fstat(directory)
            .step("scratch tmpfs", "device")?
            .st_dev;
        self.own.borrow_mut().push(device);
        Ok(())
    }

    /// The root's mount.
    pub(crate) fn mount(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The empty file and directory that cover hidden names: owned by the agent, mode 0, on a read-only mount.
    pub(crate) fn make_mask_sources(&self) -> Result<(), Fault> {
        let what = "mask sources";
        rustix::fs::mkdirat(&self.dir, MASKS, Mode::from_raw_mode(0o700)).step(what, MASKS)?;
        rustix::fs::mkdirat(&self.dir, ".mask/directory", Mode::empty()).step(what, "directory")?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, ".mask/file", flags, Mode::empty()).step(what, "file")?;
        Ok(())
    }

    /// Nobody inside has a way there any more. What the spawner grants later is covered below it first, and its capabilities
    /// lead it through; the root is read-only by then, so that its owner cannot change this back.
    pub(crate) fn close_mask_sources(&self) -> Result<(), Fault> {
        if crate::hooks::enforces("closed-masks") {
            rustix::fs::chmodat(&self.dir, MASKS, Mode::empty(), AtFlags::empty())
                .step("mask sources", MASKS)?;
        }
        Ok(())
    }

    /// A read-only, detached mount of an empty file.
    pub(crate) fn empty_file(&self) -> Result<OwnedFd, Fault> {
        self.cover(".mask/file")
    }

    /// A read-only, detached mount of an empty directory.
    pub(crate) fn empty_directory(&self) -> Result<OwnedFd, Fault> {
        self.cover(".mask/directory")
    }

    fn cover(&self, name: &str) -> Result<OwnedFd, Fault> {
        let attributes = Attributes::READ_ONLY.and(Attributes::NO_EXEC);
        tree::detach_at(&self.dir, name, attributes).step("mask", name)
    }

    /// What is at `at`, if anything. Symlinks are not followed: one in the way is an error.
    pub(crate) fn existing(&self, at: &AbsPath) -> Result<Option<OwnedFd>, Fault> {
        let relative = at.as_str().trim_start_matches('/');
        let name = if relative.is_empty() { "." } else { relative };
        match walk::open(
            self.dir.as_fd(),
            Path::new(name),
            OFlags::empty(),
            Within::Directory,
        ) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(cause).step("mount point", at),
        }
    }

    /// Whether reading what is at `at` is refused to this process, which has the agent's own identity.
    pub(crate) fn refused(&self, at: &AbsPath) -> bool {
        let relative = at.as_str().trim_start_matches('/');
        let access = rustix::fs::accessat(&self.dir, relative, Access::READ_OK, AtFlags::EACCESS);
        access == Err(Errno::ACCESS)
    }

    /// Attaches a detached directory mount.
    pub(crate) fn attach_dir(&self, at: &AbsPath, tree: OwnedFd) -> Result<(), Fault> {
        if let Some(parent) = self.open_parent(at) {
            match rustix::fs::mkdirat(&*parent, at.name(), Mode::from_raw_mode(0o755)) {
                // By its name: it was made here a moment ago, on a file system that nobody else reaches.
                Ok(()) => return attach_at(&tree, &parent, at.name()).step("mount", at),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause).step("mount point", at),
            }
        }
        let target = match self.existing(at)? {
            Some(target) => Rc::new(target),
            None => self.make_directory(at)?,
        };
        attach(&tree, &target).step("mount", at)?;
        self.open.borrow_mut().retain(|path, _| !path.is_within(at));
        Ok(())
    }

    /// Attaches a detached file mount.
    pub(crate) fn attach_file(&self, at: &AbsPath, tree: OwnedFd) -> Result<(), Fault> {
        let existing = if self.open_parent(at).is_some() {
            None
        } else {
            self.existing(at)?
        };
        let target = match existing {
            Some(target) => target,
            None => self.create(at, b"", 0o444)?,
        };
        attach(&tree, &target).step("mount", at)
    }

    /// The directory above, if it is open already.
    fn open_parent(&self, at: &AbsPath) -> Option<Rc<OwnedFd>> {
        self.open.borrow().get(&at.parent()?).cloned()
    }

    /// A symlink of the constructed root.
    pub(crate) fn symlink(&self, at: &AbsPath, target: &str) -> Result<(), Fault> {
        let parent = self.parent(at)?;
        rustix::fs::symlinkat(target, &*parent, at.name()).step("symlink", at)
    }

    /// A file made for this run.
    pub(crate) fn file(&self, at: &AbsPath, contents: &[u8]) -> Result<(), Fault> {
        self.create(at, contents, 0o444)?;
        Ok(())
    }

    /// A file that is the agent's own from the start.
    pub(crate) fn given(&self, at: &AbsPath, contents: &[u8]) -> Result<(), Fault> {
        self.create(at, contents, 0o600)?;
        Ok(())
    }

    fn create(&self, at: &AbsPath, contents: &[u8], mode: u32) -> Result<OwnedFd, Fault> {
        let parent = self.parent(at)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*parent, at.name(), flags, Mode::from_raw_mode(mode))
            .step("made file", at)?;
        let mut rest = contents;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest).step("made file", at)?;
            rest = &rest[written..];
        }
        Ok(file)
    }

    fn parent(&self, at: &AbsPath) -> Result<Rc<OwnedFd>, Fault> {
        if let Some(parent) = self.open_parent(at) {
            return Ok(parent);
        }
        let parent = at.parent().ok_or("has no parent").step("mount point", at)?;
        match self.existing(&parent)? {
            Some(directory) => {
                self.refuse_host(&directory, at)?;
                Ok(self.remember(parent, directory))
            }
            None => self.make_directory(&parent),
        }
    }

    /// Keeps a directory of this run's own open.
    fn remember(&self, at: AbsPath, directory: OwnedFd) -> Rc<OwnedFd> {
        let directory = Rc::new(directory);
        self.open.borrow_mut().insert(at, Rc::clone(&directory));
        directory
    }

    /// Makes a directory and those above it, each only on a file system made for this run.
    fn make_directory(&self, at: &AbsPath) -> Result<Rc<OwnedFd>, Fault> {
        let (above, name) = (at.parent(), at.name());
        let parent = match above {
            Some(above) => match self.open_parent(at) {
                Some(parent) => parent,
                None => match self.existing(&above)? {
                    Some(parent) => {
                        self.refuse_host(&parent, at)?;
                        self.remember(above, parent)
                    }
                    None => self.make_directory(&above)?,
                },
            },
            None => return Err("the root is there always").step("mount point", at),
        };
        rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o755)).step("mount point", at)?;
        let made = open_below(&parent, name).step("mount point", at)?;
        Ok(self.remember(at.clone(), made))
    }

    /// Nothing may be created on a host file system: a mount point that is missing there is an error, not litter.
    fn refuse_host(&self, directory: &OwnedFd, at: &AbsPath) -> Result<(), Fault> {
        let device = rustix::fs::fstat(directory).step("mount point", at)?.st_dev;
        if self.own.borrow().contains(&device) {
            Ok(())
        } else {
            Err("its directory is on a host file system and does not have it").step("mount point", at)
        }
    }
}

/// Attaches a detached mount at an open path.
pub(crate) fn attach(tree: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", target, "", flags)
}

/// Attaches a detached mount at a name of an open directory; a link there is not followed.
fn attach_at(tree: &OwnedFd, directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    rustix::mount::move_mount(tree, "", directory, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Sets attributes on what is now mounted at `at`.
pub(crate) fn make_read_only(root: &Root, at: &AbsPath) -> Result<(), Fault> {
    let Some(path) = root.existing(at)? else {
        return Ok(());
    };
    let copy = tree::detach(&path, Attributes::READ_ONLY).step("read-only cover", at)?;
    attach(&copy, &path).step("read-only cover", at)
}

fn open_below(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    walk::open(
        directory.as_fd(),
        Path::new(name),
        OFlags::DIRECTORY,
        Within::Directory,
    )
}

/// Opens a host path by name; only before the root is pivoted.
pub(crate) fn open_host(path: impl AsRef<OsStr>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Mount attributes need the type in scope for both callers.
pub(crate) fn restrict(tree: &OwnedFd, attributes: Attributes) -> std::io::Result<()> {
    set_attributes(tree.as_fd(), attributes, Depth::Tree)
}
