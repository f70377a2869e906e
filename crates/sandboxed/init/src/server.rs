//! The fence of egress itself: it reads what agents and the internet send, so it gets nothing it does not need.
//!
//! Runs at the start of that process, before any thread exists. What fails here stops it: without egress nothing
//! passes, which is the safe side.
use crate::confine::{self, LANDLOCK};
use crate::step::Step;
use crate::{filter, identity};
use bastle_contract::Fault;
use landlock::{Access as _, AccessFs, PathBeneath, PathFd, RulesetCreatedAttr};
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
    let mut ruleset = confine::nothing_granted()?;
    for (fd, path) in rules {
        ruleset = ruleset
            .add_rule(PathBeneath::new(fd, AccessFs::from_all(LANDLOCK)))
            .step("Landlock", path.display())?;
    }
    confine::restrict(ruleset)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::process::Command;

    const INSIDE: &str = "BASTLE_TEST_INSIDE_SERVER_FENCE";
    const NAME: &str = "server::tests::a_fenced_server_opens_nothing_executes_nothing_and_has_no_children";

    /// What this thread can still do, one word each.
    fn abilities() -> String {
        let file = std::fs::read("/etc/passwd").is_ok();
        let program = Command::new("/bin/true").status().is_ok();
        let socket =
            |family| rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).is_ok();
        let thread = std::thread::Builder::new().spawn(|| ()).is_ok();
        format!(
            "file {file} program {program} netlink {} internet {} thread {thread} root {}",
            socket(AddressFamily::NETLINK),
            socket(AddressFamily::INET),
            rustix::process::geteuid().is_root(),
        )
    }

    #[test]
    fn a_fenced_server_opens_nothing_executes_nothing_and_has_no_children() {
        if std::env::var_os(INSIDE).is_some() {
            println!("before: {}", abilities());
            fence_server(&[]).unwrap();
            println!("after: {}", abilities());
            return;
        }
        // Another process: what is given up here is given up for good.
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let root = rustix::process::geteuid().is_root();
        let before =
            format!("before: file true program true netlink true internet true thread true root {root}");
        assert!(said.contains(&before), "control: {said}");
        let after = "after: file false program false netlink false internet true thread true root false";
        assert!(said.contains(after), "{said}");
    }
}
