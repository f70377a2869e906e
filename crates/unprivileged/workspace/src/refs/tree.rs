//! The files of one commit of the agent's, for the gate, a branch or a patch.
//!
//! **Trust:** names and contents come from objects that the agent wrote. Names are checked like those of any tree, contents
//! are kept by their digest, and the import gate judges every difference to what the copy began with.
use super::objects::AgentObjects;
use crate::blobs::Blobs;
use crate::faults::{damaged, io_fault};
use crate::git::{Call, ObjectId};
use crate::manifest::{Content, Entry, Kind, LinkTarget, Manifest, Mode};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// No file system has a longer one.
const MAX_LINK: u64 = 4096;
/// Entries of one commit; a manifest has as many.
const MAX_ENTRIES: usize = 2_000_000;

/// A commit's files and those that the copy's first commit had.
pub struct RefTree {
    /// The reference's short name.
    pub name: String,
    /// What it names.
    pub tip: String,
    /// The commit.
    pub commit: ObjectId,
    /// The files of the commit that the copy began with; none where it began without one.
    pub before: Manifest,
    /// The files of the commit.
    pub after: Manifest,
    /// Of a stash: staged contents that `after` does not have.
    pub index_only: Vec<TreePath>,
    contents: PathBuf,
    #[expect(dead_code, reason = "its directory holds the contents")]
    objects: AgentObjects,
}

impl Blobs for RefTree {
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        let path = self.contents.join(digest.to_string());
        File::open(&path).map_err(|error| {
            let what = format!("content {digest} of {}", self.name);
            Fault::new(Code::WorkspaceApply, what, error.to_string())
        })
    }
}

/// A name in a commit: git's mode and object.
type Listed = BTreeMap<TreePath, (String, String)>;

pub(super) fn read(
    objects: AgentObjects,
    name: String,
    id: &str,
    began: Option<&str>,
) -> Result<RefTree, Fault> {
    let unreadable = || AgentObjects::unreadable(&name);
    let commit = objects.commit(id)?.ok_or_else(unreadable)?;
    let first = match began {
        Some(began) => Some(objects.commit(began)?.ok_or_else(unreadable)?),
        None => None,
    };
    let mut after = list(&objects, &commit)?;
    // The third parent of a stash has the files that git did not track.
    if name.starts_with("stash@")
        && let Some(untracked) = objects.commit(&format!("{id}^3"))?
    {
        for (path, object) in list(&objects, &untracked)? {
            after.entry(path).or_insert(object);
        }
    }
    let index_only = match name.starts_with("stash@") {
        true => index_only(&objects, id, &after)?,
        false => Vec::new(),
    };
    let before = match &first {
        Some(first) => list(&objects, first)?,
        None => Listed::new(),
    };
    // Contents of what differs, and every link: a link gives other names to what lies behind it.
    let differs = |path: &TreePath| before.get(path) != after.get(path);
    let needed: BTreeSet<&str> = before
        .iter()
        .chain(&after)
        .filter(|(path, (mode, _))| mode == "120000" || (mode != "160000" && differs(path)))
        .map(|(_, (_, id))| id.as_str())
        .collect();
    let contents = objects.scratch.path().join("contents");
    std::fs::create_dir_all(&contents).map_err(|e| io_fault("make", &contents, e))?;
    let kept = keep(&objects, &needed, &contents)?;
    let before = manifest(&before, &kept, &contents)?;
    let after = manifest(&after, &kept, &contents)?;
    Ok(RefTree {
        name,
        tip: id.to_owned(),
        commit,
        before,
        after,
        index_only,
        contents,
        objects,
    })
}

/// Paths whose contents in the index of a stash are neither in its files nor in the commit that it was made on.
fn index_only(objects: &AgentObjects, id: &str, files: &Listed) -> Result<Vec<TreePath>, Fault> {
    let (Some(index), Some(on)) = (
        objects.commit(&format!("{id}^2"))?,
        objects.commit(&format!("{id}^1"))?,
    ) else {
        return Ok(Vec::new());
    };
    let on = list(objects, &on)?;
    let staged = list(objects, &index)?.into_iter();
    let lost =
        staged.filter(|(path, object)| files.get(path) != Some(object) && on.get(path) != Some(object));
    Ok(lost.map(|(path, _)| path).collect())
}

