//! Staging areas: directories on the same mount as the paths they serve, and the slots in them.
//!
//! **Trust:** an area in the state directory is out of the agent's reach; one in the project has a name nobody can guess
//! and the owner's rights alone. Slots are opened beneath the area, without links.
use super::inherit::Inherited;
use super::journal::{Area, Journals};
use super::settle::SettleError;
use crate::beneath::Dir;
use crate::path::TreePath;
use crate::rooted::{Root, is_no_directory};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directory of slots within a journal.
pub(super) const SLOTS: &str = "slots";

/// A mount, as far as `rename` is concerned: between two of these nothing can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Volume {
    mount: u64,
    major: u32,
    minor: u32,
}

impl Volume {
    fn of(directory: impl AsFd) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let found = rustix::fs::statx(directory, "", flags, wanted)?;
        Ok(Self {
            mount: found.stx_mnt_id,
            major: found.stx_dev_major,
            minor: found.stx_dev_minor,
        })
    }
}

/// Chooses the area and the slot of every path of a transaction.
pub(super) struct Areas<'a> {
    root: &'a Root,
    journal: PathBuf,
    token: String,
    chosen: Vec<Area>,
    by_volume: BTreeMap<Volume, usize>,
    /// Per parent directory: its area and the subdirectory for its slots.
    parents: BTreeMap<Option<TreePath>, (usize, usize)>,
    /// Per area: what the subdirectories for slots have to pass on, by number.
    rooms: Vec<Vec<Inherited>>,
    next: usize,
}

impl<'a> Areas<'a> {
    pub(super) fn new(root: &'a Root, journals: &Journals, number: u64) -> io::Result<Self> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            root,
            journal: journals.folder(number),
            token: format!("{:016x}", u64::from_ne_bytes(random)),
            chosen: Vec::new(),
            by_volume: BTreeMap::new(),
            parents: BTreeMap::new(),
            rooms: Vec::new(),
            next: 0,
        })
    }

    /// The areas that were chosen, for the journal.
    pub(super) fn chosen(&self) -> &[Area] {
        &self.chosen
    }

    /// The area and the slot for the object at a path. Writes nothing into the project.
    pub(super) fn slot(&mut self, path: &TreePath) -> Result<(usize, TreePath), SettleError> {
        let parent = path.parent();
        let (area, room) = match self.parents.get(&parent) {
            Some(known) => *known,
            None => {
                let directory = open_parent(self.root, parent.as_ref())?;
                let area = self.area(&directory, parent.as_ref())?;
                let inherited = Inherited::of(&directory)?;
                let rooms = &mut self.rooms[area];
                let room = rooms.iter().position(|one| *one == inherited);
                let room = room.unwrap_or_else(|| {
                    rooms.push(inherited);
                    rooms.len() - 1
                });
                self.parents.insert(parent, (area, room));
                (area, room)
            }
        };
        let number = self.next;
        self.next += 1;
        let slot = TreePath::new(format!("{room}/{number}")).map_err(|_| SettleError::Drift)?;
        Ok((area, slot))
    }

    fn area(&mut self, directory: &OwnedFd, parent: Option<&TreePath>) -> Result<usize, SettleError> {
        let volume = Volume::of(directory)?;
        if let Some(known) = self.by_volume.get(&volume) {
            return Ok(*known);
        }
        let area = if self.reaches_journal(directory, volume)? {
            Area::Journal
        } else {
            Area::Tree {
                directory: self.topmost(volume, parent)?,
                name: format!(".bastle-{}-{}", self.token, self.chosen.len()),
            }
        };
        self.chosen.push(area);
        self.rooms.push(Vec::new());
        self.by_volume.insert(volume, self.chosen.len() - 1);
        Ok(self.chosen.len() - 1)
    }

    /// Whether an object of that directory can be moved into the journal. Tried with a file that never has a name in the
    /// project: quota projects and subvolumes separate what has the same mount.
    fn reaches_journal(&self, directory: &OwnedFd, volume: Volume) -> Result<bool, SettleError> {
        let journal = rustix::fs::open(
            &self.journal,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if Volume::of(&journal)? != volume {
            return Ok(false);
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let Ok(probe) = rustix::fs::openat(directory, ".", flags, Mode::from_raw_mode(0o600)) else {
            return Ok(false);
        };
        let through = format!("/proc/self/fd/{}", probe.as_raw_fd());
        match rustix::fs::linkat(CWD, through, &journal, "probe", AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {
                rustix::fs::unlinkat(&journal, "probe", AtFlags::empty())?;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(true),
            Err(_) => Ok(false),
        }
    }

    /// The topmost directory above a path that is on the same volume.
    fn topmost(&self, volume: Volume, parent: Option<&TreePath>) -> Result<Option<TreePath>, SettleError> {
        let mut top = parent.cloned();
        let mut above = parent.map(TreePath::parent);
        while let Some(directory) = above {
            if Volume::of(open_parent(self.root, directory.as_ref())?)? != volume {
                break;
            }
            above = directory.as_ref().map(TreePath::parent);
            top = directory;
        }
        Ok(top)
    }

    /// Makes the areas with their subdirectories.
    pub(super) fn make(&self) -> Result<Vec<Root>, SettleError> {
        let mut open = Vec::new();
        for (area, rooms) in self.chosen.iter().zip(&self.rooms) {
            let (directory, name) = self.location(area)?;
            rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o700))?;
            let area = Root::open_beneath(&directory, name.as_bytes())?;
            for (number, inherited) in rooms.iter().enumerate() {
                let name = number.to_string();
                rustix::fs::mkdirat(area.handle(), &name, Mode::from_raw_mode(0o700))?;
                inherited.pass_on(&Root::open_beneath(area.handle(), name.as_bytes())?)?;
            }
            open.push(area);
        }
        Ok(open)
    }

    fn location<'b>(&self, area: &'b Area) -> Result<(OwnedFd, &'b str), SettleError> {
        locate(self.root, &self.journal, area)?.ok_or(SettleError::Drift)
    }
}

