//! Why the log could not be written or read.
use crate::finding::Finding;
use bastle_contract::{Code, Fault, RunId};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on the log failed. A failed append means: the effect must not happen.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The operating system refused.
    #[error("{operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Disk or quota is full.
    #[error("no space left to {operation} {path}")]
    Full {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An earlier write or sync failed. What is on disk is unknown, so the writer never writes again.
    #[error("the audit log stopped after an earlier failure: {cause}")]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// A run of that name has a log already.
    #[error("run {run} already has an audit log")]
    Exists {
        /// Which run.
        run: RunId,
    },
    /// No log and no trace of one in the index.
    #[error("run {run} has no audit log")]
    Missing {
        /// Which run.
        run: RunId,
    },
    /// Another process writes this log.
    #[error("the audit log of run {run} is being written by another process")]
    Busy {
        /// Which run.
        run: RunId,
    },
    /// A sealed log takes no more records.
    #[error("the audit log of run {run} is sealed")]
    Sealed {
        /// Which run.
        run: RunId,
    },
    /// The log was sealed through another handle.
    #[error("the audit log is closed")]
    Closed,
    /// One event is larger than a line may be.
    #[error("an audit record of {bytes} bytes is larger than {}", crate::MAX_LINE)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// One event is nested more deeply than readers accept.
    #[error(
        "an audit record is nested more than {} levels deep",
        crate::canonical::MAX_DEPTH
    )]
    TooDeep,
    /// The directory or a file in it could be changed or read by others, or is not what it must be.
    #[error("{path} cannot be trusted: {why}")]
    Untrusted {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The operating system gave no random bytes.
    #[error("read random bytes")]
    Random(#[source] getrandom::Error),
    /// An event could not be put into words.
    #[error("encode an audit record")]
    Encode(#[source] serde_json::Error),
    /// What is on disk is not what was written.
    #[error("{0}")]
    Tampered(Finding),
}

impl AuditError {
    /// An input or output error, with a full disk told apart.
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        let full = [Errno::NOSPC, Errno::DQUOT]
            .iter()
            .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()));
        if full {
            Self::Full {
                operation,
                path,
                source,
            }
        } else {
            Self::Io {
                operation,
                path,
                source,
            }
        }
    }

    /// The text of the error and of its causes.
    pub(crate) fn story(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// The same for a person, with its stable code.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let why = std::error::Error::source(self).map(ToString::to_string);
        let fault = |code| Fault::new(code, self.to_string(), why.unwrap_or_default());
        match self {
            Self::Full { path, .. } => fault(Code::AuditWrite)
                .help(format!("free space on the file system of {}", path.display()))
                .help("bastle audit ls"),
            Self::Io { .. }
            | Self::Poisoned { .. }
            | Self::Closed
            | Self::TooLarge { .. }
            | Self::TooDeep
            | Self::Random(_)
            | Self::Encode(_)
            | Self::Busy { .. }
            | Self::Sealed { .. }
            | Self::Exists { .. } => fault(Code::AuditWrite),
            Self::Missing { .. } => fault(Code::AuditMissing).help("bastle audit ls"),
            Self::Untrusted { path, .. } => fault(Code::StateDir).help(format!("ls -ld {}", path.display())),
            Self::Tampered(_) => fault(Code::AuditTampered).help("bastle audit verify"),
        }
    }
}
