//! Who the agent is outside: the invoking user, or as root a real unprivileged uid of its own.
use bastle_contract::{Code, Fault, IdMapping};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::Write;
use std::os::fd::OwnedFd;

/// The agent's user id inside, always.
const INSIDE: u32 = 1000;
/// First of the uids given to runs started by root: far above people, services and the usual subordinate ranges.
const FIRST: u32 = 0x6ba5_0000;
/// How many there are.
const COUNT: u32 = 0x1_0000;

/// An identity and, as root, the claim on its uid for as long as this value lives.
pub(crate) struct Identity {
    pub(crate) mapping: IdMapping,
    pub(crate) claim: Option<OwnedFd>,
}

/// Chooses the identity.
pub(crate) fn choose() -> Result<Identity, Fault> {
    let own = rustix::process::geteuid().as_raw();
    if own != 0 || !crate::hooks::enforces("unprivileged-uid") {
        return Ok(Identity {
            mapping: IdMapping {
                inside: INSIDE,
                outside: own,
            },
            claim: None,
        });
    }
    let mut seed = [0; 4];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| fault(error.to_string()))?;
    let start = u32::from_ne_bytes(seed) % COUNT;
    for step in 0..COUNT {
        let outside = FIRST + (start + step) % COUNT;
        if let Some(claim) = claim(outside)? {
            return Ok(Identity {
                mapping: IdMapping {
                    inside: INSIDE,
                    outside,
                },
                claim: Some(claim),
            });
        }
    }
    Err(fault("all uids for runs are in use".to_owned()))
}

/// Claims a uid with an abstract socket: no file to leave behind, and the kernel releases it with this process.
fn claim(uid: u32) -> Result<Option<OwnedFd>, Fault> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| fault(e.to_string()))?;
    let name = format!("bastle/uid/{uid}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| fault(e.to_string()))?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(fault(error.to_string())),
    }
}

/// Writes the maps of a new user namespace from outside.
pub(crate) fn write_maps(pid: u32, mapping: IdMapping, gid_outside: u32) -> Result<(), Fault> {
    // Without privilege the kernel accepts a group map only after groups can no longer be changed.
    if rustix::process::geteuid().as_raw() != 0 {
        write(pid, "setgroups", "deny")?;
    }
    write(
        pid,
        "uid_map",
        &format!("{} {} 1", mapping.inside, mapping.outside),
    )?;
    write(pid, "gid_map", &format!("{} {gid_outside} 1", mapping.inside))
}

fn write(pid: u32, file: &str, text: &str) -> Result<(), Fault> {
    let path = format!("/proc/{pid}/{file}");
    // One write: the kernel takes a map whole or not at all.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut handle| handle.write_all(text.as_bytes()))
        .map_err(|error| {
            Fault::new(
                Code::FenceUserns,
                format!("cannot write {file} of the sandbox"),
                error.to_string(),
            )
            .help("bastle doctor")
        })
}

fn fault(why: String) -> Fault {
    Fault::new(Code::FenceStep, "cannot choose an unprivileged uid", why)
}
