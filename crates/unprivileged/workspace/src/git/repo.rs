//! The host's repository, read without git: head, references, object directories, layout.
//!
//! **Trust:** the directory is the user's, but a download can bring a `.git` of its own. A pointer to another
//! directory (`gitdir:`, `commondir`, links) is followed only where the other end points back, so that a
//! project cannot borrow the trust, or the history, of a repository elsewhere.
use super::{Config, unusable};
use crate::rooted::read_small;
use bastle_contract::Fault;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `gitdir: ` and a path.
const MAX_POINTER: u64 = 4096 + 16;
/// A hundred bytes per reference, half a million references.
const MAX_PACKED_REFS: u64 = 64 << 20;
/// Loose references visited; more are packed by git's own housekeeping.
const MAX_LOOSE_REFS: usize = 100_000;
/// Nesting of loose references; a name of 255 bytes has at most 128 components.
const MAX_REF_DEPTH: usize = 128;

/// The hash of a repository's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFormat {
    /// 40 digits.
    Sha1,
    /// 64 digits.
    Sha256,
}

/// The name of an object: lower-case hexadecimal of the format's length.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(String);

/// Where the host's `HEAD` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// On a branch with commits.
    Branch {
        /// Full name.
        name: String,
        /// Its tip.
        commit: ObjectId,
    },
    /// On a branch without a commit.
    Unborn {
        /// Full name.
        name: String,
    },
    /// On no branch.
    Detached(ObjectId),
}

/// A repository whose layout has been checked.
#[derive(Clone, Debug)]
pub struct HostRepo {
    /// The repository's own directory: `.git`, or that of a worktree.
    pub git_dir: PathBuf,
    /// The directory shared by all worktrees.
    pub common_dir: PathBuf,
    /// Hash of its objects.
    pub format: ObjectFormat,
    /// Its head.
    pub head: Head,
    /// Whether history is cut off.
    pub shallow: bool,
    /// Whether objects are borrowed from another repository.
    pub borrows: bool,
    /// Whether some objects were left on a server.
    pub partial: bool,
}

impl ObjectFormat {
    /// Digits of an object's name.
    #[must_use]
    pub fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }

    /// The name git's configuration uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The name of the tree that holds nothing, which git knows without it being stored.
    #[must_use]
    pub fn empty_tree(self) -> &'static str {
        match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }
}

impl ObjectId {
    /// Checks digits of either format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hexadecimal = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (matches!(text.len(), 40 | 64) && hexadecimal).then(|| Self(text.to_owned()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Head {
    /// The commit it names.
    #[must_use]
    pub fn commit(&self) -> Option<&ObjectId> {
        match self {
            Self::Branch { commit, .. } | Self::Detached(commit) => Some(commit),
            Self::Unborn { .. } => None,
        }
    }
}

