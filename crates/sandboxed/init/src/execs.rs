//! Further commands beside the agent, as init keeps them: started, listened to, reaped, told.
//!
//! Each has the agent's filter with a listener of its own, and all are judged by one guard, so limits and denials are
//! those of the whole run. A listener outlives its command where the command left processes behind.
use crate::agent::FromAgent;
use crate::command::{self, Common, Streams};
use crate::step::Step;
use bastle_contract::{Code, Event, ExecWish, Fault, FromInit, MAX_EXECS, socket};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// All further commands of a run.
pub(crate) struct Execs<'a> {
    common: Common<'a>,
    living: Vec<Living>,
    listeners: Vec<OwnedFd>,
    /// Everything but init stands still: a new process would not.
    frozen: bool,
}

struct Living {
    id: u32,
    pid: u32,
    wish: ExecWish,
    /// Closes when it executes.
    line: Option<OwnedFd>,
    master: Option<OwnedFd>,
    /// Whether its listener is still to come.
    unfiltered: bool,
    /// Whether it was told that it does not run.
    failed: bool,
}

impl<'a> Execs<'a> {
    pub(crate) fn new(common: Common<'a>) -> Self {
        Self {
            common,
            living: Vec::new(),
            listeners: Vec::new(),
            frozen: false,
        }
    }

    /// Whether everything stands still.
    pub(crate) fn freeze(&mut self, frozen: Frozen) {
        self.frozen = frozen == Frozen::Yes;
    }

    /// Starts one and gives its number; why not is told to control and ends nothing else.
    pub(crate) fn start(
        &mut self,
        control: &OwnedFd,
        id: u32,
        wish: ExecWish,
        pipes: Vec<OwnedFd>,
    ) -> Result<Option<u32>, Fault> {
        if let Err(fault) = command::check_program(&self.common, &wish) {
            tell(control, &FromInit::ExecFailed { id, code: 126, fault }, None)?;
            return Ok(None);
        }
        match self.fork(id, wish, pipes) {
            Ok(living) => {
                let pid = living.pid;
                self.living.push(living);
                Ok(Some(pid))
            }
            Err(fault) => {
                tell(control, &FromInit::ExecFailed { id, code: 125, fault }, None)?;
                Ok(None)
            }
        }
    }

    fn fork(&self, id: u32, wish: ExecWish, pipes: Vec<OwnedFd>) -> Result<Living, Fault> {
        let what = "a further command";
        let coming = self.living.iter().filter(|living| living.unfiltered).count();
        if coming + self.listeners.len() >= MAX_EXECS {
            return Err(Fault::new(
                Code::ExecBusy,
                "no further command can be started now",
                format!("{MAX_EXECS} are alive in this run, or processes that they left behind"),
            )
            .help("end one of them, or stop the run: bastle stop RUN"));
        }
        if self.frozen {
            return Err(Fault::new(
                Code::ExecBusy,
                "no further command can be started now",
                "the run stands still",
            )
            .help("bastle resume RUN"));
        }
        let (streams, master) = match (wish.tty, <[OwnedFd; 3]>::try_from(pipes)) {
            (None, Ok(pipes)) => (Streams::Pipes(pipes), None),
            (Some(size), Err(none)) if none.is_empty() => {
                let (master, slave) = crate::open_terminal(size.rows, size.cols)?;
                (Streams::Terminal(slave), Some(master))
            }
            (None | Some(_), _) => return Err("the descriptors do not fit the wish").step(what, "streams"),
        };
        let (line, theirs) = socket::pair().step(what, "socketpair")?;
        match bastle_sys::clone::fork().step(what, "fork")? {
            None => command::become_command(&self.common, &wish, &streams, &theirs),
            Some(pid) => Ok(Living {
                id,
                pid,
                wish,
                line: Some(line),
                master,
                unfiltered: true,
                failed: false,
            }),
        }
    }

    /// Signals the process group of one. One that is gone is no error.
    pub(crate) fn signal(&self, id: u32, signal: u8) -> Result<(), Fault> {
        let found = self.living.iter().find(|living| living.id == id);
        let (Some(living), Some(signal)) = (found, Signal::from_named_raw(i32::from(signal))) else {
            return Ok(());
        };
        let Some(pid) = i32::try_from(living.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        // It leads no group yet before its first step; it is not reaped, so the number is its own.
        match rustix::process::kill_process_group(pid, signal) {
            Err(Errno::SRCH) => match rustix::process::kill_process(pid, signal) {
                Ok(()) | Err(Errno::SRCH) => Ok(()),
                Err(cause) => Err(cause).step("passing a signal on", "kill"),
            },
            Ok(()) => Ok(()),
            Err(cause) => Err(cause).step("passing a signal on", "kill"),
        }
    }

    /// Listeners, for waiting and serving.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(AsFd::as_fd)
    }

