//! Ignored files that look like secrets: nobody reviews them, git does not carry them, and an agent needs none of them.
//!
//! **Trust:** the project is the user's. Names are read, no content; git judges them with a repository of ours.
use super::WorkHistory;
use bastle_contract::{Code, Fault, NameList};
use bastle_workspace::beneath::Dir;
use bastle_workspace::git::{Call, HostGit, HostRepo, Scratch};
use bastle_workspace::path::TreePath;
use rustix::fs::FileType;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// Endings of key and credential files.
const ENDINGS: &[&str] = &[
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".p8",
    ".jks",
    ".keystore",
    ".kdbx",
    ".ppk",
    ".asc",
    ".gpg",
    ".age",
    ".tfstate",
    ".tfvars",
    ".ovpn",
    ".mobileprovision",
    ".secret",
    ".secrets",
    ".token",
    ".htpasswd",
];
/// Whole names.
const NAMES: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".vault-token",
    ".envrc",
    "auth.json",
    "credentials",
    "kubeconfig",
    "secrets",
    "terraform.tfstate.backup",
];
/// Words of a name that is data.
const WORDS: &[&str] = &[
    "secret",
    "credential",
    "password",
    "passwd",
    "service-account",
    "service_account",
    "serviceaccount",
    "private-key",
    "private_key",
    "apikey",
    "api-key",
    "api_key",
    "access-token",
    "access_token",
];
/// What such data is written in.
const DATA: &[&str] = &[
    ".json",
    ".yml",
    ".yaml",
    ".toml",
    ".ini",
    ".cfg",
    ".conf",
    ".properties",
    ".txt",
    ".xml",
    ".csv",
    "",
];
/// Directories searched at most; a project's own are far fewer, and what is not searched is decided by the policy alone.
const MOST_DIRECTORIES: usize = 200_000;

/// Whether a name looks like that of a secret.
pub(super) fn looks_secret(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let (stem, ending) = match name.rfind('.') {
        Some(at) if at > 0 => name.split_at(at),
        Some(_) | None => (name.as_str(), ""),
    };
    NAMES.contains(&name.as_str())
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (DATA.contains(&ending) && WORDS.iter().any(|word| stem.contains(word)))
}

/// What stays out of a copy beside hidden names.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Ignored files that look like secrets, where the project is a repository; other names of hidden files, and files that
    /// hidden links lead to.
    pub(super) names: Vec<TreePath>,
    /// Git repositories and bundles other than the project's own: they have a history, too.
    pub(super) stores: Vec<TreePath>,
}

/// Finds it by one walk.
pub(super) fn left_out(
    git: Option<&HostGit>,
    source: &Path,
    scratch: &Path,
    hidden: &NameList,
    history: WorkHistory,
) -> Result<LeftOut, Fault> {
    let found = search(source, hidden, history)?;
    let mut names = match git {
        Some(git) => ignored(git, source, scratch, found.names)?,
        None => Vec::new(),
    };
    if !found.shared.is_empty() {
        names.extend(linked(source, &found.shared));
    }
    names.extend(found.targets);
    Ok(LeftOut {
        names,
        stores: found.stores,
    })
}

/// Which of these files of a repository are ignored.
fn ignored(
    git: &HostGit,
    source: &Path,
    scratch: &Path,
    found: Vec<TreePath>,
) -> Result<Vec<TreePath>, Fault> {
    let Some(repo) = HostRepo::open(source)? else {
        return Ok(Vec::new());
    };
    if found.is_empty() {
        return Ok(found);
    }
    sweep(scratch);
    let scratch = Scratch::new(scratch, repo.format, &[])?;
    let exclude = repo.common_dir.join("info/exclude");
    if exclude.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        // Without it the project's private list says nothing: fewer files are left out, none more.
        drop(std::fs::copy(&exclude, scratch.path().join("info/exclude")));
    }
    let mut input = Vec::new();
    for path in &found {
        // A name that starts with `:` would be a pattern to git; behind `./` it is a name.
        input.extend_from_slice(b"./");
        input.extend_from_slice(path.as_bytes());
        input.push(0);
    }
    let mut arguments = vec!["-c", "core.bare=false", "check-ignore", "-z", "--stdin"];
    let mut variables = vec![("GIT_WORK_TREE", source.to_path_buf())];
    let index = repo.git_dir.join("index");
    if index.is_file() {
        // With the index a tracked file is no ignored one.
        variables.push(("GIT_INDEX_FILE", index));
    } else {
        arguments.push("--no-index");
    }
    let listed = git.run(
        &scratch,
        Call {
            arguments,
            input,
            variables,
            directory: Some(source.to_path_buf()),
            // 1: none is ignored.
            answers: &[1],
            ..Call::default()
        },
    )?;
    let names = listed
        .split(|byte| *byte == 0)
        .filter_map(|name| name.strip_prefix(b"./"));
    Ok(names.filter_map(|name| TreePath::new(name).ok()).collect())
}

/// Removes what processes that were killed left here.
pub(super) fn sweep(directory: &Path) {
    let Ok(listing) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in listing.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            name.strip_prefix("scratch-")?
                .split('-')
                .next()?
                .parse::<u32>()
                .ok()
        });
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // What stays is small and tried again the next time.
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

/// A file, whatever its names.
type Inode = (u64, u64);

