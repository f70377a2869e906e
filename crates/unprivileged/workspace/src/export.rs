//! The agent's work as one archive: POSIX tar with extended headers, made so that every reader sees the same.
//!
//! **Trust:** names and contents are the agent's. Written are regular files, directories and links that stay in
//! the tree; no owner, no special bits, no device, no absolute or climbing name, no name twice. Files with holes keep them.
use crate::attributes::Attributes;
use crate::blobs::Blobs;
use crate::finding::leads_out;
use crate::git::is_git_name;
use crate::manifest::{Content, Kind, Manifest};
use crate::path::TreePath;
use crate::rooted::each_chunk;
use crate::sparse::{Parts, SHORTEST_HOLE};
use crate::tar::{BLOCK, Header, padding};
use bastle_contract::{Code, Fault};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::mpsc::sync_channel;

/// Files up to here have no hole that is worth a map. They are read ahead of their turn: sixteen MiB at
/// most.
const SMALL: u64 = SHORTEST_HOLE - 1;
const TOGETHER: usize = 64;
const AHEAD: usize = 2;
/// Most bytes and entries of one archive.
const MOST_BYTES: u64 = 64 << 30;
const MOST_ENTRIES: usize = 1_000_000;

/// What went into the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of entries.
    pub entries: usize,
    /// What was left out: git directories, what makes a directory a repository, links that lead out, special files.
    pub left_out: Vec<TreePath>,
}

/// Writes the tree to `out`.
///
/// # Errors
/// When a content cannot be read or is damaged, or writing fails.
pub fn export(manifest: &Manifest, blobs: &dyn Blobs, out: &mut dyn Write) -> Result<Exported, Fault> {
    export_with(manifest, blobs, &[], out)
}

/// A file of bastle's own beside the work: a path that no entry of the tree has, and its bytes.
pub type Beside = (TreePath, Vec<u8>);

/// Writes the tree and files of bastle's own to `out`.
///
/// # Errors
/// See [`export`].
pub fn export_with(
    manifest: &Manifest,
    blobs: &dyn Blobs,
    beside: &[Beside],
    out: &mut dyn Write,
) -> Result<Exported, Fault> {
    within_limits(manifest, MOST_ENTRIES, MOST_BYTES)?;
    let (planned, left_out) = planned(manifest, blobs)?;
    let ahead = |(_, header): &Planned<'_>| match header.content {
        Some(digest) if header.size <= SMALL => Some((*digest, header.size)),
        Some(_) | None => None,
    };
    let small: Vec<(Content, u64)> = planned.iter().filter_map(ahead).collect();
    std::thread::scope(|scope| {
        let (send, read) = sync_channel(AHEAD);
        scope.spawn(move || {
            // Many at a time: waking the writer costs as much as reading a small file.
            for files in small.chunks(TOGETHER) {
                let files = files
                    .iter()
                    .map(|(digest, size)| read_whole(blobs, digest, *size));
                // Nobody waits for more once the archive has failed.
                if send.send(files.collect::<Vec<_>>()).is_err() {
                    return;
                }
            }
        });
        let mut read = read.into_iter().flatten();
        planned
            .iter()
            .try_for_each(|(path, header)| write_entry((path, header), blobs, &mut read, out))
    })?;
    let end = |error: io::Error| Fault::new(Code::WorkspaceApply, "export", error.to_string());
    for (path, bytes) in beside {
        write_beside(path, bytes, out).map_err(end)?;
    }
    out.write_all(&[0; 2 * BLOCK]).map_err(end)?;
    out.flush().map_err(end)?;
    Ok(Exported {
        entries: planned.len() + beside.len(),
        left_out,
    })
}

/// An object of the archive.
type Planned<'a> = (&'a TreePath, Header<'a>);

/// What goes into the archive, in its order, and what does not.
fn planned<'a>(
    manifest: &'a Manifest,
    blobs: &dyn Blobs,
) -> Result<(Vec<Planned<'a>>, Vec<TreePath>), Fault> {
    let repositories = repositories(manifest);
    let (mut planned, mut left_out) = (Vec::new(), Vec::new());
    for entry in manifest.entries() {
        let header = match &entry.kind {
            _ if entry.path.components().any(is_git_name) => None,
            _ if is_of_repository(&entry.path, &repositories) => None,
            kind => header(&entry.path, kind, blobs)?,
        };
        match header {
            Some(header) => planned.push((&entry.path, header)),
            None if entry.path.in_git() => {}
            None => left_out.push(entry.path.clone()),
        }
    }
    Ok((planned, left_out))
}

/// The header of an object; none of what cannot be in an archive.
fn header<'a>(path: &TreePath, kind: &'a Kind, blobs: &dyn Blobs) -> Result<Option<Header<'a>>, Fault> {
    let plain = |kind, mode, link| Header {
        kind,
        mode,
        size: 0,
        link,
        content: None,
        attributes: None,
    };
    Ok(match kind {
        Kind::File {
            digest,
            size,
            mode,
            attributes,
        } => Some(Header {
            kind: b'0',
            mode: if mode.executable { 0o755 } else { 0o644 },
            size: *size,
            link: b"",
            content: Some(digest),
            attributes: match attributes {
                Some(id) => Some(Attributes::open(blobs, id, path.as_path())?),
                None => None,
            },
        }),
        Kind::Dir => Some(plain(b'5', 0o755, b"")),
        Kind::Symlink { target } if !leads_out(path, &target.0) => Some(plain(b'2', 0o777, &target.0)),
        Kind::Symlink { .. } | Kind::Submodule { .. } | Kind::Opaque { .. } => None,
    })
}

