//! Bytes between the agent's streams and ours: passed on up to the limit of output, never looked at.
use super::Relay;
use crate::streams::{take, write_all};
use bastle_contract::{Code, Event, Fault, LimitHit, LimitKind, Stdio};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// ^D: what a terminal takes for the end of input at the start of a line.
const END_OF_INPUT: u8 = 4;

impl Relay<'_> {
    pub(super) fn output(&mut self) -> Result<(), Fault> {
        let taken = take(&mut self.streams.output);
        let stdout = std::io::stdout();
        if !self.pass(taken, stdout.as_fd())? {
            self.streams.output = None;
        }
        Ok(())
    }

    pub(super) fn errors(&mut self) -> Result<(), Fault> {
        let taken = take(&mut self.streams.errors);
        let stderr = std::io::stderr();
        if !self.pass(taken, stderr.as_fd())? {
            self.streams.errors = None;
        }
        Ok(())
    }

    /// Passes bytes on up to the output limit; the rest is counted and discarded. `false`: nobody reads any more.
    fn pass(&mut self, bytes: Vec<u8>, to: std::os::fd::BorrowedFd<'_>) -> Result<bool, Fault> {
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
        write_all(to, kept)
            .map_err(|error| Fault::new(Code::FenceLost, "cannot pass output on", error.to_string()))
    }

    pub(super) fn input(&mut self) -> Result<(), Fault> {
        let mut bytes = vec![0; 64 * 1024];
        match rustix::io::read(std::io::stdin(), &mut bytes) {
            // A terminal knows no end of input but its own key for it.
            Ok(0) if matches!(self.plan.stdio, Stdio::Pty { .. }) => {
                self.pending = vec![END_OF_INPUT];
                self.input_ended = true;
                return self.feed();
            }
            Ok(0) => self.streams.input = None,
            Ok(count) => {
                bytes.truncate(count);
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
