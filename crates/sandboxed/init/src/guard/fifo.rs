//! Opens of named pipes wait for the other side: a thread waits, so that init never does.
use bastle_sys::seccomp::{self, Answer, CloseOnExec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Opens that may wait at a time. Each costs a stack.
const MOST: usize = 64;
/// The thread makes three system calls.
const STACK: usize = 64 << 10;

/// The opens that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting(Vec<Pending>);

#[derive(Debug)]
struct Pending {
    id: u64,
    /// Of which the call waits: each command beside the agent has one of its own.
    listener: Arc<OwnedFd>,
    fifo: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Waiting {
    /// Opens `fifo` (a descriptor that only names it) in a thread, which answers the call `id` when it is done.
    pub(super) fn open(
        &mut self,
        listener: BorrowedFd<'_>,
        id: u64,
        fifo: OwnedFd,
        flags: OFlags,
        close_on_exec: CloseOnExec,
    ) -> Result<(), Errno> {
        self.0.retain(|pending| !pending.thread.is_finished());
        if self.0.len() >= MOST {
            self.wake_abandoned();
            return Err(Errno::AGAIN);
        }
        let listener = Arc::new(listener.try_clone_to_owned().map_err(|_| Errno::MFILE)?);
        let hears = Arc::clone(&listener);
        let fifo = Arc::new(fifo);
        let target = Arc::clone(&fifo);
        let wait = move || {
            let opened = rustix::fs::openat(
                CWD,
                super::walk::own_link(target.as_fd()),
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            );
            // Nobody is left to tell: when answering fails, the listener is gone and with it the caller.
            drop(answer(hears.as_fd(), id, opened, close_on_exec));
        };
        let thread = Builder::new()
            .stack_size(STACK)
            .spawn(wait)
            .map_err(|_| Errno::AGAIN)?;
        self.0.push(Pending {
            id,
            listener,
            fifo,
            thread,
        });
        Ok(())
    }

    /// A caller that was killed leaves its thread behind; being its other side for a moment ends it.
    fn wake_abandoned(&self) {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for pending in self
            .0
            .iter()
            .filter(|pending| !seccomp::still_waiting(pending.listener.as_fd(), pending.id))
        {
            drop(rustix::fs::openat(
                CWD,
                super::walk::own_link(pending.fifo.as_fd()),
                flags,
                Mode::empty(),
            ));
        }
    }
}

fn answer(
    listener: BorrowedFd<'_>,
    id: u64,
    opened: Result<OwnedFd, Errno>,
    close: CloseOnExec,
) -> std::io::Result<()> {
    match opened {
        Ok(fd) => super::answer_descriptor(listener, id, fd.as_fd(), close),
        Err(errno) => seccomp::answer(listener, id, Answer::Fail(errno.raw_os_error())),
    }
}
