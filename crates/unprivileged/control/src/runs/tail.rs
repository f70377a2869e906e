//! Events as they are appended: read from a number on, and asked again when more were written.
use super::events::line;
use bastle_contract::runs::RunEvent;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads events; at the end it can be asked again.
#[derive(Debug)]
pub struct EventReader {
    file: BufReader<File>,
    at: u64,
    since: u64,
}

impl EventReader {
    /// Events after number `since`.
    pub fn open(path: &Path, since: u64) -> std::io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file: BufReader::with_capacity(32 * 1024, file),
            at: 0,
            since,
        })
    }

    /// The next event; `None` at the end, and where the last line is not whole yet.
    pub fn next_event(&mut self) -> std::io::Result<Option<RunEvent>> {
        loop {
            let Some((event, length)) = line(&mut self.file)? else {
                self.file.seek(SeekFrom::Start(self.at))?;
                return Ok(None);
            };
            self.at += length;
            if event.seq > self.since {
                self.since = event.seq;
                return Ok(Some(event));
            }
        }
    }
}
