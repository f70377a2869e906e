//! The agent's copy of a project: copies, snapshots, diff, the import gate.
//!
//! **Trust:** runs as the invoking user. The host tree is the user's own; the agent's tree is not trusted in any
//! name or byte.
#![forbid(unsafe_code)]
