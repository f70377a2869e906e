//! Hidden names in the project's history: found, told, and left out where that was asked for.
use super::{WorkHistory, WorkMode, WorkWish};
use bastle_contract::{Code, Fault, Guarantee, Mechanism, NameList};
use bastle_policy::{LayerKind, Origin, PlanLine};
use bastle_workspace::git::{HiddenHistory, HostGit, Unreachable, hidden_history, unreachable_contents};
use bastle_workspace::path::TreePath;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long git may search. It does so while the project is copied.
const SEARCH: Duration = Duration::from_secs(20);
/// The same in place, where a short run must not leave it behind.
const SEARCH_IN_PLACE: Duration = Duration::from_secs(3);
/// How long is waited for it once the copy is made, or the plan.
const PATIENCE: Duration = Duration::from_millis(250);

/// A search that goes on beside the copying.
pub(super) struct Search {
    named: Receiver<Result<HiddenHistory, Fault>>,
    unnamed: Receiver<Result<Unreachable, Fault>>,
}

impl Search {
    /// Begins to search. Threads that cannot be made answer like a search that found no end.
    pub(super) fn begin(git: &HostGit, source: &Path, hidden: &NameList, scratch: PathBuf) -> Self {
        Self::begin_within(git, source, hidden, scratch, SEARCH)
    }

    /// The same in place, where nothing is copied meanwhile: a run that ends at once leaves no long search behind.
    pub(super) fn begin_in_place(git: &HostGit, source: &Path, hidden: &NameList, scratch: PathBuf) -> Self {
        Self::begin_within(git, source, hidden, scratch, SEARCH_IN_PLACE)
    }

    fn begin_within(
        git: &HostGit,
        source: &Path,
        hidden: &NameList,
        scratch: PathBuf,
        limit: Duration,
    ) -> Self {
        let (git, source, hidden) = (git.clone(), source.to_path_buf(), hidden.clone());
        let beside = (git.clone(), source.clone(), scratch.clone(), hidden.is_empty());
        let named = beside_us("history", move || {
            hidden_history(&git, &source, &hidden, &scratch, limit)
        });
        let unnamed = beside_us("objects", move || {
            let (git, source, scratch, nothing_is_hidden) = beside;
            if nothing_is_hidden {
                return Ok(Unreachable::default());
            }
            unreachable_contents(&git, &source, &scratch, limit)
        });
        Self { named, unnamed }
    }

    /// What a person should know of it.
    pub(super) fn notes(self, mode: WorkMode) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        let named = match self.named.recv_timeout(left()) {
            Ok(Ok(found)) if found.blobs == 0 => None,
            Ok(Ok(found)) => Some(told(&found, advice(mode))),
            Ok(Err(_)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Some(format!(
                "the history could not be searched for hidden names in time: what was ever committed under one can be \
                 read inside (git show); {}",
                advice(mode)
            )),
        };
        let unnamed = match self.unnamed.recv_timeout(left()) {
            Ok(Ok(found)) => told_unnamed(found, mode),
            Ok(Err(_)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Some(format!(
                "the git objects could not be searched in time for contents without a name (added and reset, dropped, \
                 deleted): they can be read inside (git cat-file); {}",
                advice(mode)
            )),
        };
        named.into_iter().chain(unnamed).collect()
    }
}

/// Runs `search` in a thread of its own; one that cannot be made answers as one that found no end.
fn beside_us<T: Send + 'static>(
    name: &str,
    search: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Receiver<Result<T, Fault>> {
    let (done, found) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Once the receiver is gone, the result is not needed.
    drop(thread.spawn(move || drop(done.send(search()))));
    found
}

/// Contents that nothing names cannot be told apart from hidden ones.
fn told_unnamed(found: Unreachable, mode: WorkMode) -> Option<String> {
    let left_behind = found.borrows && mode != WorkMode::InPlace;
    if found.blobs == 0 || left_behind {
        return None;
    }
    let contents = if found.blobs == 1 {
        "1 content".to_owned()
    } else {
        format!("{} contents", found.blobs)
    };
    Some(format!(
        "GIT OBJECTS WITHOUT A NAME: {contents} that no reference reaches (added and reset, dropped, deleted) can be read \
         inside (git cat-file), whatever their names were; {}",
        advice(mode)
    ))
}

fn advice(mode: WorkMode) -> &'static str {
    match mode {
        WorkMode::InPlace => "--workspace copy --hide-history leaves the history out",
        WorkMode::Copy | WorkMode::Overlay | WorkMode::Worktree => "--hide-history leaves the history out",
    }
}

