//! The life of a run seen from here: bytes to and from the agent, events to the record and to the person.
mod attached;
mod before;
mod channel;
mod commands;
mod covers;
mod dial;
mod driven;
mod exec;
mod grants;
mod net;
mod passing;
mod permits;
mod questions;
mod reserve;
mod revoked;
mod standing;
mod unusual;
mod waiting;
mod wishes;

pub(crate) use net::Net;
use waiting::Source;

use crate::anomaly::LiveWatch;
use crate::egress::{Egress, NetTotals};
use crate::fileops::Reads;
use crate::grants::{Alias, Grants};
use crate::keeper::{Front, Then};
use crate::live::Live;
use crate::name_watch::NameWatch;
use crate::record::Record;
use crate::signals::Signals;
use crate::spawner::Spawner;
use crate::streams::{RawTerminal, Streams};
use crate::voice::Voice;
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::{
    Code, Event, Fault, FromInit, FromSpawner, Guarantee, LaunchPlan, Stdio, ToInit, ToSpawner, Usage, socket,
};
use bastle_workspace::workspace::Workspace;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) exit: Exit,
    /// The agent could not be executed, or the fence failed: with which exit code.
    pub(crate) fault: Option<(u8, Fault)>,
    pub(crate) usage: Usage,
    pub(crate) killed: Option<String>,
    pub(crate) discarded: u64,
    /// How long each step of building took, in microseconds.
    pub(crate) steps: Vec<(String, u64)>,
    pub(crate) net: Option<NetTotals>,
    /// Killed; it is waited for when the record is sealed.
    pub(crate) egress: Option<Egress>,
}

/// A run that has been handed to the spawner.
pub(crate) struct Relay<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) spawner: &'a Spawner,
    pub(crate) events: OwnedFd,
    pub(crate) streams: Streams,
    pub(crate) signals: Signals,
    pub(crate) record: &'a mut Record,
    pub(crate) voice: &'a mut dyn Voice,
    net: Option<Net>,
    live: Option<Live>,
    /// How long a question waits, and what follows.
    approvals: Approvals,
    /// Which files are read, as far as it is seen.
    reads: &'a mut Reads,
    /// What was granted since the start.
    grants: Option<Grants>,
    /// Where input comes from and output goes.
    front: &'a mut Front,
    /// What makes the run stand still.
    standing: standing::Standing,
    /// Free space that is kept, where the plan says so.
    reserve: Option<reserve::Reserve>,
    /// Further commands, and connections to servers inside.
    beside: exec::Beside,
    /// What waits for a snapshot.
    before: before::Before,
    /// Names that the host may replace, and covers on their way.
    names: &'a mut Option<NameWatch>,
    covering: covers::Covering,
    /// What the broker refused.
    refusals: u32,
    /// What is unusual about the run.
    unusual: LiveWatch,
    terminal: Option<RawTerminal>,
    pending: Vec<u8>,
    passed: u64,
    insisted: u8,
    had_terminal: bool,
    /// When patience with an agent that was told to end runs out.
    patience: Option<Instant>,
    /// Nothing more will come from our standard input.
    input_ended: bool,
    init_open: bool,
    ended: bool,
    ending: Ending,
}

/// What a relay starts with.
pub(crate) struct Parts<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) spawner: &'a Spawner,
    pub(crate) events: OwnedFd,
    pub(crate) streams: Streams,
    pub(crate) signals: Signals,
    pub(crate) net: Option<Net>,
    pub(crate) live: Option<Live>,
    pub(crate) approvals: Approvals,
    pub(crate) reads: &'a mut Reads,
    pub(crate) grants: Option<Grants>,
    pub(crate) front: &'a mut Front,
    /// The tree, where the run has one of its own.
    pub(crate) space: Option<Workspace>,
    /// Names that the host may replace.
    pub(crate) names: &'a mut Option<NameWatch>,
    /// bastle's own directory.
    pub(crate) state: &'a std::path::Path,
    pub(crate) unusual: LiveWatch,
}

/// How long a question waits where a layer says so, and what follows.
pub(crate) type Approvals = (Option<Duration>, Option<bastle_policy::OnTimeout>);

impl<'a> Relay<'a> {
    pub(crate) fn new(parts: Parts<'a>, record: &'a mut Record, voice: &'a mut dyn Voice) -> Self {
        let Parts {
            plan,
            spawner,
            events,
            streams,
            signals,
            net,
            live,
            approvals,
            reads,
            grants,
            front,
            space,
            names,
            state,
            unusual,
        } = parts;
        let had_terminal = front.is_own() && wishes::has_terminal();
        let (pending, input_ended) = match front.kept() {
            Some(kept) => (std::mem::take(&mut kept.input), kept.then == Then::End),
            None => (Vec::new(), false),
        };
        let ending = Ending {
            exit: Exit::Unknown,
            fault: None,
            usage: Usage::default(),
            killed: None,
            discarded: 0,
            steps: Vec::new(),
            net: None,
            egress: None,
        };
        Self {
            plan,
            spawner,
            events,
            streams,
            signals,
            record,
            voice,
            net,
            live,
            approvals,
            reads,
            grants,
            front,
            standing: standing::Standing::default(),
            reserve: reserve::Reserve::of(plan, state),
            beside: exec::Beside::default(),
            before: before::Before::new(space),
            names,
            covering: covers::Covering::default(),
            refusals: 0,
            unusual,
            terminal: None,
            pending,
            passed: 0,
            insisted: 0,
            had_terminal,
            patience: None,
            input_ended,
            init_open: true,
            ended: false,
            ending,
        }
    }

