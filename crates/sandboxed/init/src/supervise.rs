//! The life of a run inside: serve guarded calls, pass signals on, tell events, reap, and end everything at the end.
use crate::agent::FromAgent;
use crate::guard::Guard;
use crate::step::Step;
use crate::watchdog::Watchdog;
use bastle_contract::socket;
use bastle_contract::{Event, Fault, FromInit, Handover, ToInit, Usage};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::os::fd::{AsFd, OwnedFd};

/// The agent's process and the lines to it.
pub(crate) struct Agent {
    pub(crate) pid: u32,
    pub(crate) line: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
}

/// Runs until the agent ends; returns init's own exit code.
pub(crate) fn supervise(handover: &Handover, agent: Agent, mut guard: Guard) -> Result<u8, Fault> {
    let children = bastle_sys::signal::descriptor_for(&[libc::SIGCHLD]).step("reaping", "signalfd")?;
    let mut watchdog = Watchdog::of(handover);
    let mut line = Some(&agent.line);
    loop {
        let events = &handover.events;
        let listener = agent.listener.as_ref();
        let mut waiting = vec![
            PollFd::new(&children, PollFlags::IN),
            PollFd::new(events, PollFlags::IN),
        ];
        waiting.extend(listener.map(|fd| PollFd::new(fd, PollFlags::IN)));
        waiting.extend(line.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = watchdog.as_ref().map(Watchdog::timeout);
        match rustix::event::poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(cause) => return Err(cause).step("supervising", "poll"),
        }
        let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        let called = listener.is_some() && ready[2].contains(PollFlags::IN);
        let spoke = line.is_some() && ready.last().is_some_and(|flags| !flags.is_empty());
        if called && let Some(listener) = listener {
            let mut failed = None;
            let mut tell = |event: Event| failed = socket::send(events, &FromInit::Event(event), &[]).err();
            guard.serve(listener.as_fd(), &mut tell).step("guard", "serve")?;
            if let Some(cause) = failed {
                return Err(cause).step("telling events", "control");
            }
        }
        if spoke {
            line = execution(handover, &agent.line)?;
        }
        if !ready[1].is_empty() && !obey(handover, &agent)? {
            return Ok(125);
        }
        if let Some(watchdog) = &mut watchdog {
            watchdog.look(handover)?;
        }
        // Also without the signal: it may have come before the descriptor was there.
        if let Some(status) = reap(&children, &agent)? {
            // Its last word may still lie on the line: why it could not be executed.
            while line.is_some() {
                line = execution(handover, &agent.line)?;
            }
            return finish(handover, status, &guard);
        }
    }
}

/// The line closes when the agent executes; until then it can say why it did not.
fn execution<'a>(handover: &Handover, line: &'a OwnedFd) -> Result<Option<&'a OwnedFd>, Fault> {
    match socket::receive::<FromAgent>(line).step("starting the agent", "report")? {
        Some((FromAgent::NotExecuted(code, fault), _)) => {
            socket::send(&handover.events, &FromInit::NotExecuted { code, fault }, &[])
                .step("reporting", "control")?;
            Ok(Some(line))
        }
        Some(_) => Ok(Some(line)),
        None => Ok(None),
    }
}

/// Carries out what control asks. `false` when control is gone: the run ends with it.
fn obey(handover: &Handover, agent: &Agent) -> Result<bool, Fault> {
    match socket::receive::<ToInit>(&handover.events).step("control", "receive")? {
        Some((ToInit::Signal { signal }, _)) => {
            if let (Some(pid), Some(signal)) = (
                Pid::from_raw(agent.pid as i32),
                Signal::from_named_raw(i32::from(signal)),
            ) {
                match rustix::process::kill_process_group(pid, signal) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(cause) => return Err(cause).step("passing a signal on", "kill"),
                }
            }
            Ok(true)
        }
        Some((ToInit::Freeze, _)) => bastle_sys::signal::kill_everything_else(libc::SIGSTOP)
            .step("freezing", "SIGSTOP")
            .map(|()| true),
        Some((ToInit::Thaw, _)) => bastle_sys::signal::kill_everything_else(libc::SIGCONT)
            .step("thawing", "SIGCONT")
            .map(|()| true),
        Some((ToInit::Go, _)) => Ok(true),
        None => Ok(false),
    }
}

/// Reaps whoever ended; the agent's status when it was the agent.
fn reap(children: &OwnedFd, agent: &Agent) -> Result<Option<WaitStatus>, Fault> {
    let mut buffer = [0; 4096];
    match rustix::io::read(children, &mut buffer) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(cause) => return Err(cause).step("reaping", "signalfd"),
    }
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() as u32 == agent.pid => {
                return Ok(Some(status));
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(cause) => return Err(cause).step("reaping", "wait"),
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
    Ok(0)
}
