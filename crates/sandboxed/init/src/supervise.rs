//! The life of a run inside: serve guarded calls, pass signals on, start further commands, tell events, reap, and end
//! everything at the end.
use crate::agent::FromAgent;
use crate::command::Common;
use crate::dials::{self, Dials};
use crate::execs::{Execs, Frozen};
use crate::guard::{Expected, Guard};
use crate::step::Step;
use crate::still::Still;
use crate::watchdog::Watchdog;
use bastle_contract::socket;
use bastle_contract::{Event, Fault, FromInit, Handover, ToInit, Usage};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a run is a short one: what it took to build it is not worth giving back before.
const YOUNG: Duration = Duration::from_millis(200);

/// The agent's process and the lines to it.
pub(crate) struct Agent {
    pub(crate) pid: u32,
    pub(crate) line: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
}

/// Runs until the agent ends; returns init's own exit code.
pub(crate) fn supervise(
    handover: &Handover,
    agent: Agent,
    guard: Guard,
    common: Common<'_>,
) -> Result<u8, Fault> {
    let children = bastle_sys::signal::descriptor_for(&[libc::SIGCHLD]).step("reaping", "signalfd")?;
    let mut life = Life {
        handover,
        guard,
        execs: Execs::new(common),
        dials: Dials::of(&handover.plan.network),
        line: true,
        refused: false,
        young: None,
        still: None,
        agent,
    };
    let mut watchdog = Watchdog::of(handover);
    loop {
        let ready = life.wait(&children, watchdog.as_ref())?;
        life.serve_calls(&ready)?;
        for source in &ready {
            match source {
                Source::AgentWord => life.execution()?,
                Source::Word(id) => life.execs.hear(&handover.events, *id)?,
                Source::Dial(id) => {
                    let told = life.dials.settle(*id);
                    life.dialed(told)?;
                }
                Source::Control => {
                    if !life.obey()? {
                        return Ok(125);
                    }
                }
                // Whoever waited for it once more would not wait at all, and take the processor from those who end.
                Source::AgentGone => life.agent.listener = None,
                Source::AgentCall | Source::Call(_) | Source::Gone(_) | Source::Child => {}
            }
        }
        life.grow_old();
        life.look_still()?;
        let late = life.dials.expire();
        life.dialed(late)?;
        if let Some(watchdog) = &mut watchdog {
            watchdog.look(handover)?;
        }
        // Also without the signal: it may have come before the descriptor was there.
        if let Some(status) = life.reap(&children)? {
            // Its last word may still lie on the line: why it could not be executed.
            while life.line {
                life.execution()?;
            }
            return finish(handover, status, &life.guard);
        }
    }
}

/// Everything that lives in a run.
struct Life<'a> {
    handover: &'a Handover,
    agent: Agent,
    /// Whether the agent has not executed yet.
    line: bool,
    /// Whether it said why it cannot.
    refused: bool,
    /// Until when the run counts as a short one.
    young: Option<Instant>,
    guard: Guard,
    execs: Execs<'a>,
    dials: Dials,
    /// While everything is stopped by signals.
    still: Option<Still>,
}

/// What there is to do.
#[derive(Clone, Copy)]
enum Source {
    Child,
    Control,
    AgentCall,
    /// No process is left that the agent's filter is on; its end is told apart from this, and a little later.
    AgentGone,
    AgentWord,
    /// A call of a further command, by the place of its listener.
    Call(usize),
    /// Nobody is left who could call there.
    Gone(usize),
    Word(u32),
    Dial(u32),
}

