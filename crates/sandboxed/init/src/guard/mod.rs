//! The write guard: carries out, on copied arguments, the calls that create names or change files.
//!
//! Runs in PID 1 of the sandbox with the agent's own rights and nothing more. Trusts the plan. Everything a call
//! brings along is hostile: pointers, paths, descriptors, links, and threads that change them meanwhile.
//!
//! **Invariant:** a call that can create a name is never continued. Its path lies in memory that another thread can
//! change after it was looked at, so what was judged is what init does itself. Since all creating and renaming goes
//! through this one loop, no directory moves between the look at a name and the act.
//!
//! What is continued, and what that leaves open, all of it about counts and never about names:
//! * `write` and shared `mmap` on what is no file of a guarded tree. A thread that exchanges the descriptor by `dup2`
//!   in that moment slips that call past the byte count.
//! * `open` without `O_CREAT` and `O_TRUNC` on terminals and pipes, which the caller must wait for itself.
//! * A shared mapping is charged once, with its length; how often its pages are rewritten is not seen.
//! * Programs that are started: seen, and judged where the plan lists programs; see `executing` for what that leaves open.
//!
//! A process that confined itself further (its own Landlock rules or `RLIMIT_FSIZE`) is not held to that by what
//! init does for it.
mod binding;
mod caller;
mod executing;
mod fifo;
mod ledger;
mod names;
mod naming;
mod open;
mod report;
mod transfer;
mod walk;
mod writing;

#[cfg(test)]
mod tests;

use crate::filter::{self, Guarded};
use crate::programs::Programs;
use bastle_contract::{DenialKind, Event, ExecSeen, LaunchPlan};
use bastle_sys::seccomp::{self, Answer, CloseOnExec, Notification};
use caller::{Base, Caller};
pub(crate) use executing::Expected;
use ledger::{Ledger, Over};
use names::Trees;
use report::{Denial, Told};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bits of a mode that are honoured. Not set-uid and set-gid: on the host such a file would lend the invoker's identity.
const MODE_BITS: u32 = 0o1777;
/// Arguments of a started program that are told.
const ARGUMENTS: usize = 16;
/// Bytes of them in all.
const ARGUMENT_BYTES: usize = 4096;

/// The guard of one run.
#[derive(Debug)]
pub(crate) struct Guard {
    trees: Trees,
    ledger: Ledger,
    told: Told,
    fifos: fifo::Waiting,
    /// Devices and mounts of the trees, looked up with the first call: the root is not finished before.
    places: Option<writing::Places>,
    /// Bytes on their way from the caller to a file.
    buffer: Vec<u8>,
    /// Whether the umask is zero: modes are computed with the caller's.
    unmasked: bool,
    /// Judges programs, where the plan lists some.
    judge: Option<executing::Judge>,
    /// Calls that changed names, since they were last told.
    changed: u64,
}

/// Changed names after which it is told that there were as many.
const CHANGED_STEP: u64 = 64;

/// What the guard counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardUsage {
    /// Bytes written to files of the guarded trees.
    pub(crate) bytes_written: u64,
    /// Names created there.
    pub(crate) created: u64,
    /// Distinct files changed there.
    pub(crate) files: u64,
}

/// One handed-over call.
#[derive(Debug)]
struct Call<'a> {
    listener: BorrowedFd<'a>,
    id: u64,
    args: [u64; 6],
    operation: &'static str,
    caller: Caller,
}

/// How a call ends well.
#[derive(Debug)]
enum Done {
    /// With this answer.
    Answer(Answer),
    /// With a new descriptor in the caller.
    Descriptor(OwnedFd, CloseOnExec),
    /// Somebody else answers.
    Later,
}

