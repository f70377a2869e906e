//! The daemon's own fence. The mother keeps what it takes to make sandboxes and no more; the front, which hears callers,
//! keeps nothing: no file, no program, no child, no new socket.
use super::filter;
use bastle_contract::{Authority, LandlockPart, LandlockParts};
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// What the mother and its workers need as root: namespaces, mounts and idmaps; maps of others and lending a caller's
/// identity; ending runs that have another uid; files and cgroups of root's own.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_RESOURCE);

/// First of the uids of fronts started by root; the process id is added. Egress has the range below.
const FIRST_UID: u32 = 0x6d00_0000;

/// The mother: fewer capabilities, no new ones, no core file, not to be looked into.
pub(super) fn mother() -> io::Result<()> {
    no_core()?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    if !Authority::of_this_process().is_root() {
        return Ok(());
    }
    bound_to(NEEDED)?;
    let now = rustix::thread::capabilities(None)?;
    let kept = now.permitted.intersection(NEEDED);
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// The front, for good. Everything it needs is open.
pub(super) fn front() -> io::Result<()> {
    if Authority::of_this_process().is_root() {
        let own = FIRST_UID + rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        rustix::thread::set_thread_groups(&[])?;
        bound_to(CapabilitySet::empty())?;
        let (uid, gid) = (Uid::from_raw(own), Gid::from_raw(own));
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    nothing_granted()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    bastle_sys::seccomp::install(&filter::program())
}

/// No file can be opened, made or executed, and nobody outside can be signalled.
fn nothing_granted() -> io::Result<()> {
    let parts = crate::facts::landlock();
    if !parts.reach_the_floor() {
        return Err(io::Error::other(format!(
            "Landlock ABI {} is needed",
            LandlockParts::FLOOR
        )));
    }
    let mut rights = AccessFs::from_all(ABI::V2);
    if parts.has(LandlockPart::Truncate) {
        rights |= AccessFs::Truncate;
    }
    if parts.has(LandlockPart::Ioctl) {
        rights |= AccessFs::IoctlDev;
    }
    let scoped = |ruleset: Ruleset| match parts.has(LandlockPart::Scopes) {
        true => ruleset.scope(Scope::from_all(ABI::V6)),
        false => Ok(ruleset),
    };
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights)
        .and_then(scoped)
        .and_then(Ruleset::create)
        .and_then(|created| created.restrict_self())
        .map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(io::Error::other("Landlock is not fully enforced"))
        }
    }
}

/// Takes everything else out of the bounding set.
fn bound_to(kept: CapabilitySet) -> io::Result<()> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // One past the kernel's last capability.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// At 0 the kernel would still start a piped core handler.
fn no_core() -> io::Result<()> {
    let none = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    rustix::process::setrlimit(Resource::Core, none)?;
    // Every connection and every worker costs some.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let files = Rlimit {
        current: most,
        maximum: most,
    };
    rustix::process::setrlimit(Resource::Nofile, files)?;
    Ok(())
}
