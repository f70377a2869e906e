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
    sweep(&short);
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

/// Removes sockets that nobody listens to any more.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_socket = path.extension().is_some_and(|extension| extension == "sock");
        if (is_socket && is_dead(&path)) || is_unfinished(&path) {
            drop(std::fs::remove_file(&path));
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
mod tests {
    use super::super::words::Command;
    use super::*;
    use bastle_contract::stream::{StreamReader, frames};
    use std::io::{Read, Write};

    fn live() -> (tempfile::TempDir, Live) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calm-otter.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let live = Live {
            path,
            listener,
            peers: Vec::new(),
            next: 0,
            early: Vec::new(),
        };
        (dir, live)
    }

    #[test]
    fn no_socket_is_taken_for_a_dead_ones_while_others_are_made_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let work = |number: u32| {
            let mut held = std::collections::VecDeque::new();
            let looks_lost = |live: &Live| UnixStream::connect(&live.path).is_err();
            for turn in 0..300 {
                let run = RunId::try_from(format!("run-{number}-{turn}")).unwrap();
                held.push_back(Live::open(dir.path(), &run).unwrap());
                // Whoever sweeps may have looked long before it acts.
                if held.len() > 8 {
                    let oldest = held.pop_front().unwrap();
                    assert!(!looks_lost(&oldest), "{}", oldest.path.display());
                }
            }
            assert!(!held.iter().any(looks_lost));
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || work(number));
            }
        });
        let left: Vec<_> = std::fs::read_dir(dir.path()).into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        // What somebody left who was killed before it had a name goes; what another is about to name stays.
        let (dead, alive) = (dir.path().join(".a-4294967295"), dir.path().join(".b-1"));
        std::fs::create_dir_all(dir.path()).unwrap();
        drop((
            UnixListener::bind(&dead).unwrap(),
            UnixListener::bind(&alive).unwrap(),
        ));
        let one = Live::open(dir.path(), &RunId::try_from("one".to_owned()).unwrap()).unwrap();
        assert!(!dead.exists() && alive.exists());
        let again = Live::open(dir.path(), &RunId::try_from("one".to_owned()).unwrap());
        assert!(
            again.is_err() && UnixStream::connect(&one.path).is_ok(),
            "a name is given once"
        );
    }

    /// Waits until something can be done, and hears.
    fn turn(live: &mut Live) -> Vec<(u64, Heard)> {
        let mut waiting: Vec<_> = live
            .waiting()
            .map(|(fd, flags)| rustix::event::PollFd::from_borrowed_fd(fd, flags))
            .collect();
        let moment = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        rustix::event::poll(&mut waiting, Some(&moment)).unwrap();
        drop(waiting);
        live.hear()
    }

    fn commands(told: Vec<(u64, Heard)>) -> Vec<(u64, Command)> {
        let command = |(number, heard)| match heard {
            Heard::Command(command) => Some((number, command)),
            Heard::Frame(_) | Heard::Gone => None,
        };
        told.into_iter().filter_map(command).collect()
    }

    #[test]
    fn a_peer_that_sends_half_a_line_nonsense_or_too_much_gives_no_command_and_holds_nobody_up() {
        let (_dir, mut live) = live();
        let connect = || UnixStream::connect(&live.path).unwrap();
        let (mut half, mut nonsense, mut flood, mut good) = (connect(), connect(), connect(), connect());
        half.write_all(b"{\"op\":").unwrap();
        nonsense.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        good.write_all(b"{\"op\":\"status\"}\n").unwrap();
        let writer = std::thread::spawn(move || drop(flood.write_all(&[b'x'; 200_000])));
        let mut heard = Vec::new();
        // Until the flood was turned away: only then its writer ends.
        while !writer.is_finished() || heard.is_empty() {
            heard.extend(commands(turn(&mut live)));
        }
        writer.join().unwrap();
        let [(number, Command::Status {})] = heard.as_slice() else {
            panic!("{heard:?}");
        };
        live.answer(*number, &Ok(Value::from(1)));
        let mut text = String::new();
        good.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"ok\":true,\"result\":1}\n");
        let mut text = String::new();
        nonsense.read_to_string(&mut text).unwrap();
        assert!(text.contains("\"ok\":false"), "{text}");
        assert_eq!(live.peers.len(), 1, "only the half line is still waited for");
    }

    #[test]
    fn more_peers_than_are_served_at_once_are_turned_away_and_told_so() {
        let (_dir, mut live) = live();
        let mut peers: Vec<_> = (0..MOST_PEERS + 12)
            .map(|_| UnixStream::connect(&live.path).unwrap())
            .collect();
        assert!(live.hear().is_empty());
        assert_eq!(live.peers.len(), MOST_PEERS);
        let mut text = String::new();
        peers[MOST_PEERS].read_to_string(&mut text).unwrap();
        assert!(text.contains("BST-EXEC-005"), "{text}");
    }

    #[test]
    fn those_who_only_look_whether_the_run_lives_take_nobodys_place() {
        let (_dir, mut live) = live();
        for _ in 0..3 * MOST_PEERS {
            drop(UnixStream::connect(&live.path).unwrap());
        }
        let mut peer = UnixStream::connect(&live.path).unwrap();
        peer.write_all(b"{\"op\":\"status\"}\n").unwrap();
        let heard = commands(live.hear());
        assert_eq!((heard.len(), live.peers.len()), (1, 1), "{heard:?}");
    }

    /// A peer whose command became a stream.
    fn streaming(live: &mut Live, line: &[u8]) -> (u64, UnixStream) {
        let mut peer = UnixStream::connect(&live.path).unwrap();
        peer.write_all(line).unwrap();
        let mut heard = Vec::new();
        while heard.is_empty() {
            heard.extend(commands(turn(live)));
        }
        let (number, _) = heard.remove(0);
        assert!(live.begin(number, &Value::Null));
        (number, peer)
    }

    #[test]
    fn a_peer_that_does_not_read_is_held_to_a_bound_and_gets_every_byte_when_it_reads_again() {
        let (_dir, mut live) = live();
        let (number, mut peer) = streaming(&mut live, b"{\"op\":\"watch\",\"since\":0}\n");
        let mut sent = 0_usize;
        while live.send(number, StreamKind::Output, &[7; 4096]) {
            sent += 4096;
            assert!(sent < 64 << 20, "nothing bounds what is queued");
        }
        assert!(live.room(number) < 4096);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).map(|_| bytes)
        });
        while !live.send(number, StreamKind::Ended, b"{}") {
            turn(&mut live);
        }
        while !live.peers.is_empty() {
            turn(&mut live);
        }
        let bytes = reader.join().unwrap().unwrap();
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut frames = StreamReader::default();
        frames.push(&bytes[line..]);
        let (mut got, mut ended) = (0, false);
        while let Some(frame) = frames.next_frame().unwrap() {
            got += if frame.kind == StreamKind::Output {
                frame.payload.len()
            } else {
                0
            };
            ended = frame.kind == StreamKind::Ended;
        }
        assert_eq!((got, ended), (sent, true));
    }

    #[test]
    fn frames_sent_with_the_command_are_not_lost_and_bytes_that_are_none_end_the_peer() {
        let (_dir, mut live) = live();
        let mut line = b"{\"op\":\"watch\",\"since\":0}\n".to_vec();
        line.extend(frames(StreamKind::Input, b"first"));
        let (number, mut peer) = streaming(&mut live, &line);
        let mut heard = Vec::new();
        while heard.is_empty() {
            heard.extend(turn(&mut live));
        }
        let [(from, Heard::Frame(frame))] = heard.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!((*from, frame.payload.as_slice()), (number, &b"first"[..]));
        // Held back, it is not read; again listened to, it is.
        live.hold(number, Held::Back);
        peer.write_all(&frames(StreamKind::Input, b"second")).unwrap();
        assert!(turn(&mut live).is_empty());
        live.hold(number, Held::No);
        assert_eq!(turn(&mut live).len(), 1);
        peer.write_all(&[99, 0, 0, 0, 0]).unwrap();
        let told = turn(&mut live);
        assert!(matches!(told.as_slice(), [(_, Heard::Gone)]), "{told:?}");
        assert!(live.peers.is_empty());
    }
}
