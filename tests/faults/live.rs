//! A bastle that is running: watched, signalled, killed. It never outlives its value.
use crate::host::{children, eventually};
use crate::support::{Fence, Limit};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The running bastle.
pub(crate) struct Live {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
    told: Receiver<String>,
    heard: Vec<String>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; 128+n for a signal.
    pub(crate) code: i32,
    /// Lines of standard output that were not waited for.
    pub(crate) stdout: Vec<String>,
    /// Lines of standard error.
    pub(crate) stderr: Vec<String>,
}

impl Live {
    /// Starts a script behind the fence.
    pub(crate) fn sh(fence: &Fence<'_>, script: &str) -> Self {
        Self::start(&mut fence.command(["sh", "-c", script]))
    }

    /// Starts a command line.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bastle can be started");
        let said = lines(child.stdout.take().expect("is piped"));
        let told = lines(child.stderr.take().expect("is piped"));
        Self {
            input: child.stdin.take(),
            child,
            said,
            told,
            heard: Vec::new(),
        }
    }

    /// Waits for a line of standard output.
    pub(crate) fn expect(&mut self, wanted: &str) {
        loop {
            match self.said.recv_timeout(Limit::HANG.0) {
                Ok(line) if line == wanted => return,
                Ok(line) => self.heard.push(line),
                Err(error) => panic!(
                    "no {wanted:?} ({error}): {:?} {:?}",
                    self.heard,
                    drain(&self.told)
                ),
            }
        }
    }

    /// The next line of standard output, if one comes within `time`.
    pub(crate) fn next(&mut self, time: Duration) -> Option<String> {
        self.said.recv_timeout(time).ok()
    }

    /// Writes to standard input.
    pub(crate) fn say(&mut self, text: &str) {
        let input = self.input.as_mut().expect("is still open");
        input.write_all(text.as_bytes()).expect("is read");
        input.flush().expect("is read");
    }

    /// Closes standard input.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its spawner's process id.
    pub(crate) fn spawner(&self) -> u32 {
        let mut found = Vec::new();
        assert!(eventually(|| {
            found = children(self.pid());
            !found.is_empty()
        }));
        found[0]
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        self.input = None;
        let mut status = None;
        assert!(
            eventually(|| {
                status = self.child.try_wait().expect("own child");
                status.is_some()
            }),
            "bastle still runs: {:?}",
            drain(&self.told)
        );
        let status = status.expect("was just there");
        let code = status
            .code()
            .or_else(|| status.signal().map(|signal| 128 + signal));
        let mut stdout = std::mem::take(&mut self.heard);
        stdout.extend(rest(&self.said));
        Ended {
            code: code.expect("ended by exit or signal"),
            stdout,
            stderr: rest(&self.told),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            send(self.pid(), Signal::KILL);
            drop(self.child.wait());
        }
    }
}

impl Ended {
    /// Everything on standard error.
    pub(crate) fn errors(&self) -> String {
        self.stderr.join("\n")
    }
}

/// Sends a signal; whoever is gone already needs none.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("is a pid")).expect("is not zero");
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("cannot signal: {error}"),
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn drain(lines: &Receiver<String>) -> Vec<String> {
    lines.try_iter().collect()
}

/// Until the stream closes: it does when the last process that holds it is gone.
fn rest(lines: &Receiver<String>) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match lines.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => all.push(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => return all,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("something outlived bastle and holds its output open: {all:?}")
            }
        }
    }
}
