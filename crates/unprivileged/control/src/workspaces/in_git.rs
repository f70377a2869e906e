//! Protected names that git has otherwise than at the start of a run in place: `git update-index --cacheinfo` and a commit make
//! no file, so that the write guard sees no name.
//!
//! **Trust:** the agent has written in the repository by the time it is compared. Nothing is taken back: the record and the
//! receipt name what differs, for a person to look at before the next checkout, commit or push.
use bastle_contract::{AbsPath, Fault, LaunchPlan, NameList, NamePattern, PatternIndex, TreeKind};
use bastle_workspace::git::{HostGit, Moved, RepoState};
use bastle_workspace::path::visible;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long each comparison may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Names that are told.
const MOST_TOLD: usize = 64;

/// The repository as it was at the start.
pub(super) struct Before {
    reading: Receiver<Result<Option<RepoState>, Fault>>,
    state: Option<Result<RepoState, Fault>>,
    git: Option<HostGit>,
    scratch: PathBuf,
}

impl Before {
    /// Begins to read it, beside planning. `None` where the project has no repository.
    pub(super) fn begin(source: &Path, scratch: PathBuf) -> Option<Self> {
        source.join(".git").symlink_metadata().ok()?;
        let (done, reading) = channel();
        let project = source.to_path_buf();
        let thread = std::thread::Builder::new().name("references".to_owned());
        // A thread that cannot be made answers like one that failed.
        drop(thread.spawn(move || drop(done.send(RepoState::read(&project)))));
        Some(Self {
            reading,
            state: None,
            git: HostGit::find().ok(),
            scratch,
        })
    }

    /// The agent starts: what is read from here on is not the start any more.
    pub(super) fn settle(&mut self) {
        self.state = self.reading.recv().ok().and_then(Result::transpose);
    }

    /// What differs, in words; empty where no guarded name does.
    pub(super) fn differences(&self, source: &AbsPath, plan: &LaunchPlan) -> Vec<String> {
        let unclear = |why: String| {
            vec![format!(
                "git could not be compared with the start of the run: {why}"
            )]
        };
        let (state, git) = match (&self.state, &self.git) {
            (None, _) => return Vec::new(),
            (Some(Err(fault)), _) => return unclear(fault.to_string()),
            (Some(Ok(_)), None) => return unclear("git is not installed".to_owned()),
            (Some(Ok(state)), Some(git)) => (state, git),
        };
        match state.moved(git, source.as_path(), &self.scratch, LIMIT) {
            Ok(moved) => told(&moved, &Guarded::of(source, plan)),
            Err(fault) => unclear(fault.to_string()),
        }
    }
}

fn told(moved: &Moved, guarded: &Guarded<'_>) -> Vec<String> {
    let held = moved.paths.iter().filter(|(path, _)| guarded.holds(path));
    let mut told: Vec<String> = held
        .map(|(path, places)| {
            let places: Vec<String> = places.iter().map(|place| visible(place.as_bytes())).collect();
            format!("{} ({})", visible(path), places.join(", "))
        })
        .collect();
    if told.len() > MOST_TOLD {
        let more = told.len() - MOST_TOLD;
        told.truncate(MOST_TOLD);
        told.push(format!("{more} more"));
    }
    let unclear = moved.unclear.iter();
    told.extend(unclear.map(|what| format!("not compared: {}", visible(what.as_bytes()))));
    told
}

/// The names that the write guard holds in the project.
struct Guarded<'a>(Vec<List<'a>>);

struct List<'a> {
    names: &'a NameList,
    patterns: Vec<NamePattern>,
    index: PatternIndex,
    /// The project below the root of the tree, with a slash at its end, or nothing.
    prefix: String,
}

impl<'a> Guarded<'a> {
    fn of(source: &AbsPath, plan: &'a LaunchPlan) -> Self {
        let live = plan.guard.trees.iter().filter(|tree| tree.kind == TreeKind::Live);
        let lists = live.flat_map(|tree| {
            // Where only parts of the project may be written, names in the others are judged as at its top.
            let prefix = match source.relative_to(&tree.root) {
                None | Some("") => String::new(),
                Some(below) => format!("{below}/"),
            };
            [&tree.protect, &tree.hide].map(|names| {
                let patterns: Vec<NamePattern> = names.patterns().cloned().collect();
                List {
                    names,
                    index: PatternIndex::by_last(&patterns),
                    patterns,
                    prefix: prefix.clone(),
                }
            })
        });
        Self(lists.collect())
    }

    fn holds(&self, path: &[u8]) -> bool {
        self.0.iter().any(|list| list.holds(path))
    }
}

impl List<'_> {
    /// Thousands of paths may differ: most are told by the last names of the patterns.
    fn holds(&self, path: &[u8]) -> bool {
        let path = [self.prefix.as_bytes(), path].concat();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends = ends.map(|(at, _)| at).chain([path.len()]);
        let possible = ends.any(|end| {
            let above = &path[..end];
            let name = above.rsplit(|byte| *byte == b'/').next().unwrap_or(above);
            let mut candidates = self.index.candidates(name);
            candidates.any(|at| {
                self.patterns
                    .get(at)
                    .is_some_and(|pattern| pattern.matches(above))
            })
        });
        possible && self.names.covers(&path)
    }
}