/// Git repositories and bundles in the project that are not its own.
pub(super) fn others(stores: &[TreePath], history: WorkHistory) -> Option<String> {
    let names: Vec<String> = stores.iter().map(ToString::to_string).collect();
    let count = counted(&names)?;
    Some(match history {
        WorkHistory::Hidden => format!("left out, because each has a history of its own: {count}"),
        WorkHistory::Full => format!("{}; {}", unsearched(&count), advice(WorkMode::Copy)),
    })
}

/// The same in place.
pub(super) fn others_in_place(names: &[String]) -> Option<String> {
    let count = counted(names)?;
    Some(format!("{}; {}", unsearched(&count), advice(WorkMode::InPlace)))
}

fn unsearched(count: &str) -> String {
    format!(
        "OTHER REPOSITORIES IN THE PROJECT: {count}; their history was not searched for hidden names and can be read inside"
    )
}

fn counted(names: &[String]) -> Option<String> {
    const SHOWN: usize = 3;
    let first = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len() {
        0 => None,
        count if count > SHOWN => Some(format!("{first} and {} more", count - SHOWN)),
        _ => Some(first),
    }
}

fn told(found: &HiddenHistory, advice: &str) -> String {
    let contents = if found.blobs == 1 {
        "1 content".to_owned()
    } else {
        format!("{} contents", found.blobs)
    };
    let names = match (&found.example, found.names) {
        (Some(name), 1) => name.clone(),
        (Some(name), count) => format!("{name} and {} more", count - 1),
        (None, count) => format!("{count} names"),
    };
    format!("HIDDEN NAMES IN THE HISTORY: {contents} of {names} can be read inside (git show); {advice}")
}

/// Refuses what cannot be held.
pub(super) fn refuse(mode: WorkMode, wish: &WorkWish<'_>) -> Result<(), Fault> {
    let why = match (wish.history, mode, &wish.from) {
        (WorkHistory::Full, _, _) => return Ok(()),
        (WorkHistory::Hidden, WorkMode::InPlace, _) => "in place the agent has the project's own repository",
        (WorkHistory::Hidden, _, Some(_)) => "a fork has the history of the run it is made from",
        (WorkHistory::Hidden, _, None) => return Ok(()),
    };
    Err(
        Fault::new(Code::UsageArgument, "the history cannot be hidden", why)
            .help("bastle run --workspace copy --hide-history -- CMD"),
    )
}

/// How hidden contents are kept from the agent in each way they could be reached, for the plan.
pub(super) fn lines(mode: WorkMode, history: WorkHistory) -> Vec<PlanLine> {
    let line = |rule: &str, mechanism, note: &str| PlanLine {
        section: "workspace".to_owned(),
        rule: rule.to_owned(),
        origin: Origin {
            layer: LayerKind::Floor,
            file: "built-in".to_owned(),
            line: 0,
        },
        mechanism,
        probe: Some(Guarantee::ReadsConfined),
        note: note.to_owned(),
    };
    let objects = match (mode, history) {
        (WorkMode::InPlace, _) => line(
            "history: full",
            Mechanism::Advisory,
            "in place the repository is the project's own: what was committed under a hidden name can be read",
        ),
        (_, WorkHistory::Full) => line(
            "history: full",
            Mechanism::Advisory,
            "what was committed or staged under a hidden name can be read, and so can objects that no reference reaches; the first \
             lines of the run count both; --hide-history leaves them out",
        ),
        (_, WorkHistory::Hidden) => line(
            "history: hidden",
            Mechanism::Mount,
            "one commit without hidden names; no object, reference, stash or alternate of the host is inside",
        ),
    };
    let links = match mode {
        WorkMode::InPlace => "a file that is also a hidden name is covered under each of its names",
        WorkMode::Copy | WorkMode::Worktree | WorkMode::Overlay => {
            "a file that is also a hidden name stays out of the copy under each of its names"
        }
    };
    vec![
        objects,
        line("hard links of hidden files", Mechanism::Mount, links),
    ]
}
