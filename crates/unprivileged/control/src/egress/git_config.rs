//! Which files of git's configuration hold for a workspace, and what they say about remotes.
//!
//! **Trust:** files of the workspace are the agent's to write: they are opened beneath it, without following links. Files
//! of the person and of the system are opened as git opens them. Depth, number and bytes are bounded. A file that is there
//! but cannot be read, or that this reader does not understand, is a fault and never "no remotes": hosts that it names would
//! be pushed to unjudged. `includeIf` counts whatever its condition, because more hosts are judged then.
use super::remotes::Found;
use bastle_contract::{Code, Fault};
use bastle_workspace::beneath::Dir;
use bastle_workspace::git::Config;
use bastle_workspace::path::TreePath;
use bastle_workspace::project::read_project_file;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Deepest nesting of includes; git's own.
const MAX_DEPTH: usize = 10;
/// Most files, those that do not exist included.
const MAX_FILES: usize = 256;
/// Most bytes of one file, and of all.
const MAX_FILE: u64 = 1 << 20;
const MAX_BYTES: usize = 4 << 20;

/// Where configuration is looked for.
#[derive(Clone, Debug)]
pub(super) struct Sources<'p> {
    /// The project, with links resolved.
    pub(super) workspace: &'p Path,
    /// The person's home, to which `~/` leads.
    pub(super) home: &'p Path,
    /// Files of the person and of the system, absolute.
    pub(super) own: Vec<PathBuf>,
}

/// Why a configuration is not used: the file and the reason.
struct Unusable {
    path: PathBuf,
    why: String,
}

/// What is done about a file that this user may not read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// The run is refused: the file may name a remote.
    Refused,
    /// As git does with the person's and the system's file: nobody who acts as this user can read it either.
    PassedOver,
}

/// Reads everything that names a remote of the workspace.
pub(super) fn read(sources: &Sources<'_>) -> Result<Found, Fault> {
    let mut reader = Reader {
        sources,
        found: Found::default(),
        seen: BTreeSet::new(),
        files: 0,
        bytes: 0,
    };
    let whole = reader.all().and_then(|()| {
        reader.found.complete().ok_or_else(|| Unusable {
            path: sources.workspace.to_path_buf(),
            why: "it names more hosts than are read".to_owned(),
        })
    });
    whole.map_err(|unusable| {
        Fault::new(
            Code::WorkspaceGit,
            format!(
                "git configuration {}",
                unusable.path.display().to_string().escape_debug()
            ),
            format!(
                "{}; hosts that it names would be pushed to unjudged",
                unusable.why
            ),
        )
        .help("correct or remove the file; git config --list --show-origin names the files that git reads")
    })
}

struct Reader<'p> {
    sources: &'p Sources<'p>,
    found: Found,
    /// Configuration files that were read, so that includes cannot go in a circle.
    seen: BTreeSet<PathBuf>,
    files: usize,
    bytes: usize,
}

