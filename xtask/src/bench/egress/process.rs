//! Processes of a measurement: ended by number when dropped, waited for until they listen, weighed.
use crate::sh::{self, Failed};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A Python program on a busy machine takes seconds to listen.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process that is killed when this is dropped.
pub(super) struct Running {
    child: Child,
    what: String,
}

impl Running {
    /// Starts it without streams.
    pub(super) fn start(command: &mut Command) -> Result<Self, Failed> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self::spawn(command)
    }

    /// Starts it and waits for its first line of output, which must begin with `word`.
    pub(super) fn start_and_hear(command: &mut Command, word: &str) -> Result<Self, Failed> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut running = Self::spawn(command)?;
        let mut line = String::new();
        if let Some(out) = running.child.stdout.take() {
            BufReader::new(out)
                .read_line(&mut line)
                .map_err(Failed::io(&running.what))?;
        }
        if line.starts_with(word) {
            Ok(running)
        } else {
            Err(Failed::new(
                running.what.clone(),
                format!("it said {line:?} and not {word:?}"),
            ))
        }
    }

    fn spawn(command: &mut Command) -> Result<Self, Failed> {
        let what = sh::shown(command);
        let child = command.spawn().map_err(Failed::io(&what))?;
        Ok(Self { child, what })
    }

    /// Waits until something listens on the port.
    pub(super) fn listening(mut self, port: u16) -> Result<Self, Failed> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait().map_err(Failed::io(&self.what))? {
                return Err(Failed::new(
                    self.what.clone(),
                    format!("it ended at once: {status}"),
                ));
            }
            if TcpStream::connect_timeout(&address, LOOK_AGAIN).is_ok() {
                return Ok(self);
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        Err(Failed::new(
            self.what.clone(),
            format!("nothing listens on port {port}"),
        ))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("xtask: {} stays behind: {error}", self.what);
        }
    }
}

/// The process and its descendants: some proxies do their work in children.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        next += 1;
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        all.extend(
            children
                .unwrap_or_default()
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    all
}

/// Seconds that all threads of the process and its children spent on a processor; `None` when it is gone.
pub(super) fn cpu_seconds(pid: u32) -> Option<f64> {
    let mut nanoseconds = 0_u64;
    for pid in family(pid) {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            // A thread may end between the two looks; its time is then lost to this sample.
            let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else {
                continue;
            };
            nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(nanoseconds as f64 / 1e9)
}

/// Resident memory of the process and its children in KiB.
pub(super) fn resident_kib(pid: u32) -> Option<f64> {
    family(pid)
        .into_iter()
        .map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        })
        .sum()
}

/// A port that nobody listens on now.
pub(super) fn free_port() -> Result<u16, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Failed::io("loopback"))?;
    Ok(listener.local_addr().map_err(Failed::io("loopback"))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_weighed_and_gone_when_dropped() {
        let running =
            Running::start_and_hear(Command::new("sh").args(["-c", "echo ready; read line"]), "ready")
                .expect("starts");
        let pid = running.pid();
        assert!(resident_kib(pid).is_some_and(|kib| kib > 0.0));
        assert!(cpu_seconds(pid).is_some());
        drop(running);
        assert_eq!(resident_kib(pid), None);
    }

    #[test]
    fn a_process_that_says_something_else_is_refused() {
        assert!(Running::start_and_hear(Command::new("echo").arg("no"), "ready").is_err());
        let ended = Running::start(&mut Command::new("true")).and_then(|running| running.listening(9));
        assert!(ended.is_err());
    }
}
