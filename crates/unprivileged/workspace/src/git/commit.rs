//! A commit of accepted changes, put on a new branch of the host's repository without touching its work tree.
//!
//! **Trust:** contents come from the immutable store and are copied into a directory of bastle's own for git, which has no
//! filter there. Objects are built in a scratch repository and handed to the host's object
//! directory as one checked pack; the branch appears by one atomic reference update, or not at all.
use super::convert;
use super::{BranchName, Call, HostGit, HostRepo, Identity, ObjectId, Scratch, unusable};
use crate::blobs::{Blobs, Checked, copy_checked};
use crate::manifest::{Kind, Manifest};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::path::Path;

/// A message longer than this is not one.
const MAX_MESSAGE: usize = 64 << 10;

/// What to commit.
pub struct CommitRequest<'a> {
    /// The host's repository.
    pub repo: &'a HostRepo,
    /// The commit to build on; none starts a history.
    pub parent: Option<&'a ObjectId>,
    /// The branch to create.
    pub branch: &'a BranchName,
    /// Its message.
    pub message: &'a str,
    /// Author and committer.
    pub identity: &'a Identity,
    /// Seconds since 1970.
    pub seconds: u64,
    /// Accepted paths with what they become; `None` deletes.
    pub files: &'a [(TreePath, Option<Kind>)],
    /// What their contents are.
    pub contents: Contents<'a>,
    /// A directory for short-lived files.
    pub scratch: &'a Path,
}

/// What the contents of a commit's files are.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Blobs, as they are.
    AsStored,
    /// Files of a tree that began as this one: line ends and encodings are converted as `git add` does it there.
    AsInTree(&'a Manifest),
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The object id of the commit.
    pub id: ObjectId,
    /// The branch that points to it.
    pub branch: BranchName,
}

/// Makes the commit and the branch.
///
/// # Errors
/// When git fails, a path cannot be in a commit, or the branch exists already; the host is unchanged then, but
/// for objects that nothing names.
pub fn commit_to_branch(
    git: &HostGit,
    request: &CommitRequest<'_>,
    blobs: &dyn Blobs,
) -> Result<Commit, Fault> {
    let repo = request.repo;
    let taken = repo.references()?.into_keys().any(|name| {
        let full = request.branch.full();
        name == full || name.starts_with(&format!("{full}/")) || full.starts_with(&format!("{name}/"))
    });
    if taken {
        return Err(Fault::new(
            Code::WorkspaceApply,
            format!("branch {}", request.branch),
            "a branch of that name exists, or one above or below it",
        )
        .help(format!("bastle apply --branch {}-2", request.branch)));
    }
    let objects = repo
        .objects()
        .canonicalize()
        .map_err(|error| unusable(&repo.common_dir, error.to_string()))?;
    let scratch = Scratch::new(request.scratch, repo.format, std::slice::from_ref(&objects))?;
    super::objects::copy_shallow(repo, scratch.path())?;
    let index = vec![("GIT_INDEX_FILE", scratch.path().join("index"))];
    if let Some(parent) = request.parent {
        git.run(
            &scratch,
            Call {
                arguments: vec!["read-tree", parent.as_str()],
                variables: index.clone(),
                ..Call::default()
            },
        )?;
    }
    let lines = index_lines(git, &scratch, request, blobs)?;
    let arguments = vec!["update-index", "-z", "--index-info"];
    git.run(
        &scratch,
        Call {
            arguments,
            input: lines,
            variables: index.clone(),
            ..Call::default()
        },
    )?;
    if let Contents::AsInTree(base) = request.contents {
        convert::add(git, &scratch, (repo, base), request.files, blobs)?;
    }
    let tree = identifier(git.run(
        &scratch,
        Call {
            arguments: vec!["write-tree"],
            variables: index,
            ..Call::default()
        },
    )?)?;
    let id = write_commit(git, &scratch, request, &tree)?;
    hand_over(git, &scratch, request, &id, &objects)?;
    create_branch(git, &scratch, request, &id)?;
    Ok(Commit {
        id,
        branch: request.branch.clone(),
    })
}

