//! Bytes between the agent's streams and ours: passed on up to the limit of output, never looked at.
use super::Relay;
use crate::keeper::Front;
use crate::runs::MOST_OUTPUT;
use crate::streams::{take, write_all};
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, Event, Fault, LimitHit, LimitKind, Stdio};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use serde_json::json;
use std::os::fd::AsFd;

/// ^D: what a terminal takes for the end of input at the start of a line.
const END_OF_INPUT: u8 = 4;

impl Relay<'_> {
    pub(super) fn output(&mut self) -> Result<(), Fault> {
        let taken = take(&mut self.streams.output);
        self.hear_agent(&taken)?;
        if !self.pass(taken, StreamKind::Output)? {
            self.streams.output = None;
        }
        Ok(())
    }

    pub(super) fn errors(&mut self) -> Result<(), Fault> {
        let taken = take(&mut self.streams.errors);
        if !self.pass(taken, StreamKind::Errors)? {
            self.streams.errors = None;
        }
        Ok(())
    }

    /// Passes bytes on up to the output limit; the rest is counted and discarded. `false`: nobody reads any more.
    fn pass(&mut self, bytes: Vec<u8>, kind: StreamKind) -> Result<bool, Fault> {
        let limit = self
            .plan
            .limit(LimitKind::Output)
            .map_or(u64::MAX, |rule| rule.value);
        let room = usize::try_from(limit.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        let (kept, rest) = bytes.split_at(bytes.len().min(room));
        self.passed += kept.len() as u64;
        if !rest.is_empty() {
            if self.ending.discarded == 0 {
                let effect = "further output is discarded, the run goes on".to_owned();
                self.event(Event::Limit(LimitHit {
                    limit: LimitKind::Output,
                    value: limit,
                    effect,
                }))?;
            }
            self.ending.discarded += rest.len() as u64;
        }
        match &mut *self.front {
            Front::Own => {
                let written = match kind {
                    StreamKind::Errors => write_all(std::io::stderr().as_fd(), kept),
                    _ => write_all(std::io::stdout().as_fd(), kept),
                };
                written
                    .map_err(|error| Fault::new(Code::FenceLost, "cannot pass output on", error.to_string()))
            }
            Front::Kept(keeping) => {
                let before = keeping.log.dropped();
                keeping.log.append(kind, kept).map_err(|error| {
                    Fault::new(
                        Code::StateDir,
                        "cannot keep what the run prints",
                        error.to_string(),
                    )
                    .help("free disk space, or set XDG_STATE_HOME to a writable directory")
                })?;
                if before == 0 && keeping.log.dropped() > 0 {
                    let text = format!("output beyond {MOST_OUTPUT} bytes is not kept, the run goes on");
                    self.voice.happened("note", json!({ "text": text }));
                }
                Ok(true)
            }
        }
    }

    pub(super) fn input(&mut self) -> Result<(), Fault> {
        let mut bytes = Vec::with_capacity(64 * 1024);
        match rustix::io::read(std::io::stdin(), spare_capacity(&mut bytes)) {
            // A terminal knows no end of input but its own key for it.
            Ok(0) if matches!(self.plan.stdio, Stdio::Pty { .. }) => {
                self.pending = vec![END_OF_INPUT];
                self.input_ended = true;
                return self.feed();
            }
            Ok(0) => self.streams.input = None,
            Ok(_) => {
                self.pending = bytes;
                return self.feed();
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal that this process group may not read (it runs in the background) gives no input.
            Err(_) => self.streams.input = None,
        }
        Ok(())
    }

    pub(super) fn feed(&mut self) -> Result<(), Fault> {
        let Some(input) = &self.streams.input else {
            return Ok(());
        };
        match rustix::io::write(input, &self.pending) {
            Ok(written) => {
                self.pending.drain(..written);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.pending.clear();
                self.streams.input = None;
            }
        }
        Ok(())
    }
}