fn open_parent(root: &Root, parent: Option<&TreePath>) -> Result<OwnedFd, SettleError> {
    match parent {
        None => Ok(root.handle().try_clone()?),
        Some(parent) => root.directory(parent)?.ok_or(SettleError::Drift),
    }
}

/// The directory that holds an area, and the area's name in it; `None` when that directory is gone.
fn locate<'b>(root: &Root, journal: &Path, area: &'b Area) -> io::Result<Option<(OwnedFd, &'b str)>> {
    match area {
        Area::Journal => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::open(journal, flags, Mode::empty()) {
                Ok(directory) => Ok(Some((directory, SLOTS))),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno.into()),
            }
        }
        Area::Tree { directory, name } => {
            let holder = match directory {
                None => Some(root.handle().try_clone()?),
                Some(path) => match root.directory(path) {
                    Err(error) if is_no_directory(&error) => None,
                    other => other?,
                },
            };
            Ok(holder.map(|holder| (holder, name.as_str())))
        }
    }
}

/// Opens an area of a journal; `None` when it is not there.
pub(super) fn open(root: &Root, journal: &Path, area: &Area) -> io::Result<Option<Root>> {
    let Some((directory, name)) = locate(root, journal, area)? else {
        return Ok(None);
    };
    match Root::open_beneath(&directory, name.as_bytes()) {
        Ok(area) => Ok(Some(area)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes an area with all that is in it; one that is gone is fine.
pub(super) fn remove(root: &Root, journal: &Path, area: &Area) -> io::Result<()> {
    let Some((directory, name)) = locate(root, journal, area)? else {
        return Ok(());
    };
    let holder = Dir::from_own(directory);
    holder.remove_all(name.as_bytes())?;
    Ok(rustix::fs::fsync(&holder)?)
}
