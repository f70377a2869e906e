//! What a run printed: records of a kind, a time and bytes. Bytes of the agent: shown escaped, or raw to a terminal.
use super::events::now_ms;
use bastle_contract::stream::StreamKind;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes that are kept of one run: what comes after is shown to whoever is attached, and counted.
pub const MOST_OUTPUT: u64 = 256 * 1024 * 1024;
/// Largest record; what comes at once is cut.
const MOST_RECORD: usize = 64 * 1024;
const HEADER: usize = 13;

/// The end at which output is appended.
#[derive(Debug)]
pub struct OutputLog {
    file: File,
    length: u64,
    dropped: u64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRecord {
    /// Output or errors.
    pub kind: StreamKind,
    /// When, milliseconds since 1970.
    pub time_ms: u64,
    /// What was printed.
    pub bytes: Vec<u8>,
}

impl OutputLog {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            length,
            dropped: 0,
        })
    }

    /// Appends what was printed; a full log counts it instead.
    pub fn append(&mut self, kind: StreamKind, bytes: &[u8]) -> std::io::Result<()> {
        for part in bytes.chunks(MOST_RECORD) {
            let size = u64::try_from(HEADER + part.len()).unwrap_or(u64::MAX);
            if self.length + size > MOST_OUTPUT {
                self.dropped += u64::try_from(part.len()).unwrap_or(u64::MAX);
                continue;
            }
            let mut record = Vec::with_capacity(HEADER + part.len());
            record.push(kind as u8);
            record.extend_from_slice(&now_ms().to_be_bytes());
            record.extend_from_slice(&u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
            record.extend_from_slice(part);
            self.file.write_all(&record)?;
            self.length += size;
        }
        Ok(())
    }

    /// Where the next record begins.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that were not kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Waits for the disk.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads records; at the end it can be asked again when more was written.
#[derive(Debug)]
pub struct OutputReader {
    file: BufReader<File>,
    at: u64,
}

impl OutputReader {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file: BufReader::with_capacity(128 * 1024, file),
            at: 0,
        })
    }

    /// Goes to where a record begins, as [`OutputLog::length`] or [`OutputReader::at`] told.
    pub fn seek(&mut self, at: u64) -> std::io::Result<()> {
        self.at = at;
        self.file.seek(SeekFrom::Start(at)).map(|_| ())
    }

    /// How long the log is by now.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn length(&self) -> std::io::Result<u64> {
        self.file.get_ref().metadata().map(|about| about.len())
    }

    /// Where the next record begins.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next whole record; `None` at the end, and where the last one is torn.
    pub fn next_record(&mut self) -> std::io::Result<Option<OutputRecord>> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let [kind, time @ .., a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let kind = StreamKind::try_from(kind).map_err(std::io::Error::other)?;
        if length > MOST_RECORD {
            return Err(std::io::Error::other("a record longer than any is"));
        }
        let mut bytes = vec![0; length];
        if !self.fill(&mut bytes)? {
            return Ok(None);
        }
        self.at += u64::try_from(HEADER + length).unwrap_or(u64::MAX);
        Ok(Some(OutputRecord {
            kind,
            time_ms: u64::from_be_bytes(time),
            bytes,
        }))
    }

    /// Fills the buffer, or goes back to where the record began.
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        match self.file.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.file.seek(SeekFrom::Start(self.at))?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