impl HostRepo {
    /// Opens the repository of a project; `None` when the project has no `.git`.
    ///
    /// # Errors
    /// When there is one that cannot be used safely; the fault says why.
    pub fn open(source: &Path) -> Result<Option<Self>, Fault> {
        let dot_git = source.join(".git");
        let meta = match std::fs::symlink_metadata(&dot_git) {
            Ok(meta) => meta,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(source, error.to_string())),
        };
        let (git_dir, common_dir) = if meta.is_dir() {
            if dot_git.join("commondir").symlink_metadata().is_ok() {
                return Err(unusable(
                    source,
                    "its .git directory claims to be part of another repository (commondir)",
                ));
            }
            (dot_git.clone(), dot_git)
        } else if meta.is_file() {
            follow_pointer(source, &dot_git)?
        } else {
            return Err(unusable(
                source,
                "its .git is a link or special file; use the real directory",
            ));
        };
        for part in ["objects", "refs"] {
            if !common_dir
                .join(part)
                .symlink_metadata()
                .is_ok_and(|meta| meta.is_dir())
            {
                return Err(unusable(
                    source,
                    format!("its {part} is not a directory of its own"),
                ));
            }
        }
        let config = Config::read(&common_dir.join("config"))
            .ok_or_else(|| unusable(source, "its config cannot be read"))?;
        if config
            .get("extensions.refstorage")
            .is_some_and(|kind| kind != "files")
        {
            return Err(unusable(
                source,
                "its references are not stored as files (reftable), which bastle cannot copy yet",
            )
            .help("git refs migrate --ref-format=files, or bastle run --workspace in-place -- CMD"));
        }
        let format = match config.get("extensions.objectformat") {
            None | Some("sha1") => ObjectFormat::Sha1,
            Some("sha256") => ObjectFormat::Sha256,
            Some(_) => return Err(unusable(source, "its object format is unknown")),
        };
        let head = read_head(source, &git_dir, &common_dir, format)?;
        let exists = |name: &str| common_dir.join(name).symlink_metadata().is_ok();
        Ok(Some(Self {
            shallow: exists("shallow"),
            borrows: exists("objects/info/alternates"),
            partial: config.get("extensions.partialclone").is_some(),
            git_dir,
            common_dir,
            format,
            head,
        }))
    }

    /// The directory of objects.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// All branches, tags and remote-tracking references with their objects; loose ones win over packed ones.
    ///
    /// # Errors
    /// When they cannot be read or are more than any repository has.
    pub fn references(&self) -> Result<BTreeMap<String, ObjectId>, Fault> {
        let fail = |why: String| unusable(&self.common_dir, why);
        let mut found = BTreeMap::new();
        match read_small(&self.common_dir.join("packed-refs"), MAX_PACKED_REFS) {
            Ok(bytes) => found.extend(parse_packed(&String::from_utf8_lossy(&bytes), self.format)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(format!("packed-refs: {error}"))),
        }
        let mut left = MAX_LOOSE_REFS;
        for space in ["heads", "tags", "remotes"] {
            let directory = self.common_dir.join("refs").join(space);
            walk_loose(
                &directory,
                &format!("refs/{space}"),
                0,
                &mut left,
                &mut |name, path| {
                    let id = read_small(path, 128)
                        .ok()
                        .and_then(|bytes| parse_id(&bytes, self.format));
                    if let Some(id) = id {
                        found.insert(name, id);
                    }
                },
            )
            .map_err(|error| fail(format!("references: {error}")))?;
        }
        Ok(found)
    }
}

