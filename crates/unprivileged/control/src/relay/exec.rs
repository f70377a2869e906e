//! Beside the agent: further commands in the same fence, and connections to servers inside, each on a stream of its own.
//!
//! Who asks is the run's owner (the socket sees to that); what comes back is untrusted bytes, passed on unread. Nothing
//! here waits: a peer that does not read is read for no further, a command that does not read holds its peer back.
use super::Relay;
pub(super) use super::channel::{Beside, Ready};
use super::channel::{Channel, What};
use super::dial;
use crate::live::Held;
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::runs::RunState;
use bastle_contract::runs::TtySize;
use bastle_contract::stream::{StreamFrame, StreamKind};
use bastle_contract::{AbsPath, Argv, Code, EnvName, ExecWish, Fault, FromInit, MAX_EXECS, ToInit, socket};
use serde_json::{Value, json};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The answer to a streaming command; nothing where it comes later.
type Begun = Result<Option<Result<Value, Vec<Fault>>>, Fault>;

/// Connections into one run at once.
pub(super) const MOST_CONNECTIONS: usize = 256;
/// ^D: what a terminal takes for the end of input at the start of a line.
const END_OF_INPUT: u8 = 4;
/// How long the last bytes of a command may take when the run is over.
const LAST_WORDS: Duration = Duration::from_secs(2);
const KILL: u8 = 9;

