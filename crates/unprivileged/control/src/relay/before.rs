//! A snapshot before each turn of a driven agent and before each further command: taken by a thread, so that nothing of
//! the run waits for it but whoever asked.
//!
//! **Trust:** a snapshot is for going back, not a control: one that fails is told and holds nobody up.
use super::Relay;
use super::exec::busy;
use crate::live::Command;
use bastle_contract::{Code, Fault};
use bastle_workspace::meta::Reason;
use bastle_workspace::snapshot::Taken;
use bastle_workspace::workspace::Workspace;
use serde_json::{Value, json};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};

/// Commands that wait for a snapshot; more are refused.
const MOST_WAITING: usize = 256;

/// The tree of the run, and what waits for it to be kept.
pub(crate) struct Before {
    space: Option<Workspace>,
    under_way: Option<UnderWay>,
    /// The newest snapshot that was told.
    told: u32,
}

struct UnderWay {
    /// Ends when the snapshot is taken.
    line: UnixStream,
    taken: Receiver<Result<Taken, Fault>>,
    waiting: Vec<(u64, Command)>,
}

impl Before {
    /// `None`: the run works in the project itself, and there is nothing to keep.
    pub(super) fn new(space: Option<Workspace>) -> Self {
        Self {
            space,
            under_way: None,
            told: 0,
        }
    }

    /// What is readable when the snapshot is taken.
    pub(super) fn line(&self) -> Option<&UnixStream> {
        self.under_way.as_ref().map(|under_way| &under_way.line)
    }

    fn begin(&mut self) -> std::io::Result<&mut UnderWay> {
        if let Some(space) = self.space.clone()
            && self.under_way.is_none()
        {
            let (line, theirs) = UnixStream::pair()?;
            let (sender, taken) = channel();
            std::thread::Builder::new()
                .name("snapshot".to_owned())
                .spawn(move || {
                    // A run that ended meanwhile does not listen any more.
                    drop(sender.send(space.snapshot(None, Reason::Turn)));
                    drop(theirs);
                })?;
            self.under_way = Some(UnderWay {
                line,
                taken,
                waiting: Vec::new(),
            });
        }
        self.under_way
            .as_mut()
            .ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

impl Relay<'_> {
    /// Carries a command out when the tree as it is now is kept.
    pub(super) fn keep_first(
        &mut self,
        peer: u64,
        command: Command,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        // What would be refused anyway is refused now; and words to an agent at work belong to its turn.
        let wanted = match &command {
            Command::Exec { .. } => self.not_now().is_none(),
            Command::Say { .. } => self.begins_turn(),
            _ => false,
        };
        if !wanted || self.before.space.is_none() {
            return self.carry_out(peer, command);
        }
        match self.before.begin() {
            Ok(under_way) if under_way.waiting.len() < MOST_WAITING => {
                under_way.waiting.push((peer, command));
                Ok(None)
            }
            Ok(_) => Ok(Some(Err(vec![busy(
                "too many commands wait for a snapshot",
                "try again in a moment",
            )]))),
            Err(error) => {
                self.not_kept(&error.to_string());
                self.carry_out(peer, command)
            }
        }
    }

    /// The snapshot is taken, or failed: whoever waited has their turn.
    pub(super) fn kept_before(&mut self) -> Result<(), Fault> {
        let Some(mut under_way) = self.before.under_way.take() else {
            return Ok(());
        };
        // Nothing is ever written to it: it is readable because it ended.
        drop(under_way.line.read(&mut [0; 1]));
        match under_way.taken.try_recv() {
            Ok(Ok(taken)) if taken.snapshot.reason == Reason::Turn => {
                let number = taken.snapshot.number;
                if number > self.before.told {
                    self.before.told = number;
                    let text = format!("snapshot {number}, before what follows");
                    self.voice
                        .happened("note", json!({ "text": text, "snapshot": number }));
                }
            }
            // As it was at the last one.
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => self.not_kept(&fault.to_string()),
            Err(_) => self.not_kept("its thread ended"),
        }
        for (peer, command) in under_way.waiting {
            if let Some(answer) = self.carry_out(peer, command)? {
                self.reply(peer, &answer);
            }
        }
        Ok(())
    }

    fn not_kept(&mut self, why: &str) {
        let text = format!("no snapshot was taken before what follows: {why}");
        self.voice.happened("note", json!({ "text": text }));
    }

    /// Somebody who waited went away.
    pub(super) fn waits_no_more(&mut self, peer: u64) {
        if let Some(under_way) = &mut self.before.under_way {
            under_way.waiting.retain(|(other, _)| *other != peer);
        }
    }

    /// The run is over: what waited is refused.
    pub(super) fn too_late(&mut self) {
        let Some(under_way) = self.before.under_way.take() else {
            return;
        };
        for (peer, _) in under_way.waiting {
            let fault = Fault::new(Code::ExecBusy, "the run is over", "it ended meanwhile");
            self.reply(peer, &Err(vec![fault.help("bastle ps -a")]));
        }
    }
}
