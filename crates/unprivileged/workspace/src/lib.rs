//! The agent's copy of a project: copies, snapshots, diff, the import gate.
//!
//! **Trust:** runs as the invoking user. The host tree is the user's own; the agent's tree is not trusted in any
//! name or byte: it is read through descriptors that never follow links, and nothing in it is executed.
#![forbid(unsafe_code)]

pub mod apply;
mod attributes;
pub mod audit_delta;
pub mod base64;
pub mod beneath;
pub mod blobs;
mod contents;
pub mod copy;
mod crew;
pub mod diff;
pub mod discard;
pub mod durable;
pub mod export;
mod faults;
pub mod finding;
mod fork;
pub mod fuzzing;
pub mod gate;
pub mod git;
pub mod identity;
pub mod layers;
pub mod lending;
pub mod manifest;
pub mod meta;
pub mod mounting;
pub mod path;
pub mod place;
pub mod project;
pub mod refs;
pub mod reserve;
mod restore;
pub mod retention;
pub mod rollback;
pub mod rooted;
pub mod scan;
pub mod seen;
pub mod snapshot;
mod sparse;
mod stash;
pub mod store;
mod tar;
#[cfg(test)]
mod testing;
mod times;
pub mod trash;
pub mod unsaved;
pub mod workspace;
mod worktree;