impl Relay<'_> {
    /// Starts a further command: recorded first, then done.
    pub(super) fn exec(
        &mut self,
        peer: u64,
        argv: Argv,
        env: Vec<(EnvName, String)>,
        cwd: Option<AbsPath>,
        tty: Option<TtySize>,
    ) -> Begun {
        let wish = ExecWish { argv, env, cwd, tty };
        if let Some(fault) = self.not_now() {
            return Ok(Some(Err(vec![fault])));
        }
        let commands = self.beside.channels.len() - self.beside.connections();
        if commands >= MAX_EXECS {
            let why = format!("{MAX_EXECS} further commands are alive in this run");
            return Ok(Some(Err(vec![busy(&why, "wait for one of them to end")])));
        }
        let (what, theirs) = match wish.tty {
            Some(_) => (What::Terminal, Vec::new()),
            None => (What::Pipes, Vec::with_capacity(3)),
        };
        self.record.durable(&AuditEvent::ExecRequested {
            id: self.beside.last_id() + 1,
            by: "socket".to_owned(),
            argv: wish.argv.clone(),
            env: wish
                .env
                .iter()
                .map(|(name, _)| name.as_str().to_owned())
                .collect(),
            cwd: wish.cwd.clone(),
            tty: wish.tty.is_some(),
        })?;
        let channel = self.beside.add(peer, what);
        let id = channel.id;
        let theirs = match channel.open(theirs) {
            Ok(theirs) => theirs,
            Err(error) => return self.not_started(id, &error.to_string()),
        };
        self.voice.happened(
            "exec",
            json!({ "id": id, "state": "requested", "argv": wish.argv.as_slice(), "by": "socket" }),
        );
        let descriptors: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
        match socket::send(&self.events, &ToInit::Exec { id, wish }, &descriptors) {
            Ok(()) => Ok(None),
            Err(error) => self.not_started(id, &error.to_string()),
        }
    }

    /// Why nothing can be started beside the agent in this moment.
    pub(super) fn not_now(&self) -> Option<Fault> {
        let run = &self.plan.run;
        match self.standing_state() {
            _ if self.ended || !self.init_open => {}
            (RunState::Building | RunState::Queued, _) => {
                return Some(busy("the agent has not started yet", "try again in a moment"));
            }
            (RunState::Suspended, _) => {
                return Some(busy("the run stands still", &format!("bastle resume {run}")));
            }
            (RunState::NeedsInput | RunState::NeedsCredential, _) => {
                let help = format!("answer its question: bastle allow {run} ID, or bastle deny {run} ID");
                return Some(busy("the run stands still until somebody answers", &help));
            }
            (RunState::Running, None) => return None,
            (
                RunState::Running
                | RunState::Completed
                | RunState::Failed
                | RunState::Cancelled
                | RunState::Refused,
                _,
            ) => {}
        }
        Some(busy("the run is ending", "bastle ps -a"))
    }

    fn not_started(&mut self, id: u32, why: &str) -> Begun {
        self.beside.forget(id);
        self.record.append(&AuditEvent::ExecEnded {
            id,
            exit: Exit::Unknown,
            reason: Some(why.to_owned()),
        })?;
        let fault = Fault::new(Code::ExecFailed, "the command was not started", why)
            .help("shorten the command line; a command and its variables have 64 KiB");
        Ok(Some(Err(vec![fault])))
    }

    /// What init says about further commands and connections.
    pub(super) fn hear_exec(&mut self, frame: FromInit, mut descriptors: Vec<OwnedFd>) -> Result<(), Fault> {
        match frame {
            FromInit::ExecStarted { id } => self.exec_started(id, descriptors.pop()),
            FromInit::ExecExited { id, code, signal } => {
                let exit = match (code, signal) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                };
                self.exec_over(id, exit, None)
            }
            FromInit::ExecFailed { id, code, fault } => {
                self.exec_over(id, Exit::Unknown, Some((code, fault)))
            }
            FromInit::Dialed { id } => self.dialed(id, descriptors.pop()),
            FromInit::NotDialed { id, fault } => {
                self.not_dialed(id, fault);
                Ok(())
            }
            FromInit::Ready { .. }
            | FromInit::Failed(_)
            | FromInit::Faces
            | FromInit::Broker
            | FromInit::Executed
            | FromInit::Event(_)
            | FromInit::Awake { .. }
            | FromInit::NotExecuted { .. }
            | FromInit::Exited { .. } => Ok(()),
        }
    }

    fn exec_started(&mut self, id: u32, master: Option<OwnedFd>) -> Result<(), Fault> {
        let (Some(channel), Some(live)) = (self.beside.find(id), &mut self.live) else {
            return Ok(());
        };
        if let Some(master) = master {
            channel.attach(master)?;
        }
        let tty = channel.what == What::Terminal;
        channel.begun = channel
            .peer
            .is_some_and(|peer| live.begin(peer, &json!({ "exec": id, "tty": tty })));
        if !channel.begun {
            self.abandon(id);
        }
        Ok(())
    }

    fn exec_over(&mut self, id: u32, exit: Exit, failed: Option<(u8, Fault)>) -> Result<(), Fault> {
        let code = match (exit, &failed) {
            (_, Some((code, _))) => *code,
            (Exit::Code(code), None) => code,
            (Exit::Signal(signal), None) => 128 + signal,
            (Exit::Unknown, None) => 125,
        };
        let reason = failed.as_ref().map(|(_, fault)| fault.to_string());
        self.record.append(&AuditEvent::ExecEnded { id, exit, reason })?;
        self.voice
            .happened("exec", json!({ "id": id, "state": "ended", "code": code }));
        let (Some(channel), Some(live)) = (self.beside.find(id), &mut self.live) else {
            return Ok(());
        };
        let mut last = json!({ "code": code });
        if let Exit::Signal(signal) = exit {
            last["signal"] = signal.into();
        }
        if let Some((_, fault)) = failed {
            // One that was never a stream becomes one for its last frame, which has the code.
            last["fault"] = json!(fault);
            if let Some(peer) = channel.peer
                && !channel.begun
                && !live.begin(peer, &json!({ "exec": id }))
            {
                channel.peer = None;
            }
        }
        channel.over = Some(last);
        Ok(())
    }

    /// Takes a frame for something beside the agent.
    pub(super) fn exec_frame(&mut self, peer: u64, frame: &StreamFrame) {
        let mut all = self.beside.channels.iter_mut();
        let Some(channel) = all.find(|channel| channel.peer == Some(peer)) else {
            return;
        };
        match (frame.kind, channel.what) {
            (StreamKind::Input, _) if channel.input_ended => {}
            (StreamKind::Input, What::Terminal) if frame.payload.is_empty() => {
                channel.pending.push(END_OF_INPUT);
                channel.feed();
            }
            (StreamKind::Input, _) => {
                channel.input_ended = frame.payload.is_empty();
                channel.pending.extend_from_slice(&frame.payload);
                channel.feed();
            }
            (StreamKind::Resize, _) => channel.resize(&frame.payload),
            (StreamKind::Signal, What::Pipes | What::Terminal) => {
                if let [signal @ 1..=31] = frame.payload.as_slice() {
                    let order = ToInit::ExecSignal {
                        id: channel.id,
                        signal: *signal,
                    };
                    self.tell_init(&order);
                }
                return;
            }
            (StreamKind::Signal, What::Connection(_)) => {}
            (StreamKind::Output | StreamKind::Errors | StreamKind::Ended | StreamKind::Event, _) => {}
        }
        let full = !channel.pending.is_empty();
        if let Some(live) = &mut self.live {
            live.hold(peer, if full { Held::Back } else { Held::No });
        }
    }

    /// A peer went away: what it started is ended.
    pub(super) fn exec_gone(&mut self, peer: u64) {
        let mut all = self.beside.channels.iter();
        if let Some(id) = all
            .find(|channel| channel.peer == Some(peer))
            .map(|channel| channel.id)
        {
            self.abandon(id);
        }
    }

    fn abandon(&mut self, id: u32) {
        let Some(channel) = self.beside.find(id) else {
            return;
        };
        channel.peer = None;
        (channel.input, channel.output, channel.errors) = (None, None, None);
        let done = channel.over.is_some();
        match channel.what {
            What::Connection(_) => drop(self.beside.forget(id)),
            What::Pipes | What::Terminal if !done => self.tell_init(&ToInit::ExecSignal { id, signal: KILL }),
            What::Pipes | What::Terminal => {}
        }
    }

    /// Passes on what is ready.
    pub(super) fn serve_beside(&mut self, ready: Ready) {
        let (Ready::Input(id) | Ready::Output(id)) = ready;
        let (Some(channel), Some(live)) = (self.beside.find(id), &mut self.live) else {
            return;
        };
        match ready {
            Ready::Input(_) => {
                channel.feed();
                if let Some(peer) = channel.peer
                    && channel.pending.is_empty()
                {
                    live.hold(peer, Held::No);
                }
            }
            Ready::Output(_) => {
                channel.pass(live);
            }
        }
        if let What::Connection(_) = channel.what
            && channel.output.is_none()
        {
            channel.over.get_or_insert_with(|| json!({ "code": 0 }));
        }
    }

    /// After every turn: what is over and passed on to its last byte is told so.
    pub(super) fn settle_beside(&mut self) {
        let Some(live) = &mut self.live else { return };
        self.beside.channels.retain_mut(|channel| {
            let Some(over) = &channel.over else {
                return true;
            };
            let last = over.to_string();
            match channel.peer {
                None => false,
                Some(peer) => !(channel.pass(live) && live.send(peer, StreamKind::Ended, last.as_bytes())),
            }
        });
    }

    /// The run is over, and everything beside the agent with it: who listens gets the last bytes and the word.
    pub(super) fn end_beside(&mut self) -> Result<(), Fault> {
        let living: Vec<u32> = self
            .beside
            .channels
            .iter()
            .filter(|channel| channel.over.is_none())
            .map(|channel| channel.id)
            .collect();
        for id in living {
            let fault = Fault::new(
                Code::ExecBusy,
                "the command ended with the run",
                "the run is over",
            )
            .help("bastle ps -a");
            let connection = |channel: &mut Channel| matches!(channel.what, What::Connection(_));
            if self.beside.find(id).is_some_and(connection) {
                self.not_dialed(id, fault);
            } else {
                self.exec_over(id, Exit::Unknown, Some((128 + KILL, fault)))?;
            }
        }
        let until = Instant::now() + LAST_WORDS;
        self.settle_beside();
        while let (false, Some(live)) = (self.beside.channels.is_empty(), &mut self.live) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            dial::wait_for_peers(live, left);
            for (peer, heard) in live.hear() {
                if let crate::live::Heard::Gone = heard {
                    self.exec_gone(peer);
                }
            }
            self.settle_beside();
        }
        self.beside.channels.clear();
        Ok(())
    }
}

pub(super) fn busy(why: &str, help: &str) -> Fault {
    Fault::new(Code::ExecBusy, "nothing can be started in the run now", why).help(help)
}