#[derive(Default)]
struct Found {
    /// Files whose name looks like that of a secret.
    names: Vec<TreePath>,
    /// Hidden files that have another name.
    shared: HashSet<Inode>,
    /// Where hidden links lead in the project.
    targets: Vec<TreePath>,
    stores: Vec<TreePath>,
}

/// Looks at every name, without following a link on the way.
fn search(source: &Path, hidden: &NameList, history: WorkHistory) -> Result<Found, Fault> {
    let mut found = Found::default();
    let mut stores = Vec::new();
    let whole = walk(source, &mut stores, &mut |directory, path, kind| {
        let covered = kind != FileType::Directory && hidden.covers(path.as_bytes());
        if kind == FileType::RegularFile {
            if covered
                && let Ok(stat) = directory.stat(path.name())
                && Into::<u64>::into(stat.st_nlink) > 1
            {
                found.shared.insert((stat.st_dev, stat.st_ino));
            }
            // Reading the beginning of every file is worth it only where all of them must be found.
            let likely = path.name().ends_with(b".bundle") || path.name().ends_with(b".pack");
            if (likely || history == WorkHistory::Hidden) && holds_objects(directory, path.name()) {
                found.stores.push(path.clone());
            }
        }
        if kind == FileType::Symlink && covered {
            found.targets.extend(target(source, &path));
        }
        if looks_secret(path.name()) {
            found.names.push(path);
        }
    });
    found.stores.extend(stores);
    found.stores.sort();
    if history == WorkHistory::Hidden && !whole {
        let why =
            format!("more than {MOST_DIRECTORIES} directories would have to be searched for repositories");
        return Err(Fault::new(
            Code::WorkspaceInvalid,
            "the history cannot be hidden",
            why,
        ));
    }
    Ok(found)
}

/// Where a hidden link leads, when that is in the project: the content is hidden, whatever its name.
fn target(source: &Path, link: &TreePath) -> Option<TreePath> {
    let real = std::fs::canonicalize(source.join(link.as_path())).ok()?;
    let below = real.strip_prefix(source).ok()?;
    TreePath::new(below.as_os_str().as_encoded_bytes()).ok()
}

/// Whether a file is a bundle or a pack: git reads objects out of either.
fn holds_objects(directory: &Dir, name: &[u8]) -> bool {
    let mut start = Vec::new();
    let read = directory
        .open_regular(name)
        .and_then(|(file, _)| file.take(16).read_to_end(&mut start));
    read.is_ok()
        && (start.starts_with(b"PACK\0\0\0")
            || (start.starts_with(b"# v") && start.get(4..) == Some(b" git bundle\n")))
}

/// Every name of these files.
fn linked(source: &Path, shared: &HashSet<Inode>) -> Vec<TreePath> {
    let mut found = Vec::new();
    walk(source, &mut Vec::new(), &mut |directory, path, kind| {
        if kind == FileType::RegularFile
            && directory
                .stat(path.name())
                .is_ok_and(|stat| shared.contains(&(stat.st_dev, stat.st_ino)))
        {
            found.push(path);
        }
    });
    found
}

/// Shows everything but directories, and collects repositories; these are not entered. `false`: not all was searched.
fn walk(source: &Path, stores: &mut Vec<TreePath>, show: &mut dyn FnMut(&Dir, TreePath, FileType)) -> bool {
    let Ok(root) = Dir::open(source) else {
        return true;
    };
    let mut open: Vec<Option<TreePath>> = vec![None];
    let (mut searched, mut whole) = (0, true);
    while let Some(at) = open.pop() {
        searched += 1;
        let Ok(directory) = root.beneath(at.as_ref()) else {
            continue;
        };
        let Ok(names) = directory.list() else { continue };
        let has = |name: &[u8], directory: bool| {
            let mut all = names.iter();
            all.any(|one| one.name == name && (one.kind == FileType::Directory) == directory)
        };
        let bare = has(b"HEAD", false) && has(b"objects", true) && has(b"refs", true);
        if bare && let Some(at) = &at {
            stores.push(at.clone());
            continue;
        }
        for one in &names {
            let Ok(path) = TreePath::join(at.as_ref(), &one.name) else {
                continue;
            };
            let nested = one.name.eq_ignore_ascii_case(b".git") && one.kind == FileType::Directory;
            if nested && path.as_bytes() != b".git" {
                stores.push(path);
                continue;
            }
            // The project's own is not copied; where the project is a bare repository, these two are it.
            if one.name == b".git" {
                continue;
            }
            if bare && matches!(one.name.as_slice(), b"objects" | b"refs") {
                stores.push(path);
                continue;
            }
            if one.kind == FileType::Directory {
                if searched + open.len() < MOST_DIRECTORIES {
                    open.push(Some(path));
                } else {
                    whole = false;
                }
            } else {
                show(&directory, path, one.kind);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::looks_secret;

    #[test]
    fn keys_and_credentials_look_secret_and_sources_do_not() {
        for name in [
            "server.pem",
            "ID.KEY",
            "secrets.yaml",
            ".npmrc",
            "db-password.txt",
            "service-account.json",
        ] {
            assert!(looks_secret(name.as_bytes()), "{name}");
        }
        for name in [
            "secrets.rs",
            "password_form.tsx",
            "README.md",
            "keyboard.c",
            ".gitignore",
            "token.go",
        ] {
            assert!(!looks_secret(name.as_bytes()), "{name}");
        }
    }
}
