//! Harness of the tests that run the real binary: identities, throw-away places, the fence, the attacker.
//!
//! Trusts nothing it runs: every child has a group of its own and a hard limit of time, and every place is removed
//! when its owner is dropped, also when the test fails.
// Each test binary uses its own part, and a harness that cannot go on says so and stops.
#![allow(dead_code, unused_imports, clippy::expect_used, clippy::panic)]

mod binaries;
mod child;
mod host;
mod lab;
mod published;

pub(crate) use binaries::{attacker, bastle, compiled, with_hooks};
pub(crate) use child::{Background, Ended, Limit, eventually, run};
pub(crate) use host::{git, pass, text, wait_for};
pub(crate) use lab::{Fence, Lab, Output};
pub(crate) use published::from_pypi;

use std::fmt;

/// Who starts bastle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Root: the agent gets an unprivileged uid of its own.
    Root,
    /// A user without any privilege; made from root.
    Ordinary(u32),
    /// Whoever runs the tests, not root.
    Current,
}

/// A uid that no account has: the fence must not need one.
const NOBODY_IN_PARTICULAR: u32 = 60_001;

/// Every identity this host lets the tests take.
pub(crate) fn identities() -> Vec<Identity> {
    if rustix::process::geteuid().is_root() {
        vec![Identity::Root, Identity::Ordinary(NOBODY_IN_PARTICULAR)]
    } else {
        vec![Identity::Current]
    }
}

/// Runs `test` once in a fresh place for every identity.
pub(crate) fn for_each_identity(test: impl Fn(&Lab)) {
    for identity in identities() {
        eprintln!("--- as {identity}");
        test(&Lab::new(identity));
    }
}

impl Identity {
    /// The uid bastle is started with.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary(uid) => uid,
            Self::Current => rustix::process::geteuid().as_raw(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Ordinary(uid) => write!(f, "ordinary user {uid}"),
            Self::Current => f.write_str("the current user"),
        }
    }
}

/// Records that this host cannot run a test, so that it is counted as skipped and not as passed.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(list) = std::env::var_os("BASTLE_SKIPS") {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(list)
            .expect("the list of skips can be opened");
        // A line is a test, written at once: other tests append to the same file.
        let line = format!("{test}: {}\n", reason.trim().replace('\n', "; "));
        file.write_all(line.as_bytes())
            .expect("the list of skips can be written");
    }
}