    /// One listener.
    pub(crate) fn listener(&self, at: usize) -> Option<BorrowedFd<'_>> {
        self.listeners.get(at).map(AsFd::as_fd)
    }

    /// Nobody is left who could call through these: the places are those of [`Self::listeners`].
    pub(crate) fn forget(&mut self, gone: &[usize]) {
        let mut at = 0;
        self.listeners.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
    }

    /// Lines of those that did not execute yet, with their ids.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.living
            .iter()
            .filter_map(|living| Some((living.id, living.line.as_ref()?.as_fd())))
    }

    /// Takes one word from a line.
    pub(crate) fn hear(&mut self, control: &OwnedFd, id: u32) -> Result<(), Fault> {
        let Some(living) = self.living.iter_mut().find(|living| living.id == id) else {
            return Ok(());
        };
        if let Some(listener) = living.hear(control)? {
            bastle_sys::seccomp::prefer_same_processor(listener.as_fd());
            self.listeners.push(listener);
        }
        Ok(())
    }

    /// A process ended; whether it was one of these.
    pub(crate) fn reaped(&mut self, control: &OwnedFd, pid: u32, status: WaitStatus) -> Result<(), Fault> {
        let Some(at) = self.living.iter().position(|living| living.pid == pid) else {
            return Ok(());
        };
        let mut living = self.living.swap_remove(at);
        // Its last words may still lie on the line; it is gone, so the line ends. Its children may call through a listener.
        while living.line.is_some() {
            self.listeners.extend(living.hear(control)?);
        }
        if living.failed {
            return Ok(());
        }
        let byte = |value: Option<i32>| value.and_then(|value| u8::try_from(value).ok());
        let exited = FromInit::ExecExited {
            id: living.id,
            code: byte(status.exit_status()),
            signal: byte(status.terminating_signal()),
        };
        tell(control, &exited, None)
    }

    /// A command that is about to execute hides its memory: what it executes is known from the wish.
    pub(crate) fn name(&self, event: &mut Event) {
        let Event::Exec(seen) = event else { return };
        let starting = |living: &&Living| living.pid == seen.pid && living.line.is_some();
        if seen.path.is_empty()
            && let Some(living) = self.living.iter().find(starting)
        {
            let argv = living.wish.argv.as_slice();
            seen.path = cut(living.wish.argv.program());
            seen.argv = argv
                .iter()
                .take(ARGUMENTS)
                .map(|argument| cut(argument))
                .collect();
        }
    }
}

/// Arguments that are told of a started command, and bytes of each: as many as of the agent's programs.
const ARGUMENTS: usize = 16;
const ARGUMENT_BYTES: usize = 256;

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ARGUMENT_BYTES)].to_owned()
}

/// Whether everything but init stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frozen {
    Yes,
    No,
}

impl Living {
    /// The next word of its line; gives its listener back when that came.
    fn hear(&mut self, control: &OwnedFd) -> Result<Option<OwnedFd>, Fault> {
        let Some(line) = &self.line else {
            return Ok(None);
        };
        let id = self.id;
        let (code, fault) = match socket::receive::<FromAgent>(line).step("a further command", "report")? {
            Some((FromAgent::Filtered, mut descriptors)) => {
                self.unfiltered = false;
                return Ok(descriptors.pop());
            }
            // It has nothing of that kind to say.
            Some((FromAgent::Probed(..), _)) => return Ok(None),
            Some((FromAgent::Failed(fault), _)) => (125, fault),
            Some((FromAgent::NotExecuted(code, fault), _)) => (code, fault),
            None => {
                self.line = None;
                self.unfiltered = false;
                let master = self.master.take();
                if self.failed {
                    return Ok(None);
                }
                return tell(control, &FromInit::ExecStarted { id }, master.as_ref()).map(|()| None);
            }
        };
        self.failed = true;
        tell(control, &FromInit::ExecFailed { id, code, fault }, None).map(|()| None)
    }
}

fn tell(control: &OwnedFd, frame: &FromInit, descriptor: Option<&OwnedFd>) -> Result<(), Fault> {
    socket::send(control, frame, descriptor.map(AsFd::as_fd).as_slice()).step("reporting", "control")
}