    /// Runs until everything of the run is gone and everything it said and printed has been passed on.
    pub(crate) fn run(mut self) -> Result<Ending, Fault> {
        while !self.ended || self.init_open || self.streams.output.is_some() || self.streams.errors.is_some()
        {
            for source in self.wait()? {
                self.serve(source)?;
            }
            if !self.ended && self.patience.is_some_and(|until| Instant::now() >= until) {
                self.patience = None;
                self.kill();
            }
            self.see_off();
            self.expire_questions()?;
            self.expire_grants()?;
            self.look_after_disk()?;
            self.settle_beside();
            self.attend()?;
            if let Some(fault) = self.voice.trouble()
                && self.ending.fault.is_none()
            {
                self.give_up(125, fault);
            }
        }
        self.too_late();
        self.end_beside()?;
        self.hand_peers_over();
        self.notice_end()?;
        self.explain();
        self.ending.net = self.farewell()?;
        Ok(self.ending)
    }

    fn serve(&mut self, source: Source) -> Result<(), Fault> {
        match source {
            Source::Init => self.hear_init(),
            Source::Spawner => self.hear_spawner(),
            Source::Egress => self.hear_egress(),
            Source::Live => self.hear_live(),
            Source::Beside(ready) => {
                self.serve_beside(ready);
                Ok(())
            }
            Source::Kept => self.kept_before(),
            Source::Reads => {
                self.reads.take();
                Ok(())
            }
            Source::Names => self.names_changed(),
            Source::Broker => self.hear_broker(),
            Source::Knock => self.knock(),
            Source::Keys => self.keys(),
            Source::Output => self.output(),
            Source::Errors => self.errors(),
            Source::Input => self.input(),
            Source::InputSpace => self.feed(),
            Source::Signal(index) => match self.signals.take(index) {
                Some(wish) => self.obey(wish),
                None => Ok(()),
            },
        }
    }

    fn init_left(&mut self) {
        self.init_open = false;
        self.dismiss_egress();
    }

