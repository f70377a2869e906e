//! Hidden names in a repository's history: how many contents were ever committed under one, and a copy's repository that has
//! none of them.
//!
//! **Trust:** the repository is the user's and is read by hardened git. What is left out must not be reachable in the copy by
//! any object, so nothing is filtered from the host's objects: a new store gets exactly what one new commit needs.
use super::objects::copy_shallow;
use super::prepare::Prepare;
use super::tips::Tips;
use super::{Call, HostGit, HostRepo, ObjectId, Scratch, unusable};
use crate::path::TreePath;
use bastle_contract::{Fault, NameList};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of the history a copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History<'a> {
    /// All of it.
    Full,
    /// One commit with the files of the checked-out one, without these names.
    BaseOnly(&'a NameList),
}

/// What was committed, or is staged, under hidden names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenHistory {
    /// Different contents.
    pub blobs: usize,
    /// Different names.
    pub names: usize,
    /// One of the names.
    pub example: Option<String>,
}

/// What the one commit says.
const MESSAGE: &str = "Base of this copy: earlier history is left out";

/// Counts contents that a reference, reflog, worktree, state file or index reaches under hidden names.
///
/// # Errors
/// When git fails or takes longer than `limit`.
pub fn hidden_history(
    git: &HostGit,
    source: &Path,
    hidden: &NameList,
    scratch: &Path,
    limit: Duration,
) -> Result<HiddenHistory, Fault> {
    let Some(repo) = HostRepo::open(source)? else {
        return Ok(HiddenHistory::default());
    };
    let specs = pathspecs(hidden);
    if specs.is_empty() {
        return Ok(HiddenHistory::default());
    }
    let scratch = Scratch::new(scratch, repo.format, &[repo.objects()])?;
    copy_shallow(&repo, scratch.path())?;
    let mut found: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let tips = Tips::read(&repo)?;
    if !tips.ids.is_empty() {
        let mut arguments = vec![
            "log",
            "--format=",
            "--raw",
            "-z",
            "--no-abbrev",
            "--no-renames",
            // Added, modified, or of another type: a link that becomes a file is neither of the first.
            "--diff-filter=AMT",
            "--diff-merges=first-parent",
            "--root",
            // Reflogs name objects that housekeeping has removed.
            "--ignore-missing",
            "--stdin",
            "--",
        ];
        arguments.extend(specs.iter().map(String::as_str));
        let listed = git.run(
            &scratch,
            Call {
                arguments,
                input: tips.lines(),
                limit: Some(limit),
                ..Call::default()
            },
        )?;
        raw(&listed, &mut found);
    }
    for index in tips.indexes {
        let mut arguments = vec!["ls-files", "-s", "-z", "--"];
        arguments.extend(specs.iter().map(String::as_str));
        let listed = git.run(
            &scratch,
            Call {
                arguments,
                variables: vec![("GIT_INDEX_FILE", index)],
                limit: Some(limit),
                ..Call::default()
            },
        )?;
        staged(&listed, &mut found);
    }
    // The patterns of git and of the policy are not quite the same: the policy has the last word.
    found.retain(|name, _| hidden.covers(name));
    let blobs: BTreeSet<&Vec<u8>> = found.values().flatten().collect();
    Ok(HiddenHistory {
        blobs: blobs.len(),
        names: found.len(),
        example: found.keys().next().map(|name| crate::path::visible(name)),
    })
}

/// The patterns as git reads them: the name itself, and what is below it.
fn pathspecs(hidden: &NameList) -> Vec<String> {
    let both = |pattern: &str| {
        [
            format!(":(glob,icase){pattern}"),
            format!(":(glob,icase){pattern}/**"),
        ]
    };
    hidden
        .patterns()
        .flat_map(|pattern| both(pattern.as_str()))
        .collect()
}

/// Reads `:MODE MODE OLD NEW STATUS NUL PATH NUL`.
fn raw(listed: &[u8], found: &mut BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>) {
    let mut fields = listed.split(|byte| *byte == 0);
    while let Some(field) = fields.next() {
        // An empty line separates commits.
        let start = field
            .iter()
            .position(|byte| *byte != b'\n')
            .unwrap_or(field.len());
        let Some(change) = field[start..].strip_prefix(b":") else {
            continue;
        };
        let (Some(id), Some(path)) = (change.split(|byte| *byte == b' ').nth(3), fields.next()) else {
            return;
        };
        found.entry(path.to_vec()).or_default().insert(id.to_vec());
    }
}

/// The paths of such a list.
pub(super) fn raw_paths(listed: &[u8]) -> Vec<Vec<u8>> {
    let mut found = BTreeMap::new();
    raw(listed, &mut found);
    found.into_keys().collect()
}

/// Reads `MODE ID STAGE TAB PATH NUL`.
fn staged(listed: &[u8], found: &mut BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>) {
    for entry in listed.split(|byte| *byte == 0) {
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
            continue;
        };
        if let Some(id) = entry[..tab].split(|byte| *byte == b' ').nth(1) {
            found
                .entry(entry[tab + 1..].to_vec())
                .or_default()
                .insert(id.to_vec());
        }
    }
}

