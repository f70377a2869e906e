//! The spawner: the small process that may create sandboxes. Root with a narrow job, or an ordinary user.
//!
//! Serves one run: it is told what to build by one frame and a sealed plan, re-checks everything by type, builds,
//! passes control's end of the event socket to init and forgets it. It never reads a byte the agent wrote.
//! As a daemon it serves many, each by a process of its own, and judges who may ask: see [`daemon`].
#![forbid(unsafe_code)]

mod admit;
mod bounds;
mod cgroup;
pub mod daemon;
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
use bastle_contract::{Birth, Fault, FromSpawner, HostFacts, RunId, ToSpawner, WIRE_VERSION};
use bounds::Bounds;
use identity::Claims;
use launch::Prepared;
use std::os::fd::OwnedFd;

/// What init is: given by the binary, because this crate must not link it.
pub type Init = fn(Birth) -> !;

pub use facts::collect as host_facts;

/// The name of a spawner's process.
pub(crate) const NAME: &std::ffi::CStr = c"bastle-spawner";

/// Serves the run on `control`; returns the process's exit code.
#[must_use]
pub fn serve(control: &OwnedFd, init: Init) -> u8 {
    match Readied::make(init, Claims::Name, facts::collect) {
        Ok(readied) => readied.serve(control, None, &mut |_| ()),
        Err(_) => 1,
    }
}

/// A spawner that has done everything that needs no plan.
pub(crate) struct Readied {
    prepared: Result<Prepared, Fault>,
    facts: HostFacts,
}

/// What became of a launch, for whoever keeps count.
pub(crate) enum Outcome<'a> {
    /// The run exists.
    Launched(&'a RunId),
    /// Nothing was started.
    Refused(&'a Fault),
}

impl Readied {
    /// Gets ready. `facts` are asked for last.
    pub(crate) fn make(
        init: Init,
        claims: Claims,
        facts: impl FnOnce() -> HostFacts,
    ) -> std::io::Result<Self> {
        // By this name others tell a living spawner from a number that was used again.
        rustix::thread::set_name(NAME)?;
        // First of all: it goes on by itself while this process looks around and control reads the policy. A failure is
        // told when somebody wants the sandbox.
        let prepared = launch::prepare(init, claims);
        Ok(Self {
            prepared,
            facts: facts(),
        })
    }

    /// Serves one run, within bounds where it is somebody else's; returns the process's exit code.
    pub(crate) fn serve(
        self,
        control: &OwnedFd,
        bounds: Option<Bounds>,
        tell: &mut dyn FnMut(Outcome<'_>),
    ) -> u8 {
        let Self { prepared, facts } = self;
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
            Err(error) => return refuse(control, &admit::malformed(&error), tell),
        };
        match launch::launch(&frame, descriptors, &facts, prepared, bounds) {
            Ok(running) => {
                tell(Outcome::Launched(&running.run));
                supervise::supervise(control, running)
            }
            Err(fault) => refuse(control, &fault, tell),
        }
    }
}

fn refuse(control: &OwnedFd, fault: &Fault, tell: &mut dyn FnMut(Outcome<'_>)) -> u8 {
    tell(Outcome::Refused(fault));
    let told = socket::send(control, &FromSpawner::Refused(fault.clone()), &[]);
    if told.is_ok() { 0 } else { 1 }
}
