//! Looking up on disk what the planner needs to know. Reads names and kinds only, never the content of a file.
mod folding;
mod layered;
mod links;
mod repositories;
#[cfg(test)]
mod tests;
mod view;

use bastle_contract::{AbsPath, Code, Fault, NameList};
use bastle_policy::{FsFacts, Needs, PathFact, PathKind, TreeNeed};
use links::Links;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
pub(crate) use view::View;

/// Directories in which programs named by a rule are looked for.
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// The host's own links at the root of a merged-/usr system.
const ROOT_LINKS: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Most files with a link elsewhere that are held read-only one by one.
const MOST_LINKED: usize = 256;
/// Deepest directory that is searched: beyond it a tree was made to be deep.
const DEEPEST: usize = 256;

/// Answers the planner's needs.
pub fn look_up(needs: &Needs) -> Result<FsFacts, Fault> {
    look_up_in(needs, View::Host)
}

/// Answers the planner's needs as they will be inside.
pub(crate) fn look_up_in(needs: &Needs, view: View<'_>) -> Result<FsFacts, Fault> {
    let mut facts = FsFacts {
        root_links: root_links(),
        programs: programs(&needs.programs),
        copied: view.project().cloned(),
        ..FsFacts::default()
    };
    let mut parents = Parents::default();
    for path in &needs.paths {
        facts
            .paths
            .insert(path.clone(), path_fact(path, view, &mut parents)?);
    }
    for tree in &needs.trees {
        search(tree, view, &mut facts, &mut parents)?;
    }
    Ok(facts)
}

/// Directories whose symlinks were followed already: most paths of a policy lie side by side in a few.
#[derive(Default)]
struct Parents(BTreeMap<PathBuf, Option<PathBuf>>);

impl Parents {
    /// `path` on the host with its symlinks followed, and whether it is a directory; `None`: there is none.
    fn find(&mut self, path: &Path) -> Option<(PathBuf, bool)> {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let real = match self.0.get(parent) {
                Some(known) => known,
                None => self
                    .0
                    .entry(parent.to_path_buf())
                    .or_insert_with(|| std::fs::canonicalize(parent).ok()),
            };
            let at = real.as_ref()?.join(name);
            let meta = at.symlink_metadata().ok()?;
            if !meta.is_symlink() {
                return Some((at, meta.is_dir()));
            }
        }
        let real = std::fs::canonicalize(path).ok()?;
        let meta = real.symlink_metadata().ok()?;
        Some((real, meta.is_dir()))
    }
}

fn root_links() -> Vec<(AbsPath, String)> {
    let link = |path: &&'static str| {
        let target = std::fs::read_link(path).ok()?;
        Some((AbsPath::new(*path).ok()?, target.to_str()?.to_owned()))
    };
    ROOT_LINKS.iter().filter_map(link).collect()
}

fn programs(names: &[String]) -> Vec<AbsPath> {
    let places = |name: &String| {
        let name = name.clone();
        PROGRAM_DIRECTORIES
            .iter()
            .filter_map(move |directory| std::fs::canonicalize(Path::new(directory).join(&name)).ok())
    };
    let mut found: Vec<AbsPath> = names
        .iter()
        .flat_map(places)
        .filter_map(|path| AbsPath::from_path(&path).ok())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn path_fact(path: &AbsPath, view: View<'_>, parents: &mut Parents) -> Result<PathFact, Fault> {
    let found = match view {
        View::Host | View::Layered { .. } => parents.find(path.as_path()),
        View::Copy { .. } => view.resolve(path.as_path()).and_then(|resolved| {
            let meta = std::fs::symlink_metadata(view.on_disk(&resolved)).ok()?;
            Some((resolved, meta.is_dir()))
        }),
    };
    let Some((resolved, is_directory)) = found else {
        return Ok(PathFact {
            resolved: path.clone(),
            kind: PathKind::Missing,
        });
    };
    let resolved =
        AbsPath::from_path(&resolved).map_err(|error| unusable(path.as_str(), &error.to_string()))?;
    let kind = if is_directory {
        PathKind::Dir
    } else {
        PathKind::File
    };
    Ok(PathFact { resolved, kind })
}

/// What a search keeps in mind.
struct Search<'a> {
    tree: &'a TreeNeed,
    view: View<'a>,
    /// The tree's root with symlinks resolved: what is mounted, and where.
    root: AbsPath,
    facts: &'a mut FsFacts,
    /// Files with more than one link: how many were seen here, of how many.
    linked: BTreeMap<(u64, u64), (u64, u64, Vec<AbsPath>)>,
    /// Other names of such files in protected directories, which no other name needs to hold read-only.
    held: Vec<((u64, u64), AbsPath)>,
    /// Hidden files that have another name.
    shared: BTreeSet<(u64, u64)>,
    /// Whether the host's own tree is searched: in a copy and below a layer no hidden name exists.
    host: bool,
    /// Whether the agent may write somewhere in it.
    writable: bool,
    probe: folding::Probe,
    links: Links,
}

