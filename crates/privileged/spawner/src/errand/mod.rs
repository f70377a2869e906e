//! Errands into a living sandbox: a child that enters its namespaces, brings a path in or takes one out, and ends.
//!
//! **Trust:** what is brought in was judged by control and is opened here again, by name and without symlinks, and
//! compared with what was judged. Inside, only the constructed root is walked, which no process of the sandbox can
//! change. The child has the agent's identity and capabilities over the sandbox's namespaces, none over the host's.
//!
//! A child and not the spawner itself: who has entered other namespaces cannot come back, and a path on a dead file
//! system must hold up neither the clock nor the kill.
mod bring;
mod cover;
mod holders;
mod inside;
mod take;

use crate::launch::Running;
use bastle_contract::grants::{Cover, GrantOrder};
use bastle_contract::{AbsPath, Code, Fault, FromSpawner, IdMapping, socket};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use rustix::process::{DumpableBehavior, Signal, WaitId, WaitIdOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One request of control about a living run that needs a process inside its namespaces.
pub(crate) enum Task {
    /// Bring a path in; beside it what was judged.
    Bring(GrantOrder, OwnedFd),
    /// Take it out.
    Take(AbsPath),
    /// Cover names again.
    Cover(Vec<Cover>),
}

/// A child that is on its way.
pub(crate) struct Errand {
    about: About,
    pidfd: OwnedFd,
    line: OwnedFd,
}

/// Where the sandbox lives, held since it was made: its init cannot be looked into any more.
pub(crate) struct Rooms {
    /// Its user namespace.
    pub(crate) user: OwnedFd,
    /// Who the agent is.
    pub(crate) identity: IdMapping,
}

/// What an errand is about, for the case that it fails.
#[derive(Clone)]
enum About {
    Grant(AbsPath),
    Names(AbsPath),
}

impl About {
    fn path(&self) -> &AbsPath {
        match self {
            Self::Grant(path) | Self::Names(path) => path,
        }
    }

    fn failed(self, fault: Fault) -> FromSpawner {
        match self {
            Self::Grant(path) => FromSpawner::GrantFailed { path, fault },
            Self::Names(_) => FromSpawner::CoverFailed { fault },
        }
    }
}

impl Task {
    fn about(&self) -> About {
        match self {
            Self::Bring(order, _) => About::Grant(order.path.clone()),
            Self::Take(path) => About::Grant(path.clone()),
            Self::Cover(covers) => About::Names(
                covers
                    .first()
                    .map_or_else(AbsPath::root, |cover| cover.at.clone()),
            ),
        }
    }
}

impl Errand {
    /// Sends somebody.
    pub(crate) fn start(running: &Running, task: Task) -> Result<Self, Fault> {
        let (Some(rooms), Some(mounts)) = (&running.rooms, &running.mounts) else {
            return Err(fault(
                task.about().path(),
                "namespaces",
                "they could not be held at the start",
            ));
        };
        if let Task::Bring(order, _) = &task {
            order
                .check()
                .map_err(|error| fault(&order.path, "order", error.to_string()))?;
        }
        let about = task.about();
        let failed = |step: &str, error: std::io::Error| fault(about.path(), step, error.to_string());
        let (ours, theirs) = socket::pair().map_err(|error| failed("line", error))?;
        match clone_into(Namespaces::NONE, None).map_err(|error| failed("clone", error))? {
            Cloned::Child => {
                drop(ours);
                let word = settle(&theirs, (rooms, mounts, &running.pidfd), &task)
                    .and_then(|()| carry_out((rooms, running), mounts.as_fd(), task))
                    .unwrap_or_else(|fault| about.clone().failed(fault));
                let told = socket::send(&theirs, &word, &[]);
                bastle_sys::exec::exit(u8::from(told.is_err()))
            }
            Cloned::Parent { pid: _, pidfd } => Ok(Self {
                about: about.clone(),
                pidfd,
                line: ours,
            }),
        }
    }

    /// Readable when the process has an answer.
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// What came of it.
    pub(crate) fn end(self) -> FromSpawner {
        let word = socket::receive::<FromSpawner>(&self.line);
        // It has nothing left to do but to end; one that stays is reaped with this process.
        let reaped = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL)
            .and_then(|()| rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED));
        match (word, reaped) {
            (Ok(Some((word, _))), _) => word,
            (Ok(None) | Err(_), _) => {
                let fault = fault(self.about.path(), "errand", "it ended without a word");
                self.about.failed(fault)
            }
        }
    }
}

/// Nothing of the spawner's goes along: its line to control least of all.
fn settle(
    line: &OwnedFd,
    (rooms, mounts, init): (&Rooms, &OwnedFd, &OwnedFd),
    task: &Task,
) -> Result<(), Fault> {
    let failed = |error: std::io::Error| fault(task.about().path(), "settle", error.to_string());
    let mut kept = [line, &rooms.user, mounts, init].map(AsRawFd::as_raw_fd).to_vec();
    if let Task::Bring(_, judged) = task {
        kept.push(judged.as_raw_fd());
    }
    bastle_sys::fd::close_all_except(&kept).map_err(failed)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed(error.into()))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| failed(error.into()))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

fn carry_out(
    (rooms, running): (&Rooms, &Running),
    mounts: BorrowedFd<'_>,
    task: Task,
) -> Result<FromSpawner, Fault> {
    match task {
        Task::Bring(order, judged) => bring::bring((rooms, running.bounds.as_ref()), mounts, order, &judged),
        Task::Take(path) => take::take(rooms, (mounts, running.pidfd.as_fd()), path),
        Task::Cover(covers) => cover::cover(rooms, mounts, &covers),
    }
}

/// The one shape of a failure here.
fn fault(path: &AbsPath, step: &str, why: impl ToString) -> Fault {
    Fault::new(
        Code::GrantFailed,
        format!("{path} cannot be brought in or taken out ({step})"),
        why.to_string(),
    )
    .help("bastle ps shows what is granted")
}
