//! Who the agent is outside: the invoking user, or as root a real unprivileged uid of its own.
use bastle_contract::{Authority, Code, Fault, IdMapping, Lack};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

/// The agent's user id inside, always.
const INSIDE: u32 = 1000;
/// First of the uids given to runs started by root: far above people, services and the usual subordinate ranges.
const FIRST: u32 = 0x6ba5_0000;
/// First of those that a daemon of root's gives: the two kinds claim theirs in different ways.
const FIRST_OF_DAEMON: u32 = FIRST + COUNT;
/// How many there are of each.
const COUNT: u32 = 0x1_0000;
/// Where daemons of root's claim theirs, and what it is in. Of the whole host: there may be several.
const CLAIMS: &str = "/run/bastle/uids";
const CLAIMS_DIRECTORY: &str = "/run/bastle";

/// How a uid is kept from being given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    /// By a name in the network namespace: no file to leave behind. For a single run, which is where its user is.
    Name,
    /// By a byte of a file. A daemon may have a network of its own, and its successor another one, while runs live on.
    Byte,
}

/// An identity and, as root, the claim on its uid for as long as this value lives.
pub(crate) struct Identity {
    pub(crate) mapping: IdMapping,
    pub(crate) claim: Option<OwnedFd>,
    /// What this process can build with.
    pub(crate) authority: Authority,
}

/// Chooses the identity.
pub(crate) fn choose(claims: Claims) -> Result<Identity, Fault> {
    let authority = Authority::of_this_process();
    if !authority.is_root() || !crate::hooks::enforces("unprivileged-uid") {
        return Ok(Identity {
            mapping: IdMapping {
                inside: INSIDE,
                outside: rustix::process::geteuid().as_raw(),
            },
            claim: None,
            authority,
        });
    }
    let mut seed = [0; 4];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| fault(error.to_string()))?;
    let start = u32::from_ne_bytes(seed) % COUNT;
    for step in 0..COUNT {
        let place = (start + step) % COUNT;
        let (outside, claim) = match claims {
            Claims::Name => (FIRST + place, claim_name(FIRST + place)?),
            Claims::Byte => (FIRST_OF_DAEMON + place, claim_byte(place)?),
        };
        if let Some(claim) = claim {
            return Ok(Identity {
                mapping: IdMapping {
                    inside: INSIDE,
                    outside,
                },
                claim: Some(claim),
                authority,
            });
        }
    }
    Err(fault("all uids for runs are in use".to_owned()))
}

/// Makes the file that a daemon claims by.
pub(crate) fn ready_claims() -> std::io::Result<()> {
    match rustix::fs::mkdirat(CWD, CLAIMS_DIRECTORY, Mode::from_raw_mode(0o755)) {
        // Others must find the sockets in it, whatever this process's mask is.
        Ok(()) => rustix::fs::chmodat(
            CWD,
            CLAIMS_DIRECTORY,
            Mode::from_raw_mode(0o755),
            rustix::fs::AtFlags::empty(),
        )?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(std::io::Error::other(format!("{CLAIMS_DIRECTORY}: {error}"))),
    }
    open_claims(OFlags::CREATE)
        .map(drop)
        .map_err(|error| std::io::Error::other(format!("{CLAIMS}: {error}")))
}

fn open_claims(also: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | also;
    let file = rustix::fs::open(CLAIMS, flags, Mode::RUSR | Mode::WUSR)?;
    // Whoever else could open it could claim them all.
    let stat = rustix::fs::fstat(&file)?;
    if stat.st_uid != 0 || stat.st_mode & 0o077 != 0 {
        return Err(Errno::PERM);
    }
    Ok(file)
}

/// Claims the byte at `place`. Opened anew each time: copies of one description would share the lock.
fn claim_byte(place: u32) -> Result<Option<OwnedFd>, Fault> {
    let file = open_claims(OFlags::empty()).map_err(|error| fault(format!("{CLAIMS}: {error}")))?;
    match bastle_sys::fd::lock_byte(file.as_fd(), place) {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(fault(format!("{CLAIMS}: {error}"))),
    }
}

/// Claims a uid with an abstract socket: no file to leave behind, and the kernel releases it with this process.
fn claim_name(uid: u32) -> Result<Option<OwnedFd>, Fault> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| fault(e.to_string()))?;
    let name = format!("bastle/uid/{uid}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| fault(e.to_string()))?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(fault(error.to_string())),
    }
}

/// Writes the maps of a new user namespace from outside.
pub(crate) fn write_maps(
    pid: u32,
    mapping: IdMapping,
    gid_outside: u32,
    authority: &Authority,
) -> Result<(), Fault> {
    // Without privilege the kernel accepts a group map only after groups can no longer be changed.
    if !authority.is_root() {
        write(pid, "setgroups", "deny", authority)?;
    }
    let uid_map = format!("{} {} 1", mapping.inside, mapping.outside);
    write(pid, "uid_map", &uid_map, authority)?;
    let gid_map = format!("{} {gid_outside} 1", mapping.inside);
    write(pid, "gid_map", &gid_map, authority)
}

fn write(pid: u32, file: &str, text: &str, authority: &Authority) -> Result<(), Fault> {
    let path = format!("/proc/{pid}/{file}");
    // One write: the kernel takes a map whole or not at all.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut handle| handle.write_all(text.as_bytes()))
        .map_err(|error| userns_fault(&format!("cannot write {file} of the sandbox"), &error, authority))
}

/// A refused user namespace, with what user id 0 lacks where it is not root of a host.
pub(crate) fn userns_fault(what: &str, error: &std::io::Error, authority: &Authority) -> Fault {
    let (why, help) = match authority {
        Authority::Root | Authority::User => (error.to_string(), None),
        Authority::UserZero {
            lack: Lack::UnmappedIds,
        } => (
            format!("{error}: user id 0 of a user namespace has no rights over others"),
            Some("start bastle outside of that user namespace"),
        ),
        // Since Linux 5.12 a map of id 0 of the parent takes CAP_SETFCAP (user_namespaces(7)).
        Authority::UserZero { lack } => (
            format!("{error}: {lack}, and mapping user id 0 takes CAP_SETFCAP"),
            Some("run bastle as an ordinary user, as with docker run --user 1000:1000 ..."),
        ),
    };
    let fault = Fault::new(Code::FenceUserns, what, why);
    let fault = help.into_iter().fold(fault, |fault, help| fault.help(help));
    fault.help("bastle doctor prints the exact cause and fix")
}

fn fault(why: String) -> Fault {
    Fault::new(Code::FenceStep, "cannot choose an unprivileged uid", why)
}
