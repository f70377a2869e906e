//! Gives the agent's copy a repository of its own, in which commits work and from which nothing leads back.
//!
//! **Trust:** runs before the agent starts, so the copy is still ours. From the host come objects, references
//! and the index; no hook, no configuration but an identity, a few plain switches and the addresses of remotes.
use super::history::{self, History};
use super::objects::{self, Transfer, copy_file, copy_shallow};
use super::{
    BranchName, Call, Config, Head, HostGit, HostRepo, Identity, ObjectFormat, ObjectId, Scratch, unusable,
};
use crate::finding::{About, Finding};
use crate::path::TreePath;
use crate::workspace::GitMade;
use bastle_contract::Fault;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What to prepare.
#[derive(Debug)]
pub struct Prepare<'a> {
    /// The project on the host.
    pub source: &'a Path,
    /// The agent's copy of it, complete but for `.git`.
    pub tree: &'a Path,
    /// A directory of the run for short-lived files; not inside `tree`.
    pub scratch: &'a Path,
    /// The branch the agent works on.
    pub branch: &'a BranchName,
    /// The user's own configuration files, for the identity only.
    pub user_configs: &'a [&'a Path],
    /// Paths of the host tree that the copy does not have: tracked ones must not look deleted.
    pub absent: &'a [TreePath],
    /// How much of the history it has.
    pub history: History<'a>,
}

/// A directory that the sandbox must see read-only, at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitBind {
    /// On the host and inside.
    pub path: PathBuf,
}

/// What the copy's repository was made from.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The commit the agent starts from; none on an unborn branch.
    pub head: Option<ObjectId>,
    /// The host's branch; none when detached.
    pub host_branch: Option<String>,
    /// Hash of the objects.
    pub format: ObjectFormat,
    /// Directories to bind.
    pub binds: Vec<GitBind>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Whether it has one commit and no hidden names in its index.
    pub without_history: bool,
}

impl Prepared {
    /// The read-only binds the sandbox needs for history to be complete.
    #[must_use]
    pub fn extra_binds(&self) -> &[GitBind] {
        &self.binds
    }

    /// For the record of the copy.
    #[must_use]
    pub fn made(&self, branch: &BranchName) -> GitMade {
        let at = TreePath::new(".git").ok();
        let note = |text: &String| {
            Some(Finding {
                path: at.clone()?,
                about: About::Note(text.clone()),
            })
        };
        GitMade {
            head: self.head.as_ref().map(|id| id.as_str().to_owned()),
            branch: self.host_branch.clone(),
            agent_branch: Some(branch.as_str().to_owned()),
            findings: self.notes.iter().filter_map(note).collect(),
            without_history: self.without_history,
        }
    }
}