/// How a call ends otherwise.
#[derive(Debug)]
enum Stop {
    /// It fails, as it would without a guard.
    Errno(Errno),
    /// It is refused, and that is told.
    Denied(Denial),
    /// The caller is gone.
    Gone,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Guard {
    /// Takes trees, patterns and limits from the plan.
    pub(crate) fn new(plan: &LaunchPlan) -> Self {
        Self {
            trees: Trees::of(&plan.guard.trees),
            ledger: Ledger::of(plan),
            told: Told::default(),
            fifos: fifo::Waiting::default(),
            places: None,
            buffer: Vec::new(),
            unmasked: false,
            judge: None,
            changed: 0,
        }
    }

    /// Lets nothing be executed but these.
    pub(crate) fn with_programs(mut self, programs: Option<&Programs>) -> Self {
        if crate::hooks::enforces("exec-judge") {
            self.judge = programs.map(executing::Judge::of);
        }
        self
    }

    /// Serves one waiting notification.
    ///
    /// A caller that is gone is no error, and a failure of the guard's own fails the call. Errors are those of the
    /// listener itself.
    pub(crate) fn serve(&mut self, listener: BorrowedFd<'_>, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let note = match seccomp::receive(listener) {
            Ok(Some(note)) => note,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.unmasked {
            // Not before the first call: the agent's process is a copy of this one and inherits the mask.
            rustix::process::umask(Mode::empty());
            self.unmasked = true;
        }
        let Notification {
            id,
            pid,
            number,
            args,
        } = note;
        let number = libc::c_long::from(number);
        let guarded = filter::guarded(number);
        let operation = guarded
            .map(name_of)
            .or_else(|| filter::told(number))
            .unwrap_or("unknown");
        let call = Call {
            listener,
            id,
            args,
            operation,
            caller: Caller::new(pid),
        };
        let done = match guarded {
            Some(guarded) => self.carry_out(&call, guarded, tell),
            None => Err(call.refused()),
        };
        let names = matches!(
            guarded,
            Some(Guarded::Open(_) | Guarded::Naming(_) | Guarded::Removing(_))
        );
        if names && done.is_ok() {
            self.changed += 1;
            if self.changed == CHANGED_STEP {
                self.changed = 0;
                tell(Event::Files {
                    changed: CHANGED_STEP,
                });
            }
        }
        match done {
            Ok(Done::Answer(answer)) => seccomp::answer(listener, id, answer),
            Ok(Done::Descriptor(fd, close)) => {
                answer_descriptor(listener, id, std::os::fd::AsFd::as_fd(&fd), close)
            }
            Ok(Done::Later) => Ok(()),
            Err(Stop::Gone) => Ok(()),
            Err(Stop::Errno(errno)) => seccomp::answer(listener, id, Answer::Fail(errno.raw_os_error())),
            Err(Stop::Denied(denial)) => {
                let errno = denial.errno.raw_os_error();
                // Told first: the caller is alive until it is answered, so its name can be read.
                self.told.deny(&call, denial, tell);
                seccomp::answer(listener, id, Answer::Fail(errno))
            }
        }
    }

    /// What was counted so far.
    pub(crate) fn usage(&self) -> GuardUsage {
        self.ledger.usage()
    }

    fn carry_out(
        &mut self,
        call: &Call<'_>,
        guarded: Guarded,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Done, Stop> {
        let a = call.args;
        let flags = |register: u64| OFlags::from_bits_retain(register as u32);
        match guarded {
            Guarded::Open("open") => self.open(call, Base::Cwd, a[0], flags(a[1]), a[2] as u32),
            Guarded::Open(_) => self.open(call, Base::of(a[0]), a[1], flags(a[2]), a[3] as u32),
            Guarded::Naming("creat") => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
                self.open(call, Base::Cwd, a[0], flags, a[1] as u32)
            }
            Guarded::Naming(_) => self.name(call),
            Guarded::Removing(_) => self.remove(call),
            Guarded::Writing(_) => self.change(call),
            Guarded::Mapping => self.map(call),
            Guarded::Executing(_) => self.execute(call, tell),
        }
    }

    /// Refuses a path that is guarded.
    fn refuse(&self, found: Option<names::Guarded<'_>>, path: &[u8]) -> Result<(), Stop> {
        match found {
            None => Ok(()),
            Some(names::Guarded { kind, pattern }) => Err(Stop::Denied(Denial {
                kind,
                rule: pattern.to_owned(),
                target: path.to_vec(),
                errno: Errno::ACCESS,
                over: None,
            })),
        }
    }

    /// What the kernel answered to an act on `path`: told when it was the fence that spoke.
    fn kernel(&self, errno: Errno, path: &[u8]) -> Stop {
        let rule = match errno {
            Errno::ROFS => "read-only mount",
            Errno::ACCESS => "not granted",
            Errno::PERM => "not permitted",
            Errno::BUSY => "mounted",
            _ => return Stop::Errno(errno),
        };
        let denial = |kind, rule: &str| {
            Stop::Denied(Denial {
                kind,
                rule: rule.to_owned(),
                target: path.to_vec(),
                errno,
                over: None,
            })
        };
        match self.trees.guard(path, names::Reach::Itself) {
            Some(names::Guarded { kind, pattern }) => denial(kind, pattern),
            None if errno == Errno::BUSY => Stop::Errno(errno),
            None => denial(DenialKind::Write, rule),
        }
    }
}

impl Call<'_> {
    /// Asks whether the caller still waits: until then its number has meant the same process all along, and what was
    /// opened by that number is its own. Comes after the last such look and before the act.
    fn confirm(&self) -> Result<(), Stop> {
        if seccomp::still_waiting(self.listener, self.id) {
            Ok(())
        } else {
            Err(Stop::Gone)
        }
    }