fn write_entry(
    (path, header): (&TreePath, &Header<'_>),
    blobs: &dyn Blobs,
    read: &mut impl Iterator<Item = Result<Vec<u8>, Fault>>,
    out: &mut dyn Write,
) -> Result<(), Fault> {
    let fail =
        |error: io::Error| Fault::new(Code::WorkspaceApply, format!("export {path}"), error.to_string());
    let Some(digest) = header.content else {
        return header.write(path.as_bytes(), None, out).map_err(fail);
    };
    let size = header.size;
    if size > SMALL {
        let file = blobs.open(digest)?;
        return write_large((path, header), (&file, digest), out).map_err(fail);
    }
    let gone = || fail(io::Error::other("its reader ended unexpectedly"));
    let bytes = read.next().ok_or_else(gone)??;
    if bytes.len() as u64 != size || Content::of(&bytes) != *digest {
        return Err(fail(damaged()));
    }
    header.write(path.as_bytes(), None, out).map_err(fail)?;
    out.write_all(&bytes).map_err(fail)?;
    out.write_all(&padding(size)).map_err(fail)
}

/// An entry that was not read ahead; holes stay holes.
fn write_large(
    (path, header): (&TreePath, &Header<'_>),
    (file, digest): (&File, &Content),
    out: &mut dyn Write,
) -> io::Result<()> {
    let parts = Parts::of(file, header.size)?;
    header.write(path.as_bytes(), parts.as_ref(), out)?;
    match &parts {
        None => copy_exactly(file, digest, header.size, out)?,
        Some(parts) => parts.write(file, digest, out)?,
    }
    out.write_all(&padding(parts.map_or(header.size, |parts| parts.archived())))
}

/// No more than `size` bytes of a content, not yet checked.
fn read_whole(blobs: &dyn Blobs, digest: &Content, size: u64) -> Result<Vec<u8>, Fault> {
    let file = blobs.open(digest)?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 64);
    let fail = |error: io::Error| Fault::new(Code::WorkspaceApply, "export", error.to_string());
    file.take(size).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn damaged() -> io::Error {
    io::Error::other("the stored content is damaged")
}

fn write_beside(path: &TreePath, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let header = Header {
        kind: b'0',
        mode: 0o644,
        size: bytes.len() as u64,
        link: b"",
        content: None,
        attributes: None,
    };
    header.write(path.as_bytes(), None, out)?;
    out.write_all(bytes)?;
    out.write_all(&padding(bytes.len() as u64))
}

/// Directories that git takes for bare repositories (gitrepository-layout(5)): `git status` in one executes what its
/// configuration names.
fn repositories(manifest: &Manifest) -> BTreeSet<Option<TreePath>> {
    let parents = |names: &[&[u8]]| -> BTreeSet<Option<TreePath>> {
        let entries = manifest.entries().iter();
        let named = entries.filter(|entry| names.contains(&entry.path.name()));
        named.map(|entry| entry.path.parent()).collect()
    };
    let heads = parents(&[b"HEAD"]);
    let others = parents(&[b"objects", b"refs", b"commondir", b"gitdir"]);
    heads.intersection(&others).cloned().collect()
}

/// Whether a path is, or is below, a name without which git does not obey the directory.
fn is_of_repository(path: &TreePath, repositories: &BTreeSet<Option<TreePath>>) -> bool {
    const OBEYED: [&[u8]; 6] = [
        b"HEAD",
        b"commondir",
        b"config",
        b"config.worktree",
        b"gitdir",
        b"hooks",
    ];
    std::iter::successors(Some(path.clone()), TreePath::parent)
        .any(|at| OBEYED.contains(&at.name()) && repositories.contains(&at.parent()))
}

/// Refuses before the first byte. Holes count as the bytes that they are for a reader: all of them are hashed, and where
/// an archive is unpacked without holes they fill the disk.
fn within_limits(manifest: &Manifest, most_entries: usize, most_bytes: u64) -> Result<(), Fault> {
    let (mut names, mut bytes) = (0_usize, 0_u64);
    for entry in manifest.entries() {
        names += 1;
        if let Kind::File { size, .. } = &entry.kind {
            bytes = bytes.saturating_add(*size);
        }
    }
    let why = if names > most_entries {
        format!("it would have {names} entries, and {most_entries} are the most")
    } else if bytes > most_bytes {
        format!("it would have {bytes} bytes, holes counted, and {most_bytes} are the most")
    } else {
        return Ok(());
    };
    Err(
        Fault::new(Code::WorkspaceApply, "the work is too large for an archive", why)
            .help("bastle diff RUN --stat shows the largest files; bastle apply RUN brings the work without an archive"),
    )
}

/// Exactly the promised bytes, and those of the digest: a header must never lie about what follows it.
fn copy_exactly(file: &File, digest: &Content, size: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut hasher = blake3::Hasher::new();
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let copied = each_chunk(file.take(size), length, |bytes| {
        hasher.update(bytes);
        out.write_all(bytes)
    })?;
    if copied == size && hasher.finalize().as_bytes() == digest.as_bytes() {
        Ok(())
    } else {
        Err(damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, manifest, path, write};
    use std::process::Command;

    #[test]
    fn the_archive_unpacks_to_the_same_tree_without_git_and_outward_links() {
        let stage = tempfile::tempdir().unwrap();
        let (tree, out, blobs) = (
            stage.path().join("tree"),
            stage.path().join("out"),
            stage.path().join("blobs"),
        );
        for directory in [&tree, &out, &blobs] {
            std::fs::create_dir(directory).unwrap();
        }
        let blobs = Folder(blobs);
        write(&tree, "a", b"a\n");
        write(
            &tree,
            &format!("{}/{}", "d".repeat(90), "f".repeat(200)),
            &vec![7; 1000],
        );
        write(&tree, "é\n-rf", b"");
        std::os::unix::fs::symlink("a", tree.join("in")).unwrap();
        let expected = manifest(&tree, &blobs);
        std::os::unix::fs::symlink("/etc/passwd", tree.join("abs")).unwrap();
        std::os::unix::fs::symlink("../x", tree.join("up")).unwrap();
        write(&tree, "sub/.git/config", b"evil");
        let mut bytes = Vec::new();
        let done = export(&manifest(&tree, &blobs), &blobs, &mut bytes).unwrap();
        assert_eq!(
            done.left_out,
            [path("abs"), path("sub/.git"), path("sub/.git/config"), path("up")]
        );
        assert!(bytes.len().is_multiple_of(512));
        std::fs::write(stage.path().join("x.tar"), &bytes).unwrap();
        assert!(
            Command::new("tar")
                .current_dir(&out)
                .args(["xf", "../x.tar"])
                .status()
                .unwrap()
                .success()
        );
        std::fs::remove_dir(out.join("sub")).unwrap();
        assert_eq!(manifest(&out, &blobs), expected);
    }

    #[test]
    fn what_makes_a_directory_a_repository_stays_out_and_a_directory_of_such_names_alone_does_not() {
        let stage = tempfile::tempdir().unwrap();
        let (tree, blobs) = (stage.path().join("tree"), Folder(stage.path().join("blobs")));
        for directory in [&tree, &blobs.0] {
            std::fs::create_dir(directory).unwrap();
        }
        for name in [
            "HEAD",
            "config",
            "hooks/post-checkout",
            "refs/heads/main",
            "objects/x",
            "readme",
        ] {
            write(&tree, &format!("bare/{name}"), b"x");
            write(&tree, name, b"x");
        }
        for name in ["config", "hooks/useHook.ts", "refs/r", "objects/o"] {
            write(&tree, &format!("source/{name}"), b"x");
        }
        let done = export(&manifest(&tree, &blobs), &blobs, &mut Vec::new()).unwrap();
        let names = ["HEAD", "config", "hooks", "hooks/post-checkout"];
        let mut expected: Vec<_> = names
            .iter()
            .flat_map(|name| [path(name), path(&format!("bare/{name}"))])
            .collect();
        expected.sort();
        let mut left_out = done.left_out;
        left_out.sort();
        assert_eq!(left_out, expected);
    }

    #[test]
    fn an_archive_beyond_its_limits_is_refused_before_its_first_byte() {
        let entry = |name: &str, size| crate::manifest::Entry {
            path: path(name),
            kind: Kind::File {
                digest: Content::of(b""),
                size,
                mode: crate::manifest::Mode::from_bits(0o644),
                attributes: None,
            },
        };
        let tree = Manifest::new(vec![entry("a", 600), entry("b", 400)]).unwrap();
        assert!(within_limits(&tree, 2, 1000).is_ok(), "control");
        let names = within_limits(&tree, 1, 1000).unwrap_err();
        assert!(names.why.contains("2 entries"), "{names:?}");
        let bytes = within_limits(&tree, 2, 999).unwrap_err();
        assert!(bytes.why.contains("1000 bytes"), "{bytes:?}");
    }

    #[test]
    fn a_content_shorter_or_other_than_promised_is_refused() {
        let stage = tempfile::tempdir().unwrap();
        let blobs = Folder(stage.path().to_owned());
        let kind = blobs.put(b"good");
        let entry = crate::manifest::Entry {
            path: path("a"),
            kind,
        };
        let tree = Manifest::new(vec![entry]).unwrap();
        for evil in [&b"evil"[..], b"goo", b"good and more"] {
            std::fs::write(stage.path().join(Content::of(b"good").to_string()), evil).unwrap();
            let outcome = export(&tree, &blobs, &mut Vec::new());
            assert!(outcome.is_err() || evil.starts_with(b"good"), "{evil:?}");
        }
    }
}