/// Makes `tree/.git`. `None` when the project is not a repository.
///
/// # Errors
/// When the host's repository cannot be used safely or the copy cannot be written.
pub fn prepare(git: &HostGit, request: &Prepare<'_>) -> Result<Option<Prepared>, Fault> {
    let Some(repo) = HostRepo::open(request.source)? else {
        return Ok(None);
    };
    let target = request.tree.join(".git");
    let fail = |error: std::io::Error| unusable(&target, error.to_string());
    for part in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        std::fs::create_dir_all(target.join(part)).map_err(fail)?;
    }
    let mut prepared = Prepared {
        head: repo.head.commit().cloned(),
        host_branch: match &repo.head {
            Head::Branch { name, .. } | Head::Unborn { name } => Some(name.clone()),
            Head::Detached(_) => None,
        },
        format: repo.format,
        binds: Vec::new(),
        notes: notes(&repo, request.source),
        without_history: false,
    };
    if let History::BaseOnly(_) = request.history {
        copy_index(&repo, &target).map_err(fail)?;
        let base = history::base_only(git, &repo, request, &target)?;
        write_references(base.as_ref(), BTreeMap::new(), request.branch, &target)?;
        write_config(&repo, request, &target).map_err(fail)?;
        prepared.without_history = true;
        prepared
            .notes
            .push("history is left out: the copy has one commit, without hidden names".to_owned());
        return Ok(Some(prepared));
    }
    // Before the objects: what a reference names then is among them, whatever is committed meanwhile.
    let references = if repo.borrows {
        BTreeMap::new()
    } else {
        repo.references()?
    };
    match objects::bring(git, &repo, &target.join("objects"), request.scratch)? {
        Transfer::Copied => {}
        Transfer::Bound => {
            let path = repo.objects().canonicalize().map_err(fail)?;
            let line = [path.as_os_str().as_encoded_bytes(), b"\n"].concat();
            std::fs::write(target.join("objects/info/alternates"), line).map_err(fail)?;
            prepared.binds.push(GitBind { path });
        }
    }
    copy_shallow(&repo, &target)?;
    write_references(repo.head.commit(), references, request.branch, &target)?;
    write_config(&repo, request, &target).map_err(fail)?;
    copy_index(&repo, &target).map_err(fail)?;
    hide_absent(git, &repo, request, &target)?;
    Ok(Some(prepared))
}

fn notes(repo: &HostRepo, source: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |wanted: bool, text: &str| {
        if wanted {
            notes.push(text.to_owned());
        }
    };
    note(
        repo.shallow,
        "history is cut off (shallow clone): merges and blame inside see only what is there",
    );
    note(
        repo.partial,
        "this is a partial clone: objects that were never fetched are missing inside",
    );
    note(
        repo.borrows,
        "objects are borrowed from another repository: only the history of HEAD is inside",
    );
    note(
        source.join(".gitmodules").symlink_metadata().is_ok(),
        "submodules are plain files inside; they are not cloned",
    );
    for state in [
        "MERGE_HEAD",
        "rebase-merge",
        "rebase-apply",
        "CHERRY_PICK_HEAD",
        "BISECT_LOG",
    ] {
        note(
            repo.git_dir.join(state).symlink_metadata().is_ok(),
            "a merge, rebase or bisect under way on the host is not continued inside",
        );
    }
    notes.dedup();
    notes
}

/// The agent's branch at the host's head, and the host's references in one packed file.
fn write_references(
    tip: Option<&ObjectId>,
    mut references: BTreeMap<String, ObjectId>,
    branch: &BranchName,
    target: &Path,
) -> Result<(), Fault> {
    let fail = |error: std::io::Error| unusable(target, error.to_string());
    if let Some(commit) = tip {
        references.insert(branch.full(), commit.clone());
    }
    // `a` and `a/b` cannot both be branches: the agent's own name wins in its copy.
    let full = branch.full();
    references.retain(|name, _| *name == full || !(is_above(name, &full) || is_above(&full, name)));
    // Sorted, and what tags lead to is not said. GitPython, which aider has, wants to find "peeled" in this line; git
    // knows no word "not-peeled" and passes it over.
    let mut packed = String::from("# pack-refs with: sorted not-peeled\n");
    for (name, id) in &references {
        writeln!(packed, "{} {name}", id.as_str()).map_err(|_| fail(std::io::Error::other("formatting")))?;
    }
    std::fs::write(target.join("packed-refs"), packed).map_err(fail)?;
    std::fs::write(target.join("HEAD"), format!("ref: {full}\n")).map_err(fail)
}

