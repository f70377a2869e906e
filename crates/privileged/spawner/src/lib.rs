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
mod out_of_reach;
mod reads;
mod standing;
mod supervise;

use bastle_contract::socket;
use bastle_contract::{
    Birth, Fault, FromSpawner, HostFacts, LaunchParts, LaunchPlan, RunId, ToSpawner, WIRE_VERSION,
};
use bounds::Bounds;
use identity::Claims;
use launch::{Prepared, Running};
use rustix::io::Errno;
use rustix::process::WaitOptions;
use standing::Standing;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What init is: given by the binary, because this crate must not link it.
pub type Init = fn(Birth) -> !;

pub use facts::collect as host_facts;

/// The name of a spawner's process.
pub(crate) const NAME: &std::ffi::CStr = c"bastle-spawner";

/// Serves the run on `control`; returns the process's exit code.
#[must_use]
pub fn serve(control: &OwnedFd, init: Init) -> u8 {
    match Readied::make(init, Claims::Name, facts::collect) {
        Ok(mut readied) => readied.serve(control, None, &mut |_| Ok(()), &mut |_| ()),
        Err(_) => 1,
    }
}

/// A spawner that has done everything that needs no plan, or more.
pub(crate) struct Readied {
    init: Init,
    claims: Claims,
    facts: HostFacts,
    /// What waits for the next run; nothing while one lives.
    made: Option<Made>,
    /// The plan of the run before, and whether the one before that had the same fence.
    last: Option<(LaunchPlan, Came)>,
}

/// What a spawner has before it is asked.
enum Made {
    /// A child that waits for any plan, or why there is none.
    Blank(Result<Prepared, Fault>),
    /// A sandbox for one plan.
    Standing(Box<Standing>),
}

/// How often a fence was asked for in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Once,
    Again,
}

