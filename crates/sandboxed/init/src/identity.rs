//! Becoming the unprivileged user the spawner mapped, and later giving up every capability.
use crate::step::Step;
use bastle_contract::{Fault, IdMapping};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Whose supplementary groups this process starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    /// Root's: they must go.
    OfRoot,
    /// The invoking user's own: they cannot be dropped, and grant nothing that the mounts do not show.
    OfAnOrdinaryUser,
}

/// Takes the mapped identity, keeping the capabilities over the new namespaces until the root is built.
pub(crate) fn assume(identity: IdMapping, groups: Groups) -> Result<(), Fault> {
    let what = "unprivileged identity";
    rustix::thread::set_keep_capabilities(true).step(what, "keep capabilities while building")?;
    let (uid, gid) = (Uid::from_raw(identity.inside), Gid::from_raw(identity.inside));
    // An ordinary user cannot drop its groups in a user namespace (the kernel answers EPERM); root can and must.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) => {}
        Err(rustix::io::Errno::PERM) if groups == Groups::OfAnOrdinaryUser => {}
        Err(cause) => return Err(cause).step(what, "setgroups"),
    }
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(what, "setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(what, "setresuid")?;
    let all = rustix::thread::capabilities(None).step(what, "capget")?.permitted;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: all,
            permitted: all,
            inheritable: CapabilitySet::empty(),
        },
    )
    .step(what, "capset")
}

/// Dies with the spawner. After the identity is taken: changing it would clear the setting.
pub(crate) fn die_with_parent() -> Result<(), Fault> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step("death with the spawner", "prctl")
}

/// Whether this thread has no capability to give up. The units of the daemon refuse `capset` to a process that has none.
pub(crate) fn has_none() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        // The ambient set is within the permitted one (capabilities(7)).
        (sets.effective | sets.permitted | sets.inheritable).is_empty()
    })
}

/// Gives up every capability this thread has, for ever.
pub(crate) fn empty_sets() -> Result<(), Fault> {
    let what = "dropping capabilities";
    rustix::thread::clear_ambient_capability_set().step(what, "ambient")?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .step(what, "capset")
}

/// Nothing this process executes can ever have a capability again.
pub(crate) fn empty_bounding_set() -> Result<(), Fault> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // One past the kernel's last capability.
            Err(rustix::io::Errno::INVAL) => break,
            Err(cause) => return Err(cause).step("dropping capabilities", "bounding"),
        }
    }
    Ok(())
}
