//! The socket of a living run: grants, refusals, answers and reloads from another terminal.
//!
//! **Trust:** the directory is its owner's alone, every peer is checked to be the same user or root, and no sandbox
//! sees it. Still every byte is bounded and parsed strictly: one JSON object on one line, one answer; after a
//! streaming command frames in both directions, as `bastle_contract::stream` has them.
mod client;
mod peer;
mod server;
mod session;
mod words;

pub use client::{Answer, ask, connect, living, stream};
pub use session::{SessionEnd, SessionWish, session};
pub use words::{Command, Scope};

pub(crate) use peer::{Heard, Held, MOST_QUEUED, Peer};
pub(crate) use server::Live;
pub(crate) use words::GrantWish;

use bastle_contract::RunId;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where the sockets are: the user's runtime directory, else the state directory.
pub(crate) fn directory(state: &Path) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => runtime.join("bastle"),
        Some(_) | None => state.join("live"),
    }
}

/// Where the sockets of runs in the background are: such a run outlives the login that a runtime directory ends with.
pub(crate) fn kept_directory(state: &Path) -> PathBuf {
    state.join("live")
}

/// A connection to the socket of a run, wherever it is.
pub(crate) fn reach(state: &Path, run: &RunId) -> std::io::Result<UnixStream> {
    let connect = |directory: &Path| {
        open(directory).and_then(|(_open, short)| UnixStream::connect(short.join(name(run))))
    };
    connect(&kept_directory(state)).or_else(|_| connect(&directory(state)))
}

/// Names of the daemon's and the spawner's own sockets, which may lie in the same directory: no run has them.
pub(crate) const RESERVED: [&str; 2] = ["bastle", "spawner"];

/// The name of a run's socket.
pub(crate) fn name(run: &RunId) -> String {
    format!("{run}.sock")
}

/// A directory that is open, and a short path to it: the address of a socket holds about a hundred bytes, and state
/// directories and names of runs together can be longer. The path holds as long as the descriptor.
pub(crate) fn open(directory: &Path) -> std::io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    Ok((open, path))
}
