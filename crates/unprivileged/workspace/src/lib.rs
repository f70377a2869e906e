//! The agent's copy of a project: copies, snapshots, diff, the import gate.
//!
//! **Trust:** runs as the invoking user. The host tree is the user's own; the agent's tree is not trusted in any
//! name or byte: it is read through descriptors that never follow links, and nothing in it is executed.
#![forbid(unsafe_code)]

mod base64;
pub mod apply;
pub mod blobs;
pub mod diff;
pub mod export;
pub mod fuzzing;
pub mod gate;
pub mod git;
pub mod rooted;
pub mod manifest;
pub mod path;
pub mod audit_delta;
pub mod beneath;
pub mod copy;
mod crew;
pub mod durable;
mod faults;
pub mod finding;
pub mod scan;
pub mod seen;
#[cfg(test)]
mod testing;
pub mod store;
mod contents;
mod fork;
pub mod meta;
pub mod place;
mod restore;
pub mod retention;
pub mod rollback;
pub mod snapshot;
pub mod workspace;
