//! The run's end of its socket. Never waits for a peer: what is not whole yet is looked at again later.
use super::peer::{Heard, Held, Listened, Peer};
use bastle_contract::stream::StreamKind;
use bastle_contract::{Code, Fault, RunId};
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use serde_json::Value;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Peers at once: those who watch, those who are attached, and every further command has one.
const MOST_PEERS: usize = 96;

/// How often the directory is made anew.
const MOST_TRIES: u32 = 64;
/// Living runs that are woken by the look for dead ones' sockets: enough that those are found sooner or later.
const MOST_WOKEN: usize = 4;

/// The listening socket and its peers. Removed when dropped.
pub(crate) struct Live {
    path: PathBuf,
    listener: UnixListener,
    peers: Vec<Peer>,
    next: u64,
    /// What came together with something else.
    early: Vec<(u64, Heard)>,
}

impl Live {
    /// Makes the socket of a run, and removes what dead runs left.
    pub(crate) fn open(directory: &Path, run: &RunId) -> Result<Self, Fault> {
        if super::RESERVED.contains(&run.as_str()) {
            let why = "the daemon's and the spawner's own sockets are called so";
            return Err(
                Fault::new(Code::UsageArgument, format!("a run cannot be called {run}"), why)
                    .help("--name OTHER"),
            );
        }
        let path = directory.join(super::name(run));
        let fault = |error: std::io::Error| {
            Fault::new(
                Code::StateDir,
                format!("cannot make {}", path.display()),
                error.to_string(),
            )
            .help("set XDG_RUNTIME_DIR to a directory of your own")
        };
        let mut listener = bind(directory, run);
        // A run that ended in this moment took the empty directory with it; among many that may happen more than once.
        for _ in 0..MOST_TRIES {
            match &listener {
                Err(error) if error.kind() == ErrorKind::NotFound => listener = bind(directory, run),
                Ok(_) | Err(_) => break,
            }
        }
        let listener = listener.map_err(fault)?;
        Ok(Self {
            path,
            listener,
            peers: Vec::new(),
            next: 0,
            early: Vec::new(),
        })
    }

    /// For waiting: the listener, every peer whose line is not whole, and every stream.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        std::iter::once((self.listener.as_fd(), PollFlags::IN))
            .chain(self.peers.iter().filter_map(Peer::waits_for))
    }

    /// When somebody's time is over; now, where something was heard already.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.early.is_empty() {
            return Some(Instant::now());
        }
        self.peers.iter().filter_map(Peer::deadline).min()
    }

    /// Whether there is something to hear although nothing comes.
    pub(crate) fn is_due(&self) -> bool {
        self.deadline().is_some_and(|until| Instant::now() >= until)
    }

    /// Takes what has come: whole commands and frames, each with the number of its peer. What waits for a peer that
    /// reads again is sent.
    pub(crate) fn hear(&mut self) -> Vec<(u64, Heard)> {
        let mut told = std::mem::take(&mut self.early);
        loop {
            let came = self.accept();
            let before = self.peers.len();
            self.listen(&mut told);
            match came {
                Came::All => return told,
                // Those who only looked whether the run lives are gone by now: their places are free.
                Came::Full if self.peers.len() < before => {}
                Came::Full => {
                    self.turn_away();
                    return told;
                }
            }
        }
    }

    fn listen(&mut self, told: &mut Vec<(u64, Heard)>) {
        self.peers.retain_mut(|peer| {
            let streaming = peer.is_streaming();
            match peer.listen(told) {
                Listened::Stays => !peer.is_done(),
                Listened::Refused(why) => {
                    let fault = Fault::new(Code::UsageArgument, "the command is not understood", why);
                    peer.say(&refusal(&[fault]));
                    false
                }
                Listened::Gone => {
                    if streaming {
                        told.push((peer.number, Heard::Gone));
                    }
                    false
                }
            }
        });
    }

    /// Answers a peer and lets it go.
    pub(crate) fn answer(&mut self, number: u64, answer: &Result<Value, Vec<Fault>>) {
        let Some(at) = self.peers.iter().position(|peer| peer.number == number) else {
            return;
        };
        let mut peer = self.peers.swap_remove(at);
        let value = match answer {
            Ok(value) => serde_json::json!({ "ok": true, "result": value }),
            Err(faults) => refusal(faults),
        };
        peer.say(&value);
    }

    /// Answers a peer whose command was a streaming one: it stays, and both sides speak frames. What it sends comes
    /// from [`Self::hear`]; the last frame to it is `Ended`, after which it is let go. `false`: it is gone.
    pub(crate) fn begin(&mut self, number: u64, result: &Value) -> bool {
        let answer = serde_json::json!({ "ok": true, "result": result });
        let mut early = std::mem::take(&mut self.early);
        let begun = self
            .peer(number)
            .is_some_and(|peer| peer.begin(&answer, &mut early));
        self.early = early;
        if !begun {
            self.peers.retain(|peer| peer.number != number);
        }
        begun
    }

    /// Queues a frame to a peer with a stream; `false` where it is gone or has not read enough: nothing of the frame
    /// is sent then. Ask [`Self::room`] before reading what is to be sent.
    pub(crate) fn send(&mut self, number: u64, kind: StreamKind, payload: &[u8]) -> bool {
        let Some(peer) = self.peer(number) else {
            return false;
        };
        let queued = peer.queue(kind, payload);
        if peer.is_done() {
            self.peers.retain(|peer| peer.number != number);
        }
        queued
    }

    /// Bytes of payload that can be queued to a peer now.
    pub(crate) fn room(&self, number: u64) -> usize {
        let peer = self.peers.iter().find(|peer| peer.number == number);
        peer.map_or(0, Peer::room)
    }

    /// Takes nothing more from a peer with a stream, or again: for whoever cannot use what it sends yet.
    pub(crate) fn hold(&mut self, number: u64, held: Held) {
        if let Some(peer) = self.peer(number) {
            peer.hold(held);
        }
    }

    /// Takes a peer with a stream out: whoever has it feeds it from now on.
    pub(crate) fn release(&mut self, number: u64) -> Option<Peer> {
        let at = self.peers.iter().position(|peer| peer.number == number)?;
        Some(self.peers.swap_remove(at))
    }

    /// A peer by its number.
    pub(crate) fn peer(&mut self, number: u64) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.number == number)
    }

    fn accept(&mut self) -> Came {
        loop {
            if self.peers.len() >= MOST_PEERS {
                return Came::Full;
            }
            let Ok((stream, _)) = self.listener.accept() else {
                return Came::All;
            };
            // One that cannot be told apart from a stranger is a stranger.
            if !is_own(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next += 1;
            self.peers.push(Peer::new(self.next, stream));
        }
    }

    /// Tells those for whom there is no place. One that is only let go would take it for the run's end.
    fn turn_away(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if !is_own(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let why = format!("{MOST_PEERS} connections to this run are open");
            let fault = Fault::new(Code::ExecBusy, "the run takes no further connection now", why)
                .help("end a command or a view of it, and try again");
            Peer::new(0, stream).say(&refusal(&[fault]));
        }
    }
}

