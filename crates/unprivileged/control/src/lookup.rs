//! Looking up on disk what the planner needs to know. Reads names and kinds only, never the content of a file.
mod layered;
mod repositories;
#[cfg(test)]
mod tests;

use bastle_contract::{AbsPath, Code, Fault, NameList, PatternIndex};
use bastle_policy::{FsFacts, Needs, PathFact, PathKind, TreeNeed};
use bastle_workspace::manifest::Manifest;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

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
/// Symlinks followed on one way, as by the kernel.
const MOST_LINKS: usize = 40;
/// Deepest directory that is searched: beyond it a tree was made to be deep.
const DEEPEST: usize = 256;

/// How a path that the agent will see is found on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View<'a> {
    /// At the same path.
    Host,
    /// The project's paths in a copy of it, which will stand in the project's place.
    Copy {
        /// The project.
        project: &'a AbsPath,
        /// The copy.
        tree: &'a Path,
    },
    /// The project below a layer. Its names were all looked at when the layer was made: they are not looked at again.
    Layered {
        /// The project.
        project: &'a AbsPath,
        /// What the overlay shows.
        shown: &'a Manifest,
    },
}

impl View<'_> {
    /// The project, where another tree stands in its place.
    fn project(&self) -> Option<&AbsPath> {
        match self {
            Self::Host => None,
            Self::Copy { project, .. } | Self::Layered { project, .. } => Some(project),
        }
    }

    /// Where `path` is on disk.
    fn on_disk(&self, path: &Path) -> PathBuf {
        match self {
            Self::Host | Self::Layered { .. } => path.to_path_buf(),
            Self::Copy { project, tree } => match path.strip_prefix(project.as_path()) {
                Ok(below) if below.as_os_str().is_empty() => tree.to_path_buf(),
                Ok(below) => tree.join(below),
                Err(_) => path.to_path_buf(),
            },
        }
    }

    /// `path` with its symlinks followed as they will be inside. A link in a copy that names the project by its whole
    /// path stays in the copy: the kernel, asked on the host, would follow it into the project.
    pub(crate) fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let Self::Copy { project, .. } = self else {
            return std::fs::canonicalize(path).ok();
        };
        if !path.starts_with(project.as_path()) {
            let real = std::fs::canonicalize(path).ok()?;
            if !real.starts_with(project.as_path()) {
                return Some(real);
            }
        }
        let mut left: Vec<PathBuf> = parts(path);
        let (mut done, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop() {
            if part.as_os_str() == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            let at = self.on_disk(&next);
            if !at.symlink_metadata().ok()?.is_symlink() {
                done = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            let target = std::fs::read_link(&at).ok()?;
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            left.extend(parts(&target));
        }
        Some(done)
    }
}

/// The components of a path, last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}

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
    /// Hidden files that have another name.
    shared: BTreeSet<(u64, u64)>,
    /// The names that are protected where the tree is the host's own.
    live: PatternIndex,
}

impl Search<'_> {
    fn is_live_name(&self, below: &[u8]) -> bool {
        let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
        let mut candidates = self.live.candidates(name);
        candidates.any(|at| {
            self.tree
                .live
                .get(at)
                .is_some_and(|pattern| pattern.matches(below))
        })
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
        root: resolved,
        facts,
        linked: BTreeMap::new(),
        shared: BTreeSet::new(),
        live: PatternIndex::by_last(&tree.live),
    };
    match layered::place(&search) {
        Some(below) => layered::names(&mut search, &below, "")?,
        None => walk(&mut search, root, "", 0)?,
    }
    let Search {
        mut linked,
        facts,
        shared,
        ..
    } = search;
    // Whatever it is called, it is what the hidden name hides.
    for file in &shared {
        facts
            .hidden
            .extend(linked.remove(file).into_iter().flat_map(|(_, _, paths)| paths));
    }
    let elsewhere: Vec<AbsPath> = linked
        .into_values()
        .filter(|(seen, links, _)| seen < links)
        .flat_map(|(_, _, paths)| paths)
        .collect();
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