fn list(objects: &AgentObjects, commit: &ObjectId) -> Result<Listed, Fault> {
    let listed = objects.git.run(
        &objects.scratch,
        Call {
            arguments: vec!["ls-tree", "-r", "-z", "--full-tree", commit.as_str()],
            ..Call::default()
        },
    )?;
    let mut found = Listed::new();
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let odd = || {
            let what = format!("commit {}", commit.as_str());
            Fault::new(
                Code::WorkspaceApply,
                what,
                "it has a name that no file of a project can have",
            )
        };
        let at = line.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
        let head = String::from_utf8_lossy(&line[..at]).into_owned();
        let mut words = head.split(' ');
        let (Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next()) else {
            return Err(odd());
        };
        let path = TreePath::new(&line[at + 1..]).map_err(|_| odd())?;
        found.insert(path, (mode.to_owned(), id.to_owned()));
        if found.len() > MAX_ENTRIES {
            return Err(odd());
        }
    }
    Ok(found)
}

/// Digest and length of each object, whose bytes are then in the directory under its digest.
fn keep(
    objects: &AgentObjects,
    needed: &BTreeSet<&str>,
    directory: &Path,
) -> Result<BTreeMap<String, (Content, u64)>, Fault> {
    let batch = objects.scratch.path().join("batch");
    let failed = |e| io_fault("read", &batch, e);
    let input: String = needed.iter().map(|id| format!("{id}\n")).collect();
    objects.git.run(
        &objects.scratch,
        Call {
            arguments: vec!["cat-file", "--batch=%(objectname) %(objectsize)"],
            input: input.into_bytes(),
            output: Some(File::create_new(&batch).map_err(failed)?),
            ..Call::default()
        },
    )?;
    let mut reader = BufReader::new(File::open(&batch).map_err(failed)?);
    let mut kept = BTreeMap::new();
    for id in needed {
        let mut line = String::new();
        reader.read_line(&mut line).map_err(failed)?;
        let size = line
            .trim_end()
            .strip_prefix(id)
            .and_then(|rest| rest.trim().parse().ok());
        let Some(size) = size else {
            return Err(AgentObjects::unreadable(id));
        };
        let digest = one(&mut reader, size, directory).map_err(failed)?;
        kept.insert((*id).to_owned(), (digest, size));
    }
    std::fs::remove_file(&batch).map_err(failed)?;
    Ok(kept)
}

/// One content and the newline after it.
fn one(reader: &mut impl Read, size: u64, directory: &Path) -> io::Result<Content> {
    let fresh = directory.join("fresh");
    let mut to = File::create(&fresh)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0_u8; 128 << 10];
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = reader.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    reader.read_exact(&mut [0])?;
    let digest = Content::from_bytes(*hasher.finalize().as_bytes());
    std::fs::rename(&fresh, directory.join(digest.to_string()))?;
    Ok(digest)
}

fn manifest(
    listed: &Listed,
    kept: &BTreeMap<String, (Content, u64)>,
    contents: &Path,
) -> Result<Manifest, Fault> {
    let mut entries = BTreeMap::new();
    for (path, (mode, id)) in listed {
        let kind = match mode.as_str() {
            "160000" => Kind::Submodule { commit: id.clone() },
            "120000" => link(path, kept.get(id), contents)?,
            // The same on both sides, and not read: named by its object.
            _ => {
                let (digest, size) = kept.get(id).copied().unwrap_or((Content::of(id.as_bytes()), 0));
                Kind::File {
                    digest,
                    size,
                    mode: Mode {
                        executable: mode == "100755",
                        special: false,
                    },
                    attributes: None,
                }
            }
        };
        for above in std::iter::successors(path.parent(), TreePath::parent) {
            entries.insert(above, Kind::Dir);
        }
        entries.insert(path.clone(), kind);
    }
    let entries = entries.into_iter().map(|(path, kind)| Entry { path, kind });
    Manifest::new(entries.collect()).map_err(|error| damaged(contents, error))
}

fn link(path: &TreePath, kept: Option<&(Content, u64)>, contents: &Path) -> Result<Kind, Fault> {
    let target = match kept {
        Some((digest, size)) if *size <= MAX_LINK => {
            let at = contents.join(digest.to_string());
            std::fs::read(&at).map_err(|e| io_fault("read", &at, e))?
        }
        Some(_) | None => {
            let why = "no link has such a target";
            return Err(Fault::new(Code::WorkspaceApply, format!("read {path}"), why));
        }
    };
    Ok(Kind::Symlink {
        target: LinkTarget(target),
    })
}
