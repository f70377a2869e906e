//! The life of a copy around the agent's: begun, ended, summed up.
//!
//! **Trust:** every state is recorded before what it stands for happens. A failure here never loses work: the tree
//! stays as the agent left it, and the next verb looks at it again.
use super::{Work, WorkMode};
use crate::review::{self, Summary};
use bastle_contract::{AbsPath, Fault, LaunchPlan};
use bastle_workspace::meta::State;
use bastle_workspace::workspace::Workspace;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs that are over by then leave their copy to the file system; what the agent changed is kept at their end.
const SHORT_RUN: Duration = Duration::from_secs(2);

/// What came of a tree.
#[derive(Clone, Debug)]
pub struct WorkEnd {
    /// How it came to be.
    pub mode: WorkMode,
    /// The project.
    pub source: AbsPath,
    /// Where the agent's files are, if not in the project.
    pub tree: Option<AbsPath>,
    /// What differs from the project as it was copied; `None` in place.
    pub summary: Option<Summary>,
    /// Why it could not be summed up.
    pub fault: Option<Fault>,
    /// Whether the agent's files are still there.
    pub kept: bool,
    /// In place: guarded names that the index, or a reference that moved, has otherwise than at the start, each with where.
    pub in_git: Vec<String>,
}

impl Work {
    /// The agent starts: from now on the copy holds work.
    pub(crate) fn begin(&mut self) -> Result<(), Fault> {
        if let Some(before) = &mut self.before {
            before.settle();
        }
        let Some(copy) = &mut self.copy else { return Ok(()) };
        copy.space.set_state(State::Running)?;
        copy.begun = true;
        // Planning is over: a run that lives for days does not carry it.
        copy.shown = None;
        let space = copy.space.clone();
        let (lives, over) = channel::<()>();
        copy.lives = Some(lives);
        // Beside the agent; cut off by the end of the run it has done what it has done, and nothing waits for it. Not at
        // once: a process cannot end while it waits for the disk, and a short run would wait for its whole copy.
        std::thread::Builder::new()
            .name("settle".to_owned())
            .spawn(move || {
                if over.recv_timeout(SHORT_RUN) == Err(RecvTimeoutError::Timeout) {
                    drop(space.settle());
                }
            })
            .map(drop)
            .map_err(|error| {
                Fault::new(
                    bastle_contract::Code::WorkspaceIo,
                    "cannot start a thread",
                    error.to_string(),
                )
            })
    }

    /// Whether there is a copy to be summed up.
    pub(crate) fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// The agent is gone: keeps what it left, as a snapshot, and compares the repository of a project in place.
    pub(crate) fn end(&mut self, plan: &LaunchPlan) -> WorkEnd {
        if let Some(copy) = &mut self.copy {
            copy.lives = None;
        }
        let (summary, fault) = match &self.copy {
            None => (None, None),
            Some(copy) => match finished(&copy.space) {
                Ok(summary) => (Some(summary), None),
                Err(fault) => (None, Some(fault)),
            },
        };
        WorkEnd {
            mode: self.mode,
            source: self.source.clone(),
            tree: self.copy.as_ref().map(|copy| copy.tree.clone()),
            summary,
            fault,
            kept: true,
            in_git: self
                .before
                .as_ref()
                .map(|before| before.differences(&self.source, plan))
                .unwrap_or_default(),
        }
    }

    /// After a start that failed: a copy that is as it was made is of no use to anybody.
    pub(crate) fn forget_if_unused(&self, end: &mut WorkEnd) {
        if let Some(copy) = &self.copy
            && end.summary == Some(Summary::default())
        {
            // It refuses by itself where there is work after all, a commit for instance.
            end.kept = copy.space.clone().remove(None).is_err();
        }
    }

    /// The copy, for whoever records what became of its files.
    pub(crate) fn space(&self) -> Option<&Workspace> {
        self.copy.as_ref().map(|copy| &copy.space)
    }
}

fn finished(space: &Workspace) -> Result<Summary, Fault> {
    space.set_state(State::Finished)?;
    // Takes the snapshot at the end: what is summed up is what is kept.
    review::summary(space)
}
