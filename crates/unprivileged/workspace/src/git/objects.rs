//! Bringing the host's objects into the copy's own repository.
//!
//! **Trust:** objects are copied or cloned, never hard-linked: the sandbox can write its own files, and a hard
//! link would let it write the host's objects. Object files are named by hash; nothing else is copied.
use super::{Call, HostGit, HostRepo, Scratch, unusable};
use bastle_contract::Fault;
use rustix::fs::{Mode, OFlags};
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
    let files = list(&from).map_err(fail)?;
    if files.iter().map(|file| file.size).sum::<u64>() > MAX_COPIED {
        return Ok(Transfer::Bound);
    }
    for folder in files.iter().filter_map(|file| file.folder.as_deref()) {
        std::fs::create_dir_all(to.join(folder)).map_err(fail)?;
    }
    for file in &files {
        let folder = file.folder.as_deref().unwrap_or_default();
        copy_file(
            &from.join(folder).join(&file.name),
            &to.join(folder).join(&file.name),
        )
        .map_err(fail)?;
    }
    Ok(Transfer::Copied)
}

struct ObjectFile {
    folder: Option<String>,
    name: String,
    size: u64,
}

/// Loose objects and packs, by their names alone.
fn list(objects: &Path) -> io::Result<Vec<ObjectFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(objects)? {
        let entry = entry?;
        let Some(folder) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if !entry.file_type()?.is_dir() || !(is_hex(&folder, 2) || folder == "pack") {
            continue;
        }
        for entry in std::fs::read_dir(entry.path())? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let wanted = if folder == "pack" {
                is_pack_name(&name)
            } else {
                is_hex(&name, 38) || is_hex(&name, 62)
            };
            if wanted && entry.file_type()?.is_file() {
                files.push(ObjectFile {
                    folder: Some(folder.clone()),
                    name,
                    size: entry.metadata()?.len(),
                });
            }
            if files.len() > MAX_FILES {
                return Err(io::Error::other(
                    "more object files than any repository has; run git gc",
                ));
            }
        }
    }
    Ok(files)
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
