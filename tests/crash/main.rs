//! Crash consistency of the verbs that give work back: killed, refused by the disk, or overtaken by an edit of the user's
//! at every system call that changes the file system. The real binary; nothing in it knows of the tests.
//!
//! | file | what it is |
//! |---|---|
//! | `calls` | stops a program at its n-th changing call: a seccomp filter hands the calls over |
//! | `disk` | what is on disk at a call, and what of it a power cut leaves |
//! | `ground` | a project and a run's state that can be put back as they were, and what is compared of them |
//! | `types` | trees in which a path has every type before and every type after |
//! | `rounds` | one verb, interrupted at one call, brought to rest and judged |
//! | `verbs` | every verb over all pairs of types, at every call |
//! | `power` | every verb, cut off by the power at its calls |
//! | `pairs`, `random` | each pair alone, and random trees, at random calls |
//!
//! `power` in the workspace crate's tests cuts the power at steps of the library, without a program.
#![allow(clippy::expect_used, clippy::panic)] // Helpers of tests fail by panicking.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod disk;
mod ground;
mod pairs;
mod power;
mod random;
mod rounds;
mod types;
mod verbs;
