//! The unfenced process: its own group, a clock, and a relay that counts. Ends with everything of the group.
use crate::record::Record;
use crate::signals::{Signals, Wish};
use crate::streams::write_all;
use bastle_audit::{AuditEvent, Exit};
use bastle_contract::{Code, ExitCode, Fault, LaunchPlan, LimitHit, LimitKind, Usage};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How it ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) exit: Exit,
    pub(super) usage: Usage,
    pub(super) killed: Option<String>,
    pub(super) discarded: u64,
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            exit: Exit::Unknown,
            usage: Usage::default(),
            killed: None,
            discarded: 0,
        }
    }
}

/// A process that lives.
struct Live<'a> {
    plan: &'a LaunchPlan,
    record: &'a mut Record,
    child: Child,
    group: Pid,
    streams: [Option<OwnedFd>; 2],
    passed: u64,
    ending: Ending,
}

/// Starts it and stays until it and its group are gone.
pub(super) fn run(plan: &LaunchPlan, record: &mut Record) -> Result<Ending, (u8, Fault)> {
    let begun = Instant::now();
    let failed = |fault: Fault| (ExitCode::Failed as u8, fault);
    let signals = Signals::register().map_err(failed)?;
    let mut child = start(plan)?;
    let lost = || {
        failed(Fault::new(
            Code::FenceLost,
            "the process was lost",
            "it has no process id",
        ))
    };
    let group = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(lost)?;
    let streams = [
        child.stdout.take().map(OwnedFd::from),
        child.stderr.take().map(OwnedFd::from),
    ];
    let mut live = Live {
        plan,
        record,
        child,
        group,
        streams,
        passed: 0,
        ending: Ending::default(),
    };
    let outcome = live.stay(begun, &signals);
    live.kill();
    let status = live.child.wait();
    let Live { mut ending, .. } = live;
    outcome.map_err(failed)?;
    ending.usage.wall_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    ending.exit = match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok((None, Some(signal))) => u8::try_from(signal).map_or(Exit::Unknown, Exit::Signal),
        Ok((None, None)) | Err(_) => Exit::Unknown,
    };
    Ok(ending)
}

fn start(plan: &LaunchPlan) -> Result<Child, (u8, Fault)> {
    let mut command = Command::new(plan.argv.program());
    command
        .args(&plan.argv.as_slice()[1..])
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name.as_str(), value)));
    // A process of another group that reads the terminal would be stopped for ever.
    let input = if std::io::stdin().is_terminal() {
        Stdio::null()
    } else {
        Stdio::inherit()
    };
    command
        .current_dir(plan.cwd.as_path())
        .process_group(0)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().map_err(|error| {
        let program = plan.argv.program();
        match error.kind() {
            std::io::ErrorKind::NotFound => (
                ExitCode::NotFound as u8,
                Fault::new(
                    Code::ExecNotFound,
                    format!("{program} was not found"),
                    error.to_string(),
                ),
            ),
            _ => (
                ExitCode::CannotInvoke as u8,
                Fault::new(
                    Code::ExecFailed,
                    format!("{program} cannot be executed"),
                    error.to_string(),
                ),
            ),
        }
    })
}

