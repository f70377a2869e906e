//! The tree an agent works in: the project itself, or a copy of it below the state directory.
//!
//! **Trust:** runs as the invoking user. A copy is made before the agent lives; afterwards nothing in it is trusted, and
//! it is read through descriptors only. The project on the host is never written here.
mod ending;
mod history;
mod in_git;
mod interrupt;
mod making;
mod notes;
mod rebase;
mod secretive;
#[cfg(test)]
mod tests;

pub use bastle_workspace::copy::{Progress, shares_extents};
pub use bastle_workspace::meta::{Which, WorkMode};
pub use ending::WorkEnd;
pub(crate) use notes::refuse_links;

use crate::fileops;
use crate::load::Loaded;
use crate::lookup::View;
use crate::place::Place;
use crate::review::{self, Alive};
use bastle_audit::AuditEvent;
use bastle_contract::{AbsPath, Argv, Code, Fault, RunId};
use bastle_policy::Planned;
use bastle_workspace::git::HostRepo;
use bastle_workspace::manifest::Manifest;
use bastle_workspace::workspace::Workspace;
use interrupt::Interrupt;
use std::sync::mpsc::Sender;

/// What a person asked for.
pub struct WorkWish<'a> {
    /// `--workspace`; `None`: a copy where the project is a git repository, else in place.
    pub mode: Option<WorkMode>,
    /// `--from`: another run's tree to begin with.
    pub from: Option<(RunId, Which)>,
    /// `--branch`: the second half of the agent's branch; the run's name unless given.
    pub branch: Option<String>,
    /// How much of the project's history the copy has.
    pub history: WorkHistory,
    /// Whether a tree is made.
    pub making: Making,
    /// Told about ten times a second while files are copied.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// How much of the project's history a copy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkHistory {
    /// All of it: what was ever committed under a hidden name can be read there.
    #[default]
    Full,
    /// `--hide-history`: one commit, without hidden names.
    Hidden,
}

impl From<bool> for WorkHistory {
    /// By the flag `--hide-history`.
    fn from(hidden: bool) -> Self {
        if hidden { Self::Hidden } else { Self::Full }
    }
}

/// Whether a tree is made or only shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// Made: the run follows.
    Now,
    /// Not made: somebody only asks what would be.
    Never,
}

/// How a copy came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// How long it took.
    pub millis: u64,
    /// The agent's branch.
    pub branch: Option<String>,
    /// What is not in it although the project has it: hidden names, sockets, devices.
    pub left_out: u64,
    /// What is worth knowing, for people; the first few.
    pub notes: Vec<String>,
}

/// The tree of one run.
pub struct Work {
    /// How it came to be.
    pub mode: WorkMode,
    /// The project.
    pub source: AbsPath,
    history: WorkHistory,
    copy: Option<Copied>,
    interrupt: Option<Interrupt>,
    /// In place: the search of the history that goes on beside planning.
    search: Option<history::Search>,
    /// In place: the project's repository as it was at the start.
    before: Option<in_git::Before>,
    notes: Vec<String>,
}

/// A copy that this process made and holds.
struct Copied {
    space: Workspace,
    tree: AbsPath,
    /// The host's git objects, where they were too many to copy.
    objects: Option<AbsPath>,
    made: Made,
    /// What an overlay shows, until the agent starts.
    shown: Option<Manifest>,
    #[expect(dead_code, reason = "says that the run lives for as long as it is held")]
    alive: Alive,
    /// Set when the agent starts: from then on the copy holds work.
    begun: bool,
    /// Dropped when the agent is gone.
    lives: Option<Sender<()>>,
}

/// What is known about a tree without holding it: for a front end.
#[derive(Clone, Debug)]
pub struct WorkFacts {
    /// How it came to be.
    pub mode: WorkMode,
    /// The project.
    pub source: AbsPath,
    /// Where the agent's files are, if not in the project.
    pub tree: Option<AbsPath>,
    /// How the copy came to be.
    pub made: Option<Made>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
}

impl Work {
    /// The project itself.
    pub(crate) fn in_place(place: &Place) -> Self {
        Self::without_copy(place, WorkMode::InPlace)
    }

    fn without_copy(place: &Place, mode: WorkMode) -> Self {
        Self {
            mode,
            source: place.workspace.clone(),
            history: WorkHistory::Full,
            copy: None,
            interrupt: None,
            search: None,
            before: None,
            notes: Vec::new(),
        }
    }

