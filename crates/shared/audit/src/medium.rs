//! Where bytes go and become durable. A failure is final: after a failed sync nobody knows what is on disk.
use crate::AuditError;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Something that takes bytes at its end and can make them durable.
pub(crate) trait Medium: Send {
    /// Takes all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything taken is durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A log file, and what else must be durable with its first record: directories and the index.
pub(crate) struct LogMedium {
    log: File,
    first: Vec<File>,
}

/// A medium with a buffer that remembers its first failure.
pub(crate) struct Sink {
    medium: Box<dyn Medium>,
    path: PathBuf,
    buffer: Vec<u8>,
    failed: Option<String>,
}

/// Bytes kept before they are written on their own account. A page-cache write of this size costs some
/// microseconds, and less than this is lost when the process is killed between two syncs.
const WRITE_AT: usize = 64 * 1024;

impl LogMedium {
    /// `first` is synced once, after the first records.
    pub(crate) fn new(log: File, first: Vec<File>) -> Self {
        Self { log, first }
    }
}

impl Medium for LogMedium {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.log.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The index line and the directory entries before the records: a log that the index does not know looks as
        // if somebody had brought it in.
        for file in self.first.drain(..) {
            file.sync_all()?;
        }
        self.log.sync_data()
    }
}

impl Sink {
    pub(crate) fn new(medium: Box<dyn Medium>, path: PathBuf) -> Self {
        Self {
            medium,
            path,
            buffer: Vec::new(),
            failed: None,
        }
    }

    /// The error every call gives after a failure.
    pub(crate) fn check(&self) -> Result<(), AuditError> {
        match &self.failed {
            Some(cause) => Err(AuditError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Where lines are put before [`Self::flush`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer when it is large.
    pub(crate) fn relieve(&mut self) -> Result<(), AuditError> {
        if self.buffer.len() >= WRITE_AT {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Hands the buffer to the kernel: it survives the death of this process, not a power loss.
    pub(crate) fn flush(&mut self) -> Result<(), AuditError> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.medium.write(&self.buffer);
        self.buffer.clear();
        self.judge("write", written)
    }

    /// Writes the buffer and waits until it is durable.
    pub(crate) fn sync(&mut self) -> Result<(), AuditError> {
        self.flush()?;
        let synced = self.medium.sync();
        self.judge("sync", synced)
    }

    fn judge(&mut self, operation: &'static str, result: io::Result<()>) -> Result<(), AuditError> {
        result.map_err(|source| {
            let error = AuditError::io(operation, &self.path, source);
            self.failed = Some(error.story());
            error
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // A writer dropped without a seal leaves an unsealed log; a failure here leaves it shorter, and verifying
        // says so in both cases. There is nobody left to tell.
        if self.check().is_ok() && self.flush().is_err() {
            self.buffer.clear();
        }
    }
}
