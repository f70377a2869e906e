//! Errors of the system as messages for people.
//!
//! **Trust:** names of the agent's tree appear in messages only through `path::visible`.
use crate::path::visible;
use bastle_contract::{Code, Fault};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A failed call: what was done, on what.
pub(crate) fn io_fault(doing: &str, path: &Path, error: impl Into<io::Error>) -> Fault {
    let shown = visible(path.as_os_str().as_bytes());
    Fault::new(
        Code::WorkspaceIo,
        format!("{doing} {shown}"),
        error.into().to_string(),
    )
}

/// Stored state that does not have the form it must have.
pub(crate) fn damaged(path: &Path, why: impl ToString) -> Fault {
    let shown = visible(path.as_os_str().as_bytes());
    Fault::new(
        Code::WorkspaceDamaged,
        format!("{shown} is damaged"),
        why.to_string(),
    )
}