/// When something is noted about a run before it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The caller thinks about its plan.
    Greeted,
    /// The last before it exists. May come twice, where what stood cannot be used.
    Launching,
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
        let made = Some(Made::Blank(launch::prepare(init, claims)));
        Ok(Self {
            init,
            claims,
            facts: facts(),
            made,
            last: None,
        })
    }

    /// Serves one run, within bounds where it is somebody else's; returns the process's exit code. `first` is
    /// asked at two moments: without its word nothing is launched.
    pub(crate) fn serve(
        &mut self,
        control: &OwnedFd,
        bounds: Option<Bounds>,
        first: &mut dyn FnMut(Moment) -> Result<(), Fault>,
        tell: &mut dyn FnMut(Outcome<'_>),
    ) -> u8 {
        let hello = FromSpawner::Hello {
            version: WIRE_VERSION,
            facts: self.facts.clone(),
        };
        if socket::send(control, &hello, &[]).is_err() {
            return 1;
        }
        if let Err(fault) = first(Moment::Greeted) {
            return refuse(control, &fault, tell);
        }
        let (frame, descriptors) = match socket::receive::<ToSpawner>(control) {
            Ok(Some(received)) => received,
            // Control changed its mind: a dry run, a refused policy.
            Ok(None) => return 0,
            Err(error) => return refuse(control, &admit::malformed(&error), tell),
        };
        match self.launch(&frame, descriptors, bounds, &mut || first(Moment::Launching)) {
            Ok((running, plan)) => {
                self.remember(plan);
                supervise::supervise(control, running, tell)
            }
            Err(fault) => refuse(control, &fault, tell),
        }
    }

    fn launch(
        &mut self,
        frame: &ToSpawner,
        descriptors: Vec<OwnedFd>,
        bounds: Option<Bounds>,
        last: &mut dyn FnMut() -> Result<(), Fault>,
    ) -> Result<(Running, LaunchPlan), Fault> {
        let prepared = match (self.made.take(), &bounds) {
            (Some(Made::Standing(standing)), Some(bounds)) => {
                if let Some(claimed) = claim(*standing, frame, &descriptors, (bounds, last))? {
                    return Ok(claimed);
                }
                launch::prepare(self.init, self.claims)
            }
            (Some(Made::Blank(prepared)), _) => prepared,
            (Some(Made::Standing(_)) | None, _) => launch::prepare(self.init, self.claims),
        };
        last()?;
        launch::launch(frame, descriptors, &self.facts, prepared, bounds)
    }

    fn remember(&mut self, plan: LaunchPlan) {
        let again = |(last, _): &(LaunchPlan, Came)| standing::is_same_fence(last, &plan);
        let came = if self.last.as_ref().is_some_and(again) {
            Came::Again
        } else {
            Came::Once
        };
        self.last = Some((plan, came));
    }

    /// Gets ready for the next run of the same caller: with the whole sandbox, where the last two wanted the same.
    pub(crate) fn renew(&mut self, bounds: &Bounds) -> std::io::Result<()> {
        if self.made.is_some() {
            return Ok(());
        }
        reap()?;
        let standing = match &self.last {
            Some((plan, Came::Again)) if standing::can_stand(plan) => {
                let how = (self.init, self.claims);
                Standing::build(how, plan.clone(), &self.facts, bounds).ok()
            }
            Some(_) | None => None,
        };
        self.made = Some(match standing {
            Some(standing) => Made::Standing(Box::new(standing)),
            None => Made::Blank(launch::prepare(self.init, self.claims)),
        });
        Ok(())
    }

    /// A sandbox that is still being built, for waiting.
    pub(crate) fn under_way(&self) -> Option<BorrowedFd<'_>> {
        match &self.made {
            Some(Made::Standing(standing)) if standing.is_under_way() => Some(standing.line()),
            Some(Made::Standing(_) | Made::Blank(_)) | None => None,
        }
    }

    /// Whether a sandbox stands.
    pub(crate) fn stands(&self) -> bool {
        matches!(&self.made, Some(Made::Standing(standing)) if !standing.is_under_way())
    }

    /// Hears the sandbox that is being built: whether it stands now. One that will not is replaced.
    pub(crate) fn hear(&mut self) -> Result<bool, Fault> {
        match self.made.take() {
            Some(Made::Standing(mut standing)) => {
                if standing.hear() {
                    self.made = Some(Made::Standing(standing));
                    return Ok(true);
                }
                standing.abandon()?;
                // What failed once is not tried for ever.
                self.last = None;
                self.made = Some(Made::Blank(launch::prepare(self.init, self.claims)));
            }
            other => self.made = other,
        }
        Ok(false)
    }
}

/// Takes the sandbox that stands, if it is the right one. What came stays with the caller: it may have to be built.
fn claim(
    standing: Standing,
    frame: &ToSpawner,
    descriptors: &[OwnedFd],
    (bounds, last): (&Bounds, &mut dyn FnMut() -> Result<(), Fault>),
) -> Result<Option<(Running, LaunchPlan)>, Fault> {
    let copies = descriptors
        .iter()
        .map(OwnedFd::try_clone)
        .collect::<Result<_, _>>();
    let copies = copies.map_err(|error| launch::fault("descriptors", &error))?;
    let admitted = match admit::admit(frame, copies, (facts::landlock(), Some(bounds))) {
        Ok(admitted) => admitted,
        Err(fault) => return Err(standing.abandon().err().unwrap_or(fault)),
    };
    let LaunchParts {
        plan,
        events,
        attachments: _,
        stdio,
    } = admitted.into_parts();
    let mut parts = vec![events.as_fd()];
    parts.extend(stdio.iter().map(AsFd::as_fd));
    let running = standing.claim(&plan, &parts, bounds, last)?;
    Ok(running.map(|running| (running, plan)))
}

/// Takes the status of every child that ended: of helpers that nobody waited for, or where lines have told the rest.
pub(crate) fn reap() -> std::io::Result<()> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn refuse(control: &OwnedFd, fault: &Fault, tell: &mut dyn FnMut(Outcome<'_>)) -> u8 {
    tell(Outcome::Refused(fault));
    let told = socket::send(control, &FromSpawner::Refused(fault.clone()), &[]);
    if told.is_ok() { 0 } else { 1 }
}
