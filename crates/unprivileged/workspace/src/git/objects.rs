//! Bringing the host's objects into the copy's own repository.
//!
//! **Trust:** objects are copied or cloned, never hard-linked: the sandbox can write its own files, and a hard
//! link would let it write the host's objects. Object files are named by hash; nothing else is copied.
use super::{Call, HostGit, HostRepo, Scratch, unusable};
use bastle_contract::Fault;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

/// Above this many bytes the objects are bound read-only instead of copied: a tenth of a second of reading, hashing and
/// writing, at every start.
const MAX_COPIED: u64 = 64 << 20;
/// Object files visited; a repository past its housekeeping has some thousands.
const MAX_FILES: usize = 1_000_000;

/// How the copy reaches the host's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// They are in the copy.
    Copied,
    /// They are reached through a read-only bind of the host's directory.
    Bound,
}

/// Copies the objects when they are few enough, otherwise leaves them to a read-only bind.
pub(super) fn bring(
    git: &HostGit,
    repo: &HostRepo,
    to: &Path,
    scratch_parent: &Path,
) -> Result<Transfer, Fault> {
    let from = repo.objects();
    let fail = |error: io::Error| unusable(&from, error.to_string());
    if repo.borrows {
        // Objects of another repository come along only as far as this one's head reaches.
        pack_reachable(git, repo, to, scratch_parent)?;
        return Ok(Transfer::Copied);
    }
    let Some(files) = list(&from, MAX_COPIED).map_err(fail)? else {
        return Ok(Transfer::Bound);
    };
    copy_all(&from, to, files).map_err(fail)?;
    Ok(Transfer::Copied)
}

/// Rounds of looking again: housekeeping writes a pack once and then removes what is in it, so that a second round finds
/// what the first one missed.
const MAX_ROUNDS: usize = 8;

/// Copies what was listed. What goes away meanwhile is in a pack that came into being before, so the list is read again
/// until nothing of it is missing.
fn copy_all(from: &Path, to: &Path, mut files: Vec<ObjectFile>) -> io::Result<()> {
    let mut copied = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let mut missing = false;
        for ObjectFile { folder, name, .. } in files {
            let place = Path::new(&folder).join(name);
            if copied.contains(&place) {
                continue;
            }
            std::fs::create_dir_all(to.join(&folder))?;
            match copy_file(&from.join(&place), &to.join(&place)) {
                Ok(()) => drop(copied.insert(place)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing = true,
                Err(error) => return Err(error),
            }
        }
        if !missing {
            return Ok(());
        }
        files = list(from, u64::MAX)?.unwrap_or_default();
    }
    Err(io::Error::other(
        "objects are moved faster than they can be copied; wait for git's housekeeping to end",
    ))
}

struct ObjectFile {
    folder: String,
    name: String,
}

/// Loose objects and packs, by their names alone. Packs last: what is no longer loose by then is in one of them. `None` as
/// soon as they are larger than `most` together: nobody needs the names of those that are not copied.
fn list(objects: &Path, most: u64) -> io::Result<Option<Vec<ObjectFile>>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(objects)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(folder) = name.to_str().filter(|name| is_hex(name, 2))
            && entry.file_type()?.is_dir()
        {
            folders.push(folder.to_owned());
        }
    }
    folders.push("pack".to_owned());
    let mut files = Vec::new();
    let mut size = 0_u64;
    for folder in folders {
        let Some(entries) = there(std::fs::read_dir(objects.join(&folder)))? else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let wanted = if folder == "pack" {
                is_pack_name(&name)
            } else {
                is_hex(&name, 38) || is_hex(&name, 62)
            };
            let Some(meta) = there(entry.metadata())? else {
                continue;
            };
            if wanted && meta.is_file() {
                files.push(ObjectFile {
                    folder: folder.clone(),
                    name,
                });
                size = size.saturating_add(meta.len());
            }
            if size > most {
                return Ok(None);
            }
            if files.len() > MAX_FILES {
                return Err(io::Error::other(
                    "more object files than any repository has; run git gc",
                ));
            }
        }
    }
    Ok(Some(files))
}

/// What is gone by now is nothing, and no error.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_pack_name(name: &str) -> bool {
    let Some((stem, kind)) = name.rsplit_once('.') else {
        return false;
    };
    let hash = stem
        .strip_prefix("pack-")
        .is_some_and(|hash| is_hex(hash, 40) || is_hex(hash, 64));
    hash && matches!(kind, "pack" | "idx" | "rev" | "bitmap" | "promisor" | "mtimes")
}

/// Clones the blocks where the file system can, otherwise copies the bytes.
pub(super) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::open(from, flags, Mode::empty())?);
    if !source.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut target = File::create_new(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        io::copy(&mut source, &mut target)?;
    }
    Ok(())
}

/// Packs what the head reaches into one pack of the copy.
fn pack_reachable(git: &HostGit, repo: &HostRepo, to: &Path, scratch_parent: &Path) -> Result<(), Fault> {
    let Some(commit) = repo.head.commit() else {
        return Ok(());
    };
    let scratch = Scratch::new(scratch_parent, repo.format, &[repo.objects()])?;
    copy_shallow(repo, scratch.path())?;
    let base = to.join("pack/pack");
    let base = base
        .to_str()
        .ok_or_else(|| unusable(to, "its path is not UTF-8"))?;
    git.run(
        &scratch,
        Call {
            arguments: vec![
                "pack-objects",
                "--revs",
                "--delta-base-offset",
                "--quiet",
                "--threads=2",
                base,
            ],
            input: format!("{}\n", commit.as_str()).into_bytes(),
            ..Call::default()
        },
    )?;
    Ok(())
}

/// Where history is cut off, git must know it or it reports missing objects.
pub(super) fn copy_shallow(repo: &HostRepo, to: &Path) -> Result<(), Fault> {
    if !repo.shallow {
        return Ok(());
    }
    copy_file(&repo.common_dir.join("shallow"), &to.join("shallow"))
        .map_err(|error| unusable(to, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_until_they_are_too_large_to_be_copied_and_no_further() {
        let stage = tempfile::tempdir().unwrap();
        for folder in ["00", "ff", "pack", "info"] {
            std::fs::create_dir(stage.path().join(folder)).unwrap();
        }
        let loose = "0".repeat(38);
        for folder in ["00", "ff"] {
            std::fs::write(stage.path().join(folder).join(&loose), [0; 100]).unwrap();
        }
        std::fs::write(stage.path().join("info").join(&loose), [0; 100]).unwrap();
        let count = |most| list(stage.path(), most).unwrap().map(|files| files.len());
        assert_eq!(count(200), Some(2));
        assert_eq!(count(199), None);
        // A pack that is too large by itself counts as well, though it comes last.
        let pack = format!("pack/pack-{}.pack", "0".repeat(40));
        std::fs::write(stage.path().join(pack), [0; 1]).unwrap();
        assert_eq!(count(200), None);
        assert_eq!(count(201), Some(3));
    }
}