/// What of a directory matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Every name.
    All,
    /// It is protected as a whole, so nothing in it can be written: what is hidden there must be covered all the same.
    Hidden,
}

/// A directory that is searched.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    /// The path below the root, with a slash at its end where there is one.
    relative: &'a [u8],
    depth: usize,
    scope: Scope,
}

/// What the policy says about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// Covered, with all that is below it.
    Hidden,
    /// Read-only, with all that is below it.
    Protected,
    /// Neither; what is below it is judged by itself.
    Open,
}

impl Search<'_> {
    /// The absolute path of a name, which a plan can only carry where it is UTF-8.
    fn path(&self, below: &[u8]) -> Option<AbsPath> {
        self.root.join(std::str::from_utf8(below).ok()?).ok()
    }

    fn is_live_name(&self, below: &[u8]) -> bool {
        self.tree.live.matches(below)
    }
}

/// Finds every existing name that the tree's patterns hide or protect, and files that have a link outside it.
fn search(tree: &TreeNeed, view: View<'_>, facts: &mut FsFacts, parents: &mut Parents) -> Result<(), Fault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolved = path_fact(&tree.root, view, parents)?.resolved;
    let root = match rustix::fs::open(view.on_disk(resolved.as_path()), flags, Mode::empty()) {
        Ok(root) => root,
        // A single file was granted, or a place that does not exist: the planner says so.
        Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(unusable(tree.root.as_str(), &error.to_string())),
    };
    facts.hidden.extend(elsewhere_in(&resolved, &tree.hide, view));
    facts
        .protected
        .extend(elsewhere_in(&resolved, &tree.protect, view));
    let mut search = Search {
        tree,
        view,
        host: view.project().is_none_or(|project| !resolved.is_within(project)),
        writable: !tree.live.is_empty(),
        probe: folding::Probe::default(),
        links: Links::default(),
        root: resolved,
        facts,
        linked: BTreeMap::new(),
        held: Vec::new(),
        shared: BTreeSet::new(),
    };
    match layered::place(&search) {
        Some(below) => layered::names(&mut search, &below, "")?,
        None => {
            let top = At {
                relative: b"",
                depth: 0,
                scope: Scope::All,
            };
            walk(&mut search, root, top)?;
        }
    }
    links::follow(&mut search)?;
    repositories::hold_heads(&mut search)?;
    let elsewhere = finish(search);
    if elsewhere.len() > MOST_LINKED {
        let what = format!(
            "{} files in {} have a hard link outside it",
            elsewhere.len(),
            tree.root
        );
        let why = "writing one would write a file outside the workspace";
        return Err(Fault::new(Code::WorkspaceLinks, what, why)
            .help("copy the tree (cp -r breaks the links) and work on the copy"));
    }
    // Held read-only: the agent can replace such a file, but not write the one it shares.
    facts.protected.extend(elsewhere);
    Ok(())
}

/// Ends a search: other names of hidden files are hidden. Gives the files with a link elsewhere.
fn finish(search: Search<'_>) -> Vec<AbsPath> {
    let Search {
        mut linked,
        held,
        facts,
        shared,
        ..
    } = search;
    let also = held.into_iter().filter(|(file, _)| shared.contains(file));
    facts.hidden.extend(also.map(|(_, path)| path));
    // Whatever it is called, it is what the hidden name hides.
    for file in &shared {
        facts
            .hidden
            .extend(linked.remove(file).into_iter().flat_map(|(_, _, paths)| paths));
    }
    linked
        .into_values()
        .filter(|(seen, links, _)| seen < links)
        .flat_map(|(_, _, paths)| paths)
        .collect()
}

/// Where exact names lead when a symlink is on their way: what a person wrote is the file, not the spelling.
pub(crate) fn elsewhere_spelled(root: &AbsPath, names: &NameList) -> Vec<AbsPath> {
    elsewhere_in(root, names, View::Host)
}

fn elsewhere_in(root: &AbsPath, names: &NameList, view: View<'_>) -> Vec<AbsPath> {
    let exact = names
        .patterns()
        .filter(|name| !name.as_str().contains(['*', '?']));
    let written = exact.filter_map(|name| root.join(name.as_str()).ok());
    written
        .filter_map(|path| {
            let real = AbsPath::from_path(&view.resolve(path.as_path())?).ok()?;
            (real != path && real.is_within(root)).then_some(real)
        })
        .collect()
}

