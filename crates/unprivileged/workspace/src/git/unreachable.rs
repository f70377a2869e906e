//! Contents of a repository that nothing names any more: after `git add` and `git reset`, a dropped stash, a deleted branch.
//!
//! **Trust:** the repository is the user's and is read by hardened git. Such contents have no name by which they could be
//! hidden, and `git cat-file` reads them; so they are counted, whatever they are.
use super::objects::copy_shallow;
use super::tips::Tips;
use super::{Call, HostGit, HostRepo, Scratch, unusable};
use bastle_contract::Fault;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What no name reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreachable {
    /// Contents of files.
    pub blobs: usize,
    /// Whether the repository borrows objects: its copies have only what `HEAD` reaches.
    pub borrows: bool,
}

/// Counts contents in the object store that no reference, reflog, worktree, state file or index reaches.
///
/// # Errors
/// When git fails, prints more than is read, or takes longer than `limit`.
pub fn unreachable_contents(
    git: &HostGit,
    source: &Path,
    scratch: &Path,
    limit: Duration,
) -> Result<Unreachable, Fault> {
    let Some(repo) = HostRepo::open(source)? else {
        return Ok(Unreachable::default());
    };
    let scratch = Scratch::new(scratch, repo.format, &[repo.objects()])?;
    copy_shallow(&repo, scratch.path())?;
    let run = |arguments: Vec<&str>, input: Vec<u8>, index: Option<&Path>| {
        let variables = index.map(|file| ("GIT_INDEX_FILE", file.to_owned()));
        let limit = Some(limit);
        git.run(
            &scratch,
            Call {
                arguments,
                input,
                variables: variables.into_iter().collect(),
                limit,
                ..Call::default()
            },
        )
    };
    let listing = vec![
        "cat-file",
        "--batch-all-objects",
        "--unordered",
        "--batch-check=%(objectname)",
    ];
    let tips = Tips::read(&repo)?;
    // Side by side: a start in place waits for both.
    let (all, reached) = std::thread::scope(|scope| {
        let walk = scope.spawn(|| reached(&run, &tips));
        let all = run(listing, Vec::new(), None);
        let ended = |_| unusable(source, "a helper thread ended early");
        (all, walk.join().map_err(ended).and_then(|reached| reached))
    });
    let (all, reached) = (all?, reached?);
    let reached: HashSet<&[u8]> = lines(&reached).collect();
    let rest: Vec<&[u8]> = lines(&all).filter(|id| !reached.contains(id)).collect();
    let borrows = repo.borrows;
    if rest.is_empty() {
        return Ok(Unreachable { blobs: 0, borrows });
    }
    let input = rest.join(&b'\n');
    let kinds = run(vec!["cat-file", "--batch-check=%(objecttype)"], input, None)?;
    let blobs = lines(&kinds).filter(|kind| *kind == b"blob").count();
    Ok(Unreachable { blobs, borrows })
}

/// What the names reach. The first index is read by the walk itself; those of other worktrees are listed before.
fn reached(
    run: &impl Fn(Vec<&str>, Vec<u8>, Option<&Path>) -> Result<Vec<u8>, Fault>,
    tips: &Tips,
) -> Result<Vec<u8>, Fault> {
    let mut wanted = tips.lines();
    let mut indexes = tips.indexes.iter().map(PathBuf::as_path);
    let first = indexes.next();
    for index in indexes {
        let staged = run(vec!["ls-files", "-s", "-z"], Vec::new(), Some(index))?;
        for entry in staged.split(|byte| *byte == 0) {
            // A submodule is a commit of another repository.
            if let Some(id) = entry.split(|byte| *byte == b' ').nth(1)
                && !entry.starts_with(b"160000 ")
            {
                wanted.extend_from_slice(id);
                wanted.push(b'\n');
            }
        }
    }
    let mut walk = vec![
        "rev-list",
        "--objects",
        "--no-object-names",
        "--ignore-missing",
        "--missing=allow-any",
    ];
    walk.extend(first.map(|_| "--indexed-objects"));
    walk.push("--stdin");
    if first.is_none() && wanted.is_empty() {
        return Ok(Vec::new());
    }
    run(walk, wanted, first)
}

fn lines(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}
