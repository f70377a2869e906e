//! Who still has something of a mount open: told to the person, because a descriptor cannot be taken back.
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The host's list of processes, open before its paths are left behind.
pub(super) struct Processes(OwnedFd);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Processes {
    pub(super) fn open() -> Option<Self> {
        rustix::fs::open("/proc", DIRECTORY, Mode::empty()).ok().map(Self)
    }

    /// How many processes of the sandbox behind `mounts` have a descriptor of the mount. What cannot be looked at is
    /// not counted: the number is a help, nothing depends on it.
    pub(super) fn holding(&self, mounts: BorrowedFd<'_>, mount: u64) -> u32 {
        let Ok(namespace) = rustix::fs::fstat(mounts) else {
            return 0;
        };
        let line = format!("mnt_id:\t{mount}");
        let mut count = 0;
        for name in names(&self.0) {
            let own = rustix::fs::statat(&self.0, format!("{name}/ns/mnt"), AtFlags::empty());
            let inside = own.is_ok_and(|own| own.st_ino == namespace.st_ino);
            if inside && self.holds(&name, &line) {
                count += 1;
            }
        }
        count
    }

    fn holds(&self, process: &str, line: &str) -> bool {
        let open = |path: &str, flags| rustix::fs::openat(&self.0, path, flags, Mode::empty());
        let Ok(descriptors) = open(&format!("{process}/fdinfo"), DIRECTORY) else {
            return false;
        };
        names(&descriptors).into_iter().any(|descriptor| {
            let path = format!("{process}/fdinfo/{descriptor}");
            let Ok(info) = open(&path, OFlags::RDONLY | OFlags::CLOEXEC) else {
                return false;
            };
            let mut text = String::new();
            let read = std::fs::File::from(info).take(4096).read_to_string(&mut text);
            read.is_ok() && text.lines().any(|found| found == line)
        })
    }
}

/// Entries that are numbers.
fn names(directory: &OwnedFd) -> Vec<String> {
    let Ok(entries) = Dir::read_from(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}
