//! The socket of the file broker: made on the constructed root, where nobody inside can replace it, and handed out.
//!
//! Runs before confinement, while the root can still be written. No copy of the listener stays inside, so nothing there
//! can answer in the place of the broker.
use crate::step::Step;
use bastle_contract::grants::{self, BROKER_SOCKET};
use bastle_contract::{Fault, FromInit, LaunchPlan, socket};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Makes it below the open root, where the plan has room for grants. Leaves the working directory there.
pub(crate) fn listen(root: BorrowedFd<'_>, plan: &LaunchPlan) -> Result<Option<OwnedFd>, Fault> {
    let what = "broker socket";
    if !grants::has_room(plan) {
        return Ok(None);
    }
    let relative = BROKER_SOCKET.trim_start_matches('/');
    let above = relative.match_indices('/').map(|(at, _)| &relative[..at]);
    for directory in above {
        match rustix::fs::mkdirat(root, directory, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(cause).step(what, directory),
        }
    }
    // Not blocking: the process that serves it waits for many at once.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .step(what, "socket")?;
    // By a relative name: the root has no path of its own yet.
    rustix::process::fchdir(root).step(what, "root")?;
    let address = SocketAddrUnix::new(relative).step(what, relative)?;
    rustix::net::bind(&listener, &address).step(what, BROKER_SOCKET)?;
    rustix::fs::chmodat(root, relative, Mode::from_raw_mode(0o666), AtFlags::empty()).step(what, "mode")?;
    rustix::net::listen(&listener, BACKLOG).step(what, "listen")?;
    Ok(Some(listener))
}

/// Hands it to control.
pub(crate) fn hand_over(listener: Option<OwnedFd>, control: &OwnedFd) -> Result<(), Fault> {
    match listener {
        Some(listener) => {
            socket::send(control, &FromInit::Broker, &[listener.as_fd()]).step("broker socket", "hand over")
        }
        None => Ok(()),
    }
}
