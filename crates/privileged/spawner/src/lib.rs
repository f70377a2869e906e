//! The spawner: the small process that may create sandboxes. Root with a narrow job, or an ordinary user.
//!
//! Serves one run: it is told what to build by one frame and a sealed plan, re-checks everything by type, builds,
//! passes control's end of the event socket to init and forgets it. It never reads a byte the agent wrote.
#![forbid(unsafe_code)]

mod admit;
mod cgroup;
pub mod early;
mod errand;
mod facts;
mod hooks;
mod identity;
mod idmap;
mod launch;
mod reads;
mod supervise;

use bastle_contract::socket;
use bastle_contract::{Birth, FromSpawner, ToSpawner, WIRE_VERSION};
use std::os::fd::OwnedFd;

/// What init is: given by the binary, because this crate must not link it.
pub type Init = fn(Birth) -> !;

pub use facts::collect as host_facts;

/// The name of a spawner's process.
pub(crate) const NAME: &std::ffi::CStr = c"bastle-spawner";

/// Serves the run on `control`; returns the process's exit code.
#[must_use]
pub fn serve(control: &OwnedFd, init: Init) -> u8 {
    // By this name others tell a living spawner from a number that was used again.
    if rustix::thread::set_name(NAME).is_err() {
        return 1;
    }
    // First of all: it goes on by itself while this process looks around and control reads the policy. A failure is
    // told when somebody wants the sandbox.
    let prepared = launch::prepare(init);
    let facts = facts::collect();
    let hello = FromSpawner::Hello {
        version: WIRE_VERSION,
        facts: facts.clone(),
    };
    if socket::send(control, &hello, &[]).is_err() {
        return 1;
    }
    let (frame, descriptors) = match socket::receive::<ToSpawner>(control) {
        Ok(Some(received)) => received,
        // Control changed its mind: a dry run, a refused policy.
        Ok(None) => return 0,
        Err(error) => return refuse(control, &admit::malformed(&error)),
    };
    match launch::launch(&frame, descriptors, &facts, prepared) {
        Ok(running) => supervise::supervise(control, running),
        Err(fault) => refuse(control, &fault),
    }
}

fn refuse(control: &OwnedFd, fault: &bastle_contract::Fault) -> u8 {
    let told = socket::send(control, &FromSpawner::Refused(fault.clone()), &[]);
    if told.is_ok() { 0 } else { 1 }
}