fn is_above(upper: &str, lower: &str) -> bool {
    lower
        .strip_prefix(upper)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn write_config(repo: &HostRepo, request: &Prepare<'_>, target: &Path) -> std::io::Result<()> {
    let host = repo.common_dir.join("config");
    let files: Vec<&Path> = std::iter::once(host.as_path())
        .chain(request.user_configs.iter().copied())
        .collect();
    let identity = Identity::from_files(&files);
    let config = Config::read(&host).unwrap_or_default();
    let (version, extension) = match repo.format {
        ObjectFormat::Sha1 => (0, String::new()),
        ObjectFormat::Sha256 => (
            1,
            format!("[extensions]\n\tobjectformat = {}\n", repo.format.name()),
        ),
    };
    let mut text = format!(
        "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
         \tcheckStat = minimal\n\ttrustctime = false\n{extension}\
         [user]\n\tname = \"{}\"\n\temail = \"{}\"\n[gc]\n\tauto = 0\n",
        identity.name, identity.email
    );
    // Plain switches that change what a commit or a checkout holds; none of them names a program or a path.
    for key in [
        "autocrlf",
        "ignorecase",
        "precomposeunicode",
        "sparsecheckout",
        "sparsecheckoutcone",
        "eol",
        "longpaths",
    ] {
        let value = config.get(&format!("core.{key}")).map(str::to_ascii_lowercase);
        if let Some(value @ ("true" | "false" | "input" | "lf" | "crlf" | "native")) = value.as_deref() {
            text.push_str(&format!("[core]\n\t{key} = {value}\n"));
        }
    }
    text.push_str(&super::remotes::section(&config));
    std::fs::write(target.join("config"), text)?;
    for name in ["info/exclude", "info/attributes", "info/sparse-checkout"] {
        let from = if name == "info/sparse-checkout" {
            &repo.git_dir
        } else {
            &repo.common_dir
        }
        .join(name);
        if from.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            copy_file(&from, &target.join(name))?;
        }
    }
    Ok(())
}

/// The index as it is. Its stat data fits the copy because times are preserved and the copy's configuration
/// compares times and sizes only; its own time is kept too, or git would trust files it must look at again.
fn copy_index(repo: &HostRepo, target: &Path) -> std::io::Result<()> {
    let index = repo.git_dir.join("index");
    if index.symlink_metadata().is_err() {
        return Ok(());
    }
    copy_file(&index, &target.join("index"))?;
    let meta = std::fs::metadata(&index)?;
    let time = Timespec {
        tv_sec: meta.mtime(),
        tv_nsec: meta.mtime_nsec(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, target.join("index"), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    for entry in std::fs::read_dir(&repo.git_dir)? {
        let entry = entry?;
        let shared = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("sharedindex."));
        if shared && entry.file_type()?.is_file() {
            copy_file(&entry.path(), &target.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Tracked files that the copy does not have get git's "skip the work tree" mark.
fn hide_absent(git: &HostGit, repo: &HostRepo, request: &Prepare<'_>, target: &Path) -> Result<(), Fault> {
    if request.absent.is_empty() || target.join("index").symlink_metadata().is_err() {
        return Ok(());
    }
    let scratch = Scratch::new(
        request.scratch,
        repo.format,
        &[target
            .join("objects")
            .canonicalize()
            .map_err(|error| unusable(target, error.to_string()))?],
    )?;
    let index = vec![("GIT_INDEX_FILE", target.join("index"))];
    let listed = git.run(
        &scratch,
        Call {
            arguments: vec!["ls-files", "--cached", "-z"],
            variables: index.clone(),
            ..Call::default()
        },
    )?;
    let mut input = Vec::new();
    for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let hidden = TreePath::new(name)
            .is_ok_and(|path| request.absent.iter().any(|absent| path.starts_with(absent)));
        if hidden {
            input.extend_from_slice(name);
            input.push(0);
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    let empty = request.scratch.join("no-work-tree");
    std::fs::create_dir_all(&empty).map_err(|error| unusable(target, error.to_string()))?;
    let mut variables = index;
    variables.push(("GIT_WORK_TREE", empty));
    let arguments = vec!["update-index", "--skip-worktree", "-z", "--stdin"];
    git.run(
        &scratch,
        Call {
            arguments,
            input,
            variables,
            ..Call::default()
        },
    )?;
    Ok(())
}
