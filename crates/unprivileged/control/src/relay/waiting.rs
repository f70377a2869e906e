//! What a relay waits for: everybody who may have something to say, and the next moment at which something is over.
use super::net::Net;
use super::{Relay, exec};
use crate::grants::Grants;
use crate::live::Live;
use crate::name_watch::NameWatch;
use bastle_contract::{Code, Fault};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Who has something to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Init,
    Spawner,
    Egress,
    Live,
    Beside(exec::Ready),
    Kept,
    Reads,
    Names,
    Broker,
    Knock,
    Keys,
    Output,
    Errors,
    Input,
    InputSpace,
    Signal(usize),
}

impl Relay<'_> {
    /// Waits until somebody has something to say, or something is over.
    pub(super) fn wait(&self) -> Result<Vec<Source>, Fault> {
        let mut waiting = Vec::with_capacity(16);
        let mut sources = Vec::with_capacity(16);
        let mut add = |source, fd, flags| {
            sources.push(source);
            waiting.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if self.init_open {
            add(Source::Init, self.events.as_fd(), PollFlags::IN);
        }
        if !self.ended {
            add(Source::Spawner, self.spawner.socket(), PollFlags::IN);
        }
        if let Some(egress) = self.net.as_ref().and_then(Net::socket) {
            add(Source::Egress, egress, PollFlags::IN);
        }
        if let Some(reads) = self.reads.waits_for() {
            add(Source::Reads, reads, PollFlags::IN);
        }
        if let Some(names) = self.watched_names() {
            add(Source::Names, names, PollFlags::IN);
        }
        if let Some(grants) = &self.grants {
            if let Some(broker) = grants.broker.socket() {
                add(Source::Broker, broker, PollFlags::IN);
            }
            if let Some(listener) = grants.broker.knock() {
                add(Source::Knock, listener, PollFlags::IN);
            }
        }
        for (peer, flags) in self.live.iter().flat_map(Live::waiting) {
            add(Source::Live, peer, flags);
        }
        for (ready, fd, flags) in self.beside.waiting(self.live.as_ref()) {
            add(Source::Beside(ready), fd, flags);
        }
        if let Some(line) = self.before.line() {
            add(Source::Kept, line.as_fd(), PollFlags::IN);
        }
        if let Some(output) = &self.streams.output {
            add(Source::Output, output.as_fd(), PollFlags::IN);
        }
        if let Some(errors) = &self.streams.errors {
            add(Source::Errors, errors.as_fd(), PollFlags::IN);
        }
        let stdin = std::io::stdin();
        if self.asks_keyboard() {
            add(Source::Keys, stdin.as_fd(), PollFlags::IN);
        } else if let Some(input) = &self.streams.input {
            // Read only what can be written: a slow agent holds its feeder back, not us.
            let open = !self.ended && !self.input_ended && self.front.is_own();
            if self.pending.is_empty() && open {
                add(Source::Input, stdin.as_fd(), PollFlags::IN);
            } else if !self.pending.is_empty() {
                add(Source::InputSpace, input.as_fd(), PollFlags::OUT);
            }
        }
        for (index, stream) in self.signals.streams().enumerate() {
            add(Source::Signal(index), stream.as_fd(), PollFlags::IN);
        }
        let timeout = self.timeout();
        match rustix::event::poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(Fault::new(
                    Code::FenceLost,
                    "cannot wait for the run",
                    error.to_string(),
                ));
            }
        }
        let mut ready: Vec<Source> = sources
            .into_iter()
            .zip(&waiting)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect();
        // Whoever of the peers it is: they are heard together.
        ready.dedup();
        self.add_due(&mut ready);
        Ok(ready)
    }

    /// Sources that have something to say without an event.
    fn add_due(&self, ready: &mut Vec<Source>) {
        let live = self.live.as_ref().is_some_and(Live::is_due);
        for (source, due) in [(Source::Live, live), (Source::Names, self.names_due())] {
            if due && !ready.contains(&source) {
                ready.push(source);
            }
        }
    }

    /// Not before the fence is proven: until then nobody is inside who could use a name.
    fn watched_names(&self) -> Option<BorrowedFd<'_>> {
        let watched = !self.ended && self.standing.is_proven();
        self.names.as_ref().filter(|_| watched).map(NameWatch::waits_for)
    }

    /// Whether names wait to be covered that no event tells of.
    fn names_due(&self) -> bool {
        let watched = !self.ended && self.standing.is_proven();
        watched && self.names.as_ref().is_some_and(NameWatch::is_due)
    }

    /// How long nothing is over.
    fn timeout(&self) -> Option<Timespec> {
        let deadlines = [
            self.patience,
            self.names_due().then(Instant::now),
            self.leaving(),
            self.net.as_ref().and_then(Net::deadline),
            self.live.as_ref().and_then(Live::deadline),
            self.grants.as_ref().and_then(Grants::deadline),
            self.reserve
                .as_ref()
                // Looked at only while the agent runs: before that its time would be over again at once.
                .filter(|_| !self.ended && self.standing.is_begun())
                .and_then(super::reserve::Reserve::deadline),
        ];
        deadlines
            .into_iter()
            .flatten()
            .min()
            .map(|until| timespec(until.saturating_duration_since(Instant::now())))
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
