//! Where a run happens: the workspace, the home directory, and bastle's own directories.
use bastle_contract::{AbsPath, AbsPathError, Code, Fault};
use std::path::{Path, PathBuf};

/// The directories of one invocation.
#[derive(Clone, Debug)]
pub struct Place {
    /// The invoking user's home, symlinks resolved.
    pub home: AbsPath,
    /// The project handed to the agent, symlinks resolved.
    pub workspace: AbsPath,
    /// Where the agent starts; within the workspace.
    pub cwd: AbsPath,
    /// Audit logs and keys.
    pub state: PathBuf,
    /// The user's own policy and presets.
    pub config: PathBuf,
}

/// Directories that hold more than one project or the system itself: never handed over whole.
const TOO_WIDE: &[&str] = &[
    "/", "/home", "/root", "/etc", "/usr", "/var", "/opt", "/srv", "/mnt", "/media", "/tmp", "/dev", "/proc",
    "/sys", "/run", "/boot",
];

impl Place {
    /// Finds them from the environment. The workspace is `directory`, else the git root above the current
    /// directory (never the home directory or above), else the current directory.
    pub fn find(directory: Option<&Path>) -> Result<Self, Fault> {
        let Base { home, state, config } = Base::find()?;
        let here = std::env::current_dir()
            .map_err(|error| invalid("the current directory cannot be used", &error.to_string()))?;
        let here = resolve(&here);
        let workspace = match directory {
            Some(directory) => resolve(directory)?,
            None => project(here.as_ref().map_err(Clone::clone)?, &home),
        };
        check(&workspace, &home)?;
        let here = here.unwrap_or_else(|_| workspace.clone());
        let cwd = if here.starts_with(&workspace) {
            here
        } else {
            workspace.clone()
        };
        Ok(Self {
            home: absolute(&home)?,
            workspace: absolute(&workspace)?,
            cwd: absolute(&cwd)?,
            state,
            config,
        })
    }

    /// The directories of what runs without a project: a proxy by itself. bastle's own stands in for one, so that no
    /// file of whatever directory it was started in counts as a project's.
    pub fn without_project() -> Result<Self, Fault> {
        let Base { home, state, config } = Base::find()?;
        Ok(Self {
            home: absolute(&home)?,
            workspace: absolute(&state)?,
            cwd: absolute(&state)?,
            state,
            config,
        })
    }
}

/// The directories that do not depend on a project.
struct Base {
    home: PathBuf,
    state: PathBuf,
    config: PathBuf,
}

impl Base {
    fn find() -> Result<Self, Fault> {
        let variable = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = variable("HOME").ok_or_else(|| {
            invalid(
                "the home directory is unknown",
                "HOME is not set to an absolute path",
            )
        })?;
        let state = variable("XDG_STATE_HOME")
            .unwrap_or_else(|| home.join(".local/state"))
            .join("bastle");
        let config = variable("XDG_CONFIG_HOME")
            .unwrap_or_else(|| home.join(".config"))
            .join("bastle");
        let (state, config) = (settled(&state), settled(&config));
        let home = canonical(&home).unwrap_or_else(|_| home.clone());
        Ok(Self { home, state, config })
    }
}

fn absolute(path: &Path) -> Result<AbsPath, Fault> {
    AbsPath::from_path(path).map_err(|error: AbsPathError| invalid("unusable path", &error.to_string()))
}

fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// The home directory of this process's user, symlinks resolved.
pub(crate) fn home() -> Result<AbsPath, Fault> {
    absolute(&Base::find()?.home)
}

/// A path whose end may not exist yet, with symlinks above it resolved: so is everything it is compared with.
pub(crate) fn settled(path: &Path) -> PathBuf {
    let known = path
        .ancestors()
        .find_map(|above| Some((above, canonical(above).ok()?)));
    match known {
        // Joining nothing would leave a slash at the end.
        Some((above, real)) if above == path => real,
        Some((above, real)) => path
            .strip_prefix(above)
            .map_or_else(|_| path.to_path_buf(), |rest| real.join(rest)),
        None => path.to_path_buf(),
    }
}

fn resolve(path: &Path) -> Result<PathBuf, Fault> {
    canonical(path).map_err(|error| {
        invalid(
            &format!("cannot use {} as the workspace", path.display()),
            &error.to_string(),
        )
    })
}

/// The nearest directory with a `.git` in it, but never the home directory or one above it.
fn project(here: &Path, home: &Path) -> PathBuf {
    here.ancestors()
        .take_while(|dir| !home.starts_with(dir))
        .find(|dir| dir.join(".git").symlink_metadata().is_ok())
        .unwrap_or(here)
        .to_path_buf()
}

fn check(workspace: &Path, home: &Path) -> Result<(), Fault> {
    let meta = std::fs::metadata(workspace)
        .map_err(|error| invalid(&format!("cannot use {}", workspace.display()), &error.to_string()))?;
    if !meta.is_dir() {
        return Err(invalid(
            &format!("{} is not a directory", workspace.display()),
            "a workspace is a directory",
        ));
    }
    // Reading it here, as the invoking user, so that the reason is clear: inside, the agent would see nothing.
    std::fs::read_dir(workspace).map_err(|error| {
        invalid(
            &format!("cannot read {}", workspace.display()),
            &error.to_string(),
        )
    })?;
    let wide = TOO_WIDE.iter().any(|path| workspace == Path::new(path)) || home.starts_with(workspace);
    if wide {
        let why = "it holds more than one project, or your home directory";
        return Err(invalid(
            &format!("{} is not handed to an agent", workspace.display()),
            why,
        ));
    }
    Ok(())
}

fn invalid(what: &str, why: &str) -> Fault {
    Fault::new(Code::WorkspaceInvalid, what, why)
        .help("start in a project directory, or name one: bastle run --workspace-dir DIRECTORY -- CMD")
}
