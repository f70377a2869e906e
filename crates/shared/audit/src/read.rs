//! Reading lines and records with bounded memory. The bytes are untrusted.
use crate::AuditError;
use crate::dir::{Dir, LOG, Open};
use crate::finding::{Defect, Finding, LogFile};
use crate::record::Record;
use bastle_contract::RunId;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line, its end included. The largest command line (128 KiB, escaped sixfold) and a policy fit.
pub const MAX_LINE: usize = 1024 * 1024;

/// Lines of a file, one at a time.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
    offset: u64,
}

/// One line and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// Its bytes without the line end; of an oversized line only the beginning.
    pub(crate) bytes: &'a [u8],
    /// Number, from 1.
    pub(crate) number: u64,
    /// Where it begins.
    pub(crate) offset: u64,
    /// How it ends.
    pub(crate) end: End,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a line end, within [`MAX_LINE`].
    Whole,
    /// With a line end, beyond [`MAX_LINE`].
    Oversized,
    /// With the file.
    Torn,
}

/// The records of a log, in order. A line that is no record is an error of its own; reading goes on behind it.
#[derive(Debug)]
pub struct Records<R = BufReader<File>> {
    lines: Lines<R>,
    run: Option<RunId>,
    path: PathBuf,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            number: 0,
            offset: 0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line; `None` at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let read = self
            .reader
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        let begin = self.offset;
        self.number += 1;
        self.offset += u64::try_from(read).unwrap_or(u64::MAX);
        let end = if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            End::Whole
        } else if read == MAX_LINE {
            self.skip_rest()?
        } else {
            End::Torn
        };
        Ok(Some(Line {
            bytes: &self.buffer,
            number: self.number,
            offset: begin,
            end,
        }))
    }

    /// Passes over what does not fit into the buffer.
    fn skip_rest(&mut self) -> io::Result<End> {
        loop {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                return Ok(End::Torn);
            }
            let found = chunk.iter().position(|b| *b == b'\n');
            let used = found.map_or(chunk.len(), |at| at + 1);
            self.reader.consume(used);
            self.offset += u64::try_from(used).unwrap_or(u64::MAX);
            if found.is_some() {
                return Ok(End::Oversized);
            }
        }
    }
}

impl<R> std::fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines(line {}, byte {})", self.number, self.offset)
    }
}

impl Line<'_> {
    /// The record in it.
    pub(crate) fn record(&self) -> Result<Record, Defect> {
        match self.end {
            End::Whole => Record::parse(self.bytes),
            End::Oversized => Err(Defect::TooLong),
            End::Torn => Err(Defect::Incomplete),
        }
    }

    /// A finding about this line.
    pub(crate) fn finding(&self, run: Option<&RunId>, file: LogFile, defect: Defect) -> Finding {
        Finding {
            run: run.cloned(),
            file,
            line: self.number,
            offset: self.offset,
            sequence: claimed_sequence(self.bytes),
            defect,
        }
    }
}

/// The number a damaged record still shows, for people to find it.
fn claimed_sequence(bytes: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let own = value.get("metadata").and_then(|m| m.get("sequence"));
    own.or_else(|| value.get("sequence"))?.as_u64()
}

impl<R: BufRead> Records<R> {
    pub(crate) fn new(reader: R, run: Option<RunId>, path: PathBuf) -> Self {
        Self {
            lines: Lines::new(reader),
            run,
            path,
        }
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.next_line() {
            Ok(None) => None,
            Ok(Some(line)) => Some(line.record().map_err(|defect| {
                AuditError::Tampered(line.finding(self.run.as_ref(), LogFile::Log, defect))
            })),
            Err(error) => Some(Err(AuditError::io("read", &self.path, error))),
        }
    }
}

/// The records of a run's log. Reading does not verify the chain; [`crate::verify`] does.
pub fn show(state: &Path, run: &RunId) -> Result<Records, AuditError> {
    let missing = || AuditError::Missing { run: run.clone() };
    let dir = Dir::open(state)?.ok_or_else(missing)?;
    let dir = dir.open_run(run)?.ok_or_else(missing)?;
    let file = dir.file(LOG, Open::Read)?.ok_or_else(missing)?;
    Ok(Records::new(
        BufReader::new(file),
        Some(run.clone()),
        dir.path_of(LOG),
    ))
}
