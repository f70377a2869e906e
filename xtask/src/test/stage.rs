//! A place for the binaries under test that every user of the machine can reach.
//!
//! Tests run the fence also as an ordinary user, who may not enter the developer's home.
use crate::sh::{self, Failed};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many names are tried.
const MOST_NAMES: u32 = 100;

/// A directory of this run, removed when dropped.
pub(crate) struct Stage {
    directory: PathBuf,
    /// Whether a tmpfs of its own is mounted on it.
    is_mounted: bool,
}

impl Stage {
    /// Makes it, under a name that nobody has: what another user prepared there must not be used, and what an
    /// earlier run with this process id left behind must not be in the way.
    pub(crate) fn new(name: &str) -> Result<Self, Failed> {
        Self::below(&std::env::temp_dir(), name)
    }

    /// The same on a file system in memory, where there is one.
    pub(crate) fn in_memory(name: &str) -> Result<Self, Failed> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Self::below(memory, name)
        } else {
            Self::new(name)
        }
    }

    /// The same with a tmpfs of its own mounted on it, which only root can do; without one where it is refused. A
    /// workspace cannot be below `/dev/shm`: bastle does not hand that over.
    pub(crate) fn on_tmpfs(name: &str) -> Result<Self, Failed> {
        let mut stage = Self::new(name)?;
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "mode=755,size=2g", "tmpfs"])
            .arg(stage.path());
        stage.is_mounted = sh::stdout_of(&mut mount).is_ok();
        Ok(stage)
    }

    /// The type of the file system that it is on, as `stat` names it.
    pub(crate) fn file_system(&self) -> Result<String, Failed> {
        let mut stat = Command::new("stat");
        stat.args(["--file-system", "--format=%T"]).arg(self.path());
        sh::stdout_of(&mut stat).map(|name| name.trim().to_owned())
    }

    fn below(parent: &Path, name: &str) -> Result<Self, Failed> {
        let stem = parent.join(format!("bastle-{name}-{}", std::process::id()));
        let names = (0..MOST_NAMES).map(|turn| match turn {
            0 => stem.clone(),
            _ => stem.with_added_extension(turn.to_string()),
        });
        let mut taken = None;
        for directory in names {
            match std::fs::create_dir(&directory) {
                Ok(()) => {
                    let stage = Self {
                        directory,
                        is_mounted: false,
                    };
                    stage.open_to_all(stage.path())?;
                    return Ok(stage);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => taken = Some(error),
                Err(error) => return Err(Failed::io(directory.display())(error)),
            }
        }
        let error = taken.unwrap_or_else(|| std::io::ErrorKind::AlreadyExists.into());
        Err(Failed::io(stem.display())(error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Copies a program in and returns where it is now.
    pub(crate) fn put(&self, program: &Path, name: &str) -> Result<PathBuf, Failed> {
        let target = self.directory.join(name);
        std::fs::copy(program, &target).map_err(Failed::io(program.display()))?;
        self.open_to_all(&target)?;
        Ok(target)
    }

    fn open_to_all(&self, path: &Path) -> Result<(), Failed> {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Failed::io(path.display()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = sh::stdout_of(Command::new("umount").arg("--lazy").arg(&self.directory))
        {
            eprintln!("xtask: {} stays mounted: {error}", self.directory.display());
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("xtask: {} stays behind: {error}", self.directory.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_reachable_by_all_and_gone_afterwards() {
        let stage = Stage::new("stage-test").expect("can be made");
        let place = stage.path().to_path_buf();
        let copy = stage.put(Path::new("/bin/true"), "true").expect("can be copied");
        for path in [&place, &copy] {
            let mode = std::fs::metadata(path).expect("is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", path.display());
        }
        let second = Stage::new("stage-test").expect("can be made");
        assert_ne!(second.path(), place, "a taken name is not used");
        drop((stage, second));
        assert!(!place.exists());
    }

    #[test]
    fn a_stage_on_a_tmpfs_is_unmounted_and_gone_afterwards() {
        let stage = Stage::on_tmpfs("stage-tmpfs-test").expect("can be made");
        let place = stage.path().to_path_buf();
        let name = stage.file_system().expect("has a type");
        assert!(!stage.is_mounted || name == "tmpfs", "{name}");
        drop(stage);
        assert!(!place.exists());
    }
}