/// Whether a tracked name is not to be in the copy.
fn is_hidden(request: &Prepare<'_>, name: &[u8]) -> bool {
    matches!(request.history, History::BaseOnly(hidden) if hidden.covers(name))
        || TreePath::new(name).is_ok_and(|path| request.absent.iter().any(|absent| path.starts_with(absent)))
}

/// Makes the one commit and gives the copy exactly its objects and those of the index. `None` on an unborn branch.
pub(super) fn base_only(
    git: &HostGit,
    repo: &HostRepo,
    request: &Prepare<'_>,
    target: &Path,
) -> Result<Option<ObjectId>, Fault> {
    let fail = |error: std::io::Error| unusable(target, error.to_string());
    let scratch = Scratch::new(request.scratch, repo.format, &[repo.objects()])?;
    let empty = request.scratch.join("no-work-tree");
    std::fs::create_dir_all(&empty).map_err(fail)?;
    let mut wanted: Vec<u8> = Vec::new();
    let mut base = None;
    if let Some(commit) = repo.head.commit() {
        let index = Index {
            git,
            scratch: &scratch,
            file: request.scratch.join("base-index"),
            empty: &empty,
        };
        index.run(vec!["read-tree", commit.as_str()], Vec::new())?;
        index.remove(|name| is_hidden(request, name))?;
        let tree = line(index.run(vec!["write-tree"], Vec::new())?);
        let made = line(index.run(vec!["commit-tree", &tree, "-m", MESSAGE], Vec::new())?);
        wanted = index.run(
            vec!["rev-list", "--objects", "--no-object-names", &made],
            Vec::new(),
        )?;
        std::fs::remove_file(&index.file).map_err(fail)?;
        base = Some(ObjectId::parse(&made).ok_or_else(|| unusable(target, "git made no commit"))?);
    }
    let file = target.join("index");
    if file.symlink_metadata().is_ok() {
        let index = Index {
            git,
            scratch: &scratch,
            file,
            empty: &empty,
        };
        index.remove(|name| is_hidden(request, name))?;
        let mut found = BTreeMap::new();
        let listed = index.run(vec!["ls-files", "-s", "-z"], Vec::new())?;
        for entry in listed
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.starts_with(b"160000 "))
        {
            staged(entry, &mut found);
        }
        for id in found.values().flatten() {
            wanted.extend_from_slice(id);
            wanted.push(b'\n');
        }
    }
    let pack = target.join("objects/pack/pack");
    let pack = pack
        .to_str()
        .ok_or_else(|| unusable(target, "its path is not UTF-8"))?;
    git.run(
        &scratch,
        Call {
            arguments: vec![
                "pack-objects",
                "--delta-base-offset",
                "--quiet",
                "--threads=2",
                pack,
            ],
            input: wanted,
            ..Call::default()
        },
    )?;
    Ok(base)
}

/// Takes names out of an index that was made elsewhere.
///
/// # Errors
/// When git fails.
pub(crate) fn remove_from_index(
    git: &HostGit,
    scratch: &Scratch,
    file: PathBuf,
    empty: &Path,
    names: &[TreePath],
) -> Result<(), Fault> {
    let index = Index {
        git,
        scratch,
        file,
        empty,
    };
    let names: BTreeSet<&[u8]> = names.iter().map(TreePath::as_bytes).collect();
    index.remove(|name| names.contains(name))
}

/// An index that hardened git works on.
struct Index<'a> {
    git: &'a HostGit,
    scratch: &'a Scratch,
    file: PathBuf,
    empty: &'a Path,
}

impl Index<'_> {
    fn run(&self, arguments: Vec<&str>, input: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let fixed = |text: &str| PathBuf::from(text);
        let variables = vec![
            ("GIT_INDEX_FILE", self.file.clone()),
            ("GIT_WORK_TREE", self.empty.to_path_buf()),
            // The same files give the same commit: nothing of the host's history is in it.
            ("GIT_AUTHOR_NAME", fixed("bastle")),
            ("GIT_AUTHOR_EMAIL", fixed("bastle@localhost")),
            ("GIT_AUTHOR_DATE", fixed("@946684800 +0000")),
            ("GIT_COMMITTER_NAME", fixed("bastle")),
            ("GIT_COMMITTER_EMAIL", fixed("bastle@localhost")),
            ("GIT_COMMITTER_DATE", fixed("@946684800 +0000")),
        ];
        self.git.run(
            self.scratch,
            Call {
                arguments,
                input,
                variables,
                ..Call::default()
            },
        )
    }

    fn remove(&self, hidden: impl Fn(&[u8]) -> bool) -> Result<(), Fault> {
        let listed = self.run(vec!["ls-files", "-z"], Vec::new())?;
        let mut input = Vec::new();
        for name in listed
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty() && hidden(name))
        {
            input.extend_from_slice(name);
            input.push(0);
        }
        if input.is_empty() {
            return Ok(());
        }
        self.run(vec!["update-index", "--force-remove", "-z", "--stdin"], input)
            .map(|_| ())
    }
}

fn line(output: Vec<u8>) -> String {
    String::from_utf8_lossy(&output).trim().to_owned()
}
