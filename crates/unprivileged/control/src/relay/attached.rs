//! Peers that are shown what a kept run prints and what happens to it, and that type into it.
use super::Relay;
use crate::keeper::{Feed, Hands, Then};
use crate::live::{Held, MOST_QUEUED};
use bastle_contract::runs::TtySize;
use bastle_contract::stream::{StreamFrame, StreamKind};
use bastle_contract::{Code, Fault, Stdio};
use rustix::termios::Winsize;
use serde_json::{Value, json};

/// ^D: what a terminal takes for the end of input at the start of a line.
const END_OF_INPUT: u8 = 4;

/// The answer to a streaming command; nothing where the stream has begun.
type Begun = Option<Result<Value, Vec<Fault>>>;

impl Relay<'_> {
    /// Shows a peer what is printed.
    pub(super) fn attach(&mut self, peer: u64, since: Option<u64>, hands: Hands) -> Begun {
        let Some(kept) = self.front.kept() else {
            return Some(Err(vec![not_kept(&self.plan.run)]));
        };
        let now = kept.log.length();
        let feed = match Feed::output(&kept.dir, since, now, hands) {
            Ok(feed) => feed,
            Err(fault) => return Some(Err(vec![fault])),
        };
        let tty = matches!(self.plan.stdio, Stdio::Pty { .. });
        self.show(
            peer,
            feed,
            &json!({ "attached": self.plan.run, "length": now, "tty": tty }),
        )
    }

    /// Tells a peer what happens.
    pub(super) fn watch(&mut self, peer: u64, since: u64) -> Begun {
        let Some(kept) = self.front.kept() else {
            return Some(Err(vec![not_kept(&self.plan.run)]));
        };
        match Feed::events(&kept.dir, since) {
            Ok(feed) => self.show(peer, feed, &json!({ "watched": self.plan.run })),
            Err(fault) => Some(Err(vec![fault])),
        }
    }

    fn show(&mut self, peer: u64, feed: Feed, answer: &Value) -> Begun {
        let begun = self.live.as_mut().is_some_and(|live| live.begin(peer, answer));
        if begun && let Some(kept) = self.front.kept() {
            kept.feeds.push((peer, feed));
        }
        None
    }

    /// Takes a frame of somebody who is attached; `false` where the peer is somebody else's.
    pub(super) fn typed(&mut self, peer: u64, frame: &StreamFrame) -> Result<bool, Fault> {
        let Some(kept) = self.front.kept() else {
            return Ok(false);
        };
        let Some((_, feed)) = kept.feeds.iter().find(|(number, _)| *number == peer) else {
            return Ok(false);
        };
        if !feed.takes_input() {
            // Who only looks changes nothing, whatever it sends.
            return Ok(true);
        }
        match frame.kind {
            StreamKind::Input if frame.payload.is_empty() => self.end_input(),
            StreamKind::Input if kept.then == Then::Peers && !self.input_ended => {
                self.pending.extend_from_slice(&frame.payload);
                self.feed()?;
            }
            StreamKind::Resize => self.sized(&frame.payload),
            StreamKind::Signal => {
                if let [signal @ 1..=31] = frame.payload.as_slice() {
                    self.signal_agent(*signal);
                }
            }
            StreamKind::Input
            | StreamKind::Output
            | StreamKind::Errors
            | StreamKind::Ended
            | StreamKind::Event => {}
        }
        Ok(true)
    }

    fn end_input(&mut self) {
        if matches!(self.plan.stdio, Stdio::Pty { .. }) {
            // A terminal knows no end of input but its own key for it, and others may still type.
            self.pending.push(END_OF_INPUT);
        } else {
            self.input_ended = true;
        }
    }

    /// The last size that somebody has is the agent's.
    fn sized(&mut self, payload: &[u8]) {
        let Ok(TtySize {
            rows: rows @ 1..=1000,
            cols: cols @ 1..=1000,
        }) = serde_json::from_slice(payload)
        else {
            return;
        };
        let size = Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // A terminal that is gone has no size.
        if let Some(master) = &self.streams.output
            && matches!(self.plan.stdio, Stdio::Pty { .. })
        {
            match rustix::termios::tcsetwinsize(master, size) {
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// A peer went away.
    pub(super) fn left(&mut self, peer: u64) -> Result<(), Fault> {
        let Some(kept) = self.front.kept() else {
            return Ok(());
        };
        kept.feeds.retain(|(number, _)| *number != peer);
        if kept.holder == Some(peer) {
            kept.holder = None;
            return self.finish();
        }
        Ok(())
    }

    /// After every turn: shows what is new, and asks for input only while the agent takes it.
    pub(super) fn attend(&mut self) -> Result<(), Fault> {
        let full = self.pending.len() >= MOST_QUEUED;
        let (Some(kept), Some(live)) = (self.front.kept(), &mut self.live) else {
            return Ok(());
        };
        let held = if full { Held::Back } else { Held::No };
        kept.feeds.retain_mut(|(number, feed)| {
            let Some(peer) = live.peer(*number) else {
                return false;
            };
            let fed = feed.fill(peer).is_ok();
            if fed && feed.takes_input() {
                live.hold(*number, held);
            }
            if !fed {
                drop(live.release(*number));
            }
            fed
        });
        // The end of the input comes after all that was sent before it.
        if self.input_ended && self.pending.is_empty() && self.streams.input.is_some() {
            self.streams.input = None;
        }
        Ok(())
    }

    /// The agent is gone: who is attached is told the end once it is written.
    pub(super) fn hand_peers_over(&mut self) {
        let live = self.live.take();
        let (Some(kept), Some(mut live)) = (self.front.kept(), live) else {
            return;
        };
        for (number, feed) in std::mem::take(&mut kept.feeds) {
            if let Some(peer) = live.release(number) {
                kept.left.push((peer, feed));
            }
        }
    }
}

fn not_kept(run: &bastle_contract::RunId) -> Fault {
    Fault::new(
        Code::UsageArgument,
        format!("the run {run} has a terminal or pipes of its own"),
        "what it prints is not kept, so nobody else can be shown it",
    )
    .help("start it in the background: bastle run -d -- CMD")
}