impl Reader<'_> {
    fn all(&mut self) -> Result<(), Unusable> {
        for path in &self.sources.own {
            self.config(path, 0, Unreadable::PassedOver)?;
        }
        let workspace = self.sources.workspace;
        self.config(&workspace.join(".gitmodules"), 0, Unreadable::Refused)?;
        for directory in self.directories()? {
            for name in ["config", "config.worktree"] {
                self.config(&directory.join(name), 0, Unreadable::Refused)?;
            }
            self.legacy(&directory)?;
        }
        Ok(())
    }

    /// The directories of the repository: its own, and the one it shares with other worktrees.
    fn directories(&mut self) -> Result<Vec<PathBuf>, Unusable> {
        let workspace = self.sources.workspace;
        let mut directories = Vec::new();
        // A bare repository has no `.git`.
        if ["HEAD", "objects", "refs"]
            .iter()
            .all(|name| workspace.join(name).symlink_metadata().is_ok())
        {
            directories.push(workspace.to_path_buf());
        }
        let dot = workspace.join(".git");
        // A link is as good as a file that names the directory; where it leads is looked at like any other place.
        let dot = match std::fs::canonicalize(&dot) {
            Ok(real) => real,
            Err(error) if is_absent(&error) => return Ok(directories),
            Err(error) => return Err(unusable(&dot, error)),
        };
        if dot.is_dir() {
            directories.push(dot);
        } else {
            let text = self.text(&dot, Unreadable::Refused)?.unwrap_or_default();
            let named = text
                .strip_prefix("gitdir:")
                .ok_or_else(|| unusable(&dot, "it names no directory (gitdir: PATH)"))?;
            let above = dot.parent().unwrap_or(workspace);
            directories.push(above.join(named.trim()));
        }
        for directory in directories.clone() {
            let common = self.text(&directory.join("commondir"), Unreadable::Refused)?;
            if let Some(common) = common {
                directories.push(directory.join(common.trim()));
            }
        }
        Ok(directories)
    }

    /// One file and what it includes.
    fn config(&mut self, path: &Path, depth: usize, unreadable: Unreadable) -> Result<(), Unusable> {
        let Some(path) = settled(path, unreadable)? else {
            return Ok(());
        };
        if !self.seen.insert(path.clone()) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(unusable(&path, "it is included too deeply"));
        }
        let Some(text) = self.text(&path, unreadable)? else {
            return Ok(());
        };
        let config = Config::parse(&text).ok_or_else(|| unusable(&path, "its syntax is not understood"))?;
        for (key, value) in config.entries() {
            if key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path")) {
                let included = self.included(&path, value)?;
                self.config(&included, depth + 1, Unreadable::Refused)?;
            } else {
                self.found.take(key, value);
            }
        }
        Ok(())
    }

    /// The file that a value of `include.path` names.
    fn included(&self, file: &Path, value: &str) -> Result<PathBuf, Unusable> {
        let value = value.strip_prefix(":(optional)").unwrap_or(value);
        if let Some(below) = value.strip_prefix("~/") {
            return Ok(self.sources.home.join(below));
        }
        if value.starts_with('~') || value.starts_with("%(") {
            return Err(unusable(
                file,
                "an include begins with ~USER or %(…): write the path out",
            ));
        }
        Ok(file.parent().unwrap_or(file).join(value))
    }

    /// Remotes as git before 1.5 kept them, which git 2 still reads: a file for each.
    fn legacy(&mut self, directory: &Path) -> Result<(), Unusable> {
        for folder in ["remotes", "branches"] {
            let Some(folder) = settled(&directory.join(folder), Unreadable::Refused)? else {
                continue;
            };
            for name in self.names(&folder)? {
                let Some(text) = self.text(&folder.join(&name), Unreadable::Refused)? else {
                    continue;
                };
                let name = name.to_string_lossy();
                if folder.ends_with("branches") {
                    let first = text.lines().next().unwrap_or_default();
                    self.found
                        .remote(&name, first.split('#').next().unwrap_or_default().trim());
                } else {
                    for address in text.lines().filter_map(|line| line.strip_prefix("URL:")) {
                        self.found.remote(&name, address.trim());
                    }
                }
            }
        }
        Ok(())
    }

    /// The names of files in a directory. Directories are left out: a name of a remote has no slash.
    fn names(&self, directory: &Path) -> Result<Vec<PathBuf>, Unusable> {
        let listed = match directory.strip_prefix(self.sources.workspace) {
            Ok(relative) => TreePath::new(relative.as_os_str().as_bytes())
                .map_err(std::io::Error::other)
                .and_then(|path| Dir::open(self.sources.workspace)?.beneath(Some(&path))),
            Err(_) => Dir::open(directory),
        };
        let names = match listed.and_then(|listed| listed.list()) {
            Ok(names) => names,
            Err(error) if is_absent(&error) && !is_link(directory) => return Ok(Vec::new()),
            Err(error) => return Err(unusable(directory, error)),
        };
        let files = names
            .into_iter()
            .filter(|listed| listed.kind != rustix::fs::FileType::Directory);
        Ok(files
            .map(|listed| PathBuf::from(std::ffi::OsStr::from_bytes(&listed.name)))
            .collect())
    }

    /// The text of a file; `None` where there is none.
    fn text(&mut self, path: &Path, unreadable: Unreadable) -> Result<Option<String>, Unusable> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(unusable(
                path,
                format!("it is one of more than {MAX_FILES} files"),
            ));
        }
        let Some(path) = settled(path, unreadable)? else {
            return Ok(None);
        };
        let bytes = match path.strip_prefix(self.sources.workspace) {
            Ok(relative) => read_project_file(self.sources.workspace, relative, MAX_FILE)
                .map_err(|error| unusable(&path, error))?,
            Err(_) => outside(&path, unreadable)?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            return Err(unusable(
                &path,
                format!("with it there are more than {MAX_BYTES} bytes"),
            ));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// A file outside of the workspace; links are followed as git follows them, and nothing is waited for.
fn outside(path: &Path, unreadable: Unreadable) -> Result<Option<Vec<u8>>, Unusable> {
    // The usual name for an empty configuration.
    if path == Path::new("/dev/null") {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::ACCESS) if unreadable == Unreadable::PassedOver => return Ok(None),
        Err(error) => return Err(unusable(path, error)),
    };
    let meta = file.metadata().map_err(|error| unusable(path, error))?;
    if !meta.is_file() {
        return Err(unusable(path, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(unusable(path, format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(Some(bytes))
}

/// The path with everything above its last component resolved, as git resolves it, so that a path into the workspace is
/// seen to be one. `None`: what is above does not exist.
fn settled(path: &Path, unreadable: Unreadable) -> Result<Option<PathBuf>, Unusable> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(unusable(path, "it is not a file"));
    };
    match std::fs::canonicalize(above) {
        Ok(real) => Ok(Some(real.join(name))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) if denied(&error) && unreadable == Unreadable::PassedOver => Ok(None),
        Err(error) => Err(unusable(path, error)),
    }
}

fn denied(error: &std::io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::ACCESS)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR))
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
}

fn unusable(path: &Path, why: impl ToString) -> Unusable {
    Unusable {
        path: path.to_path_buf(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests;
