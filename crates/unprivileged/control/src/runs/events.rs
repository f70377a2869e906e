//! The numbered events of a run: one JSON object on one line, appended by its keeper alone.
use bastle_contract::runs::{MAX_EVENT, RunEvent};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The end at which events are appended.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    last: u64,
}

impl EventLog {
    /// Opens it, and cuts off a last line that was torn.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let (mut last, mut whole) = (0, 0);
        let mut reader = BufReader::new(&file);
        while let Some((event, length)) = line(&mut reader)? {
            whole += length;
            last = event.seq;
        }
        file.set_len(whole)?;
        Ok(Self { file, last })
    }

    /// Appends an event under the next number. One too large keeps its kind and says so.
    pub fn append(&mut self, kind: &str, data: Value) -> std::io::Result<RunEvent> {
        let mut event = RunEvent {
            seq: self.last + 1,
            time_ms: now_ms(),
            kind: kind.to_owned(),
            data,
        };
        let mut bytes = serde_json::to_vec(&event).map_err(std::io::Error::other)?;
        if bytes.len() >= MAX_EVENT {
            event.data = json!({ "left_out": bytes.len() });
            bytes = serde_json::to_vec(&event).map_err(std::io::Error::other)?;
        }
        bytes.push(b'\n');
        self.file.write_all(&bytes)?;
        self.last = event.seq;
        Ok(event)
    }

    /// Waits for the disk.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    /// The number of the last event.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }
}

/// Events after number `since`, at most `most`. A torn last line is not there yet.
pub fn read_events(path: &Path, since: u64, most: usize) -> std::io::Result<Vec<RunEvent>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut events = Vec::new();
    while events.len() < most
        && let Some((event, _)) = line(&mut reader)?
    {
        if event.seq > since {
            events.push(event);
        }
    }
    Ok(events)
}

/// One whole line; `None` at the end, or where the rest is none.
pub(super) fn line(reader: &mut impl BufRead) -> std::io::Result<Option<(RunEvent, u64)>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_EVENT).unwrap_or(u64::MAX);
    let count = reader.take(limit).read_until(b'\n', &mut bytes)?;
    if bytes.last() != Some(&b'\n') {
        return Ok(None);
    }
    let length = u64::try_from(count).unwrap_or(u64::MAX);
    Ok(serde_json::from_slice(&bytes).ok().map(|event| (event, length)))
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