/// Whether everybody who waits was let in.
enum Came {
    All,
    Full,
}

impl Drop for Live {
    fn drop(&mut self) {
        // One that stays is swept by the next run; a directory with other runs in it stays.
        drop(std::fs::remove_file(&self.path));
        drop(self.path.parent().map(std::fs::remove_dir));
    }
}

fn bind(directory: &Path, run: &RunId) -> std::io::Result<UnixListener> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    let (_open, short) = super::open(directory)?;
    sweep(&short, &short.join(super::name(run)));
    // It gets its name when it listens: whoever sweeps would take it for a dead one's before.
    let beside = short.join(format!(".{run}-{}", std::process::id()));
    // Left by a process that had our number; usually there is none.
    drop(std::fs::remove_file(&beside));
    let listener = UnixListener::bind(&beside)?;
    let named = std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))
        // A link instead of a rename: it fails when the name is taken.
        .and_then(|()| std::fs::hard_link(&beside, short.join(super::name(run))));
    drop(std::fs::remove_file(&beside));
    named.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ErrorKind::AddrInUse.into(),
        _ => error,
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the peer is the same user, or root.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root())
}

fn refusal(faults: &[Fault]) -> Value {
    serde_json::json!({ "ok": false, "faults": faults })
}

/// Removes sockets that nobody listens to any more: the one that is in the way, and others that are met while looking at a few
/// anywhere in the directory. Whoever lives is woken by the look, so a start must not look at everybody.
fn sweep(directory: &Path, own: &Path) {
    if is_dead(own) {
        drop(std::fs::remove_file(own));
    }
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let (mut sockets, others): (Vec<_>, Vec<_>) = entries
        .flatten()
        .map(|entry| entry.path())
        .partition(|path| path.extension().is_some_and(|extension| extension == "sock"));
    for path in others.iter().filter(|path| is_unfinished(path)) {
        drop(std::fs::remove_file(path));
    }
    // Without a random number the same ones are looked at again, which is only less thorough.
    let start = getrandom::u32().unwrap_or(0) as usize;
    let middle = start.checked_rem(sockets.len()).unwrap_or(0);
    sockets.rotate_left(middle);
    let mut living = 0;
    for path in sockets {
        if is_dead(&path) {
            drop(std::fs::remove_file(&path));
            continue;
        }
        living += 1;
        if living == MOST_WOKEN {
            return;
        }
    }
}

/// Whether somebody who was killed meanwhile was about to give this socket its name.
fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let maker = name.and_then(|name| name.strip_prefix('.')?.rsplit('-').next());
    let maker = maker.filter(|pid| pid.parse::<u32>().is_ok());
    maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

pub(super) fn is_dead(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => false,
        Err(error) => error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error()),
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
