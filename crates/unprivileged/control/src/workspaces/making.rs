//! Making the copy of a run, with a repository of its own.
//!
//! **Trust:** the project is the user's; no agent has seen the copy yet. What the policy hides, and ignored files that
//! look like secrets, never reach it.
use super::history::Search;
use super::interrupt::Interrupt;
use super::{Copied, Made, WorkHistory, WorkWish, secretive};
use crate::load::Loaded;
use crate::lookup::elsewhere_spelled;
use crate::place::Place;
use crate::review;
use bastle_contract::{AbsPath, Argv, Code, Fault, RunId};
use bastle_workspace::copy::shares_extents;
use bastle_workspace::finding::{About, Finding};
use bastle_workspace::git::{BranchName, History, HostGit, Prepare, prepare};
use bastle_workspace::meta::{Meta, Which, WorkMode};
use bastle_workspace::path::TreePath;
use bastle_workspace::place::Place as Home;
use bastle_workspace::workspace::{CreateRequest, Fresh, GitMade, Workspace};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where the host's git objects appear inside, where they are too many to copy.
pub(super) const OBJECTS_INSIDE: &str = "/run/bastle/git-objects";
/// Beside the tree: which objects those are.
const OBJECTS_RECORD: &str = "git-objects";
/// Notes that a front end shows.
const MOST_NOTES: usize = 8;

/// Copies the project.
pub(super) fn copy(
    home: &Home,
    place: &Place,
    loaded: &Loaded,
    (run, argv): (&RunId, &Argv),
    wish: WorkWish<'_>,
    interrupt: &Interrupt,
) -> Result<Copied, Fault> {
    let begun = Instant::now();
    let source = place.workspace.as_path();
    let branch = branch(argv, wish.branch.as_deref().unwrap_or(run.as_str()))?;
    let git = HostGit::find();
    let patterns = bastle_policy::hidden_below(&loaded.effective, &place.workspace);
    let mut absent: BTreeSet<TreePath> = elsewhere_spelled(&place.workspace, &patterns)
        .iter()
        .filter_map(|path| TreePath::new(path.relative_to(&place.workspace)?).ok())
        .collect();
    let opened = |path: &TreePath| patterns.open.iter().any(|open| open.opens(path.as_bytes()));
    let left_out = secretive::left_out(git.as_ref().ok(), source, &place.state, &patterns, wish.history)?;
    absent.extend(left_out.names.into_iter().filter(|path| !opened(path)));
    if wish.history == WorkHistory::Hidden {
        absent.extend(left_out.stores.iter().cloned());
    }
    let hidden = |path: &TreePath| {
        // Once a person has ended it, everything is left out: the copy is over at once.
        interrupt.is_hit()
            || is_pointer(source, path)
            || absent.contains(path)
            || patterns.matches(path.as_bytes())
    };
    let search = match (wish.history, &git) {
        (WorkHistory::Full, Ok(git)) if source.join(".git").exists() => {
            Some(Search::begin(git, source, &patterns, place.state.clone()))
        }
        (WorkHistory::Full | WorkHistory::Hidden, _) => None,
    };
    let history = match wish.history {
        WorkHistory::Full => History::Full,
        WorkHistory::Hidden => History::BaseOnly(&patterns),
    };
    let configs = user_configs(place);
    let configs: Vec<&Path> = configs.iter().map(PathBuf::as_path).collect();
    let mut repository =
        |fresh: &Fresh<'_>| give_repository(fresh, git.clone(), (&branch, history), &configs);
    let (space, shown) = Workspace::create_shown(
        home,
        wish.mode.unwrap_or(WorkMode::Copy),
        CreateRequest {
            run: run.clone(),
            source,
            hidden: &hidden,
            git: &mut repository,
            progress: wish.progress,
        },
    )?;
    let mut copied = held(space, begun)?;
    // First of all notes: it says what no cover holds.
    let others = super::history::others(&left_out.stores, wish.history);
    let search = search.into_iter().flat_map(|search| search.notes(WorkMode::Copy));
    copied.made.notes.splice(0..0, search.chain(others));
    copied.shown = (copied.space.mode() == WorkMode::Overlay).then_some(shown);
    Ok(copied)
}

/// Whether a name is a submodule's pointer to its repository: that one is not in the copy, and a pointer to nowhere
/// makes git refuse to work at all. Without it the submodule's files are plain files.
fn is_pointer(source: &Path, path: &TreePath) -> bool {
    path.name() == b".git"
        && source
            .join(path.as_path())
            .symlink_metadata()
            .is_ok_and(|meta| !meta.is_dir())
}

/// Copies another run's tree as it was at a snapshot.
pub(super) fn fork(home: &Home, origin: &RunId, which: &Which, run: &RunId) -> Result<Copied, Fault> {
    let begun = Instant::now();
    let parent = Workspace::open(home, origin)?;
    review::settle_state(&parent)?;
    if *which == Which::Last {
        // What the agent left after the last snapshot is part of its work.
        parent.current()?;
    }
    let space = parent.fork(which, run.clone())?;
    if let Some(objects) = recorded_objects(&parent)? {
        record_objects(&space.path(OBJECTS_RECORD), objects.as_path())?;
    }
    held(space, begun)
}

/// Bytes from which on the room that a copy takes is worth a line.
const MUCH: u64 = 256 << 20;

