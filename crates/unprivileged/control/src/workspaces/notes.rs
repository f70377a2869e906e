//! What a person is told in the first lines of a run about the project and the command line.
//!
//! **Trust:** names come from the project; a front end shows them escaped.
use super::history::{self, Search};
use super::{Work, WorkMode, secretive};
use crate::load::Loaded;
use crate::name_watch::most_watched;
use crate::place::Place;
use bastle_contract::{AbsPath, Code, Fault, OpenScope, Opening};
use bastle_policy::{Effective, FsFacts};
use bastle_workspace::git::HostGit;

/// Links that are named.
const SHOWN: usize = 3;

/// Begins the search of the project's own history where the agent gets the project itself.
pub(super) fn search_in_place(place: &Place, loaded: &Loaded) -> Option<Search> {
    let source = place.workspace.as_path();
    if !source.join(".git").exists() {
        return None;
    }
    let git = HostGit::find().ok()?;
    secretive::sweep(&place.state);
    let patterns = bastle_policy::hidden_below(&loaded.effective, &place.workspace);
    Some(Search::begin_in_place(
        &git,
        source,
        &patterns,
        place.state.clone(),
    ))
}

impl Work {
    /// Collects what the first lines say, once the project was looked at.
    pub(crate) fn tell(&mut self, effective: &Effective, fs: &FsFacts) {
        self.notes.extend(opened(effective));
        if self.mode == WorkMode::InPlace {
            let search = self.search.take();
            self.notes
                .extend(search.into_iter().flat_map(|search| search.notes(self.mode)));
            let below = |path: &AbsPath| path.relative_to(&self.source).map(str::to_owned);
            let stores: Vec<String> = fs.stores.iter().filter_map(below).collect();
            self.notes.extend(history::others_in_place(&stores));
        }
        self.notes.extend(led(fs));
        self.notes.extend(unwatched(fs.directories.len()));
    }
}

/// An exception that leaves nothing of the floor in the project.
fn opened(effective: &Effective) -> impl Iterator<Item = String> {
    let project = &effective.surroundings.workspace;
    let whole = |open: &&Opening| open.scope == OpenScope::Tree && project.is_within(&open.path);
    effective.unprotect.iter().filter(whole).map(|open| {
        format!(
            "THE WHOLE FLOOR IS OPEN IN THE PROJECT: --unprotect {open} shows every hidden name and opens every protected one"
        )
    })
}

/// Directories beyond the limit: what the host makes in them is not covered.
fn unwatched(directories: usize) -> Option<String> {
    let most = most_watched();
    (directories > most).then(|| {
        format!(
            "the project has more than {most} directories, the most that are watched: a hidden name that the host makes in \
             one of the others during the run can be read; --workspace copy hides it"
        )
    })
}

/// Names that are held because a held link leads to them.
fn led(fs: &FsFacts) -> Option<String> {
    let mut names: Vec<String> = fs
        .led
        .iter()
        .map(|led| format!("{} (by {})", led.at, led.link))
        .collect();
    names.dedup();
    let first = names.get(..SHOWN).unwrap_or(&names).join(", ");
    match names.len() {
        0 => None,
        count if count > SHOWN => Some(format!(
            "held because links lead there: {first} and {} more",
            count - SHOWN
        )),
        _ => Some(format!("held because links lead there: {first}")),
    }
}

/// Refuses links in what the command line opens, before a copy is made: in a copy the link may lead nowhere.
pub(crate) fn refuse_links(effective: &Effective) -> Result<(), Fault> {
    for open in &effective.unprotect {
        let path = open.path.as_path();
        let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        let real = std::fs::canonicalize(path).ok();
        if is_link || real.as_ref().is_some_and(|real| real != path) {
            let leads = real.map_or_else(|| "nowhere".to_owned(), |real| real.display().to_string());
            let why = format!("it is a symbolic link, or lies behind one: it leads to {leads}");
            return Err(Fault::new(
                Code::UsageArgument,
                format!("--unprotect {open} cannot be used"),
                why,
            )
            .help("name the file itself, if you mean that one"));
        }
    }
    Ok(())
}
