//! Repositories that a `.git` leads to which is no directory: of a work tree, of a submodule, or set aside by name.
//!
//! **Trust:** the pointer is a file of the project. It is read without following a link and up to a bound; where it leads
//! matters only if that lies in the searched tree, and then it is held like a `.git` directory.
use super::Search;
use bastle_contract::AbsPath;
use rustix::fs::{FileType, Mode, OFlags};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest pointer: a path and a word before it.
const LONGEST: u64 = 8192;
/// Repositories that are looked at.
const MOST: usize = 256;

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
    let all = search.tree.protect.patterns().chain(&search.tree.live);
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