/// Follows `gitdir:` where the other end is provably this project's: a worktree that points back, or the
/// module directory of a repository above.
fn follow_pointer(source: &Path, dot_git: &Path) -> Result<(PathBuf, PathBuf), Fault> {
    let fail = |why: &str| unusable(source, why.to_owned());
    let bytes = read_small(dot_git, MAX_POINTER).map_err(|error| unusable(source, error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| fail("its .git file is not text"))?;
    let target = text
        .strip_prefix("gitdir: ")
        .ok_or_else(|| fail("its .git file is not a pointer"))?;
    let real = |path: PathBuf| {
        path.canonicalize()
            .map_err(|_| fail("its .git file points to nothing"))
    };
    let git_dir = real(source.join(target.trim_end_matches('\n')))?;
    let here = real(source.to_owned())?;
    if let Ok(back) = read_small(&git_dir.join("gitdir"), MAX_POINTER) {
        let back = String::from_utf8_lossy(&back);
        let points_back = git_dir
            .join(back.trim_end_matches('\n'))
            .canonicalize()
            .is_ok_and(|path| path == here.join(".git"));
        let worktrees = git_dir
            .parent()
            .filter(|parent| parent.file_name().is_some_and(|name| name == "worktrees"));
        let common = read_small(&git_dir.join("commondir"), MAX_POINTER)
            .map_err(|_| fail("its worktree has no commondir"))?;
        let common = real(git_dir.join(String::from_utf8_lossy(&common).trim_end_matches('\n')))?;
        // The directory above `worktrees` is the common one by construction; anything else was edited by hand.
        if points_back && worktrees.and_then(Path::parent) == Some(common.as_path()) {
            return Ok((git_dir, common));
        }
        return Err(fail(
            "its .git file points to a worktree that does not point back",
        ));
    }
    let module_of_parent = here
        .ancestors()
        .skip(1)
        .any(|above| git_dir.starts_with(above.join(".git").join("modules")));
    if module_of_parent && git_dir.join("commondir").symlink_metadata().is_err() {
        return Ok((git_dir.clone(), git_dir));
    }
    Err(fail("its .git file points to a repository elsewhere"))
}

fn read_head(source: &Path, git_dir: &Path, common: &Path, format: ObjectFormat) -> Result<Head, Fault> {
    let bytes = read_small(&git_dir.join("HEAD"), 1024)
        .map_err(|error| unusable(source, format!("HEAD: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let Some(name) = text.strip_prefix("ref:").map(str::trim) else {
        let id = parse_id(&bytes, format).ok_or_else(|| unusable(source, "its HEAD is malformed"))?;
        return Ok(Head::Detached(id));
    };
    let well_formed = name
        .strip_prefix("refs/heads/")
        .is_some_and(|short| super::BranchName::new(short).is_ok());
    if !well_formed {
        return Err(unusable(source, "its HEAD names no branch"));
    }
    let name = name.to_owned();
    let loose = read_small(&common.join(&name), 128)
        .ok()
        .and_then(|bytes| parse_id(&bytes, format));
    let packed = || {
        let bytes = read_small(&common.join("packed-refs"), MAX_PACKED_REFS).ok()?;
        let wanted = |(found, _): &(String, ObjectId)| *found == name;
        parse_packed(&String::from_utf8_lossy(&bytes), format)
            .find(wanted)
            .map(|(_, id)| id)
    };
    Ok(match loose.or_else(packed) {
        Some(commit) => Head::Branch { name, commit },
        None => Head::Unborn { name },
    })
}

pub(super) fn parse_id(bytes: &[u8], format: ObjectFormat) -> Option<ObjectId> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    ObjectId::parse(text).filter(|id| id.0.len() == format.digits())
}

/// Lines `<id> <name>`; comments, peeled tags and names outside the three spaces are passed over.
fn parse_packed(text: &str, format: ObjectFormat) -> impl Iterator<Item = (String, ObjectId)> + '_ {
    text.lines().filter_map(move |line| {
        let (id, name) = line.split_once(' ')?;
        let id = parse_id(id.as_bytes(), format)?;
        is_shared_name(name).then(|| (name.to_owned(), id))
    })
}

/// Whether a full reference name is well-formed and in a space that copies share.
fn is_shared_name(name: &str) -> bool {
    ["refs/heads/", "refs/tags/", "refs/remotes/"]
        .iter()
        .find_map(|space| name.strip_prefix(space))
        .is_some_and(|short| short.ends_with("/HEAD") || super::BranchName::new(short).is_ok())
}

fn walk_loose(
    directory: &Path,
    prefix: &str,
    depth: usize,
    left: &mut usize,
    visit: &mut dyn FnMut(String, &Path),
) -> std::io::Result<()> {
    if depth > MAX_REF_DEPTH || !directory.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        *left = left
            .checked_sub(1)
            .ok_or_else(|| std::io::Error::other("more loose references than any repository has"))?;
        let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}/{name}")) else {
            continue;
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk_loose(&entry.path(), &name, depth + 1, left, visit)?;
        } else if kind.is_file() && is_shared_name(&name) {
            visit(name, &entry.path());
        }
    }
    Ok(())
}

/// Feeds any bytes to the parsers of reference files.
pub(crate) fn fuzz_refs(bytes: &[u8]) {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for (name, id) in parse_packed(&String::from_utf8_lossy(bytes), format) {
            assert!(is_shared_name(&name) && id.0.len() == format.digits());
        }
        let _id = parse_id(bytes, format);
    }
}