/// What a person should know of the disk that a copy takes. Nothing where files share their extents, and nothing of an
/// overlay, which takes what the agent changes.
fn disk_note(mode: WorkMode, bytes: u64, shares: impl FnOnce() -> Option<bool>) -> Option<String> {
    let whole = match mode {
        WorkMode::Copy | WorkMode::Worktree => true,
        WorkMode::Overlay | WorkMode::InPlace => false,
    };
    if !whole || bytes < MUCH || shares() != Some(false) {
        return None;
    }
    let size = bytes >> 20;
    Some(format!(
        "files share no extents here: this copy takes {size} MiB of disk, and the first contents of the project as much once \
         more, kept once for all its runs; --workspace overlay takes only what changes"
    ))
}

/// Takes hold of a copy that was just made.
fn held(space: Workspace, begun: Instant) -> Result<Copied, Fault> {
    let alive = review::stay_alive(&space)?;
    let tree =
        AbsPath::from_path(&space.tree()).map_err(|error| unusable(&space.tree(), &error.to_string()))?;
    let meta = space.meta()?;
    let (files, bytes) = space.find(&Which::Last)?.totals;
    let made = Made {
        files,
        bytes,
        millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        left_out: u64::try_from(meta.findings.iter().filter_map(Finding::absent).count()).unwrap_or(u64::MAX),
        notes: disk_note(space.mode(), bytes, || shares_extents(&space.tree()))
            .into_iter()
            .chain(notes(&meta))
            .collect(),
        branch: meta.agent_branch,
    };
    let objects = recorded_objects(&space)?;
    Ok(Copied {
        space,
        tree,
        objects,
        made,
        shown: None,
        alive,
        begun: false,
        lives: None,
    })
}

/// The copy's own repository; the host's objects are reached by a place of their own, where they are not copied.
fn give_repository(
    fresh: &Fresh<'_>,
    git: Result<HostGit, Fault>,
    (branch, history): (&BranchName, History<'_>),
    user_configs: &[&Path],
) -> Result<GitMade, Fault> {
    if !fresh.source.join(".git").exists() {
        return Ok(GitMade::default());
    }
    let request = Prepare {
        source: fresh.source,
        tree: fresh.tree,
        scratch: fresh.scratch,
        branch,
        user_configs,
        absent: fresh.absent,
        history,
    };
    let Some(prepared) = prepare(&git?, &request)? else {
        return Ok(GitMade::default());
    };
    if let Some(bind) = prepared.extra_binds().first() {
        // At its own path the directory would cover the copy's: git finds it where the plan mounts it.
        let file = fresh.tree.join(".git/objects/info/alternates");
        std::fs::write(&file, format!("{OBJECTS_INSIDE}\n"))
            .map_err(|error| unusable(&file, &error.to_string()))?;
        let run = fresh.scratch.parent().unwrap_or(fresh.scratch);
        record_objects(&run.join(OBJECTS_RECORD), &bind.path)?;
    }
    Ok(prepared.made(branch))
}

fn record_objects(file: &Path, objects: &Path) -> Result<(), Fault> {
    std::fs::write(file, objects.as_os_str().as_encoded_bytes())
        .map_err(|error| unusable(file, &error.to_string()))
}

fn recorded_objects(space: &Workspace) -> Result<Option<AbsPath>, Fault> {
    let file = space.path(OBJECTS_RECORD);
    match std::fs::read_to_string(&file) {
        Ok(text) => AbsPath::new(text)
            .map(Some)
            .map_err(|error| unusable(&file, &error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(&file, &error.to_string())),
    }
}

/// `<agent>/<feature>`; the agent is the program's name, as far as it can stand in a branch.
pub(super) fn branch(argv: &Argv, feature: &str) -> Result<BranchName, Fault> {
    let program = argv.as_slice().first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or_default();
    let clean: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    let agent = match clean.trim_matches('-') {
        "" => "agent",
        name => name,
    };
    BranchName::of_agent(agent, feature).map_err(|error| {
        Fault::new(
            Code::UsageArgument,
            "the branch cannot be used",
            error.to_string(),
        )
    })
}

/// Where git keeps what a user has set; read for the name and address in commits only.
fn user_configs(place: &Place) -> Vec<PathBuf> {
    let shared = place.config.parent().map(|config| config.join("git/config"));
    shared
        .into_iter()
        .chain([place.home.as_path().join(".gitconfig")])
        .collect()
}

/// What a person should know of the copy.
fn notes(meta: &Meta) -> Vec<String> {
    let told = |finding: &Finding| match &finding.about {
        About::Note(text) => Some(text.clone()),
        _ => None,
    };
    meta.findings.iter().filter_map(told).take(MOST_NOTES).collect()
}

fn unusable(path: &Path, why: &str) -> Fault {
    Fault::new(Code::WorkspaceIo, format!("cannot use {}", path.display()), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_a_large_copy_takes_is_told_where_files_share_none() {
        let note = |mode, bytes, shares| disk_note(mode, bytes, || shares);
        let told = note(WorkMode::Copy, 424 << 20, Some(false));
        assert!(told.is_some_and(|text| text.contains("424 MiB") && text.contains("--workspace overlay")));
        assert!(note(WorkMode::Worktree, MUCH, Some(false)).is_some());
        for (mode, bytes, shares) in [
            (WorkMode::Copy, MUCH, Some(true)),
            (WorkMode::Copy, MUCH, None),
            (WorkMode::Copy, MUCH - 1, Some(false)),
            (WorkMode::Overlay, MUCH, Some(false)),
        ] {
            assert_eq!(note(mode, bytes, shares), None, "{mode:?} {bytes} {shares:?}");
        }
    }
}