    fn hear_init(&mut self) -> Result<(), Fault> {
        let (frame, mut descriptors) = match socket::receive::<FromInit>(&self.events) {
            Ok(Some(received)) => received,
            Ok(None) => {
                self.init_left();
                return Ok(());
            }
            // It went without reading what it was told; its own last words are still there to be read.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => {
                return Err(Fault::new(
                    Code::FenceLost,
                    "cannot understand init",
                    error.to_string(),
                ));
            }
        };
        match frame {
            FromInit::Ready { statement, steps } => {
                self.ending.steps = steps;
                if let Some(master) = descriptors.pop() {
                    self.streams.attach(master)?;
                }
                self.start(statement)
            }
            FromInit::Failed(fault) => {
                self.give_up(125, fault);
                Ok(())
            }
            FromInit::Executed => {
                self.voice.executed();
                Ok(())
            }
            FromInit::NotExecuted { code, fault } => {
                self.ending.fault = Some((code, fault));
                Ok(())
            }
            FromInit::Faces => self.faces(descriptors),
            FromInit::Broker => {
                if let Some(grants) = &mut self.grants {
                    grants.broker.offer(descriptors.pop());
                }
                Ok(())
            }
            FromInit::Awake { count } => self.awake(count),
            FromInit::Event(event) => self.event(event),
            FromInit::ExecStarted { .. }
            | FromInit::ExecExited { .. }
            | FromInit::ExecFailed { .. }
            | FromInit::Dialed { .. }
            | FromInit::NotDialed { .. } => self.hear_exec(frame, descriptors),
            FromInit::Exited { code, signal, usage } => {
                self.ending.exit = match (code, signal) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                };
                // The spawner's word on the end may have come first: its clocks stay.
                let known = self.ending.usage;
                self.ending.usage = Usage {
                    wall_ms: known.wall_ms,
                    cpu_ms: known.cpu_ms,
                    peak_memory: known.peak_memory,
                    ..usage
                };
                Ok(())
            }
        }
    }

    /// The statement is judged and on disk before the agent gets the word.
    fn start(&mut self, mut statement: bastle_contract::CapabilityStatement) -> Result<(), Fault> {
        let mut required = self.plan.guarantees.clone();
        if let Some(net) = &mut self.net {
            // Not among the plan's: no process inside can prove it.
            statement.probes.append(&mut net.setup.probes);
            required.push(Guarantee::EgressConfined);
        }
        let failures = statement.failures(&required);
        self.record.durable(&AuditEvent::Statement(statement.clone()))?;
        if !failures.is_empty() {
            let fault = Fault::new(
                Code::FenceProbe,
                "the fence is not proven, the agent was not started",
                failures.join("; "),
            );
            self.give_up(125, fault.help("bastle doctor"));
            return Ok(());
        }
        self.voice.proven(self.plan, &statement);
        if let Some(fault) = self.voice.trouble() {
            self.give_up(125, fault);
            return Ok(());
        }
        self.tell_notes()?;
        if let Err(fault) = self.recheck_secrets() {
            self.give_up(125, fault);
            return Ok(());
        }
        self.standing.proven();
        // What the host replaced while the sandbox was built is covered before the agent lives.
        self.names_changed()?;
        self.stand()
    }

    /// The agent gets the word.
    fn set_off(&mut self) {
        self.standing.begin();
        if let Stdio::Pty { .. } = self.plan.stdio
            && self.front.is_own()
        {
            // Only now: until here every message is ours and needs a terminal that breaks lines.
            self.terminal = RawTerminal::enter().ok();
        }
        // An init that is gone was killed meanwhile, by its clock for one: the spawner tells why.
        self.tell_init(&ToInit::Go);
    }

    fn give_up(&mut self, code: u8, fault: Fault) {
        self.ending.fault = Some((code, fault));
        self.kill();
    }

    /// Ends everything.
    fn kill(&mut self) {
        self.tell_spawner(&ToSpawner::Kill);
    }

    /// A spawner that is gone has ended the run already: its last words wait to be read, or their absence is told there.
    fn tell_spawner(&mut self, frame: &ToSpawner) {
        drop(self.spawner.send(frame));
    }

    fn hear_spawner(&mut self) -> Result<(), Fault> {
        let (word, descriptors) = match self.spawner.receive_with() {
            Ok(received) => received,
            // It ended with the run it was told to end: the reason is known already.
            Err(_) if self.ending.fault.is_some() => {
                self.ended = true;
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        match word {
            FromSpawner::Launched { pid, cgroups, reads } => {
                self.voice.reads(&reads);
                self.reads.begin(pid, reads, descriptors);
                self.voice.launched(pid);
                self.record.launched(pid, cgroups)
            }
            FromSpawner::Refused(fault) => {
                self.ending.fault.get_or_insert((125, fault));
                self.ended = true;
                self.streams = Streams::default();
                Ok(())
            }
            FromSpawner::Event(event) => self.event(event),
            FromSpawner::Ended { usage, killed } => {
                let counted = self.ending.usage;
                self.ending.usage = Usage {
                    // The guard counts exactly, where a limit makes it count at all.
                    bytes_written: match counted.bytes_written {
                        0 => usage.bytes_written,
                        counted => counted,
                    },
                    created: counted.created,
                    files: counted.files,
                    ..usage
                };
                self.ending.killed = killed;
                self.ended = true;
                self.streams.input = None;
                self.terminal = None;
                self.grants_ended()?;
                self.grants = None;
                Ok(())
            }
            FromSpawner::Granted { path, alias } => {
                self.granted(&path, if alias { Alias::Yes } else { Alias::No })
            }
            FromSpawner::Withdrawn { path, holders, ended } => self.withdrawn(&path, (holders, ended)),
            FromSpawner::GrantFailed { path, fault } => self.not_granted(&path, fault),
            FromSpawner::Covered { count } => self.covered(count),
            FromSpawner::CoverFailed { fault } => {
                self.uncovered(&fault);
                Ok(())
            }
            FromSpawner::Done | FromSpawner::Hello { .. } => Ok(()),
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Denied(denied) => {
                if let Some(id) = self.record.denied(&denied)? {
                    self.voice.denied(&id, &denied);
                }
                self.notice("denied", serde_json::json!({}))?;
            }
            Event::Limit(hit) => {
                self.record.limit(&hit)?;
                self.voice.limit(&hit);
            }
            Event::LimitLost(lost) => {
                let fault = lost.fault();
                self.record.limit_lost(lost)?;
                // The spawner has killed everything already; its word on the end comes next.
                self.ending.fault.get_or_insert((125, fault));
            }
            Event::Exec(seen) => {
                self.record.exec(seen)?;
                if self.record.programs_step() {
                    let more = crate::record::PROGRAMS_STEP;
                    let data = serde_json::json!({ "more": more });
                    self.voice.happened("programs", data.clone());
                    self.notice("programs", data)?;
                }
            }
            Event::Files { changed } => self.notice("files", serde_json::json!({ "changed": changed }))?,
        }
        Ok(())
    }

    /// init may be gone already: then there is nobody left to tell, but what it said before is still to be read.
    fn tell_init(&mut self, frame: &ToInit) {
        drop(socket::send(&self.events, frame, &[]));
    }
}
