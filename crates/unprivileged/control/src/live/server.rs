//! The run's end of its socket. Never waits for a peer: what is not whole yet is looked at again later.
use super::words::{Command, MOST_LINE};
use bastle_contract::{Code, Fault, RunId};
use rustix::io::Errno;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Peers at once; a person has one.
const MOST_PEERS: usize = 8;
/// How long a peer may take for its line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The listening socket and its peers. Removed when dropped.
pub(crate) struct Live {
    path: PathBuf,
    listener: UnixListener,
    peers: Vec<Peer>,
    next: u64,
}

struct Peer {
    number: u64,
    stream: UnixStream,
    heard: Vec<u8>,
    until: Instant,
    /// Its command is being carried out; the answer comes later.
    waits: bool,
}

impl Live {
    /// Makes the socket of a run, and removes what dead runs left.
    pub(crate) fn open(state: &Path, run: &RunId) -> Result<Self, Fault> {
        let directory = super::directory(state);
        let path = directory.join(super::name(run));
        let fault = |error: std::io::Error| {
            Fault::new(
                Code::StateDir,
                format!("cannot make {}", path.display()),
                error.to_string(),
            )
            .help("set XDG_RUNTIME_DIR to a directory of your own")
        };
        let mut listener = bind(&directory, run);
        // A run that ended in this moment took the empty directory with it.
        if listener
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            listener = bind(&directory, run);
        }
        let listener = listener.map_err(fault)?;
        Ok(Self {
            path,
            listener,
            peers: Vec::new(),
            next: 0,
        })
    }

    /// For waiting: the listener, then every peer whose line is not whole.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = rustix::fd::BorrowedFd<'_>> {
        let talking = self.peers.iter().filter(|peer| !peer.waits);
        std::iter::once(self.listener.as_fd()).chain(talking.map(|peer| peer.stream.as_fd()))
    }

    /// When somebody's time is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.peers
            .iter()
            .filter(|peer| !peer.waits)
            .map(|peer| peer.until)
            .min()
    }

    /// Takes what has come; gives back whole commands, each with the number of its peer.
    pub(crate) fn hear(&mut self) -> Vec<(u64, Command)> {
        self.accept();
        let mut commands = Vec::new();
        let now = Instant::now();
        let mut kept = Vec::new();
        for mut peer in std::mem::take(&mut self.peers) {
            if peer.waits {
                kept.push(peer);
                continue;
            }
            match peer.listen() {
                Heard::Nothing if now < peer.until => kept.push(peer),
                Heard::Nothing | Heard::Gone => {}
                Heard::Line(line) => match Command::parse(&line) {
                    Ok(command) => {
                        peer.waits = true;
                        commands.push((peer.number, command));
                        kept.push(peer);
                    }
                    Err(why) => {
                        let fault = Fault::new(Code::UsageArgument, "the command is not understood", why);
                        say(&mut peer.stream, &refusal(&[fault]));
                    }
                },
            }
        }
        self.peers = kept;
        commands
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
        say(&mut peer.stream, &value);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // One that cannot be told apart from a stranger is a stranger.
            if self.peers.len() >= MOST_PEERS || !is_own(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next += 1;
            self.peers.push(Peer {
                number: self.next,
                stream,
                heard: Vec::new(),
                until: Instant::now() + PATIENCE,
                waits: false,
            });
        }
    }
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
    let at = short.join(super::name(run));
    let listener = UnixListener::bind(&at)?;
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

enum Heard {
    Nothing,
    Gone,
    Line(Vec<u8>),
}

impl Peer {
    fn listen(&mut self) -> Heard {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::Gone,
                Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Gone,
            }
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                self.heard.truncate(end);
                return Heard::Line(std::mem::take(&mut self.heard));
            }
            if self.heard.len() > MOST_LINE {
                return Heard::Gone;
            }
        }
    }
}

/// Whether the peer is the same user, or root.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root())
}

fn refusal(faults: &[Fault]) -> Value {
    serde_json::json!({ "ok": false, "faults": faults })
}

/// One line. A peer that does not read it does not want it.
fn say(stream: &mut UnixStream, value: &Value) {
    drop(stream.write_all(format!("{value}\n").as_bytes()));
}

/// Removes sockets that nobody listens to any more.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_socket = path.extension().is_some_and(|extension| extension == "sock");
        if is_socket && is_dead(&path) {
            drop(std::fs::remove_file(&path));
        }
    }
}

pub(super) fn is_dead(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => false,
        Err(error) => error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> (tempfile::TempDir, Live) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::try_from("calm-otter".to_owned()).unwrap();
        let path = dir.path().join("calm-otter.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(run.as_str(), "calm-otter");
        let live = Live {
            path,
            listener,
            peers: Vec::new(),
            next: 0,
        };
        (dir, live)
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
        let mut commands = Vec::new();
        // Until the flood was turned away: only then its writer ends.
        while !writer.is_finished() || commands.is_empty() {
            let mut waiting: Vec<_> = live
                .waiting()
                .map(|fd| rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN))
                .collect();
            let moment = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            };
            rustix::event::poll(&mut waiting, Some(&moment)).unwrap();
            commands.extend(live.hear());
        }
        writer.join().unwrap();
        let [(number, Command::Status {})] = commands.as_slice() else {
            panic!("{commands:?}");
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
    fn more_peers_than_a_person_has_are_turned_away() {
        let (_dir, mut live) = live();
        let peers: Vec<_> = (0..20)
            .map(|_| UnixStream::connect(&live.path).unwrap())
            .collect();
        assert!(live.hear().is_empty());
        assert_eq!((peers.len(), live.peers.len()), (20, MOST_PEERS));
    }
}