    /// Makes the tree, or finds out which one would be made.
    pub(crate) fn make(
        place: &Place,
        loaded: &Loaded,
        run: &RunId,
        argv: &Argv,
        wish: WorkWish<'_>,
    ) -> Result<Self, Fault> {
        let mode = chosen(place, loaded, &wish)?;
        let history = wish.history;
        history::refuse(mode, &wish)?;
        let home = bastle_workspace::place::Place::new(place.state.clone());
        if mode == WorkMode::InPlace || wish.making == Making::Never {
            let repaired = match wish.making {
                Making::Now => review::repair_project(&home, place.workspace.as_path())?,
                Making::Never => Vec::new(),
            };
            let search = match wish.making {
                Making::Now => notes::search_in_place(place, loaded),
                Making::Never => None,
            };
            let before = match wish.making {
                Making::Now => in_git::Before::begin(place.workspace.as_path(), place.state.clone()),
                Making::Never => None,
            };
            return Ok(Self {
                history,
                search,
                before,
                notes: repaired,
                ..Self::without_copy(place, mode)
            });
        }
        // What a killed process left is finished or undone first: a copy of a half-written project is worth nothing.
        let mut repaired = review::repair(&home)?;
        repaired.extend(review::repair_project(&home, place.workspace.as_path())?);
        fileops::recover(&place.state, &home);
        let interrupt = Interrupt::listen()?;
        let made = match &wish.from {
            Some((origin, which)) => making::fork(&home, origin, which, run),
            None => {
                let wish = WorkWish {
                    mode: Some(mode),
                    ..wish
                };
                making::copy(&home, place, loaded, (run, argv), wish, &interrupt)
            }
        };
        if interrupt.is_hit() {
            // Removes what was made before the signal takes its course.
            drop(made);
            interrupt.obey();
            return Err(Fault::new(
                Code::WorkspaceIo,
                "interrupted while the project was copied",
                "",
            ));
        }
        let mut copy = made?;
        copy.made.notes.splice(0..0, repaired);
        interrupt.rest();
        Ok(Self {
            mode,
            source: place.workspace.clone(),
            history,
            copy: Some(copy),
            interrupt: Some(interrupt),
            search: None,
            before: None,
            notes: Vec::new(),
        })
    }

    /// How the project's paths are found on disk.
    pub(crate) fn view(&self) -> View<'_> {
        match &self.copy {
            Some(Copied {
                shown: Some(shown), ..
            }) => View::Layered {
                project: &self.source,
                shown,
            },
            Some(copy) => View::Copy {
                project: &self.source,
                tree: copy.tree.as_path(),
            },
            None => View::Host,
        }
    }

    /// Puts the copy into the plan in place of the project.
    pub(crate) fn rebase(&self, planned: &mut Planned) -> Result<(), Fault> {
        planned.listing.extend(history::lines(self.mode, self.history));
        match &self.copy {
            Some(copy) => rebase::rebase(
                &mut planned.plan,
                &self.source,
                &rebase::Standing::of(&copy.space, &copy.tree)?,
                copy.objects.as_ref(),
            ),
            None => Ok(()),
        }
    }

    /// For a front end.
    #[must_use]
    pub fn facts(&self) -> WorkFacts {
        WorkFacts {
            mode: self.mode,
            source: self.source.clone(),
            tree: self.copy.as_ref().map(|copy| copy.tree.clone()),
            made: self.copy.as_ref().map(|copy| copy.made.clone()),
            notes: self.notes.clone(),
        }
    }

    /// For the record, before the agent is started.
    pub(crate) fn event(&self) -> AuditEvent {
        let facts = self.facts();
        let made = facts.made.unwrap_or_default();
        let tree = facts.tree.unwrap_or_else(|| facts.source.clone());
        AuditEvent::WorkspaceMade {
            mode: word(self.mode).to_owned(),
            source: facts.source.to_string(),
            tree: tree.to_string(),
            files: made.files,
            bytes: made.bytes,
            left_out: made.left_out,
            branch: made.branch,
        }
    }

    /// The run's own handler has taken over: signals are for the agent from now on.
    pub(crate) fn hand_signals_over(&self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.hand_over();
        }
    }
}

impl Drop for Copied {
    /// A copy in which no agent has worked holds nothing that is not in the project.
    fn drop(&mut self) {
        if !self.begun {
            // Should it fail, the copy has no work in it, and `prune` takes it.
            drop(self.space.clone().remove(None));
        }
    }
}

/// The mode of a wish.
fn chosen(place: &Place, loaded: &Loaded, wish: &WorkWish<'_>) -> Result<WorkMode, Fault> {
    Ok(match (wish.mode, &wish.from) {
        (Some(WorkMode::InPlace), Some(_)) => {
            return Err(Fault::new(
                Code::UsageArgument,
                "--from and --workspace in-place contradict each other",
                "another run's tree is a copy",
            ));
        }
        (_, Some((origin, _))) => {
            let home = bastle_workspace::place::Place::new(place.state.clone());
            // Whatever the other one is, a fork of it is written out.
            Workspace::open(&home, origin)?;
            WorkMode::Copy
        }
        (Some(mode), None) => mode,
        (None, None) => by_itself(place, loaded)?,
    })
}

/// A copy where changes can be reviewed and returned; nothing is copied for an agent that writes nothing.
fn by_itself(place: &Place, loaded: &Loaded) -> Result<WorkMode, Fault> {
    let project = &place.workspace;
    let writes = bastle_policy::writes_below(&loaded.effective, project);
    if writes && HostRepo::open(project.as_path())?.is_some() {
        Ok(WorkMode::Copy)
    } else {
        Ok(WorkMode::InPlace)
    }
}

/// The word for a mode.
#[must_use]
pub fn word(mode: WorkMode) -> &'static str {
    match mode {
        WorkMode::Copy => "copy",
        WorkMode::Overlay => "overlay",
        WorkMode::Worktree => "worktree",
        WorkMode::InPlace => "in-place",
    }
}

/// The mode of a word.
#[must_use]
pub fn mode(word: &str) -> Option<WorkMode> {
    match word {
        "copy" => Some(WorkMode::Copy),
        "overlay" => Some(WorkMode::Overlay),
        "worktree" => Some(WorkMode::Worktree),
        "in-place" => Some(WorkMode::InPlace),
        _ => None,
    }
}
