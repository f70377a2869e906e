//! The fence of egress itself: it reads what agents and the internet send, so it gets nothing it does not need.
//!
//! Runs at the start of that process, before any thread exists. What fails here stops it: without egress nothing
//! passes, which is the safe side.
use crate::confine::{self, LANDLOCK};
use crate::step::Step;
use crate::{filter, identity};
use bastle_contract::Fault;
use landlock::{
    Access as _, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use std::path::Path;

/// First of the uids for egress started by root; the process id is added, so no two that live share one.
const FIRST_UID: u32 = 0x6c00_0000;

/// Confines this process for good: own uid when it is root, no capabilities, no files but those below `writable`,
/// no programs, no children.
pub fn fence_server(writable: &[&Path]) -> Result<(), Fault> {
    rustix::process::setsid()
        .step("own session", "setsid")
        .or_else(|fault| {
            // A process that leads its group already cannot have a new session; it has no terminal to be cut from.
            if rustix::process::getpgrp() == rustix::process::getpid() {
                Ok(rustix::process::getpid())
            } else {
                Err(fault)
            }
        })?;
    limits()?;
    // Opened by the old identity: the new one may have no way to the directory.
    let mut rules = Vec::new();
    for path in writable {
        rules.push((PathFd::new(path).step("Landlock", path.display())?, path));
    }
    if rustix::process::geteuid().is_root() {
        become_nobody()?;
    }
    confine::no_new_privs()?;
    let what = "Landlock";
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LANDLOCK))
        .step(what, "handled rights")?
        .scope(Scope::from_all(LANDLOCK))
        .step(what, "scopes")?
        .create()
        .step(what, "ruleset")?;
    for (fd, path) in rules {
        ruleset = ruleset
            .add_rule(PathBeneath::new(fd, AccessFs::from_all(LANDLOCK)))
            .step(what, path.display())?;
    }
    let status = ruleset
        .no_new_privs(false)
        .restrict_self()
        .step(what, "restrict_self")?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err("not fully enforced").step(what, "restrict_self");
    }
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hiding memory", "prctl")?;
    bastle_sys::seccomp::install(&filter::for_server()).step("system-call filter", "seccomp")
}

/// No core file with keys in it; as many descriptors as the host lets this process have.
fn limits() -> Result<(), Fault> {
    let none = Rlimit {
        current: Some(confine::NO_CORE),
        maximum: Some(confine::NO_CORE),
    };
    rustix::process::setrlimit(Resource::Core, none).step("rlimit", "core")?;
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let files = Rlimit {
        current: most,
        maximum: most,
    };
    rustix::process::setrlimit(Resource::Nofile, files).step("rlimit", "open files")
}

/// Root gives up its uid, its groups and with them every capability.
fn become_nobody() -> Result<(), Fault> {
    let what = "own uid";
    let own = FIRST_UID + rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    // While root: the bounding set is root's to shrink. The sets themselves go with the uid.
    rustix::thread::set_thread_groups(&[]).step(what, "setgroups")?;
    identity::empty_bounding_set()?;
    let (uid, gid) = (Uid::from_raw(own), Gid::from_raw(own));
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(what, "setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(what, "setresuid")?;
    identity::empty_sets()
}
