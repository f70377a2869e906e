//! For whom a run is made and what it may ask for, where the spawner serves others than whoever started it.
//!
//! **Trust:** who the caller is comes from the kernel, what it may from the ceiling file. A caller's paths are opened
//! with the caller's own rights, never with root's: whatever a plan names, nobody gets more than they have.
use bastle_contract::{AbsPath, Access, BackendKind, Code, Fault, LimitKind};
use rustix::fs::{AtFlags, FileType, Stat, StatxFlags};
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Caller {
    /// User.
    pub(crate) uid: u32,
    /// First group.
    pub(crate) gid: u32,
    /// Further groups.
    pub(crate) groups: Vec<u32>,
}

/// What a caller may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allowance {
    /// Where its paths may lie.
    pub(crate) reach: Reach,
    /// The highest value of each limit that is bounded.
    pub(crate) limits: Vec<(LimitKind, u64)>,
    /// What may enforce its runs.
    pub(crate) backends: Vec<BackendKind>,
    /// The lowest Landlock ABI whose parts must all be enforced; 0: what the kernel has.
    #[serde(default)]
    pub(crate) landlock_abi: u32,
    /// Whether limits may be given up.
    pub(crate) unconfined: bool,
}

/// Where paths may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    /// Wherever the caller has rights: for a spawner that has no others itself.
    Anywhere,
    /// Below these, and for reading in places of the system.
    Below(Vec<AbsPath>),
}

/// Both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    pub(crate) caller: Caller,
    pub(crate) allowance: Allowance,
}

/// What anybody may have shown for reading: programs, libraries and settings without names, hosts or secrets. The
/// caller's own rights hold there too.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/nix/var/nix/profiles",
    "/home/linuxbrew/.linuxbrew",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/gitconfig",
    "/etc/java",
    "/etc/java-8-openjdk",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
    "/etc/ld.so.cache",
    "/etc/ld-musl-aarch64.path",
    "/etc/ld-musl-x86_64.path",
    "/etc/localtime",
    "/etc/maven",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/perl",
    "/etc/pki/ca-trust",
    "/etc/pki/java",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/profile",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/python3.12",
    "/etc/python3.13",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
];

impl Caller {
    /// The peer of a connection, and its process id: as the kernel noted them when it connected.
    pub(crate) fn of(connection: &OwnedFd) -> io::Result<(Self, u32)> {
        let peer = rustix::net::sockopt::socket_peercred(connection)?;
        let caller = Self {
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
            groups: bastle_sys::peer::groups(connection.as_fd())?,
        };
        Ok((caller, peer.pid.as_raw_nonzero().get().unsigned_abs()))
    }

    /// Whether it has the group.
    pub(crate) fn has_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Does something with this caller's rights on files and none of root's. The process has one thread.
    fn lend<T>(&self, deed: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let own = rustix::process::getgroups()?;
        let theirs: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&theirs)?;
        rustix::thread::set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
        // Last: with the effective user the effective capabilities go, those over files among them.
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(self.uid), None)?;
        let done = deed();
        // The kernel gives the capabilities back with the user. Whoever cannot come back must not go on.
        rustix::thread::set_thread_res_uid(None, Uid::ROOT, None)?;
        rustix::thread::set_thread_res_gid(None, Gid::ROOT, None)?;
        rustix::thread::set_thread_groups(&own)?;
        done
    }
}

impl Bounds {
    /// Opens a path without following any link, with the rights of the caller, who must have those that the access
    /// gives.
    pub(crate) fn open(&self, path: &AbsPath, access: Access) -> io::Result<OwnedFd> {
        let open = || open_with(path, access).map(|(opened, _)| opened);
        if self.is_other() {
            self.caller.lend(open)
        } else {
            open()
        }
    }

    /// Which file each of many paths is that [`Self::open`] would open; of one that it would not nothing.
    pub(crate) fn look(&self, paths: &[(AbsPath, Access)]) -> io::Result<Vec<Option<Which>>> {
        let of = |(path, access): &(AbsPath, Access)| open_with(path, *access).ok().map(|(_, which)| which);
        let look = || -> io::Result<Vec<Option<Which>>> { Ok(paths.iter().map(of).collect()) };
        if self.is_other() {
            self.caller.lend(look)
        } else {
            look()
        }
    }

    /// The fault for a path that could not be opened with the caller's rights.
    pub(crate) fn unopened(&self, path: &AbsPath, error: &io::Error) -> Fault {
        Fault::new(
            Code::SpawnPath,
            format!("cannot bind {path} (open)"),
            format!("uid {} cannot open it: {error}", self.caller.uid),
        )
        .help("a path without symlinks, to which the caller itself has the rights")
    }

    /// Whose files appear as the agent's: the caller's, and nobody else's.
    pub(crate) fn owner(&self, stat: &Stat) -> (u32, u32) {
        if !self.is_other() {
            return (stat.st_uid, stat.st_gid);
        }
        let gid = if self.caller.has_group(stat.st_gid) {
            stat.st_gid
        } else {
            self.caller.gid
        };
        (self.caller.uid, gid)
    }

    /// Whether the plan of this caller may show the path.
    pub(crate) fn allows(&self, path: &AbsPath, access: Access) -> bool {
        let Reach::Below(roots) = &self.allowance.reach else {
            return true;
        };
        let system = || SYSTEM.iter().any(|place| is_within(path, place)) || is_own_program(path);
        roots.iter().any(|root| path.is_within(root))
            || match access {
                Access::ReadOnly => system(),
                Access::ReadWrite => false,
            }
    }

    /// The roots, for a message.
    pub(crate) fn roots(&self) -> String {
        match &self.allowance.reach {
            Reach::Anywhere => "anywhere".to_owned(),
            Reach::Below(roots) => {
                let roots: Vec<&str> = roots.iter().map(AbsPath::as_str).collect();
                roots.join(", ")
            }
        }
    }

    /// Whether the caller is somebody whose rights are not this process's own.
    fn is_other(&self) -> bool {
        rustix::process::getuid().is_root() && self.caller.uid != 0
    }
}

/// Which file it is, whose, and through which mount it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which {
    device: (u32, u32),
    inode: u64,
    mount: u64,
    owner: (u32, u32),
}

/// Opens a path with the rights that this process has at the moment, which must be those that the access gives.
fn open_with(path: &AbsPath, access: Access) -> io::Result<(OwnedFd, Which)> {
    let opened = bastle_sys::tree::open_exactly(path.as_path())?;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(&opened, "", AtFlags::EMPTY_PATH, wanted)?;
    bastle_sys::fd::may(opened.as_fd(), rights(u32::from(stat.stx_mode), access))?;
    let which = Which {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        mount: stat.stx_mnt_id,
        owner: (stat.stx_uid, stat.stx_gid),
    };
    Ok((opened, which))
}

fn rights(mode: u32, access: Access) -> rustix::fs::Access {
    let mut rights = rustix::fs::Access::READ_OK;
    if FileType::from_raw_mode(mode) == FileType::Directory {
        rights |= rustix::fs::Access::EXEC_OK;
    }
    match access {
        Access::ReadOnly => rights,
        Access::ReadWrite => rights | rustix::fs::Access::WRITE_OK,
    }
}

fn is_within(path: &AbsPath, place: &str) -> bool {
    path.as_str()
        .strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The program itself is shown to the agent as the client of the file broker.
fn is_own_program(path: &AbsPath) -> bool {
    std::fs::read_link("/proc/self/exe").is_ok_and(|own| own == path.as_path())
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
