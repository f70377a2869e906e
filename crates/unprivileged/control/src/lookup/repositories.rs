//! Repositories that a `.git` leads to which is no directory: of a work tree, of a submodule, or set aside by name.
//!
//! **Trust:** the pointer is a file of the project. It is read without following a link and up to a bound; where it leads
//! matters only if that lies in the searched tree, and then it is held like a `.git` directory.
use super::{At, Scope, Search, unusable};
use bastle_contract::{AbsPath, Fault};
use rustix::fs::{FileType, Mode, OFlags};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The longest pointer: a path and a word before it.
const LONGEST: u64 = 8192;
/// Repositories that are looked at.
const MOST: usize = 256;

/// Directories with a name `HEAD`, at most.
const MOST_HEADS: usize = 1024;
/// Directories that are listed, at most.
const MOST_DIRECTORIES: usize = 1 << 16;
/// What is held beside a `HEAD`.
const BESIDE_HEAD: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];

/// Lists a directory in which the host could make a name that must be covered. Git makes its own names in its store.
pub(super) fn note_directory(search: &mut Search<'_>, at: At<'_>) {
    let listed = search.host && !search.tree.live.is_empty();
    if !listed || search.facts.directories.len() >= MOST_DIRECTORIES {
        return;
    }
    let below = at.relative.strip_suffix(b"/").unwrap_or(at.relative);
    let store = b".git/objects/";
    if at.relative.windows(store.len()).any(|part| part == store) {
        return;
    }
    let path = match below {
        b"" => Some(search.root.clone()),
        _ => search.path(below),
    };
    search.facts.directories.extend(path);
}

/// Notes what makes a directory a repository, and other places that have git objects.
pub(super) fn note(
    search: &mut Search<'_>,
    directory: &OwnedFd,
    at: At<'_>,
    below: &[u8],
    kind: FileType,
) -> Result<(), Fault> {
    if !search.host || search.tree.live.is_empty() || at.scope == Scope::Hidden {
        return Ok(());
    }
    let name = &below[at.relative.len()..];
    if name.eq_ignore_ascii_case(b"HEAD") && kind != FileType::Directory {
        let above = at.relative.strip_suffix(b"/").unwrap_or_default();
        let path = match above {
            b"" => Some(search.root.clone()),
            _ => search.path(above),
        };
        let Some(path) = path.filter(|_| search.facts.heads.len() < MOST_HEADS) else {
            let why = format!(
                "more than {MOST_HEADS} directories have a HEAD, or one has a name that is not UTF-8"
            );
            return Err(unusable(search.tree.root.as_str(), &why)
                .help("bastle run --workspace copy -- CMD works on a copy, which is reviewed"));
        };
        search.facts.heads.push(path);
    }
    let nested = name.eq_ignore_ascii_case(b".git") && kind == FileType::Directory && !at.relative.is_empty();
    let bundle = name.ends_with(b".bundle") && kind == FileType::RegularFile && is_bundle(directory, name);
    if nested || bundle {
        let path = search.path(below);
        search.facts.stores.extend(path);
    }
    Ok(())
}

fn is_bundle(directory: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
        return false;
    };
    let mut start = Vec::new();
    let read = std::fs::File::from(file).take(16).read_to_end(&mut start);
    read.is_ok() && start.starts_with(b"# v") && start.ends_with(b" git bundle\n")
}

/// Existing names beside every `HEAD` are mounted read-only. Those with objects and references are told.
pub(super) fn hold_heads(search: &mut Search<'_>) -> Result<(), Fault> {
    let root = search.root.clone();
    for directory in search.facts.heads.clone() {
        let Some(below) = directory.relative_to(&root) else {
            continue;
        };
        // A copy stands in the project's place, with a repository of its own.
        if search
            .view
            .project()
            .is_some_and(|project| directory.is_within(project))
        {
            continue;
        }
        for path in BESIDE_HEAD.iter().filter_map(|name| directory.join(name).ok()) {
            let there = path.as_path().symlink_metadata();
            if there.is_ok_and(|meta| !meta.is_symlink()) && !search.facts.protected.contains(&path) {
                search.facts.protected.push(path);
            }
        }
        let in_git = below.split('/').any(|part| part.eq_ignore_ascii_case(".git"));
        let has = |name: &str| directory.as_path().join(name).is_dir();
        if !in_git && has("objects") && has("refs") {
            search.facts.stores.push(directory);
        }
    }
    Ok(())
}

/// Whether a name is a `.git` that leads elsewhere. Only what the agent can write must be held.
pub(super) fn is_pointer(search: &Search<'_>, below: &[u8], kind: FileType) -> bool {
    let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
    name.eq_ignore_ascii_case(b".git") && kind != FileType::Directory && !search.tree.live.is_empty()
}

/// Notes the repository that a pointer leads to, with what is in it that must be held.
pub(super) fn follow(search: &mut Search<'_>, pointer: &AbsPath, below: &[u8]) {
    let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
    if !name.eq_ignore_ascii_case(b".git") || search.facts.repositories.len() >= MOST {
        return;
    }
    let Some(directory) = target(pointer.as_path()) else {
        return;
    };
    let common = read(&directory.join("commondir"))
        .and_then(|text| std::fs::canonicalize(directory.join(text.trim_end())).ok());
    for directory in [Some(directory), common].into_iter().flatten() {
        let Ok(directory) = AbsPath::from_path(&directory) else {
            continue;
        };
        let known = search.facts.repositories.contains(&directory);
        if known || !directory.is_within(&search.root) || directory == search.root {
            continue;
        }
        let held: Vec<AbsPath> = names(search)
            .iter()
            .filter_map(|name| directory.join(name).ok())
            .filter(|path| {
                path.as_path()
                    .symlink_metadata()
                    .is_ok_and(|meta| !meta.is_symlink())
            })
            .collect();
        search.facts.protected.extend(held);
        search.facts.repositories.push(directory);
    }
}

/// Names below a repository that are held one by one; those with a wildcard are held by the write guard alone.
fn names(search: &Search<'_>) -> Vec<String> {
    let all = search.tree.protect.patterns().chain(search.tree.live.patterns());
    all.filter_map(|pattern| pattern.as_str().strip_prefix("**/.git/"))
        .filter(|name| !name.contains(['*', '?']))
        .map(str::to_owned)
        .collect()
}

/// Where a `.git` leads.
fn target(pointer: &Path) -> Option<PathBuf> {
    let real = if pointer.symlink_metadata().ok()?.is_symlink() {
        std::fs::canonicalize(pointer).ok()?
    } else {
        let text = read(pointer)?;
        let path = text.strip_prefix("gitdir:")?.trim();
        std::fs::canonicalize(pointer.parent()?.join(path)).ok()?
    };
    real.is_dir().then_some(real)
}

fn read(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}