impl Life<'_> {
    fn wait(&self, children: &OwnedFd, watchdog: Option<&Watchdog>) -> Result<Vec<Source>, Fault> {
        let mut sources = vec![Source::Child, Source::Control];
        let mut waiting = vec![
            PollFd::new(children, PollFlags::IN),
            PollFd::new(&self.handover.events, PollFlags::IN),
        ];
        let mut add = |source, fd, flags| {
            sources.push(source);
            waiting.push(PollFd::from_borrowed_fd(fd, flags));
        };
        // Who is stopped makes no calls; who woke by itself waits with them.
        if let Some(listener) = self.agent.listener.as_ref().filter(|_| self.still.is_none()) {
            add(Source::AgentCall, listener.as_fd(), PollFlags::IN);
        }
        if self.line {
            add(Source::AgentWord, self.agent.line.as_fd(), PollFlags::IN);
        }
        let served = self.still.is_none();
        for (at, listener) in self.execs.listeners().enumerate().filter(|_| served) {
            add(Source::Call(at), listener, PollFlags::IN);
        }
        for (id, line) in self.execs.lines() {
            add(Source::Word(id), line, PollFlags::IN);
        }
        for (id, socket) in self.dials.waiting() {
            add(Source::Dial(id), socket, PollFlags::OUT);
        }
        let until = self
            .dials
            .deadline()
            .map(|until| until.saturating_duration_since(Instant::now()));
        let young = self
            .young
            .map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = watchdog
            .map(Watchdog::left)
            .into_iter()
            .chain(until)
            .chain(young)
            .chain(self.still.as_ref().map(Still::left))
            .min();
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(cause) => return Err(cause).step("supervising", "poll"),
        }
        let ready = sources.into_iter().zip(&waiting).filter_map(|(source, fd)| {
            let flags = fd.revents();
            match source {
                // One whose processes are all gone hangs up for ever.
                Source::Call(at) if !flags.is_empty() && !flags.contains(PollFlags::IN) => {
                    Some(Source::Gone(at))
                }
                Source::AgentCall if !flags.is_empty() && !flags.contains(PollFlags::IN) => {
                    Some(Source::AgentGone)
                }
                _ => (!flags.is_empty()).then_some(source),
            }
        });
        Ok(ready.collect())
    }

    /// The plan was read and carried out. A run that is not over soon may wait for days: what that took is given back.
    fn grow_old(&mut self) {
        if self.young.is_some_and(|until| Instant::now() >= until) {
            self.young = None;
            bastle_sys::memory::give_back();
        }
    }

    /// One call of each listener that has some, so that none of them waits for another's flood.
    fn serve_calls(&mut self, ready: &[Source]) -> Result<(), Fault> {
        let events = &self.handover.events;
        let mut gone = Vec::new();
        let mut failed = None;
        for source in ready {
            let listener = match source {
                Source::AgentCall => self.agent.listener.as_ref().map(AsFd::as_fd),
                Source::Call(at) => self.execs.listener(*at),
                Source::Gone(at) => {
                    gone.push(*at);
                    continue;
                }
                Source::Child
                | Source::Control
                | Source::AgentGone
                | Source::AgentWord
                | Source::Word(_)
                | Source::Dial(_) => {
                    continue;
                }
            };
            let mut tell = |mut event: Event| {
                self.execs.name(&mut event);
                failed = socket::send(events, &FromInit::Event(event), &[]).err();
            };
            if let Some(listener) = listener {
                self.guard.serve(listener, &mut tell).step("guard", "serve")?;
            }
            if let Some(cause) = failed.take() {
                return Err(cause).step("telling events", "control");
            }
        }
        if !gone.is_empty() {
            self.execs.forget(&gone);
        }
        Ok(())
    }

    fn dialed(&self, told: impl IntoIterator<Item = dials::Told>) -> Result<(), Fault> {
        for (frame, connection) in told {
            let descriptors = connection.as_ref().map(AsFd::as_fd);
            socket::send(&self.handover.events, &frame, descriptors.as_slice())
                .step("reporting", "control")?;
        }
        Ok(())
    }

    /// What should stand still and does not is stopped again and told.
    fn look_still(&mut self) -> Result<(), Fault> {
        let woke = match &mut self.still {
            Some(still) => still.look().step("freezing", "look")?,
            None => None,
        };
        self.tell_awake(woke.unwrap_or(0))
    }

    fn tell_awake(&self, count: u32) -> Result<(), Fault> {
        if count == 0 {
            return Ok(());
        }
        socket::send(&self.handover.events, &FromInit::Awake { count }, &[]).step("reporting", "control")
    }

    /// Carries out what control asks. `false` when control is gone: the run ends with it.
    fn obey(&mut self) -> Result<bool, Fault> {
        let control = &self.handover.events;
        let Some((frame, descriptors)) = socket::receive::<ToInit>(control).step("control", "receive")?
        else {
            return Ok(false);
        };
        match frame {
            ToInit::Signal { signal } => {
                if let (Some(pid), Some(signal)) = (
                    Pid::from_raw(self.agent.pid as i32),
                    Signal::from_named_raw(i32::from(signal)),
                ) {
                    match rustix::process::kill_process_group(pid, signal) {
                        Ok(()) | Err(Errno::SRCH) => {}
                        Err(cause) => return Err(cause).step("passing a signal on", "kill"),
                    }
                }
            }
            ToInit::Freeze => {
                // First, so that nothing is started between the two.
                self.execs.freeze(Frozen::Yes);
                let (still, awake) = Still::begin().step("freezing", "SIGSTOP")?;
                self.still = Some(still);
                self.tell_awake(awake)?;
            }
            ToInit::Thaw => {
                self.still = None;
                bastle_sys::signal::kill_everything_else(libc::SIGCONT).step("thawing", "SIGCONT")?;
                self.execs.freeze(Frozen::No);
            }
            ToInit::Go => {}
            ToInit::Exec { id, wish } => {
                if let Some(pid) = self.execs.start(control, id, wish, descriptors)? {
                    self.guard.expect(pid, Expected::Command);
                }
            }
            ToInit::ExecSignal { id, signal } => self.execs.signal(id, signal)?,
            ToInit::Dial { id, port } => {
                let told = self.dials.begin(id, port);
                self.dialed(told)?;
            }
        }
        Ok(true)
    }

    /// The line closes when the agent executes; until then it can say why it did not.
    fn execution(&mut self) -> Result<(), Fault> {
        let told =
            match socket::receive::<FromAgent>(&self.agent.line).step("starting the agent", "report")? {
                Some((FromAgent::NotExecuted(code, fault), _)) => {
                    self.refused = true;
                    FromInit::NotExecuted { code, fault }
                }
                Some(_) => return Ok(()),
                None => {
                    self.line = false;
                    if self.refused {
                        return Ok(());
                    }
                    FromInit::Executed
                }
            };
        socket::send(&self.handover.events, &told, &[]).step("reporting", "control")?;
        if !self.line {
            self.young = Some(Instant::now() + YOUNG);
        }
        Ok(())
    }

    /// Reaps whoever ended; the agent's status when it was the agent.
    fn reap(&mut self, children: &OwnedFd) -> Result<Option<WaitStatus>, Fault> {
        let mut buffer = [0; 4096];
        match rustix::io::read(children, &mut buffer) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(cause) => return Err(cause).step("reaping", "signalfd"),
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get() as u32;
                    self.guard.ended(pid);
                    if pid == self.agent.pid {
                        return Ok(Some(status));
                    }
                    self.execs.reaped(&self.handover.events, pid, status)?;
                }
                Ok(None) | Err(Errno::CHILD) => return Ok(None),
                Err(cause) => return Err(cause).step("reaping", "wait"),
            }
        }
    }
}

/// Reports, then ends every process that is left. The kernel ends those that come into being meanwhile with init itself.
fn finish(handover: &Handover, status: WaitStatus, guard: &Guard) -> Result<u8, Fault> {
    let counted = guard.usage();
    let usage = Usage {
        bytes_written: counted.bytes_written,
        created: counted.created,
        files: counted.files,
        ..Usage::default()
    };
    let byte = |value: Option<i32>| value.and_then(|value| u8::try_from(value).ok());
    let ended = FromInit::Exited {
        code: byte(status.exit_status()),
        signal: byte(status.terminating_signal()),
        usage,
    };
    socket::send(&handover.events, &ended, &[]).step("reporting", "exit")?;
    bastle_sys::signal::kill_everything_else(libc::SIGKILL).step("ending", "SIGKILL")?;
    // At once: giving memory and descriptors back one by one would only be waited for.
    bastle_sys::exec::exit(0)
}
