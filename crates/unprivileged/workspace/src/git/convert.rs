//! Line ends and encodings as the project's attributes and settings define them, done by git itself.
//!
//! **Trust:** attributes name drivers, and a driver is a setting: bastle's own repository has none, so that no filter of the
//! project runs. Of the project's settings only those of line ends are taken, by their known values.
use super::{Call, Config, HostGit, HostRepo, Scratch, unusable};
use crate::blobs::{Blobs, read_blob};
use crate::manifest::{Kind, Manifest};
use crate::path::TreePath;
use bastle_contract::{Code, Fault};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// People write these; git reads at most 100 MiB of one.
const MAX_ATTRIBUTES: u64 = 1 << 20;
/// Attribute files of one tree; more are not a project's own.
const MAX_FILES: usize = 5_000;

/// Settings of the host's repository that change what a file's bytes are in a commit, as arguments.
pub(crate) fn settings(repo: &HostRepo) -> Vec<String> {
    let config = Config::read(&repo.common_dir.join("config")).unwrap_or_default();
    let word = |key: &str| config.get(key).map(str::to_ascii_lowercase);
    let autocrlf = match word("core.autocrlf").as_deref() {
        Some("input") => "input",
        Some("true" | "yes" | "on" | "1") => "true",
        Some(_) | None => "false",
    };
    let eol = match word("core.eol").as_deref() {
        Some("crlf") => "crlf",
        Some("lf") => "lf",
        Some(_) | None => "native",
    };
    let mut words = Vec::new();
    for setting in [format!("core.autocrlf={autocrlf}"), format!("core.eol={eol}")] {
        words.extend(["-c".to_owned(), setting]);
    }
    words
}

/// Gives the scratch repository the attributes that the host keeps beside its objects.
pub(crate) fn own_attributes(repo: &HostRepo, scratch: &Scratch) -> Result<(), Fault> {
    let from = repo.common_dir.join("info/attributes");
    match crate::rooted::read_small(&from, MAX_ATTRIBUTES) {
        Ok(bytes) => {
            let to = scratch.path().join("info/attributes");
            std::fs::write(&to, bytes).map_err(|error| unusable(&to, error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(&from, error.to_string())),
    }
}

/// Puts files into the index as `git add` would in a tree that has them and the attribute files of `base`.
pub(super) fn add(
    git: &HostGit,
    scratch: &Scratch,
    (repo, base): (&HostRepo, &Manifest),
    files: &[(TreePath, Option<Kind>)],
    blobs: &dyn Blobs,
) -> Result<(), Fault> {
    let tree = scratch.path().join("work-tree");
    let fail = |error: std::io::Error| unusable(&tree, error.to_string());
    std::fs::create_dir(&tree).map_err(fail)?;
    own_attributes(repo, scratch)?;
    let attributes = base
        .entries()
        .iter()
        .filter(|entry| entry.path.name() == b".gitattributes" && !entry.path.in_git());
    for entry in attributes.take(MAX_FILES) {
        let (Kind::File { digest, .. }, false) =
            (&entry.kind, files.iter().any(|(path, _)| *path == entry.path))
        else {
            continue;
        };
        if let Some(bytes) = read_blob(blobs, digest, MAX_ATTRIBUTES)? {
            let at = place(&tree, &entry.path).map_err(fail)?;
            std::fs::write(at, bytes).map_err(fail)?;
        }
    }
    let mut input = Vec::new();
    for (path, kind) in files {
        let Some(kind @ (Kind::File { .. } | Kind::Symlink { .. })) = kind else {
            continue;
        };
        lay_out(&place(&tree, path).map_err(fail)?, kind, blobs)?;
        input.extend_from_slice(path.as_bytes());
        input.push(0);
    }
    if input.is_empty() {
        return Ok(());
    }
    let settings = settings(repo);
    let mut arguments = vec!["-c", "core.bare=false"];
    arguments.extend(settings.iter().map(String::as_str));
    arguments.extend(["update-index", "--add", "--replace", "-z", "--stdin"]);
    git.run(
        scratch,
        Call {
            arguments,
            input,
            directory: Some(tree.clone()),
            variables: vec![
                ("GIT_INDEX_FILE", scratch.path().join("index")),
                ("GIT_WORK_TREE", tree),
            ],
            attributes: super::host::Attributes::OfTree,
            ..Call::default()
        },
    )?;
    Ok(())
}

/// The names are those of a manifest or were judged by the gate: none leads out, and the directory is bastle's own.
fn place(tree: &Path, path: &TreePath) -> std::io::Result<PathBuf> {
    let at = tree.join(path.as_path());
    if let Some(parent) = at.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(at)
}

fn lay_out(at: &Path, kind: &Kind, blobs: &dyn Blobs) -> Result<(), Fault> {
    let fail = |error: std::io::Error| unusable(at, error.to_string());
    match kind {
        Kind::Symlink { target } => {
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target.0), at).map_err(fail)
        }
        Kind::File { mode, .. } => {
            super::commit::lay_out(at, Some(kind), blobs)?;
            let bits = if mode.executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(at, Permissions::from_mode(bits)).map_err(fail)
        }
        Kind::Dir | Kind::Submodule { .. } | Kind::Opaque { .. } => {
            let what = "commit what is neither file nor link";
            Err(Fault::new(Code::WorkspaceApply, what, at.display().to_string()))
        }
    }
}
