//! Who starts the contenders: the caller; or, when that is root, also an ordinary user, as most people are.
use crate::sh::{self, Failed};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A user without anything: `nobody` and its group, on every system the same numbers.
const NOBODY: u32 = 65_534;

/// As whom everybody is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Who {
    Caller { uid: u32 },
    Ordinary,
}

impl Who {
    /// The caller.
    pub(in crate::bench) fn caller() -> Result<Self, Failed> {
        let uid = sh::stdout_of(Command::new("id").arg("-u"))?;
        let number = uid.trim().parse();
        number
            .map(|uid| Self::Caller { uid })
            .map_err(|_| Failed::new("id -u", "does not answer with a number"))
    }

    /// Those as whom it is measured, each with the group of results that is filled. The ordinary user comes first.
    pub(in crate::bench) fn all() -> Result<Vec<(&'static str, Self)>, Failed> {
        Ok(match Self::caller()? {
            root @ Self::Caller { uid: 0 } => vec![("start", Self::Ordinary), ("start_root", root)],
            other => vec![("start", other)],
        })
    }

    pub(in crate::bench) fn uid(self) -> u32 {
        match self {
            Self::Caller { uid } => uid,
            Self::Ordinary => NOBODY,
        }
    }

    /// The command, started as this user. Supplementary groups go with the change.
    pub(super) fn start(self, mut command: Command) -> Command {
        if self == Self::Ordinary {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Makes a file or directory this user's.
    pub(super) fn owns(self, path: &Path) -> Result<(), Failed> {
        match self {
            Self::Caller { .. } => Ok(()),
            Self::Ordinary => chown(path, Some(NOBODY), Some(NOBODY)).map_err(Failed::io(path.display())),
        }
    }
}