/// The input of `update-index --index-info`: deletions first, so that a file can become a directory. Files of a tree are
/// added after it.
fn index_lines(
    git: &HostGit,
    scratch: &Scratch,
    request: &CommitRequest<'_>,
    blobs: &dyn Blobs,
) -> Result<Vec<u8>, Fault> {
    let none = "0".repeat(request.repo.format.digits());
    let mut lines = Vec::new();
    let mut added = Vec::new();
    let contents = scratch.path().join("contents");
    std::fs::create_dir(&contents).map_err(|error| unusable(scratch.path(), error.to_string()))?;
    for (path, kind) in request.files {
        if path.components().any(super::is_git_name) {
            let why = "the name belongs to git itself";
            return Err(Fault::new(Code::WorkspaceApply, format!("commit {path}"), why));
        }
        let mode = match kind {
            None => {
                push_line(&mut lines, "0", &none, path);
                continue;
            }
            Some(Kind::Dir) => continue,
            Some(Kind::File { mode, .. }) if mode.executable => "100755",
            Some(Kind::File { .. }) => "100644",
            Some(Kind::Symlink { .. }) => "120000",
            Some(Kind::Submodule { .. } | Kind::Opaque { .. }) => {
                let why = "it is not a file or link";
                return Err(Fault::new(Code::WorkspaceApply, format!("commit {path}"), why));
            }
        };
        if let Contents::AsInTree(_) = request.contents {
            continue;
        }
        lay_out(&contents.join(added.len().to_string()), kind.as_ref(), blobs)?;
        added.push((mode, path));
    }
    let ids = store_contents(git, scratch, added.len())?;
    for ((mode, path), id) in added.into_iter().zip(&ids) {
        push_line(&mut lines, mode, id.as_str(), path);
    }
    Ok(lines)
}

fn push_line(out: &mut Vec<u8>, mode: &str, id: &str, path: &TreePath) {
    out.extend_from_slice(format!("{mode} {id}\t").as_bytes());
    out.extend_from_slice(path.as_bytes());
    out.push(0);
}

/// A checked copy for git to read: the content itself may be lent by a tree that still changes.
pub(super) fn lay_out(to: &Path, kind: Option<&Kind>, blobs: &dyn Blobs) -> Result<(), Fault> {
    let fail = |error: std::io::Error| unusable(to, error.to_string());
    match kind {
        Some(Kind::Symlink { target }) => std::fs::write(to, &target.0).map_err(fail),
        Some(Kind::File { digest, .. }) => {
            let copy = std::fs::File::create_new(to).map_err(fail)?;
            match copy_checked(&blobs.open(digest)?, &copy, digest).map_err(fail)? {
                Checked::Right => Ok(()),
                Checked::Wrong => {
                    let what = format!("content {digest}");
                    Err(Fault::new(Code::WorkspaceApply, what, "its bytes have changed"))
                }
            }
        }
        None | Some(Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. }) => Ok(()),
    }
}

/// Stores the laid-out contents as objects, in one process, without filters.
fn store_contents(git: &HostGit, scratch: &Scratch, count: usize) -> Result<Vec<ObjectId>, Fault> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // Relative to the scratch repository, where git is started: plain names whatever the path above them.
    let input: String = (0..count).map(|number| format!("contents/{number}\n")).collect();
    let arguments = vec!["hash-object", "-w", "--no-filters", "--stdin-paths"];
    let listed = git.run(
        scratch,
        Call {
            arguments,
            input: input.into_bytes(),
            ..Call::default()
        },
    )?;
    let ids: Vec<ObjectId> = String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(ObjectId::parse)
        .collect();
    if ids.len() == count {
        Ok(ids)
    } else {
        Err(Fault::new(
            Code::WorkspaceGit,
            "git hash-object",
            "it did not name every object",
        ))
    }
}