    fn refused(&self) -> Stop {
        Stop::Denied(Denial {
            kind: DenialKind::Syscall,
            rule: "system call not allowed".to_owned(),
            target: self.operation.as_bytes().to_vec(),
            errno: Errno::PERM,
            over: None,
        })
    }

    /// The program that is about to be started, as far as its memory can be read.
    fn program(&self) -> ExecSeen {
        let (path, argv) = if self.operation == "execveat" {
            (self.args[1], self.args[2])
        } else {
            (self.args[0], self.args[1])
        };
        let text = |address, most| match self.caller.text(address, most) {
            Ok((text, _)) => report::lossy(&text),
            Err(_) => String::new(),
        };
        let mut seen = ExecSeen {
            pid: self.caller.tid,
            path: text(path, ARGUMENT_BYTES),
            argv: Vec::new(),
        };
        let mut pointers = [0_u8; ARGUMENTS * 8];
        let length = self.caller.read(argv, &mut pointers).unwrap_or(0);
        let mut left = ARGUMENT_BYTES;
        for pointer in pointers[..length].as_chunks::<8>().0 {
            let pointer = u64::from_ne_bytes(*pointer);
            if pointer == 0 || left == 0 {
                break;
            }
            let mut argument = text(pointer, left);
            argument.truncate(argument.floor_char_boundary(left));
            left -= argument.len();
            seen.argv.push(argument);
        }
        seen
    }
}

impl Over {
    /// Refuses what goes over a limit.
    fn refuse(self, path: &[u8]) -> Stop {
        Stop::Denied(Denial::limit(self, path.to_vec()))
    }
}

pub(crate) use walk::agrees_with_kernel as walks_alike;

/// Whether a tree guards a canonical path, for fuzzing.
pub(crate) fn decides(tree: &bastle_contract::GuardedTree, path: &[u8]) -> bool {
    Trees::of(std::slice::from_ref(tree))
        .guard(path, names::Reach::Itself)
        .is_some()
}

fn name_of(guarded: Guarded) -> &'static str {
    match guarded {
        Guarded::Open(name)
        | Guarded::Naming(name)
        | Guarded::Removing(name)
        | Guarded::Writing(name)
        | Guarded::Executing(name) => name,
        Guarded::Mapping => "mmap",
    }
}

/// Puts a descriptor into the caller; when its table is full the call fails with what the kernel says.
fn answer_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    close: CloseOnExec,
) -> io::Result<()> {
    match seccomp::answer_with_descriptor(listener, id, fd, close) {
        Ok(()) => Ok(()),
        Err(error) => seccomp::answer(
            listener,
            id,
            Answer::Fail(error.raw_os_error().unwrap_or(libc::EIO)),
        ),
    }
}
