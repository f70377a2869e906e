//! What stands beside the agent, one by one: where its bytes come from and go to.
//!
//! The bytes are untrusted and are passed on unread, never more than their reader has room for.
use crate::live::Live;
use bastle_contract::runs::TtySize;
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, Fault};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::termios::Winsize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes that are passed on at once.
const PART: usize = 32 * 1024;

/// Everything beside the agent.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) next: u32,
    pub(super) channels: Vec<Channel>,
    /// Ports that were dialled: each is recorded once.
    ports: BTreeSet<u16>,
}

/// One command or connection.
pub(super) struct Channel {
    pub(super) id: u32,
    /// Who asked; `None` when it went away.
    pub(super) peer: Option<u64>,
    pub(super) what: What,
    /// Whether both sides speak frames already.
    pub(super) begun: bool,
    pub(super) input: Option<OwnedFd>,
    pub(super) output: Option<OwnedFd>,
    pub(super) errors: Option<OwnedFd>,
    /// Bytes for its input that did not fit yet.
    pub(super) pending: Vec<u8>,
    /// Its input ends after these.
    pub(super) input_ended: bool,
    /// What its peer is told last, once everything before was passed on.
    pub(super) over: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Pipes,
    Terminal,
    Connection(u16),
}

/// What can be passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Input(u32),
    Output(u32),
}

impl Beside {
    /// For waiting: what can be read where its peer has room, and what can be written where something waits.
    pub(super) fn waiting<'a>(
        &'a self,
        live: Option<&'a Live>,
    ) -> impl Iterator<Item = (Ready, BorrowedFd<'a>, PollFlags)> {
        self.channels.iter().flat_map(move |channel| {
            let room = channel.room(live) > 0;
            let out = [&channel.output, &channel.errors];
            let readable = out
                .into_iter()
                .flatten()
                .filter(move |_| room)
                .map(|fd| (Ready::Output(channel.id), fd.as_fd(), PollFlags::IN));
            let full = channel.input.iter().filter(|_| !channel.pending.is_empty());
            readable.chain(full.map(|fd| (Ready::Input(channel.id), fd.as_fd(), PollFlags::OUT)))
        })
    }

    pub(super) fn add(&mut self, peer: u64, what: What) -> &mut Channel {
        self.next += 1;
        self.channels.push(Channel {
            id: self.next,
            peer: Some(peer),
            what,
            begun: false,
            input: None,
            output: None,
            errors: None,
            pending: Vec::new(),
            input_ended: false,
            over: None,
        });
        let last = self.channels.len() - 1;
        &mut self.channels[last]
    }

    pub(super) fn last_id(&self) -> u32 {
        self.next
    }

    pub(super) fn find(&mut self, id: u32) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|channel| channel.id == id)
    }

    pub(super) fn connections(&self) -> usize {
        let counts = |channel: &&Channel| matches!(channel.what, What::Connection(_));
        self.channels.iter().filter(counts).count()
    }

    /// Whether it is the first time that a port is named.
    pub(super) fn is_first(&mut self, port: u16) -> bool {
        self.ports.insert(port)
    }

    pub(super) fn forget(&mut self, id: u32) -> Option<Channel> {
        let at = self.channels.iter().position(|channel| channel.id == id)?;
        Some(self.channels.swap_remove(at))
    }
}

impl Channel {
    fn room(&self, live: Option<&Live>) -> usize {
        match (self.peer, live) {
            (Some(peer), Some(live)) => live.room(peer),
            (None, _) | (_, None) => 0,
        }
    }

    /// Writes what waits; a side that reads no more gets nothing more.
    pub(super) fn feed(&mut self) {
        let Some(input) = &self.input else {
            self.pending.clear();
            return;
        };
        while !self.pending.is_empty() {
            match rustix::io::write(input, &self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.pending.clear();
                    self.input = None;
                    return;
                }
            }
        }
        if self.input_ended {
            // A server may still answer after the last request: only this direction ends.
            if let (What::Connection(_), Some(input)) = (self.what, &self.input) {
                match rustix::net::shutdown(input, rustix::net::Shutdown::Write) {
                    // A server that is gone hears no end.
                    Ok(()) | Err(_) => {}
                }
            }
            if self.what != What::Terminal {
                self.input = None;
            }
        }
    }

    /// Passes on what there is, up to the room that the peer has. `true`: nothing is left for now.
    pub(super) fn pass(&mut self, live: &mut Live) -> bool {
        let Some(peer) = self.peer else {
            (self.output, self.errors) = (None, None);
            return true;
        };
        let mut dry = true;
        let streams = [
            (&mut self.output, StreamKind::Output),
            (&mut self.errors, StreamKind::Errors),
        ];
        for (stream, kind) in streams {
            dry &= pass_one(stream, live, peer, kind);
        }
        dry
    }

    pub(super) fn resize(&self, payload: &[u8]) {
        let Ok(TtySize {
            rows: rows @ 1..=1000,
            cols: cols @ 1..=1000,
        }) = serde_json::from_slice(payload)
        else {
            return;
        };
        let size = Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        if let (What::Terminal, Some(master)) = (self.what, &self.output) {
            match rustix::termios::tcsetwinsize(master, size) {
                // A terminal that is gone has no size.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

fn pass_one(stream: &mut Option<OwnedFd>, live: &mut Live, peer: u64, kind: StreamKind) -> bool {
    let mut part = vec![0; PART.min(live.room(peer))];
    loop {
        let Some(fd) = stream else { return true };
        let room = part.len().min(live.room(peer));
        if room == 0 {
            return false;
        }
        match rustix::io::read(fd, &mut part[..room]) {
            Ok(count) if count > 0 => {
                // It fits: the room was asked for.
                live.send(peer, kind, &part[..count]);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            // The end; a terminal whose other side is closed says so by an error.
            Ok(_) | Err(_) => *stream = None,
        }
    }
}

impl Channel {
    /// Our ends of three pipes, where it has them; gives the command's back.
    pub(super) fn open(&mut self, mut theirs: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Errno> {
        if self.what != What::Pipes {
            return Ok(theirs);
        }
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((stdin, input), (output, stdout), (errors, stderr)) = (pipe()?, pipe()?, pipe()?);
        for own in [&input, &output, &errors] {
            rustix::io::ioctl_fionbio(own, true)?;
        }
        theirs.extend([stdin, stdout, stderr]);
        (self.input, self.output, self.errors) = (Some(input), Some(output), Some(errors));
        Ok(theirs)
    }

    /// Takes the one descriptor that is both its input and its output.
    pub(super) fn attach(&mut self, both: OwnedFd) -> Result<(), Fault> {
        let cannot =
            |error: Errno| Fault::new(Code::FenceLost, "cannot use what init sent", error.to_string());
        rustix::io::ioctl_fionbio(&both, true).map_err(cannot)?;
        self.input = Some(rustix::io::fcntl_dupfd_cloexec(&both, 3).map_err(cannot)?);
        self.output = Some(both);
        Ok(())
    }
}