fn write_commit(
    git: &HostGit,
    scratch: &Scratch,
    request: &CommitRequest<'_>,
    tree: &ObjectId,
) -> Result<ObjectId, Fault> {
    let who = format!(
        "{} <{}> {} +0000",
        request.identity.name, request.identity.email, request.seconds
    );
    let parent = request
        .parent
        .map_or_else(String::new, |id| format!("parent {}\n", id.as_str()));
    let message: String = request
        .message
        .chars()
        .filter(|c| *c == '\n' || *c == '\t' || !c.is_control())
        .collect();
    let mut message = message.trim_end().to_owned();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    let text = format!(
        "tree {}\n{parent}author {who}\ncommitter {who}\n\n{message}\n",
        tree.as_str()
    );
    let arguments = vec!["hash-object", "-t", "commit", "-w", "--stdin"];
    identifier(git.run(
        scratch,
        Call {
            arguments,
            input: text.into_bytes(),
            ..Call::default()
        },
    )?)
}

/// Packs what the host does not have and lets git check and store it in the host's object directory.
fn hand_over(
    git: &HostGit,
    scratch: &Scratch,
    request: &CommitRequest<'_>,
    id: &ObjectId,
    objects: &Path,
) -> Result<(), Fault> {
    let pack = scratch.path().join("out.pack");
    let fail = |error: std::io::Error| unusable(scratch.path(), error.to_string());
    let output = std::fs::File::create_new(&pack).map_err(fail)?;
    let mut input = format!("{}\n", id.as_str());
    if let Some(parent) = request.parent {
        input.push_str(&format!("^{}\n", parent.as_str()));
    }
    let arguments = vec![
        "pack-objects",
        "--revs",
        "--stdout",
        "--quiet",
        "--delta-base-offset",
    ];
    git.run(
        scratch,
        Call {
            arguments,
            input: input.into_bytes(),
            output: Some(output),
            ..Call::default()
        },
    )?;
    // Checked and indexed in the scratch repository, whose own configuration is the only one that is read. git leaves its
    // temporary files behind when the disk is full, so it writes none of them into the host's repository.
    let named = identifier(git.run(
        scratch,
        Call {
            arguments: vec!["index-pack", "--strict", "--index-version=2", "out.pack"],
            ..Call::default()
        },
    )?)?;
    super::handover::pack(&pack, &named, objects)
}

/// One transaction: the branch is created, or an error says it exists.
fn create_branch(
    git: &HostGit,
    scratch: &Scratch,
    request: &CommitRequest<'_>,
    id: &ObjectId,
) -> Result<(), Fault> {
    let input = format!("create {}\0{}\0", request.branch.full(), id.as_str()).into_bytes();
    let arguments = vec![
        "-c",
        "core.logAllRefUpdates=false",
        "-c",
        "core.fsync=all",
        "update-ref",
        "-z",
        "--stdin",
    ];
    let directory = request
        .repo
        .common_dir
        .canonicalize()
        .map_err(|error| unusable(&request.repo.common_dir, error.to_string()))?;
    git.run_in(
        &directory,
        scratch,
        Call {
            arguments,
            input,
            ..Call::default()
        },
    )?;
    sync_names(&directory, request.branch)
        .map_err(|error| unusable(&directory, format!("branch {}: {error}", request.branch)))
}

/// git syncs the bytes of a reference but not its name: the work counts as saved as soon as the branch is reported.
fn sync_names(common: &Path, branch: &BranchName) -> std::io::Result<()> {
    let full = branch.full();
    let directories = Path::new(&full).ancestors().skip(1);
    directories
        .take_while(|directory| !directory.as_os_str().is_empty())
        .try_for_each(|directory| std::fs::File::open(common.join(directory))?.sync_all())
}

fn identifier(output: Vec<u8>) -> Result<ObjectId, Fault> {
    let text = String::from_utf8_lossy(&output);
    ObjectId::parse(text.trim_end())
        .ok_or_else(|| Fault::new(Code::WorkspaceGit, "git", "it did not name an object"))
}
