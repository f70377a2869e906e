//! The socket of a living run: grants, refusals, answers and reloads from another terminal.
//!
//! **Trust:** the directory is its owner's alone, every peer is checked to be the same user or root, and no sandbox
//! sees it. Still every byte is bounded and parsed strictly: one JSON object on one line, one answer.
mod client;
mod server;
mod words;

pub use client::{Answer, ask, living};
pub use words::{Command, Scope};

pub(crate) use server::Live;

use bastle_contract::RunId;
use std::path::{Path, PathBuf};

/// Where the sockets are: the user's runtime directory, else the state directory.
pub(crate) fn directory(state: &Path) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => runtime.join("bastle"),
        Some(_) | None => state.join("live"),
    }
}

/// The socket of one run.
pub(crate) fn path(state: &Path, run: &RunId) -> PathBuf {
    directory(state).join(format!("{run}.sock"))
}