impl Live<'_> {
    /// Relays until the process has ended; what its children still hold open is not waited for.
    fn stay(&mut self, begun: Instant, signals: &Signals) -> Result<(), Fault> {
        let fault = |what: &str, error: Errno| Fault::new(Code::FenceLost, what, error.to_string());
        self.limit()?;
        self.record
            .append(&AuditEvent::Started { pid: self.child.id() })?;
        let ended = rustix::process::pidfd_open(self.group, PidfdFlags::empty())
            .map_err(|error| fault("cannot watch the process", error))?;
        let deadline = self
            .plan
            .limit(LimitKind::WallTime)
            .map(|rule| (begun + Duration::from_millis(rule.value), rule.value));
        loop {
            let left = deadline.map(|(at, _)| at.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some((_, value))) = (left, deadline) {
                self.ending.killed = Some("timeout".to_owned());
                let effect = "everything in the process group was killed".to_owned();
                return self.record.limit(&LimitHit {
                    limit: LimitKind::WallTime,
                    value,
                    effect,
                });
            }
            let ready = self
                .wait(ended.as_fd(), signals, left)
                .map_err(|error| fault("cannot wait for the process", error))?;
            for (index, _) in ready.iter().enumerate().skip(3).filter(|(_, ready)| **ready) {
                if let Some(Wish::PassOn(signal)) = signals.take(index - 3) {
                    self.pass_on(signal);
                }
            }
            let drained = !self.relay(0, &ready)? & !self.relay(1, &ready)?;
            if ready[0] && drained {
                return Ok(());
            }
        }
    }

    /// Which of the process's end, its two streams and the signals are ready.
    fn wait(
        &self,
        ended: BorrowedFd<'_>,
        signals: &Signals,
        left: Option<Duration>,
    ) -> Result<Vec<bool>, Errno> {
        let none = || PollFd::from_borrowed_fd(ended, PollFlags::empty());
        let mut waiting = vec![PollFd::from_borrowed_fd(ended, PollFlags::IN)];
        for stream in &self.streams {
            waiting.push(
                stream
                    .as_ref()
                    .map_or_else(none, |fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
            );
        }
        waiting.extend(
            signals
                .streams()
                .map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)),
        );
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(waiting.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(error) => Err(error),
        }
    }

    /// Passes on what is there. `true` when something was.
    fn relay(&mut self, stream: usize, ready: &[bool]) -> Result<bool, Fault> {
        let Some(fd) = self.streams[stream].as_ref().filter(|_| ready[stream + 1]) else {
            return Ok(false);
        };
        let mut bytes = vec![0; 64 * 1024];
        match rustix::io::read(fd, &mut bytes) {
            Ok(count) if count > 0 => bytes.truncate(count),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            Ok(_) | Err(_) => {
                self.streams[stream] = None;
                return Ok(false);
            }
        }
        let most = self
            .plan
            .limit(LimitKind::Output)
            .map_or(u64::MAX, |rule| rule.value);
        let room = usize::try_from(most.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        let (kept, rest) = bytes.split_at(bytes.len().min(room));
        self.passed += kept.len() as u64;
        if !rest.is_empty() && self.ending.discarded == 0 {
            let effect = "further output is discarded, the run goes on".to_owned();
            self.record.limit(&LimitHit {
                limit: LimitKind::Output,
                value: most,
                effect,
            })?;
        }
        self.ending.discarded += rest.len() as u64;
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let to = if stream == 0 {
            stdout.as_fd()
        } else {
            stderr.as_fd()
        };
        match write_all(to, kept) {
            Ok(true) => {}
            Ok(false) | Err(_) => self.streams[stream] = None,
        }
        Ok(true)
    }

    /// Limits that the kernel holds per process. Set after the start: good enough where nothing is a boundary.
    fn limit(&self) -> Result<(), Fault> {
        for (kind, resource) in [
            (LimitKind::OpenFiles, Resource::Nofile),
            (LimitKind::CpuTime, Resource::Cpu),
        ] {
            let Some(rule) = self.plan.limit(kind) else {
                continue;
            };
            let current = rustix::process::getrlimit(resource);
            let most = current.maximum.map_or(rule.value, |most| most.min(rule.value));
            let new = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            match rustix::process::prlimit(Some(self.group), resource, new) {
                // A process that is gone already needs no limit.
                Ok(_) | Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(Fault::new(
                        Code::LimitUnheld,
                        format!("limit {kind} cannot be set"),
                        error.to_string(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn pass_on(&self, signal: u8) {
        if let Some(signal) = Signal::from_named_raw(i32::from(signal)) {
            // The group may be gone already.
            match rustix::process::kill_process_group(self.group, signal) {
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// The group's leader is not reaped yet, so its number cannot belong to anybody else.
    fn kill(&self) {
        match rustix::process::kill_process_group(self.group, Signal::KILL) {
            Ok(()) | Err(_) => {}
        }
    }
}
