//! Whether the directory that a copy came from is still the same project.
//!
//! **Trust:** what is compared are inodes, their times of birth and one commit; no program of the project runs, and git
//! only answers whether an object is there.
use crate::git::{Call, HostGit, HostRepo, Scratch};
use crate::path::visible;
use crate::workspace::Workspace;
use bastle_contract::{Code, Fault};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One object of a file system, as far as a restart of the host leaves it the same: device numbers do not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMark {
    /// Its inode.
    pub inode: u64,
    /// When it was made, in nanoseconds since the epoch, where the file system knows: inodes are used again.
    pub born: Option<i64>,
}

/// What a source was when it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The directory.
    pub directory: FileMark,
    /// Its `.git`, a directory or a file.
    pub git: Option<FileMark>,
}

impl FileMark {
    fn of(path: &Path) -> Option<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let nanoseconds = || {
            let seconds = found.stx_btime.tv_sec.checked_mul(1_000_000_000)?;
            seconds.checked_add(i64::from(found.stx_btime.tv_nsec))
        };
        Some(Self {
            inode: found.stx_ino,
            born: if known { nanoseconds() } else { None },
        })
    }

    fn is(&self, other: &Self) -> bool {
        let born = match (self.born, other.born) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.inode == other.inode && born
    }
}

impl Identity {
    /// Of a directory; `None` where it cannot be looked at.
    #[must_use]
    pub fn of(source: &Path) -> Option<Self> {
        Some(Self {
            directory: FileMark::of(source)?,
            git: FileMark::of(&source.join(".git")),
        })
    }

    fn is(&self, now: &Self) -> bool {
        let git = match (&self.git, &now.git) {
            (Some(a), Some(b)) => a.is(b),
            // A repository that was begun in the same directory is still the same project.
            (None, _) => true,
            (Some(_), None) => false,
        };
        git && self.directory.is(&now.directory)
    }
}

impl Workspace {
    /// Refuses unless the source is what was copied: the same directory with the same `.git`, or a repository that has
    /// the commit which the copy began with (a clone, a restored backup).
    ///
    /// # Errors
    /// When another project stands at its path; when git cannot be asked.
    pub fn check_project(&self) -> Result<(), Fault> {
        let meta = self.meta()?;
        let (Some(then), Some(now)) = (meta.identity, Identity::of(self.source())) else {
            // An older record, or nothing there: whoever opens the source tells that.
            return Ok(());
        };
        if then.is(&now) || (then.git.is_none() && now.git.is_none()) {
            return Ok(());
        }
        let repo = match now.git {
            Some(_) => HostRepo::open(self.source())?,
            None => None,
        };
        let head = meta.base.head.as_deref();
        if let (Some(repo), Some(head)) = (&repo, head)
            && self.has_commit(repo, head)?
        {
            return Ok(());
        }
        Err(self.another_project(head))
    }

    fn has_commit(&self, repo: &HostRepo, commit: &str) -> Result<bool, Fault> {
        let scratch = Scratch::new(&self.path("tmp"), repo.format, &[repo.objects()])?;
        let call = Call {
            arguments: vec!["cat-file", "--batch-check"],
            input: format!("{commit}^{{commit}}\n").into_bytes(),
            ..Call::default()
        };
        let answer = HostGit::find()?.run(&scratch, call)?;
        Ok(String::from_utf8_lossy(&answer).trim_end().contains(" commit "))
    }

    fn another_project(&self, head: Option<&str>) -> Fault {
        let run = self.run();
        let source = visible(self.source().as_os_str().as_bytes());
        let what = format!("{source} is not the project that run {run} was copied from");
        let why = match head {
            Some(head) => format!(
                "the directory was replaced since, and the repository there does not have commit {}",
                head.get(..12).unwrap_or(head)
            ),
            None => "the directory was replaced since by another one".to_owned(),
        };
        Fault::new(Code::WorkspaceApply, what, why)
            .help(format!("move the first project back to {source}"))
            .help(format!("bastle apply {run} --patch {run}.patch"))
            .help(format!("bastle export {run} {run}.tar"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_replaced_is_another_and_one_that_was_moved_is_the_same() {
        let stage = tempfile::tempdir().unwrap();
        let (here, there) = (stage.path().join("here"), stage.path().join("there"));
        std::fs::create_dir_all(here.join(".git")).unwrap();
        let first = Identity::of(&here).unwrap();
        assert!(first.is(&Identity::of(&here).unwrap()));
        std::fs::rename(&here, &there).unwrap();
        std::fs::create_dir_all(here.join(".git")).unwrap();
        assert!(!first.is(&Identity::of(&here).unwrap()));
        assert!(first.is(&Identity::of(&there).unwrap()));
        std::fs::remove_dir(there.join(".git")).unwrap();
        assert!(!first.is(&Identity::of(&there).unwrap()));
    }
}
