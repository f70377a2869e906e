//! The fence of egress itself: it reads what agents and the internet send, so it gets nothing it does not need.
//!
//! Runs at the start of that process, before any thread exists. What fails here stops it: without egress nothing
//! passes, which is the safe side.
mod files;

use crate::confine;
use crate::probes::{BeforeLandlock, Unconfined};
use crate::step::Step;
use crate::{filter, hooks, identity};
use bastle_contract::{Authority, Code, Fault, LandlockParts, ProbeResult, Verdict};
use files::Files;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};

/// First of the uids for egress started by root; the process id is added, so no two that live share one.
const FIRST_UID: u32 = 0x6c00_0000;

/// Confines this process for good: own uid when it is root, no capabilities, no files, no programs, no children. What it found
/// out about that; anything that does not hold is an error.
pub fn fence_server() -> Result<Vec<ProbeResult>, Fault> {
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
    let unconfined = Unconfined::look();
    let mut results = Vec::with_capacity(5);
    let files = become_nobody_without_files()?;
    if files == Files::Gone {
        unconfined.without_files(&mut results);
    }
    confine::no_new_privs()?;
    let parts = confine::available();
    let before = match (parts.reach_the_floor(), files) {
        (true, _) => {
            let before = match files {
                Files::Gone => BeforeLandlock::in_empty_root(),
                Files::InView => BeforeLandlock::in_host_root(),
            };
            if hooks::enforces("egress-landlock") {
                confine::restrict(confine::nothing_granted(parts)?)?;
            }
            Some(before)
        }
        (false, Files::Gone) => None,
        (false, Files::InView) => return Err(nothing_keeps_the_files()),
    };
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hiding memory", "prctl")?;
    let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    if hooks::enforces("egress-filter") {
        bastle_sys::seccomp::install(&filter::for_server(own)).step("system-call filter", "seccomp")?;
    }
    unconfined.confined(before, &mut results);
    proven(results)
}

/// Gives up root where it has it, every capability, and the host's files where it is let.
fn become_nobody_without_files() -> Result<Files, Fault> {
    let authority = Authority::of_this_process();
    let files = files::leave()?;
    match authority {
        Authority::Root => become_nobody()?,
        // Another uid cannot be taken for sure. It has every capability in a namespace of its own; where the host allows none
        // there, not even to give them up, there are none.
        Authority::User | Authority::UserZero { .. } => {
            if files == Files::Gone {
                identity::empty_bounding_set()?;
            }
            if !identity::has_none() {
                identity::empty_sets()?;
            }
        }
    }
    Ok(files)
}

fn nothing_keeps_the_files() -> Fault {
    Fault::new(
        Code::FenceLandlock,
        format!(
            "the fence of bastle's own processes needs Landlock ABI {} or a mount namespace",
            LandlockParts::FLOOR
        ),
        format!(
            "the kernel has ABI {} and refuses namespaces",
            bastle_sys::landlock::abi()
        ),
    )
    .help("bastle doctor")
}

/// What it serves is the agent's: nothing begins that was not proven.
fn proven(results: Vec<ProbeResult>) -> Result<Vec<ProbeResult>, Fault> {
    let failed: Vec<String> = results
        .iter()
        .filter(|result| result.verdict != Verdict::Held)
        .map(|result| {
            format!(
                "{}: {:?}: {} gave {} (expected {}; control: {})",
                result.guarantee,
                result.verdict,
                result.attempt,
                result.observed,
                result.expected,
                result.control
            )
        })
        .collect();
    if failed.is_empty() {
        return Ok(results);
    }
    let what = "the fence of bastle's own processes does not hold";
    Err(Fault::new(Code::FenceProbe, what, failed.join("; ")).help("bastle doctor"))
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
        let pair =
            |kind| rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).is_ok();
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        // tgkill of the main thread of the process that started this one.
        let parent = libc::c_long::from(parent);
        let signal = bastle_sys::probe::by_number(libc::SYS_tgkill, [parent, parent, 0]).is_ok();
        let thread = std::thread::Builder::new().spawn(|| ()).is_ok();
        format!(
            "file {file} program {program} netlink {} internet {} unix {} pair {} datagrams {} signal {} thread {thread} root {}",
            socket(AddressFamily::NETLINK),
            socket(AddressFamily::INET),
            socket(AddressFamily::UNIX),
            pair(SocketType::STREAM),
            pair(SocketType::DGRAM),
            signal,
            rustix::process::geteuid().is_root(),
        )
    }

    #[test]
    fn a_fenced_server_opens_nothing_executes_nothing_and_has_no_children() {
        if std::env::var_os(INSIDE).is_some() {
            println!("before: {}", abilities());
            let held = fence_server().unwrap();
            // Two of the root, and of Landlock, sockets and signals one each.
            println!("proven: {}", held.len());
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
        let before = format!(
            "before: file true program true netlink true internet true unix true pair true datagrams true signal true thread true root {root}"
        );
        assert!(said.contains(&before), "control: {said}");
        let after = "after: file false program false netlink false internet true unix false pair true datagrams false signal false thread true root false";
        assert!(said.contains(after), "{said}");
        assert!(said.contains("proven: 5"), "{said}");
    }
}
