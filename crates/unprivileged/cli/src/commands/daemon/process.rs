//! The daemon as a process: started in a session of its own, recognised by who listens at the socket, ended by signal.
//!
//! **Trust:** a process is taken for the daemon when it listens at this user's socket, is this user's, and runs bastle.
//! It is signalled through a descriptor, so that a number that was given to another process meanwhile hits nobody.
use super::failed;
use bastle_contract::Fault;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How much of the log is told when it does not start.
const TAIL: u64 = 2048;

/// The process that listens at a socket, where it is this user's or root's.
pub(super) fn listener(socket: &Path) -> Option<i32> {
    let stream = UnixStream::connect(socket).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    (peer.uid == rustix::process::geteuid() || peer.uid.is_root()).then(|| peer.pid.as_raw_nonzero().get())
}

/// Starts it and waits until it says that it is ready.
pub(super) fn start(
    socket: &Path,
    listen: Option<SocketAddr>,
    log: &Path,
    wait: Duration,
) -> Result<(), Fault> {
    let system = |error: std::io::Error| failed("the daemon cannot be started", error.to_string());
    for directory in [socket.parent(), log.parent()].into_iter().flatten() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(system)?;
    }
    let open = || File::options().create(true).append(true).mode(0o600).open(log);
    let (out, err) = (open().map_err(system)?, open().map_err(system)?);
    let begun = out.metadata().map_err(system)?.len();
    let mut waiting = Ready::new(socket.parent().unwrap_or(Path::new("/"))).map_err(system)?;
    let mut command = Command::new(std::env::current_exe().map_err(system)?);
    command
        .args(["daemon", "__detached", "--", "--socket"])
        .arg(socket)
        .env("NOTIFY_SOCKET", &waiting.path)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    if let Some(listen) = listen {
        command.arg("--listen").arg(listen.to_string());
    }
    let mut child = command.spawn().map_err(system)?;
    match waiting.wait(&mut child, wait) {
        Ok(true) => Ok(()),
        Ok(false) => Err(why(log, begun, &mut child, wait)),
        Err(error) => Err(system(error)),
    }
}

/// Why it is not ready: it ended, or it took too long and is ended.
fn why(log: &Path, begun: u64, child: &mut Child, wait: Duration) -> Fault {
    let ended = match child.try_wait() {
        Ok(Some(status)) => format!("it ended: {status}"),
        Ok(None) | Err(_) => {
            // One that was not ready in time would stand there half-started.
            drop(child.kill());
            drop(child.wait());
            format!("it was not ready after {} s and was ended", wait.as_secs())
        }
    };
    let said = tail(log, begun);
    let why = if said.is_empty() {
        ended
    } else {
        format!("{ended}\n{said}")
    };
    not_ready(log, &why)
}

/// It is not there.
pub(super) fn not_ready(log: &Path, why: &str) -> Fault {
    failed("the daemon did not start", why).help(format!("cat {}", log.display()))
}

/// What it wrote since it was started, the end of it.
fn tail(log: &Path, begun: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(begun.max(length.saturating_sub(TAIL))))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Where the daemon says that it is ready, as to systemd.
struct Ready {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Ready {
    fn new(directory: &Path) -> std::io::Result<Self> {
        let name = format!(".ready-{}", std::process::id());
        let bind = |directory: &Path| {
            let path = directory.join(&name);
            drop(std::fs::remove_file(&path));
            UnixDatagram::bind(&path).map(|socket| Self { socket, path })
        };
        // The address of a socket holds about a hundred bytes; a long directory leaves no room for the name.
        let ready = bind(directory).or_else(|_| bind(&std::env::temp_dir()))?;
        ready.socket.set_nonblocking(true)?;
        Ok(ready)
    }

    /// Whether it became ready; `false` when it ended before or the time is over.
    fn wait(&mut self, child: &mut Child, wait: Duration) -> std::io::Result<bool> {
        let process = pidfd(Pid::from_child(child))?;
        let until = Instant::now() + wait;
        let mut buffer = [0; 4096];
        loop {
            let ended = ready(&[self.socket.as_fd(), process.as_fd()], until)?;
            while let Ok(count) = self.socket.recv(&mut buffer) {
                if String::from_utf8_lossy(&buffer[..count])
                    .lines()
                    .any(|line| line == "READY=1")
                {
                    return Ok(true);
                }
            }
            if ended.get(1) == Some(&true) || Instant::now() >= until {
                return Ok(false);
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

fn pidfd(pid: Pid) -> std::io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits until one is readable or the time is over; which are.
fn ready(fds: &[BorrowedFd<'_>], until: Instant) -> std::io::Result<Vec<bool>> {
    let mut waiting: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut waiting, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(waiting.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// In the child: a session of its own, then the daemon itself. Comes back only when that failed.
pub(super) fn become_daemon(words: &[OsString]) -> Fault {
    if let Err(error) = rustix::process::setsid() {
        return failed("the daemon cannot have a session of its own", error.to_string());
    }
    let error = match std::env::current_exe() {
        Ok(program) => Command::new(program).arg("serve").args(words).exec(),
        Err(error) => error,
    };
    failed("the daemon cannot be executed", error.to_string())
}

/// Ends it and waits until it is gone; its number, or `None` where nobody listens.
pub(super) fn stop(socket: &Path, wait: Duration) -> Result<Option<i32>, Fault> {
    let Some(number) = listener(socket) else {
        return Ok(None);
    };
    let system = |error: std::io::Error| failed("the daemon cannot be ended", error.to_string());
    let Some(pid) = Pid::from_raw(number) else {
        return Ok(None);
    };
    let process = pidfd(pid).map_err(system)?;
    // Looked at after the descriptor is there: what it names cannot change any more.
    if !is_daemon(number) {
        return Err(failed(
            format!("process {number} listens at the daemon's socket and is not a daemon of yours"),
            "a service manager may hold the socket",
        )
        .help("systemctl --user stop bastle.service bastle.socket"));
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| system(error.into()))?;
    let until = Instant::now() + wait;
    loop {
        if ready(&[process.as_fd()], until).map_err(system)? == [true] {
            return Ok(Some(number));
        }
        if Instant::now() >= until {
            return Err(failed(
                format!("the daemon, process {number}, has not ended"),
                format!("it was asked to, {} s ago", wait.as_secs()),
            )
            .help(format!("kill -9 {number}; runs live on")));
        }
    }
}

/// Whether a process is this user's and runs `bastle serve`.
fn is_daemon(pid: i32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let uid = rustix::process::geteuid().as_raw();
    let own = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == uid);
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    own && name.starts_with(b"bastle") && words.any(|word| word == b"serve")
}