fn walk(search: &mut Search<'_>, directory: OwnedFd, at: At<'_>) -> Result<(), Fault> {
    let shown = format!("{}/{}", search.tree.root, String::from_utf8_lossy(at.relative));
    if at.depth > DEEPEST {
        let why = "the directory is nested too deeply to be searched for hidden names";
        return Err(unusable(&shown, why));
    }
    folding::refuse_directory(search, &directory, at)?;
    repositories::note_directory(search, at);
    let entries = Dir::read_from(&directory).map_err(|error| unusable(&shown, &error.to_string()))?;
    for entry in entries {
        let entry = entry.map_err(|error| unusable(&shown, &error.to_string()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        folding::refuse_twin(search, &directory, at, name, entry.file_type())?;
        visit(search, &directory, at, name, entry.file_type())?;
    }
    Ok(())
}

fn visit(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    at: At<'_>,
    name: &CStr,
    kind: FileType,
) -> Result<(), Fault> {
    let below = [at.relative, name.to_bytes()].concat();
    let judged = judge(search, &below, kind, at.scope)?;
    repositories::note(search, directory, at, &below, kind)?;
    match (kind, judged) {
        (FileType::Symlink, _) => {
            links::note(search, &below, judged, at.scope);
            Ok(())
        }
        (FileType::RegularFile, _) => {
            linked(search, directory, name, &below, (judged, at.scope));
            Ok(())
        }
        (FileType::Directory, Judged::Open) => descend(search, directory, name, &below, at),
        // Protection hides nothing: a hidden name in a protected directory needs a cover of its own.
        (FileType::Directory, Judged::Protected) if search.host => {
            let scope = Scope::Hidden;
            descend(search, directory, name, &below, At { scope, ..at })
        }
        _ => Ok(()),
    }
}

fn descend(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    name: &CStr,
    below: &[u8],
    at: At<'_>,
) -> Result<(), Fault> {
    let relative = [below, b"/"].concat();
    let path = search.path(below);
    if let Some(path) = &path
        && layered::is_project(search, path)
    {
        return layered::names(search, "", &String::from_utf8_lossy(&relative));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match search.view {
        // A copy covers the project's place in a directory above it.
        View::Copy { project, tree } if path.as_ref() == Some(project) => {
            rustix::fs::open(tree, flags, Mode::empty())
        }
        View::Copy { .. } | View::Host | View::Layered { .. } => {
            rustix::fs::openat(directory, name, flags, Mode::empty())
        }
    };
    match opened {
        Ok(inner) => walk(
            search,
            inner,
            At {
                relative: &relative,
                depth: at.depth + 1,
                scope: at.scope,
            },
        ),
        // Unreadable for the invoking user: then for the agent too. Gone meanwhile: nothing to find.
        Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(error) => Err(unusable(&String::from_utf8_lossy(below), &error.to_string())),
    }
}

/// Notes a file with more than one link.
fn linked(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    name: &CStr,
    below: &[u8],
    (judged, scope): (Judged, Scope),
) {
    let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return;
    };
    if links(stat.st_nlink) < 2 {
        return;
    }
    let file = (stat.st_dev, stat.st_ino);
    let path = search.path(below);
    match (judged, scope, path) {
        (Judged::Hidden, _, _) => {
            search.shared.insert(file);
        }
        (Judged::Open, Scope::All, Some(path)) => {
            let fresh = || (0, links(stat.st_nlink), Vec::new());
            let seen = search.linked.entry(file).or_insert_with(fresh);
            seen.0 += 1;
            seen.2.push(path);
        }
        // Not among those seen: through its open names such a file could be written.
        (Judged::Protected, _, Some(path)) | (Judged::Open, Scope::Hidden, Some(path)) => {
            search.held.push((file, path));
        }
        (Judged::Open | Judged::Protected, _, None) => {}
    }
}

/// Notes a name that is hidden or protected.
fn judge(search: &mut Search<'_>, below: &[u8], kind: FileType, scope: Scope) -> Result<Judged, Fault> {
    let live = search.host;
    let judged = if search.tree.hide.matches(below) {
        Judged::Hidden
    } else if scope == Scope::All
        && (search.tree.protect.matches(below)
            || (live && search.is_live_name(below))
            || (live && repositories::is_pointer(search, below, kind)))
    {
        Judged::Protected
    } else {
        return Ok(Judged::Open);
    };
    let Some(path) = search.path(below) else {
        // A mount point must have a name the plan can carry; other odd names need none.
        return Err(unusable(
            &String::from_utf8_lossy(below),
            "a hidden or protected name is not UTF-8",
        ));
    };
    if judged == Judged::Protected {
        repositories::follow(search, &path, below);
    }
    // A link cannot be covered: where it leads can.
    if kind != FileType::Symlink {
        match judged {
            Judged::Hidden => search.facts.hidden.push(path),
            Judged::Protected | Judged::Open => search.facts.protected.push(path),
        }
    }
    Ok(judged)
}

/// The number of links has another width on each architecture.
fn links(count: impl Into<u64>) -> u64 {
    count.into()
}

fn unusable(path: &str, why: &str) -> Fault {
    Fault::new(Code::WorkspaceInvalid, format!("cannot look at {path}"), why)
}
