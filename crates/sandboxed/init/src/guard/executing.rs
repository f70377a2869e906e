//! `execve` and `execveat`: told, and where the plan has a list of programs, judged by the file that is named.
//!
//! The call is continued, not carried out, so a thread that exchanges the path in that moment slips past this judge. It
//! then meets Landlock, which knows the same files and what the kernel opens along with them: what can be gained is
//! starting a loader or an interpreter by itself, which code that races its own `execve` can be without any call.
use super::caller::Base;
use super::report::Denial;
use super::walk::{self, Link, Start, Walk};
use super::{Call, Done, Guard, Stop};
use crate::programs::{FileId, Programs};
use bastle_contract::{DenialKind, Event};
use bastle_sys::seccomp::Answer;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

/// The judge of programs.
#[derive(Debug, Default)]
pub(super) struct Judge {
    listed: BTreeSet<FileId>,
    launch: Option<FileId>,
    /// Every file that may execute, with what the kernel opens along with it.
    fixed: BTreeSet<FileId>,
    /// Processes that are to execute once what was judged before they were started.
    expected: Vec<(u32, Expected)>,
}

/// What a process that init started is about to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The program of the launch line.
    Launch,
    /// A further command, whose program was judged before the fork: until it executes its memory cannot be read.
    Command,
}

impl Judge {
    pub(super) fn of(programs: &Programs) -> Self {
        Self {
            listed: programs.listed.keys().copied().collect(),
            launch: programs.launch.as_ref().map(|(id, _)| *id),
            fixed: programs.files().collect(),
            expected: Vec::new(),
        }
    }

    /// Takes the one right that `pid` has, if it has one.
    fn take(&mut self, pid: u32) -> Option<Expected> {
        let at = self.expected.iter().position(|(own, _)| *own == pid)?;
        Some(self.expected.swap_remove(at).1)
    }
}

impl Guard {
    /// `pid` executes once what was judged already.
    pub(crate) fn expect(&mut self, pid: u32, what: Expected) {
        if let Some(judge) = &mut self.judge {
            judge.expected.push((pid, what));
        }
    }

    /// `pid` ended: its number can become another's.
    pub(crate) fn ended(&mut self, pid: u32) {
        if let Some(judge) = &mut self.judge {
            judge.expected.retain(|(own, _)| *own != pid);
        }
    }

    /// Refuses to open a program of the list for writing. By the file and not by its name: another hard link, or an
    /// interpreter that only a `#!` line names, is no mount of its own.
    pub(super) fn refuse_program(&self, file: &OwnedFd, path: &[u8]) -> Result<(), Stop> {
        let Some(judge) = &self.judge else {
            return Ok(());
        };
        if !judge.fixed.contains(&FileId::of(&rustix::fs::fstat(file)?)) {
            return Ok(());
        }
        Err(Stop::Denied(Denial {
            kind: DenialKind::Protected,
            rule: "exec.allow lets this program execute".to_owned(),
            target: path.to_vec(),
            errno: Errno::ACCESS,
            over: None,
        }))
    }

    pub(super) fn execute(&mut self, call: &Call<'_>, tell: &mut dyn FnMut(Event)) -> Result<Done, Stop> {
        let seen = call.program();
        if let Some(judge) = &mut self.judge {
            let expected = judge.take(call.caller.tid);
            if expected != Some(Expected::Command) {
                let file = named_file(call)?;
                let id = FileId::of(&rustix::fs::fstat(&file)?);
                call.confirm()?;
                let launched = expected == Some(Expected::Launch) && judge.launch == Some(id);
                if !launched && !judge.listed.contains(&id) {
                    return Err(Stop::Denied(Denial {
                        kind: DenialKind::Exec,
                        rule: "exec.allow does not name this program".to_owned(),
                        target: walk::canonical(file.as_fd()).unwrap_or_else(|_| seen.path.into_bytes()),
                        errno: Errno::ACCESS,
                        over: None,
                    }));
                }
            }
        }
        tell(Event::Exec(seen));
        Ok(Done::Answer(Answer::Continue))
    }
}

/// The file that a call names, as the kernel would find it for the caller.
fn named_file(call: &Call<'_>) -> Result<OwnedFd, Errno> {
    let a = call.args;
    let (base, path, flags) = if call.operation == "execveat" {
        (Base::of(a[0]), a[1], a[4] as u32)
    } else {
        (Base::Cwd, a[0], 0)
    };
    let path = call.caller.path(path)?;
    if path.is_empty() {
        return match base {
            Base::Descriptor(fd) if flags & libc::AT_EMPTY_PATH as u32 != 0 => call.caller.pin(fd),
            Base::Descriptor(_) | Base::Cwd => Err(Errno::NOENT),
        };
    }
    let mut walk = Walk::new(&call.caller);
    let mut place = walk.locate(Start::Caller(base), &path)?;
    loop {
        let file = walk::open_name(place.dir.as_fd(), &place.name)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Symlink {
            return Ok(file);
        }
        match walk.follow(place.dir.as_fd(), &place.name, file.as_fd())? {
            Link::Text(target) => {
                let from = place.dir;
                place = walk.locate(Start::At(from.as_fd()), &target)?;
            }
            Link::Magic => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                return rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty());
            }
        }
    }
}
