//! What a sandbox must not reach, held outside while it is proven: init tries to.
use bastle_contract::{LandlockPart, LandlockParts, OutOfReach};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// What init is told, and the socket that is held for as long as the second value lives. Only where Landlock does not keep
/// such sockets apart itself.
pub(crate) fn hold(parts: LandlockParts) -> (OutOfReach, Option<OwnedFd>) {
    let held = if parts.has(LandlockPart::Scopes) {
        None
    } else {
        // Without it the probe is inconclusive, and nothing starts.
        listen().ok()
    };
    let (socket, abstract_name) = held.unzip();
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    (OutOfReach { pid, abstract_name }, socket)
}

/// An abstract socket with a name that the kernel chose, and that name, once it was reached from here.
fn listen() -> rustix::io::Result<(OwnedFd, Vec<u8>)> {
    let stream = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
    };
    let socket = stream()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&socket, 4)?;
    let name = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
    rustix::net::connect(&stream()?, &name)?;
    let bytes = name.abstract_name().ok_or(rustix::io::Errno::INVAL)?.to_vec();
    Ok((socket, bytes))
}
