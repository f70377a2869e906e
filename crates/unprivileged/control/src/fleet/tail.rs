//! Reading a run's file of events as it grows: whole lines, from where the last reading ended.
//!
//! **Trust:** only its keeper writes the file, but what events carry comes from the agent. A line that is too long or is
//! no event ends the reading of that file: what follows could not be numbered.
use bastle_contract::runs::{MAX_EVENT, RunEvent};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Where the reading of one file is.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    path: PathBuf,
    at: u64,
    last: u64,
}

/// What was read at once.
pub(super) struct Read1 {
    /// New events, in order.
    pub(super) events: Vec<RunEvent>,
    /// Whether there may be more.
    pub(super) more: bool,
}

impl Tail {
    pub(super) fn new(path: PathBuf, at: u64, last: u64) -> Self {
        Self { path, at, last }
    }

    /// Where the next event begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// New events, at most `most`. Goes on from there the next time; [`Tail::back`] undoes it.
    pub(super) fn read(&mut self, most: usize) -> std::io::Result<Read1> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Read1 {
                    events: Vec::new(),
                    more: false,
                });
            }
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.at))?;
        let mut reader = BufReader::new(file);
        let mut events = Vec::new();
        while events.len() < most {
            let mut line = Vec::new();
            let limit = u64::try_from(MAX_EVENT).unwrap_or(u64::MAX);
            let count = (&mut reader).take(limit).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Ok(Read1 { events, more: false });
            }
            let Ok(event) = serde_json::from_slice::<RunEvent>(&line) else {
                return Ok(Read1 { events, more: false });
            };
            self.at += u64::try_from(count).unwrap_or(0);
            if event.seq > self.last {
                self.last = event.seq;
                events.push(event);
            }
        }
        Ok(Read1 { events, more: true })
    }

    /// Back to an earlier place: what was read was not recorded.
    pub(super) fn back(&mut self, to: &Self) {
        self.at = to.at;
        self.last = to.last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(seq: u64) -> String {
        format!("{{\"seq\":{seq},\"time_ms\":1,\"kind\":\"note\",\"data\":{{}}}}\n")
    }

    #[test]
    fn a_line_that_is_not_whole_is_read_when_it_is_and_none_is_read_twice() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("events.jsonl");
        let mut tail = Tail::new(path.clone(), 0, 0);
        assert!(tail.read(10).unwrap().events.is_empty());
        let whole = (1..=3).map(line).collect::<String>();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole.as_bytes()[..cut]).unwrap();
            tail.read(10).unwrap();
            let lines = whole.as_bytes()[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!(tail.last, lines as u64, "cut at {cut}");
        }
        let before = tail.clone();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all((3..=5).map(line).collect::<String>().as_bytes())
            .unwrap();
        let numbers: Vec<u64> = tail.read(10).unwrap().events.iter().map(|e| e.seq).collect();
        assert_eq!(numbers, [4, 5]);
        tail.back(&before);
        assert_eq!(tail.read(10).unwrap().events.len(), 2);
    }

    #[test]
    fn a_line_longer_than_any_event_or_no_event_is_never_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("events.jsonl");
        for bad in ["x".repeat(2 * MAX_EVENT), "{}".to_owned(), String::new()] {
            std::fs::write(&path, format!("{}{bad}\n{}", line(1), line(2))).unwrap();
            let mut tail = Tail::new(path.clone(), 0, 0);
            assert_eq!(tail.read(10).unwrap().events.len(), 1);
            assert!(tail.read(10).unwrap().events.is_empty());
        }
    }
}