fn walk(search: &mut Search<'_>, directory: OwnedFd, relative: &str, depth: usize) -> Result<(), Fault> {
    let shown = |name: &str| format!("{}/{relative}{name}", search.tree.root);
    if depth > DEEPEST {
        return Err(unusable(
            &shown(""),
            "the directory is nested too deeply to be searched for hidden names",
        ));
    }
    let entries = Dir::read_from(&directory).map_err(|error| unusable(&shown(""), &error.to_string()))?;
    for entry in entries {
        let entry = entry
            .map_err(|error| unusable(&format!("{}/{relative}", search.tree.root), &error.to_string()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        visit(search, &directory, relative, name, entry.file_type(), depth)?;
    }
    Ok(())
}

fn visit(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    relative: &str,
    name: &std::ffi::CStr,
    kind: FileType,
    depth: usize,
) -> Result<(), Fault> {
    let below = [relative.as_bytes(), name.to_bytes()].concat();
    let Some(text) = judge(search, &below, kind)? else {
        if kind == FileType::RegularFile
            && search.tree.hide.matches(&below)
            && let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            && links(stat.st_nlink) > 1
        {
            search.shared.insert((stat.st_dev, stat.st_ino));
        }
        return Ok(());
    };
    match kind {
        FileType::Directory if layered::is_project(search, &text) => {
            layered::names(search, "", &format!("{text}/"))
        }
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = match search.view {
                // A copy covers the project's place in a directory above it.
                View::Copy { project, tree } if search.root.join(&text).is_ok_and(|at| at == *project) => {
                    rustix::fs::open(tree, flags, Mode::empty())
                }
                View::Copy { .. } | View::Host | View::Layered { .. } => {
                    rustix::fs::openat(directory, name, flags, Mode::empty())
                }
            };
            match opened {
                Ok(inner) => walk(search, inner, &format!("{text}/"), depth + 1),
                // Unreadable for the invoking user: then for the agent too. Gone meanwhile: nothing to find.
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
                Err(error) => Err(unusable(&text, &error.to_string())),
            }
        }
        FileType::RegularFile => {
            let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                return Ok(());
            };
            if stat.st_nlink > 1
                && let Ok(path) = search.root.join(&text)
            {
                let seen = search.linked.entry((stat.st_dev, stat.st_ino)).or_insert((
                    0,
                    links(stat.st_nlink),
                    Vec::new(),
                ));
                seen.0 += 1;
                seen.2.push(path);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Notes a name that is hidden or protected; `None` then: what is below it is no business of anybody. Else its text.
fn judge(search: &mut Search<'_>, below: &[u8], kind: FileType) -> Result<Option<String>, Fault> {
    let hidden = search.tree.hide.matches(below);
    let live = search.view.project().is_none_or(|at| !search.root.is_within(at));
    let protected = search.tree.protect.matches(below)
        || (live && search.is_live_name(below))
        || (live && repositories::is_pointer(search, below, kind));
    let text = match std::str::from_utf8(below) {
        Ok(text) => text.to_owned(),
        // A mount point must have a name the plan can carry; other odd names need none.
        Err(_) if hidden || protected => {
            return Err(unusable(
                &String::from_utf8_lossy(below),
                "a hidden or protected name is not UTF-8",
            ));
        }
        Err(_) => String::from_utf8_lossy(below).into_owned(),
    };
    if !hidden && !protected {
        return Ok(Some(text));
    }
    let path = search
        .root
        .join(&text)
        .map_err(|error| unusable(&text, &error.to_string()))?;
    if protected {
        repositories::follow(search, &path, below);
    }
    // A symlink is not followed: covering its target is the business of the target's own name.
    if kind != FileType::Symlink {
        if hidden {
            search.facts.hidden.push(path)
        } else {
            search.facts.protected.push(path)
        }
    }
    Ok(None)
}

/// The number of links has another width on each architecture.
fn links(count: impl Into<u64>) -> u64 {
    count.into()
}

fn unusable(path: &str, why: &str) -> Fault {
    Fault::new(Code::WorkspaceInvalid, format!("cannot look at {path}"), why)
}
